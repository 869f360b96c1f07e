//! Anthropic Messages.

use std::fmt::Write as _;

use dacapo_scripted::ScriptedModel;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::{EVERYTHING, ask, body, events, script, spoiled, wire};

fn user(text: &str) -> Value {
    json!({"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": text}]})
}

fn tool(name: &str) -> Value {
    json!({"name": name, "input_schema": {"type": "object"}})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn result(id: &str, text: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": text})
}

fn reply(script: &ScriptedModel, request: &Value) -> Value {
    body(&script.reply(Wire::Messages, request))
}

const NATIVE: &str = r#"
    [[turn]]
    when.after = "user"
    reasoning = "I should look."
    text = "Found."
    program = "return 1"
    usage = { prompt_tokens = 7, prompt_tokens_details = { cached_tokens = 3 } }
    [turn.native]
    messages = [
        { type = "server_tool_use", id = "srvtoolu_1", name = "web_search", input = { query = "sky" } },
        { type = "web_search_tool_result", tool_use_id = "srvtoolu_1", content = [] },
        { type = "text", text = "It is blue.", citations = [{ type = "char_location", cited_text = "blue" }] },
    ]

    [[turn]]
    text = "{{result/sky}} at step 1 {{user}}"
    when.step = 1
"#;

#[test]
fn a_message_with_everything_goes_out_whole() {
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Messages, &user("Anna"))));
}

#[test]
fn a_message_with_everything_is_streamed() {
    let request = ask(&user("Anna"), json!({"stream": true}));
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Messages, &request)));
}

/// What a client makes of a stream.
fn gathered(stream: &[(String, Value)]) -> Value {
    let mut message = Value::Null;
    let mut input = String::new();
    for (name, event) in stream {
        let index = event["index"].as_u64().unwrap_or_default() as usize;
        let delta = &event["delta"];
        match name.as_str() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let content = message["content"].as_array_mut().unwrap();
                assert_eq!(content.len(), index);
                content.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let block = &mut message["content"][index];
                for field in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[field].as_str() {
                        block[field] = format!("{}{more}", block[field].as_str().unwrap()).into();
                    }
                }
                if let Some(citation) = delta.get("citation") {
                    block["citations"].as_array_mut().unwrap().push(citation.clone());
                }
                input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !input.is_empty() => {
                message["content"][index]["input"] = serde_json::from_str(&std::mem::take(&mut input)).unwrap();
            }
            "message_delta" => {
                message["stop_reason"] = delta["stop_reason"].clone();
                message["stop_sequence"] = delta["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => {}
        }
    }
    assert_eq!(stream.last().unwrap().0, "message_stop");
    message
}

#[test]
fn a_stream_adds_up_to_the_whole_message() {
    for toml in [EVERYTHING, NATIVE] {
        for thinking in [json!({"type": "disabled"}), json!({"type": "adaptive", "display": "omitted"})] {
            let request = ask(&user("Anna"), json!({"thinking": thinking, "tools": [tool("execute")]}));
            let mut whole = reply(&script(toml), &request);
            let streamed = script(toml).reply(Wire::Messages, &ask(&request, json!({"stream": true})));
            let mut streamed = gathered(&events(&streamed));
            // Ids come from the request, which differs.
            for message in [&mut whole, &mut streamed] {
                message["id"] = Value::Null;
                for block in message["content"].as_array_mut().unwrap().iter_mut() {
                    if block["type"] == "tool_use" {
                        block["id"] = Value::Null;
                    }
                }
                message["usage"]["input_tokens"] = Value::Null;
            }
            assert_eq!(whole, streamed);
        }
    }
}

