//! OpenAI Chat Completions.

use std::fmt::Write as _;

use dacapo_scripted::ScriptedModel;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::{EVERYTHING, ask, body, content, script, spoiled, tool, user, wire};

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
    assert_eq!(content(&script, &messages(history)), "Fine.");
}

#[test]
fn texts_end_where_the_request_wants() {
    let counted = script("[[turn]]\nreasoning = 'Hm hm.'\ntext = 'One two three four'\nprogram = 'return 1'")
        .with_token_counter(|text| text.split_whitespace().count());
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
    let scripts = [ScriptedModel::demo(), script(EVERYTHING)];
    for request in spoiled(&request) {
        for script in &scripts {
            let reply = script.reply(Wire::Chat, &request);
            assert!([200, 400].contains(&reply.status), "{request}");
            assert_eq!(reply, script.reply(Wire::Chat, &request));
        }
    }
}
