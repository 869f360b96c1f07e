//! What models are asked, and what is not theirs to answer.

use crate::*;

#[test]
fn tools_are_split_by_caller_and_cache_breakpoints_stay() {
    let cached = json!({"type": "ephemeral", "ttl": "1h"});
    let mut body = plain(&json!([{"role": "user", "content": "Hi."}]));
    let mut last = weather();
    last["name"] = json!("get_time");
    last["cache_control"] = cached.clone();
    last["defer_loading"] = json!(true);
    body["tools"] = json!([
        weather(),
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        {"name": "by_hand", "input_schema": {"type": "object"}, "allowed_callers": ["direct"], "defer_loading": true},
        last,
    ]);
    body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    body["thread"] = json!({"type": "create"});
    body["top_k"] = json!(3);
    let turn = turn_for(ProviderSide::MESSAGES, body.clone());
    assert!(turn.prefs.calls == CallsPerMessage::One && turn.mode == ProgramMode::Plain);
    let asked = ask(&turn);
    let names: Vec<&Value> = asked["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["execute", "search", "web_search", "tool_search_tool_regex", "by_hand"]);
    assert_eq!(turn.search_tool.as_deref(), Some("tool_search_tool_regex"));
    assert_eq!((&asked["tools"][0].get("cache_control"), &asked["tools"][1]["cache_control"]), (&None, &cached));
    // Our search finds functions, the provider's what the model calls by itself.
    assert_eq!(asked["tools"][3], body["tools"][2]);
    let by_hand = json!({"name": "by_hand", "input_schema": {"type": "object"}, "defer_loading": true});
    assert_eq!(asked["tools"][4], by_hand);
    assert_eq!(asked["tool_choice"], body["tool_choice"]);
    assert_eq!((&asked["thinking"], &asked["top_k"], asked.get("thread")), (&body["thinking"], &json!(3), None));

    // What a program cannot promise turns code mode off.
    body["tool_choice"] = json!({"type": "tool", "name": "get_weather"});
    let ParsedRequest::PassThrough(Some(passed)) = read_for(ProviderSide::MESSAGES, body.clone()) else {
        panic!("no code mode")
    };
    assert_eq!(passed["tools"][3].get("allowed_callers"), None);
    body["tool_choice"] = json!({"type": "tool", "name": "by_hand"});
    assert_eq!(ask(&turn_for(ProviderSide::MESSAGES, body.clone()))["tool_choice"], body["tool_choice"]);
    body["stop_sequences"] = json!(["."]);
    assert!(matches!(read_for(ProviderSide::MESSAGES, body), ParsedRequest::PassThrough(Some(_))));
}

#[test]
fn a_toolset_lets_the_model_call_what_nobody_else_knows() {
    let mut body = plain(&json!([{"role": "user", "content": "Hi."}]));
    body["thinking"] = json!({"type": "disabled"});
    let is_direct =
        |turn: &Turn| ["browser_click", "get_weather", "execute"].map(|name| turn.model_tools.is_direct(name));
    assert_eq!(is_direct(&turn_for(ProviderSide::MESSAGES, body.clone())), [false; 3]);
    // Not every model takes a word for thinking not at all.
    assert_eq!(ask(&turn_for(ProviderSide::CHAT, body.clone())).get("reasoning_effort"), None);
    body["tools"].as_array_mut().expect("a list").push(json!({"type": "browser_toolset_20260801"}));
    let turn = turn_for(ProviderSide::MESSAGES, body);
    assert_eq!(is_direct(&turn), [true, false, false]);
    assert_eq!(ask(&turn)["tools"][1], json!({"type": "browser_toolset_20260801"}));
}

#[test]
fn a_model_that_has_to_think_is_not_asked_to_where_its_thoughts_are_gone() {
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0)]);
    let mut body = plain(&json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"}]},
    ]));
    body["thinking"] = json!({"type": "adaptive"});
    assert_eq!(ask(&turn_for(ProviderSide::MESSAGES, body.clone()))["thinking"], body["thinking"]);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    assert_eq!(ask(&turn_for(ProviderSide::MESSAGES, body)).get("thinking"), None);
}

#[test]
fn a_history_goes_to_another_wire_and_one_from_there_comes_here() {
    let mut body = plain(&json!([
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
            {"type": "server_tool_use", "id": "srvtoolu_w", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_w", "content": []},
            {"type": "tool_use", "id": "t1", "name": "by_hand", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": true},
            {"type": "text", "text": "Go on."},
        ]},
    ]));
    body["system"] = json!([{"type": "text", "text": "Be brief."}]);
    body["top_k"] = json!(3);
    let turn = turn_for(ProviderSide::CHAT, body);
    assert_eq!(turn.dropped, ["top_k"]);
    let asked = ask(&turn);
    assert_eq!(
        asked["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "by_hand", "arguments": "{\"a\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
            {"role": "user", "content": "Go on."},
        ])
    );

    let tool = json!({"type": "function", "function": {"name": "get_weather"}});
    let mut messages = asked["messages"].clone();
    messages.as_array_mut().expect("a list").insert(4, json!({"role": "system", "content": "Be nice."}));
    let body = json!({"model": "m", "messages": messages, "tools": [tool], "temperature": 1.5,
        "reasoning_effort": "high", "parallel_tool_calls": false, "stop": null});
    let Ok(ParsedRequest::Turn(turn)) = read(ClientSide::CHAT, ProviderSide::MESSAGES, body) else { panic!("a turn") };
    let asked = ask(&turn);
    assert_eq!(
        (&asked["system"], &asked["max_tokens"]),
        (&json!([{"type": "text", "text": "Be brief."}]), &json!(8192))
    );
    // It would have to begin with a thought of this provider.
    assert_eq!((asked.get("temperature"), asked.get("thinking")), (None, None));
    assert_eq!(asked["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(asked["tools"][0]["cache_control"], json!({"type": "ephemeral"}));
    assert_eq!(
        asked["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            ]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "by_hand", "input": {"a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "Error: no"},
                {"type": "text", "text": "Be nice."},
                {"type": "text", "text": "Go on."},
            ]},
        ])
    );
}

#[test]
fn an_error_has_the_words_of_the_wire() {
    let api_error =
        ApiError { status: 404, kind: "not_found_error", message: "gone", param: None, code: Some("thread_not_found") };
    let error = json!({"type": "not_found_error", "message": "gone", "details": {"error_code": "thread_not_found"}});
    assert_eq!(
        ClientSide::MESSAGES.error_body(&api_error),
        json!({"type": "error", "error": error, "request_id": null})
    );
}