#[test]
fn what_the_model_said_may_come_back_as_it_is_and_in_no_other_way() {
    let script = script(NATIVE);
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 100}});
    let mut request = ask(&user("Look!"), thinking);
    request["tools"] = json!([tool("execute"), {"type": "web_search_20260318", "name": "web_search"}]);
    let content = reply(&script, &request);
    insta::assert_snapshot!(serde_json::to_string_pretty(&content).unwrap());

    let content = content["content"].as_array().unwrap();
    let results = json!([result(content.last().unwrap()["id"].as_str().unwrap(), r#"{"sky": "Blue"}"#)]);
    let echoed = |content: &[Value]| {
        let mut request = request.clone();
        let echo = [json!({"role": "assistant", "content": content}), json!({"role": "user", "content": results})];
        request["messages"].as_array_mut().unwrap().extend(echo);
        let content = reply(&script, &request);
        content["content"][0]["text"].as_str().or(content["error"]["message"].as_str()).unwrap().to_owned()
    };
    let mut changed = content.clone();
    changed[0]["thinking"] = "I should look!".into();
    let mut forged = content.clone();
    forged[0]["signature"] = "x".into();
    let mut omitted = content.clone();
    omitted[0]["thinking"] = "".into();
    insta::assert_snapshot!(
        [echoed(content), echoed(&omitted), echoed(&changed), echoed(&forged), echoed(&content[1..])].join("\n")
    );
}

#[test]
fn a_thinking_model_thinks_before_it_calls_even_if_the_script_does_not_say_so() {
    let script = script(
        "[[turn]]\nwhen.step = 0\nprogram = 'return 1'\n[[turn]]\nwhen.step = 1\nreasoning = 'Hm.'\nsignature = 'mine'\nprogram = 'return 2'\n[[turn]]\ntext = 'Done.'",
    );
    let mut request = ask(&user("Go"), json!({"thinking": {"type": "enabled", "budget_tokens": 100}}));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let content = reply(&script, &request);
        let content = content["content"].as_array().unwrap();
        let of = |block: &Value| format!("{} {} {}", block["type"], block["data"], block["signature"]);
        seen.push(content.iter().map(of).collect::<Vec<_>>().join(", "));
        let results = content.iter().filter_map(|block| Some(result(block["id"].as_str()?, "1"))).collect::<Vec<_>>();
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": results}));
    }
    insta::assert_snapshot!(seen.join("\n"), @r#"
    "redacted_thinking" "fqA4S4SKU3wETnzado3gcVNEePTRwKyNnZv0eYrB" null, "tool_use" null null
    "thinking" null "mine", "tool_use" null null
    "text" null null
    "#);
}

#[test]
fn answers_fail_break_and_end_as_the_script_says() {
    let turns = [
        "error = { status = 429, message = 'Slow down.', retry_after = 2 }",
        "error = { status = 529, message = 'Overloaded.', code = 'too_hot', headers = { Request-Id = 'req_mine' } }",
        "error = { status = 413, message = 'Too large.' }",
        "text = 'one two three'\nerror_after = 4\nerror = { status = 500, message = 'Oops.' }",
        "text = 'one two three'\ncut_after = 2\ndelay_ms = 30\nchunk_delay_ms = 5",
        "text = 'one'\nfinish_reason = 'length'\nquirks = ['no_done', 'crlf', 'comments']",
        "text = 'one'\nfinish_reason = 'pause_turn'",
        "text = 'one STOP two'\nquirks = ['no_finish_reason']",
        "text = 'one STOP two'\nprogram = 'return 1'",
        "calls = [{ name = 'f', arguments = '{\"a\": ' }]",
    ];
    let mut seen = String::new();
    for turn in turns {
        let script = script(&format!("[[turn]]\n{turn}"));
        let request = ask(&user("Hi"), json!({"stop_sequences": ["STOP"]}));
        let streamed = ask(&request, json!({"stream": true}));
        writeln!(seen, "=== {turn}\n--- streamed\n{}", wire(&script.reply(Wire::Messages, &streamed))).unwrap();
        writeln!(seen, "--- whole\n{}\n", wire(&script.reply(Wire::Messages, &request))).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn requests_that_anthropic_refuses() {
    let hi = || json!({"role": "user", "content": "Hi"});
    let says = |content: Value| json!({"role": "assistant", "content": content});
    let answers = |content: Value| json!({"role": "user", "content": content});
    let messages = |messages: Value| ask(&user(""), json!({"messages": messages}));
    let with = |extra: Value| ask(&user("Hi"), extra);
    let mut odd_input = call("a");
    odd_input["input"] = "{}".into();
    let mut extra = call("a");
    extra["index"] = 1.into();
    let caller = json!({"allowed_callers": ["code_execution_20260120"]});
    let thinking = json!({"type": "enabled", "budget_tokens": 100});
    let open = json!([hi(), says(json!([call("a")])), answers(json!([result("a", "1")]))]);
    let requests = [
        json!([]),
        json!({"max_tokens": 1}),
        json!({"messages": [hi()]}),
        with(json!({"max_tokens": 0})),
        with(json!({"stream": 1})),
        messages(json!([])),
        messages(json!([{"content": "Hi"}])),
        messages(json!([{"role": "system", "content": "Hi"}])),
        messages(json!([{"role": "tool", "content": "Hi"}])),
        messages(json!([answers(json!(""))])),
        messages(json!([answers(json!([{"type": "text", "text": ""}]))])),
        messages(json!([answers(json!([{"type": "text", "text": " "}]))])),
        messages(json!([answers(json!([{"type": "input_text", "text": "Hi"}]))])),
        messages(json!([answers(json!([call("a")]))])),
        messages(json!([hi(), says(json!([result("a", "1")]))])),
        messages(json!([hi(), says(json!("Well, "))])),
        messages(json!([hi(), says(json!([call("a.b")])), answers(json!([result("a.b", "1")]))])),
        messages(json!([hi(), says(json!([odd_input])), answers(json!([result("a", "1")]))])),
        messages(json!([hi(), says(json!([extra])), answers(json!([result("a", "1")]))])),
        messages(json!([hi(), says(json!([call("a")]))])),
        messages(json!([hi(), says(json!([call("a"), call("b")])), answers(json!([result("a", "1")]))])),
        messages(json!([
            hi(),
            says(json!([call("a")])),
            answers(json!([{"type": "text", "text": "So:"}, result("a", "1")]))
        ])),
        messages(json!([hi(), says(json!([call("a")])), answers(json!([result("a", "1"), result("a", "2")]))])),
        messages(json!([hi(), says(json!("Hm.")), answers(json!([result("a", "1")]))])),
        messages(json!([hi(), says(json!([{"type": "thinking", "thinking": "Hm.", "signature": "x"}])), hi()])),
        messages(json!([hi(), says(json!([{"type": "redacted_thinking", "data": "x"}])), hi()])),
        messages(json!([
            hi(),
            says(json!([{"type": "web_search_tool_result", "tool_use_id": "x", "content": []}])),
            hi()
        ])),
        ask(&messages(open), json!({"thinking": thinking})),
        with(json!({"thinking": {"type": "enabled", "budget_tokens": 1000}})),
        with(json!({"thinking": thinking, "tools": [tool("f")], "tool_choice": {"type": "any"}})),
        with(json!({"tools": [{"type": "function", "function": {"name": "f"}}]})),
        with(json!({"tools": [{"name": "f"}]})),
        with(json!({"tools": [{"name": "f", "input_schema": {}}]})),
        with(json!({"tools": [tool("f g")]})),
        with(json!({"tools": [tool(&"f".repeat(129))]})),
        with(json!({"tools": [tool("f"), tool("f")]})),
        with(json!({"tools": [ask(&tool("f"), json!({"parameters": {}}))]})),
        with(json!({"tools": [ask(&tool("f"), caller.clone())]})),
        with(json!({"tools": [tool("f")], "tool_choice": "auto"})),
        with(json!({"tools": [tool("f")], "tool_choice": {"type": "required"}})),
        with(json!({"tools": [tool("f")], "tool_choice": {"type": "tool", "name": "g"}})),
        with(json!({"tool_choice": {"type": "auto"}})),
        with(json!({"stream_options": {"include_usage": true}})),
    ];
    let script = script("[[turn]]\nwhen.step = 0\ntext = 'Fine.'");
    let mut seen = String::new();
    for request in requests {
        let refused = script.reply(Wire::Messages, &request);
        assert_eq!(refused.status, 400, "{request}");
        let mut body = body(&refused);
        assert_eq!(body["request_id"], refused.headers[1].1);
        body["request_id"].take();
        writeln!(seen, "{}", body["error"]["message"].as_str().unwrap()).unwrap();
        body["error"]["message"].take();
        let expected = json!({"type": "invalid_request_error", "message": null});
        assert_eq!(body, json!({"type": "error", "error": expected, "request_id": null}));
    }
    insta::assert_snapshot!(seen);

    let lost = json!({"thread": {"type": "continue", "previous_message_id": "msg_1"}});
    let lost = script.reply(Wire::Messages, &with(lost));
    assert_eq!(lost.status, 404);
    assert_eq!(body(&lost)["error"]["details"], json!({"error_code": "thread_not_found"}));

    let execution = json!({"type": "code_execution_20260120", "name": "code_execution"});
    let fine = [
        with(json!({"thread": {"type": "create"}})),
        with(json!({"tools": [execution, ask(&tool("f"), caller)]})),
        messages(json!([
            hi(),
            says(json!([call("a")])),
            says(json!([call("b")])),
            answers(json!([result("b", "1")])),
            answers(json!([result("a", "1"), {"type": "text", "text": "So?"}])),
        ])),
    ];
    for request in fine {
        assert_eq!(reply(&script, &request)["content"][0]["text"], "Fine.", "{request}");
    }
}

#[test]
fn tokens_of_a_prompt_are_counted() {
    let script = script("[[turn]]\ntext = 'Fine.'").with_token_counter(|text| text.split_whitespace().count());
    let request =
        json!({"model": "m", "system": "Be kind.", "messages": [{"role": "user", "content": "One two three"}]});
    assert_eq!(script.count_tokens(&request), json!({"input_tokens": 5}));
    let whole = reply(&script, &ask(&request, json!({"max_tokens": 10})));
    assert_eq!(whole["usage"]["input_tokens"], 5);
    assert_eq!(script.count_tokens(&json!({}))["error"]["message"], "messages: Field required");
}

#[test]
fn any_request_gets_an_answer_and_always_the_same() {
    let request = json!({
        "model": "m",
        "max_tokens": 50,
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "```ts\n1\n```"}]},
            {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "mine"}, call("a")]},
            {"role": "user", "content": [result("a", "{\"a\":1}"), {"type": "text", "text": "```"}]},
        ],
        "tools": [tool("execute"), {"type": "web_search_20260318", "name": "web_search"}],
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 5},
        "stream": true,
        "stop_sequences": ["x"],
    });
    let scripts = [ScriptedModel::demo(), script(&format!("{EVERYTHING}\nsignature = 'mine'"))];
    assert_eq!(scripts[1].reply(Wire::Messages, &request).status, 200);
    for request in spoiled(&request) {
        for script in &scripts {
            let reply = script.reply(Wire::Messages, &request);
            assert!([200, 400].contains(&reply.status), "{request}");
            assert_eq!(reply, script.reply(Wire::Messages, &request));
            script.count_tokens(&request);
        }
    }
}
