//! What agents do to a conversation, on every pair of wires.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{ClientConversation, ClientResponse, events};
use crate::common::{Model, RunningGateway, options, post_to};

/// A client and a model, and how the client wants its responses.
struct Pair<'a> {
    client: Wire,
    upstream: Wire,
    stream: bool,
    url: &'a str,
    model: &'a Model,
}

impl Pair<'_> {
    fn conversation(&self, tools: &[(&str, &[&str])]) -> ClientConversation {
        let mut conversation = ClientConversation::new(self.client, tools);
        conversation.extra = json!({"stream": self.stream});
        conversation
    }

    /// Sends the conversation, and returns the body of the response too.
    async fn send_raw(&self, conversation: &mut ClientConversation) -> (ClientResponse, String) {
        let (path, body) = conversation.request();
        let answered = post_to(&format!("{}{path}", self.url), &body).await;
        assert_eq!(answered.status, 200, "{self}: {}\n{body:#}", answered.text);
        (conversation.read_response(&answered.text), answered.text)
    }

    async fn send(&self, conversation: &mut ClientConversation) -> ClientResponse {
        self.send_raw(conversation).await.0
    }

    /// The history that the model read last, as text.
    fn shown(&self) -> String {
        let asked = self.model.asked().pop().unwrap();
        asked[if self.upstream == Wire::Responses { "input" } else { "messages" }].to_string()
    }
}

impl std::fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}, stream {}", self.client, self.upstream, self.stream)
    }
}

async fn on_every_pair(script: &str, story: impl AsyncFn(&Pair<'_>)) {
    on_every_pair_with(script, "off", story).await;
}

async fn on_every_pair_with(script: &str, store_kind: &str, story: impl AsyncFn(&Pair<'_>)) {
    for upstream in Wire::ALL {
        let model = Model::start(script).await;
        let mut options = options(&model);
        options.store.kind = Some(store_kind.to_owned());
        options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
        let gateway = RunningGateway::start(options).await;
        for client in Wire::ALL {
            for stream in [false, true] {
                story(&Pair { client, upstream, stream, url: &gateway.url, model: &model }).await;
                model.asked();
            }
        }
    }
}

const SEARCH: [(&str, &[&str]); 1] = [("web_search", &["query"])];

/// Agents compact by it.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_the_size_of_the_context() {
    let script = r#"
[[turn]]
when = { after = "user" }
program = "return 1;"
usage = { prompt_tokens = 1000, completion_tokens = 10 }

[[turn]]
when = { after = "tool", step = 1 }
program = "const a = await web_search({ query: 'a' }); return await web_search({ query: a });"
usage = { prompt_tokens = 1200, completion_tokens = 20 }

[[turn]]
text = "Done."
usage = { prompt_tokens = 1500, completion_tokens = 5 }
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        conversation.user("Look it up.");
        // Two model calls, none, one: what the last of them read, what all wrote, and the sums.
        for (calls, input, output, sums) in [(2, 1200, 30, (2200, 30)), (0, 1200, 0, (0, 0)), (1, 1500, 5, (1500, 5))] {
            let (response, text) = pair.send_raw(&mut conversation).await;
            let usage = &response.usage;
            let figure = |name: &str| usage[name].as_u64().unwrap_or_default();
            let (read, written) = match pair.client {
                Wire::Chat => (figure("prompt_tokens"), figure("completion_tokens")),
                Wire::Responses => (figure("input_tokens"), figure("output_tokens")),
                Wire::Messages => {
                    let cached = figure("cache_read_input_tokens") + figure("cache_creation_input_tokens");
                    (figure("input_tokens") + cached, figure("output_tokens"))
                }
            };
            assert_eq!((read, written), (input, output), "{pair}: {usage}");
            if pair.client != Wire::Messages {
                assert_eq!(figure("total_tokens"), input + output, "{pair}: {usage}");
            }
            let ours = &usage["dacapo"];
            let ours = ["model_calls", "input_tokens", "output_tokens"].map(|name| ours[name].as_u64().unwrap());
            assert_eq!(ours, [calls, sums.0, sums.1], "{pair}: {usage}");
            if pair.client == Wire::Messages && pair.stream {
                let started = events(&text)[0]["message"]["usage"].clone();
                assert!(started["input_tokens"].as_u64().unwrap() > 0, "{pair}: {started}");
            }
            for call in &response.calls {
                conversation.answer(call, "found", false);
            }
        }
    })
    .await;
}

/// An agent hands over to another one, which has other tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_with_its_data_when_the_tools_change() {
    let script = r#"
