//! What agents do to a conversation, on every pair of wires.

use dacapo_gateway::{ErrorTextsOptions, GatewayOptions};
use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{Call, ClientConversation, ClientResponse, events};
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

    /// Begins a conversation, and returns its first response too.
    async fn ask(&self, tools: &[(&str, &[&str])], user: &str) -> (ClientConversation, ClientResponse) {
        let mut conversation = self.conversation(tools);
        conversation.user(user);
        let response = self.send(&mut conversation).await;
        (conversation, response)
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
    on_every_pair_with(script, |_| {}, story).await;
}

async fn on_every_pair_with(script: &str, configure: impl Fn(&mut GatewayOptions), story: impl AsyncFn(&Pair<'_>)) {
    for upstream in Wire::ALL {
        let model = Model::start(script).await;
        let mut options = options(&model);
        options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
        configure(&mut options);
        let gateway = RunningGateway::start(options).await;
        for client in Wire::ALL {
            for stream in [false, true] {
                story(&Pair { client, upstream, stream, url: &gateway.url, model: &model }).await;
                model.asked();
            }
        }
    }
}

/// The call with this query.
fn call<'a>(response: &'a ClientResponse, query: &str) -> &'a Call {
    let call = response.calls.iter().find(|call| call.args["query"] == query);
    call.unwrap_or_else(|| panic!("no call of {query}: {response:?}"))
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
        let (mut conversation, response) = pair.ask(&SEARCH, "Please look.").await;
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
        let (mut conversation, response) = pair.ask(&SEARCH, "Please look.").await;
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

/// Claude Code and opencode append to a result what the user wrote while the tool was running.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_wrote_meanwhile_ends_a_program_also_inside_of_a_result() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "const a = await web_search({ query: 'a' }); await web_search({ query: 'b' }); return a;"

[[turn]]
text = "Stopped."
"#;
    let titles = ["The user sent a new message while you were working:", "The user sent the following message:"];
    on_every_pair(script, async |pair| {
        for (title, explicit) in [(titles[0], false), (titles[1], false), (titles[0], true)] {
            let mut conversation = pair.conversation(&SEARCH);
            conversation.explicit = explicit;
            conversation.user("Please look.");
            let response = pair.send(&mut conversation).await;
            let words = format!("<system-reminder>\n{title}\nNo more of it.\n</system-reminder>\n\n<system-reminder>9 left</system-reminder>");
            conversation.answer(&response.calls[0], &format!("found a\n\n{words}"), false);
            let response = pair.send(&mut conversation).await;
            assert_eq!((response.text.as_str(), response.calls.len()), ("Stopped.", 0), "{pair}");
            let shown = pair.shown();
            let count = |text: &str| shown.matches(text).count();
            assert_eq!((count("No more of it."), count("found a")), (1, 1), "{pair}: {shown}");

            conversation.user("Please look again.");
            let response = pair.send(&mut conversation).await;
            let mut parts = text_and_image(pair.client);
            let kind = parts[0]["type"].clone();
            parts.as_array_mut().unwrap().push(json!({"type": kind, "text": words}));
            conversation.answer_with(&response.calls[0], &parts, false);
            let response = pair.send(&mut conversation).await;
            assert_eq!((response.text.as_str(), response.calls.len()), ("Stopped.", 0), "{pair}: beside an image");
        }
    })
    .await;
}

/// Claude Code does so with models that take messages of this role.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_wrote_meanwhile_ends_a_program_also_in_a_system_message() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "const a = await web_search({ query: 'a' }); await web_search({ query: 'b' }); return a;"

[[turn]]
text = "Stopped."
"#;
    on_every_pair(script, async |pair| {
        // The scripted model has no such messages on its Messages wire, as most have not.
        if pair.client == Wire::Messages && pair.upstream == Wire::Messages {
            return;
        }
        let (mut conversation, first) = pair.ask(&SEARCH, "Please look.").await;
        conversation.answer(&first.calls[0], "found a", false);
        let words = "The user sent a new message while you were working:\nNo more of it.";
        conversation.history.push(json!({"type": "message", "role": "system", "content": words}));
        if pair.client != Wire::Responses {
            conversation.history.last_mut().unwrap().as_object_mut().unwrap().remove("type");
        }
        let ended = pair.send(&mut conversation).await;
        assert_eq!((ended.text.as_str(), ended.calls.len()), ("Stopped.", 0), "{pair}");
        let shown = pair.shown();
        assert!(shown.contains("No more of it.") && shown.contains("found a"), "{pair}: {shown}");
    })
    .await;
}

