//! The scripted model, byte for byte.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "scripted/messages.rs"]
mod messages;
#[path = "scripted/responses.rs"]
mod responses;

use std::fmt::Write as _;

use dacapo_gateway::scripted::{Ending, Reply, Script};
use dacapo_wire::Wire;
use serde_json::{Value, json};

/// A reply as text: what goes over the wire, piece by piece, with the delays.
fn wire(reply: &Reply) -> String {
    let mut wire = format!("{}\n", reply.status);
    for (name, value) in &reply.headers {
        writeln!(wire, "{name}: {value}").unwrap();
    }
    wire.push('\n');
    for piece in &reply.pieces {
        if !piece.delay.is_zero() {
            writeln!(wire, "({} ms)", piece.delay.as_millis()).unwrap();
        }
        wire.push_str(&String::from_utf8_lossy(&piece.bytes).replace('\r', "\\r"));
    }
    if reply.ending == Ending::Cut {
        wire.push_str("(cut)");
    }
    wire
}

fn body(reply: &Reply) -> Value {
    let bytes: Vec<u8> = reply.pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// The events of a stream, each as its name and what it says besides, in one line.
fn events(reply: &Reply) -> Vec<(String, Value)> {
    let bytes: Vec<u8> = reply.pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    let text = String::from_utf8(bytes).unwrap();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        assert_eq!(data["type"], name);
        (name, data)
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn script(toml: &str) -> Script {
    Script::parse(toml).unwrap()
}

fn ask(request: &Value, extra: Value) -> Value {
    let mut request = request.clone();
    let Value::Object(extra) = extra else { unreachable!("{extra}") };
    for (key, value) in extra {
        request[key] = value;
    }
    request
}

fn user(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}]})
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

/// What the reply says: its text, or its calls, or its error.
fn said(script: &Script, request: &Value) -> String {
    let body = body(&script.reply(Wire::Chat, request));
    if let Some(message) = body["error"]["message"].as_str() {
        return format!("error: {message}");
    }
    let message = &body["choices"][0]["message"];
    let mut said: Vec<String> = message["content"].as_str().map(str::to_owned).into_iter().collect();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        said.push(format!(
            "{}{}",
            call["function"]["name"].as_str().unwrap(),
            call["function"]["arguments"].as_str().unwrap()
        ));
    }
    said.join(" + ")
}

const EVERYTHING: &str = r#"
    system_fingerprint = "fp_test"
    [[turn]]
    reasoning = "First, look around."
    details = [{ type = "reasoning.encrypted", data = "abc" }]
    text = "Let me see, {{user}}"
    search = ["weather", { query = "{{user}}", limit = 3 }]
    program = "return await weather({ city: \"Paris\" })"
    calls = [{ name = "now" }, { name = "say", arguments = { z = [1, 2.5], a = "é" }, id = "call_mine", signature = "sig" }]
"#;

#[test]
fn a_message_with_everything_goes_out_whole() {
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Chat, &user("Anna"))));
}

#[test]
fn a_message_with_everything_is_streamed() {
    let request = ask(&user("Anna"), json!({"stream": true, "stream_options": {"include_usage": true}}));
    insta::assert_snapshot!(wire(&script(EVERYTHING).reply(Wire::Chat, &request)));
}

#[test]
fn choices_are_equal_whole_and_streamed() {
    let script = script("[[turn]]\ntext = 'One two'");
    let whole = wire(&script.reply(Wire::Chat, &ask(&user("Hi"), json!({"n": 2}))));
    let streamed = wire(&script.reply(Wire::Chat, &ask(&user("Hi"), json!({"n": 2, "stream": true}))));
    insta::assert_snapshot!(format!("{whole}\n\n{streamed}"));
}