[[turn]]
when = { user = "report", after = "user" }
program = """
const weather = await get_weather({ city: "Oslo" });
await transfer_to_reporter({ reason: weather });
let more;
try { more = await get_weather({ city: "Rome" }); } catch (error) { more = error.message; }
return { weather, more };"""

[[turn]]
when = { user = "report", after = "tool" }
text = "{{result/data/weather}}; {{result/data/more}}"

[[turn]]
text = "Welcome."
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&[("get_weather", &["city"]), ("transfer_to_reporter", &["reason"])]);
        conversation.user("Please report.");
        for said in ["sunny", "transferred"] {
            let response = pair.send(&mut conversation).await;
            conversation.answer(&response.calls[0], said, false);
        }
        conversation.tools = pair.conversation(&[("write_report", &["text"])]).tools;
        let response = pair.send(&mut conversation).await;
        let refused = "get_weather cannot be called any more: the client has taken this tool away since";
        assert_eq!(response.text, format!("sunny; {refused}"), "{pair}");
        pair.model.asked();
        conversation.user("Thanks.");
        pair.send(&mut conversation).await;
        let shown = pair.shown();
        assert!(shown.contains("sunny") && !shown.contains("diverged"), "{pair}: {shown}");
    })
    .await;
}

/// Agents compact with a request that has no tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_not_unfolded_by_a_request_without_tools_nor_called_lost_without_code_mode() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user", tool = "execute" }
program = "const all = await Promise.all(['a', 'b'].map((query) => web_search({ query }))); return all.length;"

[[turn]]
text = "Two."
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        conversation.user("Please look.");
        let response = pair.send(&mut conversation).await;
        for call in &response.calls {
            conversation.answer(call, "a very long page", false);
        }
        pair.send(&mut conversation).await;
        let folded = pair.shown();
        conversation.user("Summarise.");
        let history = conversation.history.clone();

        conversation.tools.clear();
        let response = pair.send(&mut conversation).await;
        assert_eq!(response.text, "Two.", "{pair}");
        let asked = pair.model.asked().pop().unwrap();
        let shown = asked[if pair.upstream == Wire::Responses { "input" } else { "messages" }].to_string();
        assert!(shown.starts_with(folded.trim_end_matches(']')), "{pair}: {shown}\n{folded}");
        // Providers on Messages refuse a history with calls and without tools.
        let is_declared = asked.get("tools").is_some();
        assert_eq!(is_declared, pair.upstream == Wire::Messages, "{pair}: {asked}");

        conversation.tools = pair.conversation(&SEARCH).tools;
        let named = match pair.client {
            Wire::Chat => json!({"type": "function", "function": {"name": "web_search"}}),
            Wire::Responses => json!({"type": "function", "name": "web_search"}),
            Wire::Messages => json!({"type": "tool", "name": "web_search"}),
        };
        for extra in [json!({"tool_choice": named}), json!({"code_mode": false})] {
            conversation.history.clone_from(&history);
            conversation.extra = extra;
            pair.send(&mut conversation).await;
            let shown = pair.shown();
            assert!(shown.contains("a very long page") && !shown.contains("was lost"), "{pair}: {shown}");
        }
    })
    .await;
}

/// Agents' own prompts say "use the Read tool".
#[tokio::test(flavor = "multi_thread")]
async fn functions_that_the_model_calls_by_their_names_are_called() {
    let script = r#"
[[turn]]
when = { user = "one", after = "user" }
calls = [{ name = "web_search", arguments = { query = "it's" } }]

[[turn]]
when = { user = "two", after = "user" }
calls = [{ name = "web_search", arguments = { query = "a" } }, { name = "web_search", arguments = { query = "b" } }]

[[turn]]
text = "{{result/data}}"
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        for (user, queries, answer) in
            [("one", &["it's"][..], "found it's"), ("two", &["a", "b"][..], r#"["found a","found b"]"#)]
        {
            conversation.user(user);
            let response = pair.send(&mut conversation).await;
            let asked: Vec<_> = response.calls.iter().map(|call| call.args["query"].as_str().unwrap()).collect();
            assert_eq!(asked, queries, "{pair}: {}", response.text);
            for call in &response.calls {
                conversation.answer(call, &format!("found {}", call.args["query"].as_str().unwrap()), false);
            }
            assert_eq!(pair.send(&mut conversation).await.text, answer, "{pair}");
        }
        assert_eq!(pair.model.asked().len(), 4, "{pair}: no model call is lost");
    })
    .await;
}

