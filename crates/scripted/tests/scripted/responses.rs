//! OpenAI Responses.

use std::fmt::Write as _;

use dacapo_scripted::ScriptedModel;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::{EVERYTHING, ask, body, events, script, spoiled, wire};

fn user(text: &str) -> Value {
    json!({"model": "m", "input": text})
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": {"type": "object"}})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

fn reply(script: &ScriptedModel, request: &Value) -> Value {
    body(&script.reply(Wire::Responses, request))
}

const NATIVE: &str = r#"
    [[turn]]
    when.after = "user"
    reasoning = "I should look."
    text = "Found."
    search = "sky"
    program = "return 1"
    usage = { prompt_tokens = 7, completion_tokens_details = { reasoning_tokens = 3 } }
    native = [
        { type = "web_search_call", id = "ws_1", status = "completed", action = { type = "search", query = "sky" } },
        { type = "program", id = "prog_1", call_id = "call_p", code = "text(await tools.f({}))", fingerprint = "fp" },
        { type = "function_call", id = "fc_n", call_id = "call_n", name = "f", arguments = "{}", status = "completed", caller = { type = "program", caller_id = "call_p" } },
    ]

    [[turn]]
    when.step = 1
    text = "{{result/sky}} at step 1 {{user}}"
"#;

#[test]
fn a_response_with_everything_goes_out_whole() {
    let request = ask(&user("Anna"), json!({"store": false, "instructions": "Be kind.", "tools": [tool("now")]}));
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Responses, &request)));
}

#[test]
fn a_response_with_everything_is_streamed() {
    let tools = json!([{"type": "custom", "name": "execute"}, tool("now")]);
    let request = ask(&user("Anna"), json!({"stream": true, "tools": tools}));
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Responses, &request)));
}

#[test]
fn a_stream_adds_up_to_the_whole_response() {
    let tools = json!([{"type": "custom", "name": "execute"}, tool("search")]);
    for toml in [EVERYTHING, NATIVE] {
        let request = ask(&user("Anna"), json!({"stream": true, "store": false, "tools": tools}));
        let stream = events(&script(toml).reply(Wire::Responses, &request));
        let numbers: Vec<_> = stream.iter().map(|(_, event)| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..stream.len() as u64).collect::<Vec<_>>());
        let (name, last) = stream.last().unwrap();
        assert_eq!(name, "response.completed");
        let output = last["response"]["output"].as_array().unwrap();
        let mut grown: Vec<String> = vec![String::new(); output.len()];
        let mut done = Vec::new();
        for (name, event) in &stream {
            let index = event["output_index"].as_u64().unwrap_or_default() as usize;
            grown[index].push_str(event["delta"].as_str().unwrap_or_default());
            if name == "response.output_item.done" {
                assert_eq!(index, done.len());
                done.push(event["item"].clone());
            }
        }
        assert_eq!(&done, output);
        let text = |item: &Value| {
            let places = ["/summary/0/text", "/content/0/text", "/arguments", "/input"];
            places.iter().find_map(|place| item.pointer(place)?.as_str()).unwrap_or_default().to_owned()
        };
        assert_eq!(grown, output.iter().map(text).collect::<Vec<_>>());
    }
}