#[test]
fn every_quirk_changes_the_stream_in_its_own_way() {
    let quirks = "no_index repeat_id repeat_name crlf comments no_done usage_in_last_choice usage_in_last_chunk \
                  object_arguments no_finish_reason many_calls_in_one_delta empty_first_choice role_in_every_delta null_content";
    let mut seen = String::new();
    for quirk in [""].into_iter().chain(quirks.split_whitespace()) {
        let named = if quirk.is_empty() { String::new() } else { format!("'{quirk}'") };
        let calls = "calls = [{ name = 'a', arguments = { x = 1 } }, { name = 'b' }]";
        let toml =
            format!("[[turn]]\ntext = 'Hi'\n{calls}\nquirks = [{named}]\nchunk_chars = 100\nusage = {{ cost = 0.5 }}");
        let request = ask(&user("Hi"), json!({"stream": true}));
        let wire = wire(&script(&toml).reply(Wire::Chat, &request));
        let (_, events) = wire.split_once("\n\n").unwrap();
        let id = events.split('"').find(|part| part.starts_with("chatcmpl-")).unwrap();
        let envelope = format!(r#""id":"{id}","object":"chat.completion.chunk","created":1767225600,"model":"m""#);
        writeln!(seen, "--- {quirk}\n{}", events.replace(&envelope, "…").replace(r#""logprobs":null,"#, "")).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn quirks_of_whole_messages() {
    let quirks = "quirks = ['object_arguments', 'no_finish_reason', 'null_content', 'crlf']";
    let toml = format!("[[turn]]\ntext = ''\nprogram = 'return 1'\n{quirks}\nusage = {{ prompt_tokens = 7 }}");
    let mut body = body(&script(&toml).reply(Wire::Chat, &user("Hi")));
    body["choices"][0]["message"]["tool_calls"][0]["id"].take();
    assert_eq!(
        json!([body["choices"], body["usage"]["total_tokens"]]),
        json!([
            [{
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": null,
                    "tool_calls": [{"id": null, "type": "function", "function": {"name": "execute", "arguments": {"code": "return 1"}}}],
                },
                "logprobs": null,
                "finish_reason": null,
            }],
            14
        ])
    );
}

#[test]
fn responses_fail_break_and_wait_as_the_script_says() {
    let turns = [
        "error = { status = 429, message = 'Slow down.', code = 'rate_limit_exceeded', retry_after = 2, headers = { X-Left = '0', X-Request-Id = 'req_mine' } }\ndelay_ms = 30",
        "text = 'one two three'\nerror_after = 2\nerror = { status = 503, message = 'Overloaded.', type = 'overloaded' }",
        "text = 'one two three'\ncut_after = 2\ndelay_ms = 30\nchunk_delay_ms = 5",
        "text = 'one'\ncut_after = 0\ndelay_ms = 30",
        "raw = 'data: [DO'\nchunk_chars = 4\nchunk_delay_ms = 5",
        "raw = '<h1>Bad gateway</h1>'\nstatus = 502\ncontent_type = 'text/html'\ncut_after = 1",
    ];
    let mut seen = String::new();
    for turn in turns {
        let script = script(&format!("[[turn]]\n{turn}"));
        writeln!(
            seen,
            "=== {turn}\n--- streamed\n{}",
            wire(&script.reply(Wire::Chat, &ask(&user("Hi"), json!({"stream": true}))))
        )
        .unwrap();
        writeln!(seen, "--- whole\n{}\n", wire(&script.reply(Wire::Chat, &user("Hi")))).unwrap();
    }
    insta::assert_snapshot!(seen);
}

#[test]
fn requests_that_a_strict_provider_refuses() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let asked = |ids: &[&str]| json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()});
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "1"});
    let hi = || json!({"role": "user", "content": "Hi"});
    let long = "x".repeat(41);
    let mut object_arguments = asked(&["a"]);
    object_arguments["tool_calls"][0]["function"]["arguments"] = json!({});
    let messages = |messages: Value| json!({"model": "m", "messages": messages});
    let requests = [
        json!([]),
        json!({"model": "m"}),
        messages(json!("Hi")),
        messages(json!([])),
        messages(json!(["Hi"])),
        messages(json!([{"content": "Hi"}])),
        messages(json!([{"role": "code", "content": "Hi"}])),
        messages(json!([{"role": "code_result", "content": "Hi"}])),
        messages(json!([hi(), answer("a")])),
        messages(json!([hi(), asked(&["a", "b"]), answer("a"), answer("c")])),
        messages(json!([hi(), asked(&["a", "b"]), answer("a"), hi()])),
        messages(json!([hi(), asked(&["a", "b"])])),
        messages(json!([hi(), asked(&["a"]), answer("a"), hi(), answer("a")])),
        messages(json!([hi(), asked(&[&long]), answer(&long)])),
        messages(json!([hi(), asked(&[])])),
        messages(json!([hi(), object_arguments, answer("a")])),
        ask(&user("Hi"), json!({"tools": [tool("f"), tool("g"), tool("f")]})),
        ask(&user("Hi"), json!({"n": 17})),
        ask(&user("Hi"), json!({"max_tokens": 0})),
        ask(&user("Hi"), json!({"max_completion_tokens": 1.5})),
        ask(&user("Hi"), json!({"stop": [1]})),
        ask(&user("Hi"), json!({"stream_options": {"include_usage": true}})),
    ];
    let script = script("[[turn]]\ntext = 'Fine.'");
    let mut seen = String::new();
    for request in requests {
        let reply = script.reply(Wire::Chat, &request);
        assert_eq!(reply.status, 400, "{request}");
        writeln!(seen, "{}", body(&reply)["error"]).unwrap();
    }
    insta::assert_snapshot!(seen);

    let history = json!([hi(), asked(&["a", "b"]), answer("b"), answer("a"), asked(&["a"]), answer("a"), hi()]);
    assert_eq!(said(&script, &messages(history)), "Fine.");
}