/// Claude Code appends reminders to the results of its tools.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_with_a_reminder_is_data_for_the_program_and_the_model_reads_the_reminder_once() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "const all = await Promise.all(['a', 'b'].map((query) => web_search({ query }))); return all[0].n + all[1].n;"

[[turn]]
text = "{{result/data}}"
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        conversation.user("Please look.");
        let response = pair.send(&mut conversation).await;
        for call in &response.calls {
            let text = "{\"n\": 21}\n\n<system-reminder>Mind the gap.</system-reminder>";
            conversation.answer(call, text, false);
        }
        assert_eq!(pair.send(&mut conversation).await.text, "42", "{pair}");
        let shown = pair.shown();
        assert_eq!(shown.matches("Mind the gap.").count(), 1, "{pair}: {shown}");
    })
    .await;
}

/// Clients that edit their context replace old tool results by a placeholder.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_a_client_blanks_are_not_asked_for_again() {
    let script = r#"
[[turn]]
when = { user = "pay", after = "user" }
program = "const a = await pay({ query: 'a' }); const b = await pay({ query: a }); return `${a} and ${b}`;"

[[turn]]
when = { user = "pay", after = "tool", step = 1 }
text = "{{result}}"

[[turn]]
text = "Welcome."
"#;
    for (store, answer) in [("memory", "paid a and paid b"), ("off", "its answer is no longer in the conversation")] {
        on_every_pair_with(script, store, async |pair| {
            let mut conversation = pair.conversation(&[("pay", &["query"])]);
            conversation.user("Please pay.");
            let first = pair.send(&mut conversation).await;
            conversation.answer(&first.calls[0], "paid a", false);
            let second = pair.send(&mut conversation).await;
            assert_eq!(second.calls[0].args["query"], "paid a", "{pair}");
            blank(&mut conversation.history);
            conversation.answer(&second.calls[0], "paid b", false);
            let ended = pair.send(&mut conversation).await;
            assert!(ended.calls.is_empty() && ended.text.contains(answer), "{pair}, {store}: {}", ended.text);
            if store == "memory" {
                // Also when the program has ended.
                blank(&mut conversation.history);
                conversation.user("Thanks.");
                pair.model.asked();
                pair.send(&mut conversation).await;
                let shown = pair.shown();
                assert!(shown.contains(answer), "{pair}: {shown}");
            }
        })
        .await;
    }
}

/// Replaces the text of all tool results.
fn blank(history: &mut [Value]) {
    for entry in history {
        if entry["role"] == "tool" {
            entry["content"] = json!("[cleared]");
        } else if entry["type"] == "function_call_output" {
            entry["output"] = json!("[cleared]");
        } else if let Some(blocks) = entry["content"].as_array_mut() {
            for block in blocks.iter_mut().filter(|block| block["type"] == "tool_result") {
                block["content"] = json!("[cleared]");
            }
        }
    }
}

/// Clients attach the image that a tool returned in a message of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_goes_on_beside_an_image_and_the_model_sees_it() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "const a = await web_search({ query: 'a' }); return await web_search({ query: a });"

[[turn]]
text = "{{result/data}}"
"#;
    on_every_pair(script, async |pair| {
        let mut conversation = pair.conversation(&SEARCH);
        conversation.user("Please look.");
        let first = pair.send(&mut conversation).await;
        conversation.answer(&first.calls[0], "See the image.", false);
        let (title, png) = ("This is file 12ab:", "iVBORw0KGgo=");
        let url = format!("data:image/png;base64,{png}");
        let image = match pair.client {
            Wire::Chat => json!([{"type": "text", "text": title}, {"type": "image_url", "image_url": {"url": url}}]),
            Wire::Responses => {
                json!([{"type": "input_text", "text": title}, {"type": "input_image", "image_url": url}])
            }
            Wire::Messages => {
                let source = json!({"type": "base64", "media_type": "image/png", "data": png});
                json!([{"type": "text", "text": title}, {"type": "image", "source": source}])
            }
        };
        conversation.history.push(json!({"role": "user", "content": image}));
        let second = pair.send(&mut conversation).await;
        assert_eq!(second.calls[0].args["query"], "See the image.", "{pair}");
        conversation.answer(&second.calls[0], "found", false);
        assert_eq!(pair.send(&mut conversation).await.text, "found", "{pair}");
        let shown = pair.shown();
        assert_eq!((shown.matches(png).count(), shown.matches(title).count()), (1, 1), "{pair}: {shown}");
    })
    .await;
}