/// An answer may come late: to an earlier round of the program, or to a program before it.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_wrote_meanwhile_ends_a_program_also_inside_of_a_late_result() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = """
const late = web_search({ query: 'late' });
await web_search({ query: 'a' });
await web_search({ query: 'b' });
await web_search({ query: 'c' });
return await late;"""

[[turn]]
when = { user = "elsewhere", after = "user" }
program = "await web_search({ query: 'b' }); await web_search({ query: 'c' });"

[[turn]]
text = "Stopped."
"#;
    let words = "<system-reminder>\nThe user sent a new message while you were working:\nNo more.\n</system-reminder>";
    let reminder = "<system-reminder>9 left</system-reminder>";
    on_every_pair(script, async |pair| {
        for (explicit, of_program_before, goes_on) in [
            (false, false, false),
            (true, false, false),
            (false, true, false),
            (false, false, true),
            (true, false, true),
        ] {
            let case = format!("{pair}, explicit {explicit}, of the program before {of_program_before}");
            let mut conversation = pair.conversation(&SEARCH);
            conversation.explicit = explicit;
            conversation.user("Please look.");
            let first = pair.send(&mut conversation).await;
            conversation.answer(call(&first, "a"), "found a", false);
            if of_program_before {
                conversation.user("Rather elsewhere.");
            }
            let second = pair.send(&mut conversation).await;
            conversation.answer(call(&second, "b"), "found b", false);
            let (appended, text) = if goes_on { (reminder, "9 left") } else { (words, "No more.") };
            conversation.answer(call(&first, "late"), &format!("found late\n\n{appended}"), false);
            let mut third = pair.send(&mut conversation).await;
            if goes_on {
                conversation.answer(call(&third, "c"), "found c", false);
                third = pair.send(&mut conversation).await;
            }
            assert_eq!((third.text.as_str(), third.calls.len()), ("Stopped.", 0), "{case}");
            let shown = pair.shown();
            assert_eq!(shown.matches(text).count(), 1, "{case}: {shown}");
            conversation.user("Thanks.");
            pair.send(&mut conversation).await;
            let again = pair.shown();
            assert!(again.starts_with(shown.trim_end_matches(']')), "{case}: {again}\n{shown}");
        }
    })
    .await;
}

/// A tool that the model calls itself may be answered beside those of a program.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_user_wrote_meanwhile_ends_a_program_also_in_the_result_of_a_direct_call() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "await web_search({ query: 'a' }); return await web_search({ query: 'b' });"
calls = [{ name = "ask_person", arguments = { query = "Which?" } }]

[[turn]]
text = "Stopped."
"#;
    let words = "<system-reminder>\nThe user sent a new message while you were working:\nNo more.\n</system-reminder>";
    let configure = |options: &mut GatewayOptions| options.code_mode.direct_tools = vec!["ask_*".to_owned()];
    on_every_pair_with(script, configure, async |pair| {
        let (mut conversation, first) = pair.ask(&[SEARCH[0], ("ask_person", &["query"])], "Please look.").await;
        conversation.answer(call(&first, "a"), "found a", false);
        conversation.answer(call(&first, "Which?"), &format!("This one.\n\n{words}"), false);
        let ended = pair.send(&mut conversation).await;
        assert_eq!((ended.text.as_str(), ended.calls.len()), ("Stopped.", 0), "{pair}");
        assert!(pair.shown().contains("found a"), "{pair}");
    })
    .await;
}

/// The user interrupts, and the model answers from what was fetched.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_the_user_interrupts_gives_back_what_it_fetched_within_a_budget() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "for (const query of ['large', 'small', 'next']) await web_search({ query });"

[[turn]]
text = "Stopped."
"#;
    on_every_pair(script, async |pair| {
        let (mut conversation, first) = pair.ask(&SEARCH, "Please look.").await;
        conversation.answer(call(&first, "large"), &"x".repeat(40_000), false);
        let second = pair.send(&mut conversation).await;
        conversation.answer(call(&second, "small"), "found little", false);
        conversation.user("Stop.");
        let ended = pair.send(&mut conversation).await;
        assert_eq!((ended.text.as_str(), ended.calls.len()), ("Stopped.", 0), "{pair}");
        let shown = pair.shown();
        for part in ["(40002 bytes, too long to be shown here)", "found little", "Stop."] {
            assert_eq!(shown.matches(part).count(), 1, "{pair}, {part}: {shown}");
        }
        assert!(!shown.contains("xxxx"), "{pair}: {shown}");
    })
    .await;
}

/// Users read "Let me look" while the program works, and the model has said it once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_says_before_a_program_is_shown_at_once_and_read_back_once() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
text = "Let me look."
program = "const a = await web_search({ query: 'a' }); return await web_search({ query: a });"

[[turn]]
text = "{{result/data}}"
"#;
    on_every_pair(script, async |pair| {
        for explicit in [false, true] {
            let mut conversation = pair.conversation(&SEARCH);
            conversation.explicit = explicit;
            conversation.user("Please look.");
            let first = pair.send(&mut conversation).await;
            assert_eq!(first.text, "Let me look.", "{pair}, explicit {explicit}");
            conversation.answer(call(&first, "a"), "b", false);
            let second = pair.send(&mut conversation).await;
            assert_eq!(second.text, "", "{pair}, explicit {explicit}");
            conversation.answer(call(&second, "b"), "found", false);
            assert_eq!(pair.send(&mut conversation).await.text, "found", "{pair}, explicit {explicit}");
            let shown = pair.shown();
            assert_eq!(shown.matches("Let me look.").count(), 1, "{pair}, explicit {explicit}: {shown}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_cut_off_is_said_to_be() {
    let script = r#"
[[turn]]
program = "const a = await web_search({ query:"
finish_reason = "length"
"#;
    on_every_pair(script, async |pair| {
        let (_, response) = pair.ask(&SEARCH, "Please look.").await;
        let end = match pair.client {
            Wire::Chat => "length",
            Wire::Responses => "incomplete",
            Wire::Messages => "max_tokens",
        };
        assert_eq!((response.end.as_str(), response.calls.len()), (end, 0), "{pair}");
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
        on_every_pair_with(
            script,
            |options| options.store.kind = Some(store.to_owned()),
            async |pair| {
                let (mut conversation, first) = pair.ask(&[("pay", &["query"])], "Please pay.").await;
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
            },
        )
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
        let (mut conversation, first) = pair.ask(&SEARCH, "Please look.").await;
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

const PNG: &str = "iVBORw0KGgo=";

/// A tool's result with a text and an image, as clients of the wire send it.
fn text_and_image(wire: Wire) -> Value {
    let url = format!("data:image/png;base64,{PNG}");
    match wire {
        Wire::Chat => json!([{"type": "text", "text": "a.png"}, {"type": "image_url", "image_url": {"url": url}}]),
        // As Codex's `view_image` has it.
        Wire::Responses => json!([{"type": "input_text", "text": "a.png"}, {"type": "input_image", "image_url": url}]),
        // As Claude Code's `Read` has it.
        Wire::Messages => {
            let source = json!({"type": "base64", "media_type": "image/png", "data": PNG});
            json!([{"type": "text", "text": "a.png"}, {"type": "image", "source": source}])
        }
    }
}

/// The image as a model on this wire reads it.
fn shown_image(wire: Wire) -> String {
    let source = json!({"type": "base64", "media_type": "image/png", "data": PNG});
    match wire {
        Wire::Chat => format!(r#""image_url":{{"url":"data:image/png;base64,{PNG}""#),
        Wire::Responses => format!(r#""type":"input_image","image_url":"data:image/png;base64,{PNG}""#),
        Wire::Messages => format!(r#""type":"image","source":{source}"#),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_tool_is_a_handle_in_programs_and_an_image_for_the_model() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = """
