//! What is particular to a wire, or to a pair of them.

use std::fmt::Write;

use dacapo_gateway::GatewayOptions;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::{ClientConversation, events};
use crate::common::{Model, RunningGateway, options, post_to, send_to};

const TOOLS: [(&str, &[&str]); 1] = [("web_search", &["query"])];

/// Models on this wire only.
fn options_on(model: &Model, upstream: Wire) -> GatewayOptions {
    let mut options = options(model);
    options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
    options
}

async fn post(conversation: &ClientConversation, url: &str) -> crate::common::HttpResponse {
    let (path, body) = conversation.request();
    post_to(&format!("{url}{path}"), &body).await
}

const PROGRAM: &str = r#"
[[turn]]
when = { after = "user" }
reasoning = "I have to look it up."
text = "One moment."
program = """
const [a, b] = await Promise.all(["one", "two"].map((query) => web_search({ query })));
console.log("found", a);
return { a, b };"""

[[turn]]
reasoning = "There it is."
text = "It is {{result/data/a}}."
"#;

/// Every event of both requests, as it comes; ids that depend on every byte of a state are cut.
#[tokio::test(flavor = "multi_thread")]
async fn streams_are_as_clients_of_each_wire_expect_them() {
    let model = Model::start(PROGRAM).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for wire in Wire::ALL {
        let mut actual = String::new();
        for explicit in [false, true] {
            let mut conversation = ClientConversation::new(wire, &TOOLS);
            conversation.explicit = explicit;
            conversation.extra = json!({"stream": true});
            conversation.user("What is it?");
            for _ in 0..2 {
                let answered = post(&conversation, &gateway.url).await;
                writeln!(actual, "── {}", if explicit { "explicit" } else { "plain" }).unwrap();
                for line in answered.text.lines().filter(|line| !line.is_empty()) {
                    writeln!(actual, "{}", cut(line)).unwrap();
                }
                for call in conversation.read_response(&answered.text).calls {
                    conversation.answer(&call, &format!("answer {}", call.args["query"]), false);
                }
            }
        }
        insta::assert_snapshot!(format!("stream_{wire}"), actual);
    }
}

/// Shortens what is sealed.
fn cut(line: &str) -> String {
    let mut actual = String::new();
    let mut rest = line;
    while let Some(at) = ["dc1_", "dcr1_"].iter().filter_map(|start| rest.find(start)).min() {
        let end = rest[at..]
            .find(|letter: char| !letter.is_ascii_alphanumeric() && !matches!(letter, '_' | '-'))
            .map_or(rest.len(), |end| at + end);
        let sealed = &rest[at..end];
        actual.push_str(&rest[..at]);
        actual.push_str(if sealed.len() > 40 { "dc1_…sealed" } else { sealed });
        rest = &rest[end..];
    }
    actual + rest
}

const BREAKS: &str = r#"
[[turn]]
when = { user = "refused" }
error = { status = 429, message = "Slow down.", type = "rate_limit_error", code = "slow", retry_after = 77 }

[[turn]]
when = { user = "in the middle" }
text = "one two three four"
error = { status = 500, message = "I broke.", type = "server_error" }
error_after = 5

[[turn]]
when = { user = "cut" }
text = "one two three four"
cut_after = 3

[[turn]]
when = { user = "no json" }
raw = "<html>Bad gateway</html>"
content_type = "text/html"

[[turn]]
when = { user = "long" }
text = "I would"
program = "return await web_search({ query: 'x' });"
finish_reason = "length"
"#;

