//! The scripted model, byte for byte.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "scripted/chat.rs"]
mod chat;
#[path = "scripted/messages.rs"]
mod messages;
#[path = "scripted/responses.rs"]
mod responses;

use std::fmt::Write as _;

use dacapo_scripted::{ReplyEnding, ScriptedModel, ScriptedReply};
use dacapo_wire::Wire;
use serde_json::{Value, json};

/// A reply as text: status, headers, and the chunks of the body with their delays.
fn wire(reply: &ScriptedReply) -> String {
    let mut wire = format!("{}\n", reply.status);
    for (name, value) in &reply.headers {
        writeln!(wire, "{name}: {value}").unwrap();
    }
    wire.push('\n');
    for chunk in &reply.chunks {
        if !chunk.delay.is_zero() {
            writeln!(wire, "({} ms)", chunk.delay.as_millis()).unwrap();
        }
        wire.push_str(&String::from_utf8_lossy(&chunk.bytes).replace('\r', "\\r"));
    }
    if reply.ending == ReplyEnding::Cut {
        wire.push_str("(cut)");
    }
    wire
}

fn body(reply: &ScriptedReply) -> Value {
    let bytes: Vec<u8> = reply.chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

/// The events of a stream whose events have names.
fn events(reply: &ScriptedReply) -> Vec<(String, Value)> {
    let bytes: Vec<u8> = reply.chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()).collect();
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

fn script(toml: &str) -> ScriptedModel {
    ScriptedModel::parse(toml).unwrap()
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

/// The text, calls or error of a reply.
fn content(script: &ScriptedModel, request: &Value) -> String {
    let body = body(&script.reply(Wire::Chat, request));
    if let Some(message) = body["error"]["message"].as_str() {
        return format!("error: {message}");
    }
    let message = &body["choices"][0]["message"];
    let mut content: Vec<String> = message["content"].as_str().map(str::to_owned).into_iter().collect();
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        content.push(format!(
            "{}{}",
            call["function"]["name"].as_str().unwrap(),
            call["function"]["arguments"].as_str().unwrap()
        ));
    }
    content.join(" + ")
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
        content(&script(&toml), &request)
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
    assert_eq!(content(&script("[[turn]]\ntext = '{{result}}'"), &user("Hi")), "<nothing at result>");
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
        content(&script, &asked),
        content(&script, &ask(&asked, json!({"tool_choice": "none"}))),
        content(&script, &answered),
        content(&script, &ask(&user("Hi"), json!({"model": "other"}))),
        content(&script, &ask(&ask(&user("Hi"), tools), json!({"model": "other"}))),
        content(&script, &user("The weather?")),
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
fn mistakes_in_a_script_are_reported_with_their_line() {
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
        "[[turn]]\nnative = 'a'",
        "[[turn]]\nnative = [\n  { type = 'text', text = 'a' },\n  { text = 'a' },\n]",
        "[[turn]]\nnative = { chat = [] }",
    ];
    let message = |toml: &&str| ScriptedModel::parse(toml).unwrap_err().to_string();
    insta::assert_snapshot!(mistakes.iter().map(message).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_demo_runs_the_fence_it_is_sent() {
    let demo = ScriptedModel::demo();
    let request = user("Please run\n```ts\nreturn await add({ a: 1 })\n```");
    let offered = ask(&request, json!({"tools": [tool("execute")]}));
    let mut answered = offered.clone();
    let message = body(&demo.reply(Wire::Chat, &offered))["choices"][0]["message"].take();
    let id = message["tool_calls"][0]["id"].clone();
    let messages = answered["messages"].as_array_mut().unwrap();
    messages.extend([message, json!({"role": "tool", "tool_call_id": id, "content": "3"})]);
    insta::assert_snapshot!(
        [
            content(&demo, &offered),
            content(&demo, &answered),
            content(&demo, &request),
            content(&demo, &user("Hello!")),
            content(&demo, &ask(&offered, json!({"tool_choice": "none"}))),
        ]
        .join("\n")
    );
}

#[test]
fn any_text_is_a_script_or_a_mistake_on_one_of_its_lines() {
    let demo = include_str!("../src/demo.toml");
    for text in [EVERYTHING, demo] {
        for (end, _) in text.char_indices() {
            if let Err(error) = ScriptedModel::parse(&text[..end]) {
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
    let mut story = vec![content(&example, &request)];
    let message = body(&example.reply(Wire::Chat, &request))["choices"][0]["message"].take();
    let id = message["tool_calls"][0]["id"].clone();
    let result = json!({"role": "tool", "tool_call_id": id, "content": r#"{"sky": "clear"}"#});
    request["messages"].as_array_mut().unwrap().extend([message, result]);
    story.extend([
        content(&example, &request),
        content(&example, &user("Break, please")),
        content(&example, &user("Hi")),
    ]);
    insta::assert_snapshot!(story.join("\n"));
}

/// A request on a wire: a question, and after `call` also the call and its result.
fn conversation(wire: Wire, call: Option<&Value>) -> Value {
    let id = |name: &str| call.map_or(Value::Null, |call| call[name].clone());
    let (user, result) = (json!({"role": "user", "content": "The weather?"}), r#"{"sky": "clear"}"#);
    let echo = match wire {
        Wire::Chat => json!([
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id("id"), "content": result},
        ]),
        Wire::Responses => json!([call, {"type": "function_call_output", "call_id": id("call_id"), "output": result}]),
        Wire::Messages => json!([
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id("id"), "content": result}]},
        ]),
    };
    let mut messages = vec![user];
    messages.extend(call.map(|_| echo.as_array().unwrap().clone()).unwrap_or_default());
    match wire {
        Wire::Chat => json!({"messages": messages, "tools": [tool("execute")]}),
        Wire::Responses => json!({"input": messages, "tools": [{"type": "function", "name": "execute"}]}),
        Wire::Messages => {
            let tool = json!({"name": "execute", "input_schema": {"type": "object"}});
            json!({"max_tokens": 100, "messages": messages, "tools": [tool]})
        }
    }
}

#[test]
fn a_script_gives_the_same_answers_on_every_wire_and_the_observer_gets_them() {
    let toml = r#"
        [[turn]]
        when = { user = "WEATHER", last = "the", after = "user", step = 0, tool = "execute", no_tool = "search" }
        program = "return '{{user}}'"

        [[turn]]
        when = { user = "weather", last = "clear", after = "tool", step = 1 }
        text = "It is {{result/sky}}."
    "#;
    for wire in Wire::ALL {
        let (sender, watched) = std::sync::mpsc::channel();
        let script = script(toml).with_observer(move |wire, request, reply| {
            sender.send((wire, request.clone(), reply.clone())).unwrap();
        });
        let (call, arguments, text) = match wire {
            Wire::Chat => ("/choices/0/message/tool_calls/0", "/function/arguments", "/choices/0/message/content"),
            Wire::Responses => ("/output/0", "/arguments", "/output/0/content/0/text"),
            Wire::Messages => ("/content/0", "/input", "/content/0/text"),
        };
        let asked = conversation(wire, None);
        let first = script.reply(wire, &asked);
        let call = body(&first).pointer(call).unwrap().clone();
        let code = match call.pointer(arguments).unwrap() {
            Value::String(text) => serde_json::from_str(text).unwrap(),
            arguments => arguments.clone(),
        };
        assert_eq!(code, json!({"code": "return 'The weather?'"}), "{wire}");
        let answered = conversation(wire, Some(&call));
        let second = script.reply(wire, &answered);
        assert_eq!(body(&second).pointer(text).unwrap(), "It is clear.", "{wire}");
        assert_eq!(watched.try_iter().collect::<Vec<_>>(), [(wire, asked, first), (wire, answered, second)]);

        let forbidden = if wire == Wire::Messages { json!({"type": "none"}) } else { json!("none") };
        let refused = script.reply(wire, &ask(&conversation(wire, None), json!({"tool_choice": forbidden})));
        let message = body(&refused)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.ends_with("but it calls tools, which 'tool_choice' forbids."), "{message}");
    }
}