const parts = await read({ path: 'a.png' });
store('parts', parts);
return [parts, JSON.stringify(parts).length < 200];"""

[[turn]]
when = { user = "later", after = "user" }
program = "image(load('parts')[1])"

[[turn]]
when = { user = "glance", after = "user" }
program = "return (await read({ path: 'b.png' })).length"

[[turn]]
text = "{{result}}"
"#;
    on_every_pair(script, async |pair| {
        for explicit in [false, true] {
            let mut conversation = pair.conversation(&[("read", &["path"])]);
            conversation.explicit = explicit;
            conversation.user("glance");
            for call in &pair.send(&mut conversation).await.calls {
                conversation.answer_with(call, &text_and_image(pair.client), false);
            }
            let ended = pair.send(&mut conversation).await;
            assert!(
                ended.text.contains("to see one, return the object that has its `handle`"),
                "{pair}: {}",
                ended.text
            );
            assert!(!pair.shown().contains(PNG), "{pair}: it was not returned");

            conversation.user("look");
            for call in &pair.send(&mut conversation).await.calls {
                conversation.answer_with(call, &text_and_image(pair.client), false);
            }
            let ended = pair.send(&mut conversation).await;
            let image = r#"{"type":"image","mimeType":"image/png","handle":"attachment:"#;
            assert!(ended.text.contains(image), "{pair}: {}", ended.text);
            assert!(ended.text.contains("],true]") && !ended.text.contains(PNG), "{pair}: {}", ended.text);
            let shown = pair.shown();
            assert_eq!(
                (shown.matches(PNG).count(), shown.matches(&shown_image(pair.upstream)).count()),
                (1, 1),
                "{pair}: {shown}"
            );

            conversation.user("later");
            pair.send(&mut conversation).await;
            let again = pair.shown();
            assert!(again.starts_with(shown.trim_end_matches(']')), "{pair}: {again}");
            assert_eq!(again.matches(PNG).count(), 2, "{pair}: {again}");
        }
    })
    .await;
}

/// AI SDK on Chat Completions, and whoever writes the content of MCP results as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn images_in_results_that_are_json_text_are_images_too() {
    let script = "[[turn]]\nwhen = { user = \"Look.\", after = \"user\" }\nprogram = \"return await read({ path: 'a.png' })\"\n\n[[turn]]\ntext = \"{{result}}\"\n";
    let written = [
        json!([{"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": PNG}}]),
        json!([{"type": "text", "text": "here"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]),
        json!({"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}], "isError": false}),
    ];
    on_every_pair(script, async |pair| {
        for written in &written {
            let (mut conversation, response) = pair.ask(&[("read", &["path"])], "Look.").await;
            for call in &response.calls {
                conversation.answer(call, &written.to_string(), false);
            }
            let ended = pair.send(&mut conversation).await;
            assert!(ended.text.contains("attachment:") && !ended.text.contains(PNG), "{pair}: {}", ended.text);
            let shown = pair.shown();
            assert_eq!(shown.matches(&shown_image(pair.upstream)).count(), 1, "{pair}: {shown}");
        }
    })
    .await;
}

/// With a store, a program goes on with answers that the client has blanked. Images are not kept.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_a_client_has_thrown_away_is_said_to_be_gone() {
    let script = "[[turn]]\nwhen = { user = \"Look.\", after = \"user\" }\nprogram = \"return await read({ path: 'a.png' })\"\n\n[[turn]]\ntext = \"Done.\"\n";
    on_every_pair_with(
        script,
        |options| options.store.kind = Some("memory".to_owned()),
        async |pair| {
            let (mut conversation, response) = pair.ask(&[("read", &["path"])], "Look.").await;
            for call in &response.calls {
                conversation.answer_with(call, &text_and_image(pair.client), false);
            }
            pair.send(&mut conversation).await;
            assert!(pair.shown().contains(PNG), "{pair}");
            blank(&mut conversation.history);
            conversation.user("Thanks.");
            pair.send(&mut conversation).await;
            let shown = pair.shown();
            assert!(
                shown.contains("/0: cannot be shown, because the conversation does not have it)")
                    && !shown.contains(PNG),
                "{pair}: {shown}"
            );
        },
    )
    .await;
}

/// The wire does not say whether a model takes images; the operator does.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_for_text_gets_a_line_instead_of_an_image() {
    let script = "[[turn]]\nwhen = { after = \"user\" }\nprogram = \"return await read({ path: 'a.png' })\"\n\n[[turn]]\ntext = \"Done.\"\n";
    let model = Model::start(script).await;
    let mut options = options(&model);
    options.code_mode.text_models = vec!["m*".to_owned()];
    let gateway = RunningGateway::start(options).await;
    for client in Wire::ALL {
        let pair = Pair { client, upstream: client, stream: false, url: &gateway.url, model: &model };
        let (mut conversation, response) = pair.ask(&[("read", &["path"])], "Look.").await;
        for call in &response.calls {
            conversation.answer_with(call, &text_and_image(client), false);
        }
        assert_eq!(pair.send(&mut conversation).await.text, "Done.", "{client}");
        let shown = pair.shown();
        let is_said = shown.contains("(image, which this model cannot be given)");
        assert!(is_said && !shown.contains(PNG), "{client}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_a_model_cannot_be_given_is_said_to_be_missing() {
    let script = "[[turn]]\nwhen = { user = \"Look.\", after = \"user\" }\nprogram = \"return await read({ path: 'a.wav' })\"\n\n[[turn]]\ntext = \"Done.\"\n";
    on_every_pair(script, async |pair| {
        let content = match pair.client {
            Wire::Chat => json!([{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]),
            Wire::Responses => json!([{"type": "input_image", "file_id": "file_1"}]),
            Wire::Messages => json!([{"type": "document", "source": {"type": "file", "file_id": "file_1"}}]),
        };
        let (mut conversation, response) = pair.ask(&[("read", &["path"])], "Look.").await;
        for call in &response.calls {
            conversation.answer_with(call, &content, false);
        }
        pair.send(&mut conversation).await;
        let shown = pair.shown();
        let is_native = shown.contains("file_1") || shown.contains("UklGRg==");
        let is_missing = shown.contains("which this model cannot be given");
        assert_eq!(
            (is_native, is_missing),
            (pair.client == pair.upstream, pair.client != pair.upstream),
            "{pair}: {shown}"
        );
    })
    .await;
}

/// Where a wire has no field for failures, the operator says by which texts they are known.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_catches_failures_that_are_told_by_texts_of_the_configuration() {
    let script = r#"
[[turn]]
when = { after = "user" }
program = "try { return `got ${await pay({ query: 'a' })}`; } catch (error) { return `caught ${error.message}`; }"

[[turn]]
text = "{{result/data}}"
"#;
    let all = ErrorTextsOptions::AllTools(vec!["^Error".to_owned()]);
    let others = ErrorTextsOptions::ByTool([("get_*".to_owned(), vec!["^Error".to_owned()])].into());
    for (errors, expected, is_said) in [(all, "caught Error: no money", false), (others, "got Error: no money", true)] {
        let model = Model::start(script).await;
        let mut options = options(&model);
        options.tools.errors = errors;
        let gateway = RunningGateway::start(options).await;
        for client in [Wire::Chat, Wire::Responses] {
            let pair = Pair { client, upstream: Wire::Chat, stream: false, url: &gateway.url, model: &model };
            let (mut conversation, response) = pair.ask(&[("pay", &["query"])], "Please pay.").await;
            for call in &response.calls {
                conversation.answer(call, "Error: no money", false);
            }
            assert_eq!(pair.send(&mut conversation).await.text, expected, "{client}");
            let prompt = model.asked()[0]["tools"].to_string();
            assert_eq!(prompt.contains("some tools return text that begins with"), is_said, "{client}: {prompt}");
        }
    }
}

/// Some clients keep each call of a message in a message of its own, with its answer after it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_client_keeps_in_messages_of_their_own_are_one_round() {
    let script = r#"
[[turn]]
when = { user = "look", after = "user" }
program = "return (await Promise.all(['a', 'b', 'c'].map((query) => web_search({ query })))).join();"

[[turn]]
text = "{{result/data}}"
"#;
    on_every_pair(script, async |pair| {
        let (mut conversation, response) = pair.ask(&SEARCH, "Please look.").await;
        let issued = conversation.history.split_off(1);
        for call in &response.calls {
            let of_call = |entry: &Value| match pair.client {
                Wire::Chat => {
                    let mut entry = entry.clone();
                    entry["tool_calls"].as_array_mut()?.retain(|it| it["id"] == call.id.as_str());
                    Some(entry)
                }
                Wire::Responses => (entry["call_id"] == call.id.as_str()).then(|| entry.clone()),
                Wire::Messages => {
                    let mut entry = entry.clone();
                    entry["content"].as_array_mut()?.retain(|it| it["id"] == call.id.as_str());
                    Some(entry)
                }
            };
            conversation.history.extend(issued.iter().filter_map(of_call));
            conversation.answer(call, &call.args["query"].as_str().unwrap().to_uppercase(), false);
        }
        let ended = pair.send(&mut conversation).await;
        assert_eq!((ended.text.as_str(), ended.calls.len()), ("A,B,C", 0), "{pair}");
    })
    .await;
}