fn refused_request(wire: Wire, stream: bool) -> (&'static str, Value) {
    let mut conversation = ClientConversation::new(wire, &[]);
    conversation.extra = json!({"stream": stream});
    conversation.user("refused");
    conversation.request()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_on_any_wire_is_told_in_the_words_of_the_client() {
    for upstream in Wire::ALL {
        let model = Model::start(BREAKS).await;
        let gateway = RunningGateway::start(options_on(&model, upstream)).await;
        for client in Wire::ALL {
            let name = format!("{client} to {upstream}");
            let ask = |user: &'static str, stream: bool| {
                let mut conversation = ClientConversation::new(client, &TOOLS);
                conversation.extra = json!({"stream": stream});
                conversation.user(user);
                let url = gateway.url.clone();
                async move { post(&conversation, &url).await }
            };
            let error = |body: &Value| {
                assert_eq!(body.get("type") == Some(&json!("error")), client == Wire::Messages, "{name}: {body}");
                (body["error"]["type"].clone(), body["error"]["message"].clone())
            };
            for stream in [false, true] {
                let refused = ask("refused", stream).await;
                assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (429, "77"), "{name}");
                assert_eq!(error(&refused.json()), (json!("rate_limit_error"), json!("Slow down.")), "{name}");
                if client == upstream {
                    // As it came.
                    let (path, body) = refused_request(client, stream);
                    let direct = post_to(&format!("{}{path}", model.url), &body).await;
                    assert_eq!(refused.json()["error"], direct.json()["error"], "{name}");
                }
                let page = ask("no json", stream).await;
                assert_eq!(page.status, 502, "{name}: {}", page.text);
                error(&page.json());
            }
            let cut = ask("cut", false).await;
            assert_eq!(cut.status, 502, "{name}");
            for (user, expected) in [("in the middle", "I broke."), ("cut", "the upstream broke off")] {
                let broken = ask(user, true).await;
                let text = broken.text.clone();
                if broken.status == 200 {
                    let last = events(&text).pop().unwrap();
                    let is_error = last["type"] == "response.failed" || last.get("error").is_some();
                    assert!(is_error && last.to_string().contains(expected), "{name} {user}: {text}");
                    assert!(!text.contains("[DONE]"), "{name}: {text}");
                } else {
                    assert!(text.contains(expected), "{name} {user}: {text}");
                }
            }
            for stream in [false, true] {
                let mut conversation = ClientConversation::new(client, &TOOLS);
                let response = conversation.read_response(&ask("long", stream).await.text);
                let ends = ["length", "incomplete", "max_tokens"];
                assert!(response.calls.is_empty() && ends.contains(&response.end.as_str()), "{name}: {response:?}");
                assert_eq!(response.text, "I would", "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_code_mode_tools_are_called_as_ever_on_every_pair() {
    let script = r#"
[[turn]]
when = { after = "user", no_tool = "execute" }
text = "I call."
calls = [{ name = "web_search", arguments = { query = "a" } }, { name = "web_search", arguments = { query = "b" } }]

[[turn]]
when = { after = "tool" }
text = "Last: {{result}}"
"#;
    for upstream in Wire::ALL {
        let model = Model::start(script).await;
        let gateway = RunningGateway::start(options_on(&model, upstream)).await;
        for (client, stream) in Wire::ALL.into_iter().flat_map(|wire| [(wire, false), (wire, true)]) {
            let name = format!("{client} to {upstream}, stream {stream}");
            let mut conversation = ClientConversation::new(client, &TOOLS);
            conversation.extra = json!({"stream": stream, "code_mode": false});
            conversation.user("Search.");
            let response = conversation.read_response(&post(&conversation, &gateway.url).await.text);
            let queries: Vec<&Value> = response.calls.iter().map(|call| &call.args["query"]).collect();
            assert_eq!((queries, response.text.as_str()), (vec![&json!("a"), &json!("b")], "I call."), "{name}");
            for call in &response.calls {
                conversation.answer(call, &format!("{{\"found\":{}}}", call.args["query"]), false);
            }
            let response = conversation.read_response(&post(&conversation, &gateway.url).await.text);
            assert_eq!((response.text.as_str(), response.calls.len()), (r#"Last: {"found":"b"}"#, 0), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_code_mode_has_no_part_in_passes_byte_for_byte_on_every_wire() {
    let model = Model::start("[[turn]]\ntext = \"one two\"\n").await;
    let mut native = options(&model);
    native.code_mode.models.insert("native-*".to_owned(), "native".to_owned());
    let gateway = RunningGateway::start(native).await;
    for wire in Wire::ALL {
        let mut plain = ClientConversation::new(wire, &[]);
        plain.user("hi");
        let mut streamed = ClientConversation::new(wire, &[]);
        streamed.user("hi");
        streamed.extra = json!({"stream": true});
        // The provider's own programs, for a model that has them.
        let mut native = ClientConversation::new(wire, &TOOLS);
        native.user("hi");
        native.explicit = true;
        native.extra = json!({"model": "native-1"});
        for conversation in [plain, streamed, native] {
            if wire == Wire::Chat && conversation.explicit {
                continue;
            }
            let (path, body) = conversation.request();
            let direct = post_to(&format!("{}{path}", model.url), &body).await;
            let through = post_to(&format!("{}{path}", gateway.url), &body).await;
            assert_eq!((through.status, &through.text), (direct.status, &direct.text), "{wire}");
            let asked = model.asked();
            assert_eq!(asked[0].to_string(), asked[1].to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_use_the_providers_tools_programs_and_direct_calls_at_once() {
    let script = r#"
[[turn]]
when = { after = "user" }
native = { messages = [
  { type = "server_tool_use", id = "srvtoolu_01", name = "web_search", input = { query = "tides" } },
  { type = "web_search_tool_result", tool_use_id = "srvtoolu_01", content = [{ type = "web_search_result", url = "https://tides.example", title = "Tides", encrypted_content = "EqgfCioIARgB", page_age = "1 day" }] },
], responses = [
  { type = "web_search_call", id = "ws_01", status = "completed", action = { type = "search", query = "tides" } },
] }
text = "The web says high."
program = "return await get_depth({ place: 'pier' });"
calls = [{ name = "ask_user", arguments = { question = "Which pier?" } }]

[[turn]]
when = { after = "tool" }
text = "It is {{result}} there."
"#;
    for wire in [Wire::Messages, Wire::Responses] {
        let model = Model::start(script).await;
        let gateway = RunningGateway::start(options(&model)).await;
        for stream in [false, true] {
            let mut conversation =
                ClientConversation::new(wire, &[("get_depth", &["place"]), ("ask_user", &["question"])]);
            conversation.user("How deep is it?");
            let (path, mut body) = conversation.request();
            body["stream"] = json!(stream);
            let native = match wire {
                Wire::Messages => json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 2}),
                _ => json!({"type": "web_search"}),
            };
            body["tools"][1]["allowed_callers"] = json!(["direct"]);
            body["tools"].as_array_mut().unwrap().push(native.clone());
            let url = format!("{}{path}", gateway.url);
            let response = conversation.read_response(&post_to(&url, &body).await.text);
            let names: Vec<&str> = response.calls.iter().map(|call| call.name.as_str()).collect();
            assert_eq!(names, ["get_depth", "ask_user"], "{wire}: {response:?}");
            for call in &response.calls {
                conversation.answer(call, if call.name == "get_depth" { "3 m" } else { "the old one" }, false);
            }
            let (_, next) = conversation.request();
            let key = if wire == Wire::Messages { "messages" } else { "input" };
            body[key] = next[key].clone();
            let response = conversation.read_response(&post_to(&url, &body).await.text);
            assert_eq!(response.text, "It is the old one there.", "{wire}");
            let asked = model.asked();
            assert_eq!(asked.len(), 2);
            let tools = asked[0]["tools"].as_array().unwrap();
            assert_eq!(tools.last(), Some(&native), "{wire}");
            assert_eq!(tools.len(), 3, "{wire}: {tools:?}");
            // What the provider made comes back to it as it was, encrypted content and all.
            let history = asked[1][key].to_string();
            let made =
                if wire == Wire::Messages { "\"encrypted_content\":\"EqgfCioIARgB\"" } else { "\"id\":\"ws_01\"" };
            assert!(history.contains(made), "{wire}: {history}");
            assert!(history.contains("3 m") && history.contains("the old one"), "{history}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runners_with_threads_are_made_to_send_their_history() {
    let model = Model::start("[[turn]]\ntext = \"hello\"\n").await;
    let gateway = RunningGateway::start(options(&model)).await;
    let url = format!("{}/messages", gateway.url);
    let beta = [("anthropic-beta", "message-threads-2026-08-12,other-beta")];
    let mut body = json!({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    body["thread"] = json!({"type": "create"});
    let created = send_to(&url, &body, &beta).await;
    assert_eq!((created.status, model.asked()[0].get("thread")), (200, None), "{}", created.text);
    assert_eq!(model.betas.lock().unwrap().pop().as_deref(), Some("other-beta"));
    body["thread"] = json!({"type": "continue", "previous_message_id": "msg_1"});
    let lost = send_to(&url, &body, &beta).await;
    assert_eq!((lost.status, lost.json()["error"]["details"]["error_code"].clone()), (404, json!("thread_not_found")));
    assert_eq!(
        (lost.json()["type"].clone(), lost.json()["error"]["type"].clone()),
        (json!("error"), json!("not_found_error"))
    );
    assert!(model.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_as_the_model_would_read_them() {
    let program = PROGRAM.replace("return { a, b }", "return { a: a.length, b: b.length }");
    let model = Model::start(&program.replace("console.log(\"found\", a);", "")).await;
    let same = RunningGateway::start(options_on(&model, Wire::Messages)).await;
    let other = RunningGateway::start(options_on(&model, Wire::Chat)).await;
    let mut conversation = ClientConversation::new(Wire::Messages, &TOOLS);
    conversation.user("What is it?");
    let count = async |conversation: &ClientConversation, url: &str| {
        let (_, mut body) = conversation.request();
        body.as_object_mut().unwrap().shift_remove("max_tokens");
        let counted = post_to(&format!("{url}/messages/count_tokens"), &body).await.json();
        counted["input_tokens"].as_u64().unwrap_or_else(|| panic!("{counted}"))
    };
    let before = count(&conversation, &same.url).await;
    assert!(before > 200, "the declarations count: {before}");
    assert!(count(&conversation, &other.url).await > 200);
    for call in conversation.read_response(&post(&conversation, &same.url).await.text).calls {
        conversation.answer(&call, &"long ".repeat(4_000), false);
    }
    conversation.user("Never mind.");
    let after = count(&conversation, &same.url).await;
    assert!(after > before && after < before + 2_000, "what programs read does not: {before} and {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_are_deferred_are_found_by_our_search() {
    let script = r#"
[[turn]]
when = { after = "user" }
search = "weather forecast"

[[turn]]
when = { after = "tool", step = 1 }
program = "return await get_forecast({ city: 'Rome' });"

[[turn]]
when = { after = "tool" }
text = "Rome: {{result/data}}"
"#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for (wire, stream) in
        [(Wire::Messages, false), (Wire::Messages, true), (Wire::Responses, false), (Wire::Responses, true)]
    {
        let mut conversation = ClientConversation::new(
            wire,
            &[("get_time", &["city"]), ("get_forecast", &["city"]), ("send_mail", &["to"])],
        );
        conversation.user("How will it be in Rome?");
        let mut response = None;
        for _ in 0..2 {
            let (path, mut body) = conversation.request();
            body["stream"] = json!(stream);
            for at in 1..3 {
                body["tools"][at]["defer_loading"] = json!(true);
            }
            body["tools"].as_array_mut().unwrap().push(match wire {
                Wire::Messages => json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
                _ => json!({"type": "tool_search"}),
            });
            let answered = post_to(&format!("{}{path}", gateway.url), &body).await;
            assert_eq!(answered.status, 200, "{}", answered.text);
            let now = conversation.read_response(&answered.text);
            for call in &now.calls {
                assert_eq!(call.name, "get_forecast");
                conversation.answer(call, "sunny", false);
            }
            response = Some(now);
        }
        assert_eq!(response.unwrap().text, "Rome: sunny", "{wire}");
        let asked = model.asked();
        assert_eq!(asked.len(), 3);
        let shown = asked[0]["tools"].to_string();
        assert!(shown.contains("function get_time(") && !shown.contains("function get_forecast("), "{shown}");
        // The client hears of the search as its provider would tell it.
        let actual = conversation.history.iter().map(Value::to_string).collect::<String>();
        let kind = if wire == Wire::Messages { "tool_search_tool_result" } else { "tool_search_output" };
        assert!(actual.contains(kind) && actual.contains("get_forecast"), "{wire}: {actual}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_referred_to_may_be_as_large_as_a_body() {
    let model = Model::start(PROGRAM).await;
    let mut keeping = options(&model);
    keeping.store.kind = Some("memory".to_owned());
    keeping.body_bytes_max = Some(64_000);
    keeping.body_values_max = Some(3_000);
    let keeping = RunningGateway::start(keeping).await;
    let mut talk = ClientConversation::new(Wire::Responses, &TOOLS);
    talk.user(&"What is it? ".repeat(2_500));
    let (path, mut body) = talk.request();
    body["store"] = json!(true);
    let url = format!("{}{path}", keeping.url);
    let first = post_to(&url, &body).await;
    let calls = talk.read_response(&first.text).calls;

    let item = first.json()["output"][0]["id"].clone();
    body["input"] = json!(vec![json!({"type": "item_reference", "id": item}); 400]);
    let refused = post_to(&url, &body).await;
    assert_eq!((refused.status, refused.text.contains("body_values_max")), (413, true), "{}", refused.text);

    let output = "forty-two ".repeat(2_000);
    let answers =
        calls.iter().map(|call| json!({"type": "function_call_output", "call_id": call.id, "output": output}));
    body["input"] = answers.collect();
    body["previous_response_id"] = first.json()["id"].clone();
    let second = post_to(&url, &body).await;
    assert_eq!(second.status, 200, "{}", second.text);
    body["input"] = json!("And once more, please.");
    body["previous_response_id"] = second.json()["id"].clone();
    let refused = post_to(&url, &body).await;
    assert_eq!((refused.status, refused.text.contains("body_bytes_max")), (413, true), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_referred_to_by_id_only_where_they_are_kept() {
    let model = Model::start(PROGRAM).await;
    let stateless = RunningGateway::start(options(&model)).await;
    let mut keeping = options(&model);
    keeping.store.kind = Some("memory".to_owned());
    let keeping = RunningGateway::start(keeping).await;
    for stream in [false, true] {
        let mut conversation = ClientConversation::new(Wire::Responses, &TOOLS);
        conversation.user("What is it?");
        let (path, mut body) = conversation.request();
        body["store"] = json!(true);
        body["stream"] = json!(stream);
        let url = format!("{}{path}", keeping.url);
        let text = post_to(&url, &body).await.text;
        let id = |text: &str| {
            let body = if stream {
                crate::client_conversation::streamed(Wire::Responses, text)
            } else {
                serde_json::from_str(text).unwrap()
            };
            body["id"].as_str().unwrap().to_owned()
        };
        let first = id(&text);
        let response = conversation.read_response(&text);
        let answers: Vec<Value> = response
            .calls
            .iter()
            .map(|call| json!({"type": "function_call_output", "call_id": call.id, "output": "forty-two"}))
            .collect();
        body["input"] = json!(answers);
        body["previous_response_id"] = json!(first);
        let actual = post_to(&format!("{}{path}", stateless.url), &body).await;
        assert_eq!((actual.status, actual.json()["error"]["param"].clone()), (400, json!("previous_response_id")));
        assert!(actual.json()["error"]["message"].as_str().unwrap().contains("store"), "{}", actual.text);
        let text = post_to(&url, &body).await.text;
        let response = conversation.read_response(&text);
        assert_eq!(response.text, "It is forty-two.");
        body["input"] = json!("And once more, please.");
        body["previous_response_id"] = json!(id(&text));
        let response = conversation.read_response(&post_to(&url, &body).await.text);
        assert_eq!(response.calls.len(), 2, "a new question, a new program");
        let asked = model.asked();
        assert_eq!(asked.last().unwrap()["input"].as_array().unwrap().len(), 8, "{:#}", asked.last().unwrap()["input"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_models_wire_cannot_carry_is_told() {
    let model = Model::start("[[turn]]\ntext = \"hello\"\n").await;
    let gateway = RunningGateway::start(options_on(&model, Wire::Chat)).await;
    let mut conversation = ClientConversation::new(Wire::Messages, &TOOLS);
    conversation.user("hi");
    conversation.extra = json!({"top_k": 5, "temperature": 0.5, "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}]});
    let (path, mut body) = conversation.request();
    body["tools"].as_array_mut().unwrap().push(json!({"type": "web_search_20250305", "name": "web_search_2"}));
    let answered = post_to(&format!("{}{path}", gateway.url), &body).await;
    assert_eq!(answered.headers["x-dacapo-dropped"].to_str().unwrap(), "top_k, tools: web_search_20250305");
    for (key, wrong) in
        [("temperature", json!("hot")), ("max_tokens", json!(-1)), ("output_config", json!({"effort": "huge"}))]
    {
        let mut body = body.clone();
        body[key] = wrong;
        let refused = post_to(&format!("{}{path}", gateway.url), &body).await;
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && message.starts_with(key), "{message}");
    }
    let asked = model.asked().remove(0);
    assert_eq!(asked["messages"][0], json!({"role": "system", "content": "Be short."}));
    assert_eq!((asked["temperature"].clone(), asked["max_completion_tokens"].clone()), (json!(0.5), json!(4096)));
    assert_eq!(asked["tools"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_both_wires_of_openai_have_is_carried_between_them() {
    let model = Model::start("[[turn]]\ntext = \"hello\"\n").await;
    let shared = json!({
        "metadata": {"team": "a"}, "prompt_cache_key": "k1", "prompt_cache_retention": "24h",
        "safety_identifier": "s1", "service_tier": "flex", "user": "u1",
    });
    let image = "data:image/png;base64,aGk=";
    for effort in ["minimal", "xhigh"] {
        let chat = json!({"reasoning_effort": effort, "verbosity": "low"});
        let responses = json!({"reasoning": {"effort": effort}, "text": {"verbosity": "low"}});
        let chat_image = json!({"type": "image_url", "image_url": {"url": image, "detail": "low"}});
        let responses_image = json!({"type": "input_image", "image_url": image, "detail": "low"});
        let pairs = [
            (Wire::Chat, Wire::Responses, &chat, &responses, [&chat_image, &responses_image]),
            (Wire::Responses, Wire::Chat, &responses, &chat, [&responses_image, &chat_image]),
        ];
        for (client, upstream, sent, expected, [sent_image, expected_image]) in pairs {
            let gateway = RunningGateway::start(options_on(&model, upstream)).await;
            let mut conversation = ClientConversation::new(client, &TOOLS);
            conversation.history.push(json!({"role": "user", "content": [sent_image]}));
            conversation.extra = shared.clone();
            conversation.extra.as_object_mut().unwrap().extend(sent.as_object().unwrap().clone());
            let answered = post(&conversation, &gateway.url).await;
            assert_eq!(answered.headers.get("x-dacapo-dropped"), None, "{client} to {upstream}");
            let asked = model.asked().remove(0);
            for (key, value) in shared.as_object().unwrap().iter().chain(expected.as_object().unwrap()) {
                assert_eq!(&asked[key], value, "{client} to {upstream}: {key}");
            }
            let history = [&asked["messages"], &asked["input"]].into_iter().find(|list| list.is_array()).unwrap();
            assert_eq!(&history[0]["content"][0], expected_image, "{client} to {upstream}");
        }
    }
    // Messages has no place for most of it.
    let gateway = RunningGateway::start(options_on(&model, Wire::Messages)).await;
    let mut conversation = ClientConversation::new(Wire::Chat, &TOOLS);
    let detailed = json!({"type": "image_url", "image_url": {"url": image, "detail": "low"}});
    conversation.history.push(json!({"role": "user", "content": [detailed]}));
    conversation.extra = shared;
    conversation.extra["verbosity"] = json!("low");
    let answered = post(&conversation, &gateway.url).await;
    assert_eq!(
        answered.headers["x-dacapo-dropped"].to_str().unwrap(),
        "metadata, prompt_cache_key, prompt_cache_retention, service_tier, verbosity, image detail"
    );
    assert_eq!(model.asked()[0]["metadata"], json!({"user_id": "s1"}));
}

/// Thoughts must come back to their provider byte for byte, in front of the calls that they led to; the scripted model
/// refuses them otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn thoughts_come_back_to_their_provider_as_they_were() {
    let long = "thinking about it ".repeat(2_000);
    let script = PROGRAM.replace("I have to look it up.\"", &format!("{long}\"\nchunk_chars = 900"));
    for wire in [Wire::Messages, Wire::Responses] {
        let model = Model::start(&script).await;
        let gateway = RunningGateway::start(options(&model)).await;
        for (stream, explicit) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut conversation = ClientConversation::new(wire, &TOOLS);
            conversation.explicit = explicit;
            conversation.extra = match wire {
                Wire::Messages => json!({"thinking": {"type": "enabled", "budget_tokens": 20000}, "max_tokens": 40000}),
                _ => {
                    json!({"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]})
                }
            };
            conversation.extra["stream"] = json!(stream);
            for question in ["What is it?", "And what is it now?"] {
                conversation.user(question);
                for _ in 0..2 {
                    let answered = post(&conversation, &gateway.url).await;
                    assert_eq!(answered.status, 200, "{wire} {stream} {explicit}: {}", answered.text);
                    for call in conversation.read_response(&answered.text).calls {
                        conversation.answer(&call, "this", false);
                    }
                }
            }
            let asked = model.asked();
            let key = if wire == Wire::Messages { "messages" } else { "input" };
            let entries =
                |body: &Value| -> Vec<String> { body[key].as_array().unwrap().iter().map(Value::to_string).collect() };
            for pair in asked.windows(2) {
                assert!(entries(&pair[1]).starts_with(&entries(&pair[0])), "{wire} {stream} {explicit}: {:#}", pair[1]);
            }
            let thoughts = asked.last().unwrap()[key].to_string();
            let kept = if wire == Wire::Messages { &long } else { "encrypted_content" };
            assert!(thoughts.contains(kept), "{wire} {stream} {explicit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_may_write_programs_as_plain_text() {
    let model = Model::start(PROGRAM).await;
    let mut options = options_on(&model, Wire::Responses);
    options.upstreams[0].custom_execute = Some(true);
    let gateway = RunningGateway::start(options).await;
    for client in Wire::ALL {
        let mut conversation = ClientConversation::new(client, &TOOLS);
        conversation.user("What is it?");
        for call in conversation.read_response(&post(&conversation, &gateway.url).await.text).calls {
            conversation.answer(&call, "this", false);
        }
        assert_eq!(
            conversation.read_response(&post(&conversation, &gateway.url).await.text).text,
            "It is this.",
            "{client}"
        );
        let asked = model.asked();
        assert_eq!(
            (asked[0]["tools"][0]["type"].clone(), asked[0]["tools"][0]["name"].clone()),
            (json!("custom"), json!("execute"))
        );
        let items = asked[1]["input"].as_array().unwrap();
        let call = items.iter().find(|item| item["type"] == "custom_tool_call").unwrap();
        assert!(call["input"].as_str().unwrap().starts_with("const [a, b]"), "{call}");
        assert!(items.iter().any(|item| item["type"] == "custom_tool_call_output"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_take_text_keep_doing_so_on_other_wires() {
    let script = r#"
[[turn]]
when = { after = "user" }
calls = [{ name = "patch", arguments = { input = "*** Begin" } }]

[[turn]]
text = "Patched: {{result}}"
"#;
    for (client, upstream) in [
        (Wire::Chat, Wire::Messages),
        (Wire::Chat, Wire::Responses),
        (Wire::Responses, Wire::Messages),
        (Wire::Responses, Wire::Chat),
    ] {
        let model = Model::start(script).await;
        let gateway = RunningGateway::start(options_on(&model, upstream)).await;
        let (path, mut body) = ClientConversation::new(client, &TOOLS).request();
        let key = if client == Wire::Chat { "messages" } else { "input" };
        body[key] = json!([{"role": "user", "content": "Patch it."}]);
        let (syntax, definition) = ("lark", "start: LINE+");
        let custom = if client == Wire::Chat {
            let format = json!({"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}});
            json!({"type": "custom", "custom": {"name": "patch", "description": "Applies a patch.", "format": format}})
        } else {
            let format = json!({"type": "grammar", "syntax": syntax, "definition": definition});
            json!({"type": "custom", "name": "patch", "description": "Applies a patch.", "format": format})
        };
        body["tools"].as_array_mut().unwrap().push(custom);
        let url = format!("{}{path}", gateway.url);
        let answer = post_to(&url, &body).await.json();
        let asked = model.asked().remove(0);
        let declared = &asked["tools"][1];
        let grammar = "Applies a patch.\nThe input must match this lark grammar:\nstart: LINE+";
        match upstream {
            Wire::Responses => assert_eq!(declared["format"]["definition"], "start: LINE+", "{client}"),
            // Few Chat servers know tools that take text.
            Wire::Chat => assert_eq!(declared["function"]["description"], grammar),
            Wire::Messages => assert_eq!(declared["description"], grammar),
        }
        let history = body[key].as_array_mut().unwrap();
        if client == Wire::Chat {
            let message = &answer["choices"][0]["message"];
            let call = &message["tool_calls"][0];
            assert_eq!(call["custom"], json!({"name": "patch", "input": "*** Begin"}), "{upstream}: {answer}");
            history.extend([message.clone(), json!({"role": "tool", "tool_call_id": call["id"], "content": "done"})]);
        } else {
            let item = answer["output"].as_array().unwrap().last().unwrap();
            assert_eq!(
                (item["type"].clone(), item["input"].clone()),
                (json!("custom_tool_call"), json!("*** Begin")),
                "{upstream}: {answer}"
            );
            history.extend([
                item.clone(),
                json!({"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}),
            ]);
        }
        let answer = post_to(&url, &body).await;
        assert!(answer.text.contains("Patched: done"), "{client} to {upstream}: {}", answer.text);
    }
}

/// Codex searches for tools itself, and newer models get more of them in the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn tools_that_are_added_later_are_called_directly_and_the_model_is_told() {
    let script = r#"
[[turn]]
when = { user = "Look it up." }
calls = [{ name = "lookup", arguments = { word = "tea" } }]

[[turn]]
text = "hello"
"#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options_on(&model, Wire::Responses)).await;
    let (path, mut body) = ClientConversation::new(Wire::Responses, &TOOLS).request();
    let url = format!("{}{path}", gateway.url);
    let search = json!({"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object"}});
    let hint = "call them directly";
    body["input"] = json!([{"role": "user", "content": "hi"}]);
    let told = async |body: &Value| {
        post_to(&url, body).await;
        model.asked().remove(0)["tools"][0]["description"].as_str().unwrap().contains(hint)
    };
    assert!(!told(&body).await, "nothing can be added");
    body["tools"].as_array_mut().unwrap().push(search);
    assert!(told(&body).await, "from the first request on");
    body["tools"].as_array_mut().unwrap().pop();
    let lookup = json!({"type": "function", "name": "lookup", "parameters": {"type": "object"}});
    body["input"] = json!([
        {"type": "additional_tools", "role": "developer", "tools": [lookup.clone()]},
        {"role": "user", "content": "Look it up."},
    ]);
    for upstream in Wire::ALL {
        let gateway = RunningGateway::start(options_on(&model, upstream)).await;
        // A model on another wire has no place for it in its history.
        let called = post_to(&format!("{}{path}", gateway.url), &body).await;
        let (dropped, called) = (called.headers.get("x-dacapo-dropped").cloned(), called.json());
        let call = called["output"].as_array().unwrap().last().unwrap();
        let (kind, name) = (call["type"].clone(), call["name"].clone());
        assert_eq!((kind, name, dropped), (json!("function_call"), json!("lookup"), None), "{upstream}: {called:#}");
    }
    // Except those in namespaces, which only this wire has: that is told.
    body["input"][0]["tools"] = json!([{"type": "namespace", "name": "dictionary", "tools": [lookup]}]);
    let gateway = RunningGateway::start(options_on(&model, Wire::Chat)).await;
    let answered = post_to(&format!("{}{path}", gateway.url), &body).await;
    assert_eq!(answered.headers["x-dacapo-dropped"].to_str().unwrap(), "tools: namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demand_is_met_by_one_program_and_what_cannot_be_had_is_refused() {
    let script =
        "[[turn]]\nwhen = { after = \"user\" }\nprogram = \"return 6 * 7;\"\n\n[[turn]]\ntext = \"{{result/data}}\"\n";
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for (wire, choice) in [
        (Wire::Responses, json!("required")),
        (Wire::Responses, json!({"type": "programmatic_tool_calling"})),
        (Wire::Messages, json!({"type": "tool", "name": "code_execution"})),
    ] {
        let mut conversation = ClientConversation::new(wire, &TOOLS);
        conversation.explicit = true;
        conversation.extra = json!({"tool_choice": choice});
        conversation.user("What is it?");
        assert_eq!(conversation.read_response(&post(&conversation, &gateway.url).await.text).text, "42", "{wire}");
        let asked = model.asked();
        assert_eq!(asked.len(), 2, "{wire}");
        assert!(asked[0].get("tool_choice").is_some() && asked[1].get("tool_choice").is_none(), "{wire}: {asked:?}");
    }
    // A plain client requires a call that it sees.
    let calling = "[[turn]]\nwhen = { step = 0 }\nprogram = \"return 6 * 7;\"\n\n[[turn]]\nwhen = { step = 1 }\ntext = \"Hm.\"\nprogram = \"return await web_search({ query: 'x' });\"\n";
    let calling = Model::start(calling).await;
    let plain = RunningGateway::start(options(&calling)).await;
    for (wire, choice) in [
        (Wire::Chat, json!("required")),
        (Wire::Responses, json!("required")),
        (Wire::Messages, json!({"type": "any"})),
    ] {
        let mut conversation = conversation_with(wire, &choice);
        let response = conversation.read_response(&post(&conversation, &plain.url).await.text);
        assert_eq!((response.calls.len(), response.text.as_str()), (1, "Hm."), "{wire}");
        let asked = calling.asked();
        assert!(asked.len() == 2 && asked.iter().all(|asked| asked["tool_choice"] == choice), "{wire}: {asked:?}");
        // One that never makes it gets an error in time.
        assert_eq!(post(&conversation_with(wire, &choice), &gateway.url).await.status, 502, "{wire}");
        assert_eq!(model.asked().len(), 5, "{wire}");
    }
    let mut conversation = ClientConversation::new(Wire::Messages, &TOOLS);
    conversation.explicit = true;
    conversation.user("What is it?");
    conversation.extra = json!({"stop_sequences": ["x"]});
    let refused = post(&conversation, &gateway.url).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"]["message"].as_str().unwrap().starts_with("stop_sequences: "), "{}", refused.text);
}

fn conversation_with(wire: Wire, tool_choice: &Value) -> ClientConversation {
    let mut conversation = ClientConversation::new(wire, &TOOLS);
    conversation.extra = json!({"tool_choice": tool_choice});
    conversation.user("What is it?");
    conversation
}
