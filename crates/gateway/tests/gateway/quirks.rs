//! What providers do differently on the wire, and breaks of the wire itself.

use std::fmt::Write;

use crate::common::{HttpResponse, Model, RunningGateway, options, post_json, tool};
use serde_json::{Value, json};

/// Asks, answers the calls, and asks again: what the client hears first and last.
async fn converse(url: &str, quirk: &str, stream: bool) -> (Value, Value) {
    let read = |answered: HttpResponse| if stream { answered.streamed() } else { answered.json() };
    let mut body = json!({"model": "m", "stream": stream, "tools": [tool("web_search", &["query"])],
        "messages": [{"role": "user", "content": quirk}]});
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    let first = read(post_json(url, &body).await);
    let message = first["choices"][0]["message"].clone();
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message);
    messages.extend(calls.iter().map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "found"})));
    let last = read(post_json(url, &body).await);
    (first, last)
}

#[tokio::test(flavor = "multi_thread")]
async fn quirks_of_providers_do_not_reach_the_client() {
    const QUIRKS: [&str; 13] = [
        "no_index",
        "repeat_id",
        "repeat_name",
        "crlf",
        "comments",
        "no_done",
        "usage_in_last_chunk",
        "object_arguments",
        "no_finish_reason",
        "many_calls_in_one_delta",
        "empty_first_choice",
        "role_in_every_delta",
        "null_content",
    ];
    let mut script = String::new();
    for quirk in QUIRKS {
        for chars in [1, 7] {
            let name = format!("{quirk}-{chars}.");
            write!(
                script,
                r#"
[[turn]]
when = {{ user = "{name}", after = "user" }}
text = "Wait."
program = "return await web_search({{ query: '{name}' }});"
quirks = ["{quirk}"]
chunk_chars = {chars}

[[turn]]
when = {{ user = "{name}", after = "tool" }}
text = "It says: {{{{result/data}}}}"
quirks = ["{quirk}"]
chunk_chars = {chars}
"#
            )
            .unwrap();
        }
    }
    let model = Model::start(&script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for quirk in QUIRKS {
        for (chars, stream) in [(1, true), (7, true), (7, false)] {
            let name = format!("{quirk}-{chars}.");
            let (first, last) = converse(&gateway.url, &name, stream).await;
            let call = &first["choices"][0]["message"]["tool_calls"][0];
            assert_eq!(call["function"]["arguments"], json!({"query": name}).to_string(), "{name} {stream}: {first}");
            assert_eq!(first["choices"][0]["finish_reason"], "tool_calls", "{name}");
            assert_eq!(last["choices"][0]["message"]["content"], "It says: found", "{name} {stream}: {last}");
            assert_eq!(last["choices"][0]["finish_reason"], "stop", "{name} {stream}");
            assert!(last["usage"]["total_tokens"].as_u64().unwrap() > 0, "{name} {stream}: {last}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_share_an_index_or_come_without_one_are_told_apart() {
    let chunk = |calls: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": {"role": "assistant", "tool_calls": calls}, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "x", "created": 1_767_225_600, "model": "m", "choices": [choice]}))
    };
    let whole = |id: &str, question: &str| {
        let arguments = json!({"question": question}).to_string();
        json!([{"id": id, "index": 0, "type": "function", "function": {"name": "ask_user", "arguments": arguments}}])
    };
    let raw = [
        chunk(whole("a", "one"), Value::Null),
        chunk(whole("b", "two"), Value::Null),
        chunk(json!([{"id": "c", "function": {"name": "ask_user", "arguments": "{\"question\":"}}]), Value::Null),
        chunk(json!([{"function": {"arguments": " \"three\"}"}}]), json!("tool_calls")),
    ];
    let raw = raw.concat();
    let script = format!("[[turn]]\nraw = '''{raw}'''\ncontent_type = \"text/event-stream\"\nchunk_chars = 11\n");
    let model = Model::start(&script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let mut ask_user = tool("ask_user", &["question"]);
    ask_user["allowed_callers"] = json!(["direct"]);
    let body = json!({"model": "m", "stream": true, "tools": [ask_user, tool("other", &[])],
        "messages": [{"role": "user", "content": "hi"}]});
    let response = post_json(&gateway.url, &body).await.streamed();
    let calls = response["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    let actual: Vec<(&str, Value)> = calls
        .iter()
        .map(|call| {
            (
                call["id"].as_str().unwrap(),
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap(),
            )
        })
        .collect();
    let question = |text: &str| json!({"question": text});
    assert_eq!(actual, [("a", question("one")), ("b", question("two")), ("c", question("three"))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_sent_again_only_when_the_upstream_says_so() {
    let script = r#"
[[turn]]
when = { user = "soon" }
error = { status = 503, message = "Busy.", retry_after = 0 }

[[turn]]
when = { user = "whenever" }
error = { status = 503, message = "Busy." }

[[turn]]
when = { user = "wrong" }
error = { status = 400, message = "No.", retry_after = 0 }
"#;
    let model = Model::start(script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    for (user, times) in [("soon", 3), ("whenever", 1), ("wrong", 1)] {
        let body = json!({"model": "m", "tools": [tool("web_search", &["query"])], "messages": [{"role": "user", "content": user}]});
        let answered = post_json(&gateway.url, &body).await;
        assert_eq!((answered.status >= 400, model.asked().len()), (true, times), "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_does_not_stream_is_heard_all_the_same() {
    let raw = json!({"id": "x", "created": 1_767_225_600, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}]});
    let script = format!("[[turn]]\nraw = '''{raw}'''\ncontent_type = \"application/json\"\n");
    let model = Model::start(&script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let body = json!({"model": "m", "stream": true, "tools": [tool("web_search", &["query"])], "messages": [{"role": "user", "content": "hi"}]});
    let response = post_json(&gateway.url, &body).await.streamed();
    assert_eq!(
        response["choices"][0],
        json!({"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_tools_keep_their_text_in_streams() {
    let chunk = |call: Value, reason: Value| {
        let choice = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": reason});
        format!("data: {}\n\n", json!({"id": "x", "created": 1_767_225_600, "model": "m", "choices": [choice]}))
    };
    let raw = [
        chunk(
            json!({"index": 0, "id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}),
            Value::Null,
        ),
        chunk(json!({"index": 0, "custom": {"input": " Patch"}}), json!("tool_calls")),
    ];
    let script = format!("[[turn]]\nraw = '''{}'''\ncontent_type = \"text/event-stream\"\n", raw.concat());
    let model = Model::start(&script).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let custom = json!({"type": "custom", "custom": {"name": "patch"}});
    let body = json!({"model": "m", "stream": true, "tools": [custom, tool("other", &[])], "messages": [{"role": "user", "content": "hi"}]});
    let response = post_json(&gateway.url, &body).await.streamed();
    let expected = json!([{"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin Patch"}}]);
    assert_eq!(response["choices"][0]["message"]["tool_calls"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_tells_of_its_own_tools_comes_beside_the_message() {
    let connector = json!({"type": "web_search"});
    let messages = json!([
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "web_search", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "web_search", "content": "{\"found\":1}"},
        {"role": "assistant", "content": "One was found."},
    ]);
    let raw = json!({"id": "x", "created": 1_767_225_600, "model": "m", "choices": [
        {"index": 0, "messages": messages, "finish_reason": "stop"}]});
    let model = Model::start(&format!("[[turn]]\nraw = '''{raw}'''\ncontent_type = \"application/json\"\n")).await;
    let gateway = RunningGateway::start(options(&model)).await;
    let body = json!({"model": "m", "tools": [tool("other", &[]), connector], "messages": [{"role": "user", "content": "hi"}]});
    let choice = post_json(&gateway.url, &body).await.json()["choices"][0].clone();
    assert_eq!((&choice["message"], &choice["messages"]), (&messages[2], &messages));
    assert_eq!(model.asked()[0]["tools"][1], connector);
}
