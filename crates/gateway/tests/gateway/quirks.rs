//! What providers do differently on the wire, and breaks of the wire itself.

use std::fmt::Write;

use crate::client_conversation::{ClientConversation, events};
use crate::common::{HttpResponse, Model, RunningGateway, options, post_json, post_to, tool};
use dacapo_wire::Wire;
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

/// The events of llama.cpp's server: without indexes, and without a model until the end.
fn llama_stream(items: &Value) -> String {
    let mut events = Vec::new();
    let response = json!({"id": "resp_1", "object": "response", "status": "in_progress"});
    events.push(json!({"type": "response.created", "response": response}));
    events.push(json!({"type": "response.in_progress", "response": response}));
    for item in items.as_array().unwrap() {
        let id = &item["id"];
        let mut started = item.clone();
        if item["type"] == "message" {
            started["content"] = json!([]);
            events.push(json!({"type": "response.output_item.added", "item": started}));
            let part = json!({"type": "output_text", "text": ""});
            events.push(json!({"type": "response.content_part.added", "item_id": id, "part": part}));
            for word in item["content"][0]["text"].as_str().unwrap().split_inclusive(' ') {
                events.push(json!({"type": "response.output_text.delta", "item_id": id, "delta": word}));
            }
        } else {
            started["arguments"] = json!("");
            events.push(json!({"type": "response.output_item.added", "item": started}));
            let (id, delta) = (&item["call_id"], &item["arguments"]);
            events.push(json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": delta}));
        }
        events.push(json!({"type": "response.output_item.done", "item": item}));
    }
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "", "output": items, "usage": usage});
    events.push(json!({"type": "response.completed", "response": response}));
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn raw_turn(raw: &str, when: &str) -> String {
    format!("[[turn]]\nwhen = {{ {when} }}\nraw = '''{raw}'''\ncontent_type = \"text/event-stream\"\n\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_streams_without_indexes_are_understood() {
    let program = json!({"code": "return await web_search({ query: 'x' });"}).to_string();
    let call = json!([{"type": "function_call", "call_id": "fc_1", "name": "execute", "arguments": program, "status": "completed"}]);
    let text = json!({"type": "output_text", "text": "It is found."});
    let answer =
        json!([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}]);
    let script =
        raw_turn(&llama_stream(&call), "after = \"user\"") + &raw_turn(&llama_stream(&answer), "after = \"tool\"");
    let model = Model::start(&script).await;
    let mut options = options(&model);
    options.upstreams[0].wires = Some(vec!["responses".to_owned()]);
    let gateway = RunningGateway::start(options).await;
    for wire in Wire::ALL {
        let mut conversation = ClientConversation::new(wire, &[("web_search", &["query"])]);
        conversation.extra = json!({"stream": true});
        conversation.user("What is it?");
        let send = async |conversation: &ClientConversation| {
            let (path, body) = conversation.request();
            post_to(&format!("{}{path}", gateway.url), &body).await.text
        };
        let called = send(&conversation).await;
        let calls = conversation.read_response(&called).calls;
        assert_eq!(calls.len(), 1, "{wire}: {called}");
        conversation.answer(&calls[0], "found", false);
        let answered = send(&conversation).await;
        assert_eq!(conversation.read_response(&answered).text, "It is found.", "{wire}");
        let model = events(&answered).iter().find_map(|event| {
            ["/model", "/response/model", "/message/model"].iter().find_map(|at| event.pointer(at).cloned())
        });
        assert_eq!(model, Some(json!("m")), "{wire}: the model that was asked for");
    }
}

/// However a server writes an error, its message reaches the client, and its status where there is one.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_error_says_is_never_lost() {
    let told = "the model ran out of memory";
    let shapes = [
        ("named", format!("event: error\ndata: {}\n\n", json!({"message": told, "code": 500})), 500),
        ("text", format!("event: error\ndata: {told}\n\n"), 502),
        ("plain", format!("data: {}\n\n", json!({"error": told})), 502),
        (
            "coded",
            format!("data: {}\n\n", json!({"error": {"code": 503, "message": told, "type": "unavailable"}})),
            503,
        ),
        ("detail", format!("event: error\ndata: {}\n\n", json!({"detail": [{"msg": told}]})), 502),
        ("field", format!("error: {}\n\n", json!({"code": 500, "message": told})), 500),
    ];
    let script: String = shapes.iter().map(|(name, raw, _)| raw_turn(raw, &format!("user = \"{name}\""))).collect();
    let model = Model::start(&script).await;
    for upstream in Wire::ALL {
        let mut options = options(&model);
        options.upstreams[0].wires = Some(vec![upstream.name().to_owned()]);
        let gateway = RunningGateway::start(options).await;
        for wire in Wire::ALL {
            for (name, _, status) in &shapes {
                let mut conversation = ClientConversation::new(wire, &[("web_search", &["query"])]);
                conversation.extra = json!({"stream": true});
                conversation.user(name);
                let (path, body) = conversation.request();
                let answered = post_to(&format!("{}{path}", gateway.url), &body).await;
                let pair = format!("{name}: {wire} client, {upstream} model: {}", answered.text);
                assert_eq!(answered.status, *status, "{pair}");
                assert_eq!(answered.json()["error"]["message"], told, "{pair}");
            }
        }
    }
    // A body that is no JSON, for a client on another wire.
    let model =
        Model::start("[[turn]]\nraw = \"upstream connect error\"\nstatus = 503\ncontent_type = \"text/plain\"").await;
    let mut options = options(&model);
    options.upstreams[0].wires = Some(vec!["chat".to_owned()]);
    let gateway = RunningGateway::start(options).await;
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let answered = post_to(&format!("{}/messages", gateway.url), &body).await;
    let expected = "the upstream answered 503 Service Unavailable: upstream connect error";
    assert_eq!(answered.json()["error"]["message"], expected);
}