#[test]
fn texts_end_where_the_request_wants() {
    let counted = script("[[turn]]\nreasoning = 'Hm hm.'\ntext = 'One two three four'\nprogram = 'return 1'")
        .counting_with(|text| text.split_whitespace().count());
    let ended = |extra: Value| {
        let body = body(&counted.reply(Wire::Chat, &ask(&user("Hi"), extra)));
        let choice = &body["choices"][0];
        let calls = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
        let message = &choice["message"];
        let tokens = &body["usage"]["completion_tokens"];
        format!("{} {} +{calls} {} {tokens}", message["reasoning_content"], message["content"], choice["finish_reason"])
    };
    insta::assert_snapshot!([
        ended(json!({})),
        ended(json!({"max_tokens": 6})),
        ended(json!({"max_tokens": 5})),
        ended(json!({"max_tokens": 9, "max_completion_tokens": 1})),
        ended(json!({"stop": "three"})),
        ended(json!({"stop": ["", "four", " t"], "max_tokens": 3})),
        ended(json!({"stop": ["two"], "max_tokens": 2})),
    ].join("\n"), @r#"
    "Hm hm." "One two three four" +1 "tool_calls" 9
    "Hm hm." "One two three four" +1 "tool_calls" 9
    "Hm hm." "One two three" +0 "length" 5
    "Hm" "" +0 "length" 1
    "Hm hm." "One two " +0 "stop" 4
    "Hm hm." "One" +0 "stop" 3
    "Hm hm." "" +0 "length" 2
    "#);
}

#[test]
fn templates_take_from_the_conversation_what_is_there() {
    let fill = |template: &str, user: &str, result: &str| {
        let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let request = json!({"messages": [
            {"role": "user", "content": "earlier"},
            {"role": "user", "content": [{"type": "text", "text": user}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ]});
        let toml = format!("[[turn]]\ntext = {}", json!(template));
        said(&script(&toml), &request)
    };
    let result = r#"{"a": {"b": "text {{user}}", "c/d": [1, {"e": null}]}}"#;
    assert_eq!(
        fill("{{user}}|{{result/a/b}}|{{result/a/c~1d}}", "Anna", result),
        r#"Anna|text {{user}}|[1,{"e":null}]"#
    );
    assert_eq!(fill("{{result}}|{{result/a/x}}", "", "plain"), "plain|<nothing at a/x>");
    assert_eq!(fill("{{ user }} {{{user}}} ${{a}} {{", "Anna", ""), "{{ user }} {Anna} ${{a}} {{");
    assert_eq!(fill("{{code}}", "Run\n````ts\nlet a = `\n```\n`;\n````\nand ```ts\n2\n```", ""), "let a = `\n```\n`;");
    assert_eq!(fill("{{code}}", "Run ```return 1``` now", ""), "return 1");
    assert_eq!(fill("{{code}}", "```js\r\nreturn 2\r\n", ""), "return 2");
    assert_eq!(fill("{{code}}", "Run it", ""), "<nothing at code>");
    assert_eq!(said(&script("[[turn]]\ntext = '{{result}}'"), &user("Hi")), "<nothing at result>");
}

#[test]
fn the_first_turn_whose_conditions_all_hold_answers() {
    let script = script(
        r#"
        [[turn]]
        when = { user = "WEATHER", after = "user", tool = ["search", "execute"] }
        search = "weather"

        [[turn]]
        when = { user = "weather", step = 1, last = "Sunny" }
        text = "It is sunny."

        [[turn]]
        when.model = "other"
        when.no_tool = "execute"
        text = "Other."
        "#,
    );
    let tools = json!({"tools": [tool("search"), {"type": "web_search"}, tool("execute")]});
    let asked = ask(&user("The weather?"), tools.clone());
    let call = json!({"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}});
    let answered = json!({"messages": [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]});
    insta::assert_snapshot!([
        said(&script, &asked),
        said(&script, &ask(&asked, json!({"tool_choice": "none"}))),
        said(&script, &answered),
        said(&script, &ask(&user("Hi"), json!({"model": "other"}))),
        said(&script, &ask(&ask(&user("Hi"), tools), json!({"model": "other"}))),
        said(&script, &user("The weather?")),
    ].join("\n"), @r#"
    search{"query":"weather"}
    error: No turn of the script answers this request. The last message has role 'user' and says "The weather?". The closest is turn 1 (line 2), but it calls tools, which 'tool_choice' forbids.
    It is sunny.
    Other.
    error: No turn of the script answers this request. The last message has role 'user' and says "Hi". The closest is turn 1 (line 2), but the last user message does not contain "WEATHER".
    error: No turn of the script answers this request. The last message has role 'user' and says "The weather?". The closest is turn 3 (line 10), but the model is not "other".
    "#);
}

#[test]
fn mistakes_in_a_script_are_told_with_their_line() {
    let mistakes = [
        "",
        "[[turn]]\ntext = 'a",
        "[[turn]]\ntext = 'a'\n\n[[turn]]\ntxt = 'b'",
        "colour = 1\n[[turn]]\ntext = 'a'",
        "turn = 'a'",
        "[[turn]]\ntext = 1",
        "[[turn]]\n[turn.when]\nuser = 'a'",
        "[[turn]]\ntext = 'a'\n[turn.when]\nafter = 'code'",
        "[[turn]]\ntext = 'a'\nwhen = { step = -1 }",
        "[[turn]]\nprogram = ['a', { code = 'b' }]",
        "[[turn]]\nsearch = { limit = 1 }",
        "[[turn]]\ncalls = [\n  { name = 'a' },\n  { name = 'b', arguments = 1 },\n]",
        "[[turn]]\ntext = 'a'\nquirks = ['crlf', 'no_indx']",
        "[[turn]]\ntext = 'a'\nchunk_chars = 0",
        "[[turn]]\ntext = 'a'\ndetails = [nan]",
        "[[turn]]\ntext = 'a'\nerror = { status = 500, message = 'b' }",
        "[[turn]]\nerror = { status = 200, message = 'b' }",
        "[[turn]]\nerror = { status = 500, message = 'b', headers = { 'a b' = 'c' } }",
        "[[turn]]\nerror = { status = 500, message = 'b', retry_after = \"1\\n\" }",
        "[[turn]]\ntext = 'a'\nerror_after = 1",
        "[[turn]]\nraw = 'a'\ntext = 'b'",
        "[[turn]]\ntext = 'b'\ncontent_type = 'text/html'",
    ];
    let told = |toml: &&str| Script::parse(toml).unwrap_err().to_string();
    insta::assert_snapshot!(mistakes.iter().map(told).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_demo_runs_the_fence_it_is_sent() {
    let demo = Script::demo();
    let request = user("Please run\n```ts\nreturn await add({ a: 1 })\n```");
    let offered = ask(&request, json!({"tools": [tool("execute")]}));
    let mut answered = offered.clone();
    let message = body(&demo.reply(Wire::Chat, &offered))["choices"][0]["message"].take();
    let id = message["tool_calls"][0]["id"].clone();
    let messages = answered["messages"].as_array_mut().unwrap();
    messages.extend([message, json!({"role": "tool", "tool_call_id": id, "content": "3"})]);
    insta::assert_snapshot!(
        [
            said(&demo, &offered),
            said(&demo, &answered),
            said(&demo, &request),
            said(&demo, &user("Hello!")),
            said(&demo, &ask(&offered, json!({"tool_choice": "none"}))),
        ]
        .join("\n")
    );
}

/// Every request that comes of replacing one value of a valid one.
fn spoiled(value: &Value) -> Vec<Value> {
    let odd = [json!(null), json!(true), json!(-1), json!(1e300), json!("```"), json!([]), json!([[]]), json!({})];
    let mut spoiled = odd.to_vec();
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                spoiled.extend(self::spoiled(item).into_iter().map(|odd| {
                    let mut items = items.clone();
                    items[i] = odd;
                    items.into()
                }));
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                spoiled.extend(self::spoiled(field).into_iter().map(|odd| {
                    let mut fields = fields.clone();
                    fields[key] = odd;
                    fields.into()
                }));
            }
        }
        _ => {}
    }
    spoiled
}

#[test]
fn any_request_gets_an_answer_and_always_the_same() {
    let call = json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let request = json!({
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "```ts\n1\n```"}]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "{\"a\":1}"},
        ],
        "tools": [tool("execute")],
        "tool_choice": "auto",
        "stream": true,
        "stream_options": {"include_usage": true},
        "n": 2,
        "max_tokens": 5,
        "max_completion_tokens": 5,
        "stop": ["x"],
    });
    let scripts = [Script::demo(), script(EVERYTHING)];
    for request in spoiled(&request) {
        for script in &scripts {
            let reply = script.reply(Wire::Chat, &request);
            assert!([200, 400].contains(&reply.status), "{request}");
            assert_eq!(reply, script.reply(Wire::Chat, &request));
        }
    }
}

#[test]
fn any_text_is_a_script_or_a_mistake_on_one_of_its_lines() {
    let demo = include_str!("../src/scripted/demo.toml");
    for text in [EVERYTHING, demo] {
        for (end, _) in text.char_indices() {
            if let Err(error) = Script::parse(&text[..end]) {
                assert!((1..=text[..end].lines().count().max(1) + 1).contains(&error.line), "{error}");
            }
        }
    }
}

#[test]
fn the_example_in_the_documentation_runs() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scripted-model.md")).unwrap();
    let (_, toml) = page.split_once("```toml\n").unwrap();
    let example = script(toml.split_once("```").unwrap().0);
    let mut request = ask(&user("What's the weather in Paris?"), json!({"tools": [tool("execute")]}));
    let mut story = vec![said(&example, &request)];
    let message = body(&example.reply(Wire::Chat, &request))["choices"][0]["message"].take();
    let id = message["tool_calls"][0]["id"].clone();
    let result = json!({"role": "tool", "tool_call_id": id, "content": r#"{"sky": "clear"}"#});
    request["messages"].as_array_mut().unwrap().extend([message, result]);
    story.extend([said(&example, &request), said(&example, &user("Break, please")), said(&example, &user("Hi"))]);
    insta::assert_snapshot!(story.join("\n"));
}