#[test]
fn what_the_model_said_may_come_back_as_it_is_and_in_no_other_way() {
    let script = script(NATIVE);
    let mut request = user("Look!");
    request["input"] = json!([{"role": "user", "content": [{"type": "input_text", "text": "Look!"}]}]);
    request["include"] = json!(["reasoning.encrypted_content"]);
    request["tools"] = json!([{"type": "custom", "name": "execute"}, tool("search"), {"type": "web_search"}]);
    let content = reply(&script, &request);
    insta::assert_snapshot!(serde_json::to_string_pretty(&json!([content["output"], content["usage"]])).unwrap());

    let items = content["output"].as_array().unwrap();
    let outputs: Vec<_> = items
        .iter()
        .filter_map(|item| {
            let kind = item["type"].as_str().filter(|kind| ["function_call", "custom_tool_call"].contains(kind))?;
            let kind = format!("{kind}_output");
            Some(json!({"type": kind, "call_id": item["call_id"], "output": r#"{"sky": "Blue"}"#}))
        })
        .collect();
    let echoed = |items: &[Value]| {
        let mut request = request.clone();
        request["input"].as_array_mut().unwrap().extend(items.iter().chain(&outputs).cloned());
        let content = reply(&script, &request);
        let text = content.pointer("/output/0/content/0/text").or(content.pointer("/error/message"));
        text.and_then(Value::as_str).unwrap().to_owned()
    };
    let mut changed = items.clone();
    changed[0]["summary"][0]["text"] = "I should look!".into();
    let mut short = items.clone();
    short[0]["summary"] = json!([]);
    let mut bare = items.clone();
    bare[0]["encrypted_content"] = Value::Null;
    insta::assert_snapshot!(
        [echoed(items), echoed(&items[1..]), echoed(&short), echoed(&changed), echoed(&bare)].join("\n")
    );
}

/// Without what every response says, which other tests show.
fn brief(mut wire: String) -> String {
    let mut from = 0;
    while let Some(start) = wire[from..].find(r#","parallel_tool_calls""#).map(|at| from + at) {
        let Some(end) = wire[start..].find(r#","usage""#) else { break };
        wire.replace_range(start..start + end, ",…");
        from = start;
    }
    wire
}

#[test]
fn answers_fail_break_and_end_as_the_script_says() {
    let turns = [
        "error = { status = 429, message = 'Slow down.', code = 'rate_limit_exceeded', retry_after = 2 }",
        "text = 'one two'\nerror_after = 5\nerror = { status = 503, message = 'Oops.' }",
        "text = 'one two'\nerror_after = 2\nerror = { status = 429, message = 'Slow down.', code = 'rate_limit_exceeded' }",
        "text = 'one two'\ncut_after = 1\ndelay_ms = 30\nchunk_delay_ms = 5",
        "text = 'one'\nquirks = ['no_done', 'crlf', 'comments']",
        "text = 'one two three four five six'\nprogram = 'return 1'",
        "text = 'one'\nfinish_reason = 'content_filter'",
        "calls = [{ name = 'f', arguments = '{\"a\": ' }]",
    ];
    let mut seen = String::new();
    for turn in turns {
        let script = script(&format!("[[turn]]\n{turn}"));
        let request = ask(&user("Hi"), json!({"max_output_tokens": 3}));
        let streamed = script.reply(Wire::Responses, &ask(&request, json!({"stream": true})));
        let whole = script.reply(Wire::Responses, &request);
        writeln!(seen, "=== {turn}\n--- streamed\n{}", brief(wire(&streamed))).unwrap();
        writeln!(seen, "--- whole\n{}\n", brief(wire(&whole))).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn requests_that_openai_refuses() {
    let hi = || json!({"role": "user", "content": "Hi"});
    let input = |items: Value| json!({"model": "m", "input": items});
    let with = |extra: Value| ask(&user("Hi"), extra);
    let long = "x".repeat(65);
    let item = |item: Value| input(json!([hi(), item, {"role": "assistant", "content": "Hm."}, hi()]));
    let reasoning = |more: Value| item(ask(&json!({"type": "reasoning", "id": "rs_1", "summary": []}), more));
    let custom = json!({"type": "custom_tool_call", "call_id": "a", "name": "f", "input": "1"});
    let requests = [
        json!([]),
        json!({"model": "m"}),
        input(json!(1)),
        input(json!(["Hi"])),
        input(json!([{"content": "Hi"}])),
        input(json!([{"role": "tool", "content": "Hi"}])),
        input(json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])),
        input(json!([{"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}])),
        input(json!([{"type": "tool_use", "id": "a"}])),
        input(json!([hi(), call("a")])),
        input(json!([hi(), call("a"), call("b"), output("b", "1"), hi()])),
        input(json!([hi(), output("a", "1")])),
        input(json!([hi(), output("a", "1"), call("a")])),
        input(json!([hi(), custom, output("a", "1")])),
        input(json!([hi(), call(&long), output(&long, "1")])),
        input(json!([hi(), ask(&call("a"), json!({"id": "call_a"})), output("a", "1")])),
        input(json!([hi(), ask(&call("a"), json!({"id": format!("fc_{long}")})), output("a", "1")])),
        input(json!([hi(), ask(&call("a"), json!({"arguments": {}})), output("a", "1")])),
        input(json!([hi(), ask(&call("a"), json!({"index": 1})), output("a", "1")])),
        input(json!([hi(), call("a"), ask(&output("a", "1"), json!({"output": {}}))])),
        item(json!({"type": "message", "id": "a", "role": "assistant", "content": "Hm."})),
        reasoning(json!({})),
        ask(&reasoning(json!({})), json!({"store": false})),
        reasoning(json!({"encrypted_content": "x"})),
        reasoning(json!({"id": "a"})),
        item(json!({"type": "item_reference", "id": "msg_1"})),
        with(json!({"previous_response_id": "resp_1"})),
        with(json!({"conversation": {"id": "conv_1"}})),
        with(json!({"stream": 1})),
        with(json!({"messages": []})),
        with(json!({"max_tokens": 5})),
        with(json!({"stop": ["x"]})),
        with(json!({"stream": true, "stream_options": {"include_usage": true}})),
        input(json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi", "cache_control": {}}]}])),
        with(json!({"max_output_tokens": 0})),
        with(json!({"tools": [{"type": "function", "function": {"name": "f"}}]})),
        with(json!({"tools": [{"name": "f", "input_schema": {"type": "object"}}]})),
        with(json!({"tools": [{"type": "bash_20250124", "name": "bash"}]})),
        with(json!({"tools": [tool("f g")]})),
        with(json!({"tools": [ask(&tool("f"), json!({"input_schema": {}}))]})),
        with(json!({"tools": [tool("f"), {"type": "namespace", "name": "n", "tools": [tool("f")]}]})),
    ];
    let script = script("[[turn]]\nwhen.step = 0\ntext = 'Fine.'");
    let mut seen = String::new();
    for request in requests {
        let refused = script.reply(Wire::Responses, &request);
        assert!([400, 404].contains(&refused.status), "{request}");
        writeln!(seen, "{} {}", refused.status, body(&refused)["error"]).unwrap();
    }
    insta::assert_snapshot!(seen);

    let history =
        json!([hi(), call("a"), output("a", "1"), call("a"), call("b"), output("b", "1"), output("a", "1"), hi()]);
    assert_eq!(reply(&script, &input(history))["output"][0]["content"][0]["text"], "Fine.");
}

#[test]
fn the_tools_of_every_kind_can_be_asked_for() {
    let script = script(
        "[[turn]]\nwhen.tool = ['web_search', 'inner', 'late']\ntext = 'All.'\n[[turn]]\ncalls = [{ name = 'c', arguments = { a = 'x' } }, { name = 'c', arguments = { a = 'x', b = 1 } }, { name = 'c', arguments = 'as it is' }]",
    );
    let namespace = json!({"type": "namespace", "name": "n", "tools": [tool("inner")]});
    let late = json!({"type": "additional_tools", "role": "developer", "tools": [tool("late")]});
    let input = json!([late, {"role": "user", "content": "Hi"}]);
    let all = json!({"model": "m", "input": input, "tools": [{"type": "web_search"}, namespace]});
    assert_eq!(reply(&script, &all)["output"][0]["content"][0]["text"], "All.");
    let custom = ask(&user("Hi"), json!({"tools": [{"type": "custom", "name": "c"}]}));
    let output = reply(&script, &custom)["output"].take();
    let inputs: Vec<_> = output.as_array().unwrap().iter().map(|item| item["input"].as_str().unwrap()).collect();
    assert_eq!(inputs, ["x", r#"{"a":"x","b":1}"#, "as it is"]);
}

#[test]
fn any_request_gets_an_answer_and_always_the_same() {
    let request = json!({
        "model": "m",
        "instructions": "Be kind.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "```ts\n1\n```"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "mine"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
            ask(&call("a"), json!({"id": "fc_1"})),
            output("a", "{\"a\":1}"),
        ],
        "tools": [tool("execute"), {"type": "custom", "name": "c"}, {"type": "namespace", "name": "n", "tools": [tool("g")]}],
        "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"],
        "stream": true,
        "store": false,
        "max_output_tokens": 5,
    });
    let scripts = [ScriptedModel::demo(), script(&format!("{EVERYTHING}\nsignature = 'mine'"))];
    assert_eq!(scripts[1].reply(Wire::Responses, &request).status, 200);
    for request in spoiled(&request) {
        for script in &scripts {
            let reply = script.reply(Wire::Responses, &request);
            assert!([200, 400, 404].contains(&reply.status), "{request}");
            assert_eq!(reply, script.reply(Wire::Responses, &request));
        }
    }
}
