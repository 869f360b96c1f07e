//! What models are asked.

use crate::*;

#[test]
fn what_a_client_wants_stored_is_refused_with_advice() {
    for key in ["previous_response_id", "conversation"] {
        let mut body = plain(&json!("Hello"));
        body[key] = json!("x_1");
        let error = read(ProviderSide::RESPONSES, body).expect_err("nothing is stored");
        assert_eq!(error.param, key);
        assert!(error.message.contains("input += response.output"), "{}", error.message);
    }
    // Without code mode it is the provider's affair.
    let passed =
        read(ProviderSide::RESPONSES, json!({"model": "m", "input": "Hello", "previous_response_id": "resp_1"}));
    assert!(matches!(passed, Ok(ParsedRequest::PassThrough(None))));
}

#[test]
fn functions_of_a_namespace_keep_their_names() {
    let function = json!({"type": "function", "name": "find", "defer_loading": true});
    let body = json!({
        "model": "m", "input": "Who?", "store": false,
        "tools": [
            {"type": "namespace", "name": "crm", "description": "Customers", "tools": [function]},
            {"type": "tool_search"}, {"type": "web_search"}, {"type": "custom", "name": "patch"},
        ],
    });
    let turn = turn(ProviderSide::RESPONSES, body);
    assert_eq!(turn.search_tool.as_deref(), Some("tool_search"));
    let asked = turn.model_request(&turn.model_history(), ToolChoiceOverride::Keep).into_json();
    let names: Vec<&str> = asked["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool.get("name").or(tool.get("type"))?.as_str())
        .collect();
    assert_eq!(names, ["execute", "search", "web_search", "patch"]);
    let (model_response, find) = (program_response(), Call { tool: "crm.find".to_owned(), ..call(0) });
    let response = issued(&turn, &model_response, &state(&model_response), std::slice::from_ref(&find));
    let item = &response["output"][2];
    assert_eq!((&item["namespace"], &item["name"]), (&json!("crm"), &json!("find")));
}

#[test]
fn answers_come_back_from_clients_that_keep_only_ids() {
    let first = turn(ProviderSide::CHAT, plain(&json!("Hello")));
    let answer = json!({"id": "c", "model": "m", "choices": [{"message": {"role": "assistant", "content": "Grüß Gott"}, "finish_reason": "length"}]});
    let model_response = ProviderSide::CHAT.decode_response(answer).expect("an answer");
    let mut encoder = first.encoder(CallDeltas::Whole);
    encoder.meta(&model_response.meta);
    encoder.answer(&model_response, AnswerParts::All);
    let response = encoder.body(&TurnUsage::default()).expect("a response");
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let reference = json!({"id": response["output"][0]["id"]});
    let again = turn(ProviderSide::CHAT, plain(&json!([question(), reference, {"role": "user", "content": "More."}])));
    assert_eq!(asked(&again, "")["messages"][1], json!({"role": "assistant", "content": "Grüß Gott"}));
    // It does not reach a provider as it is.
    let passed = read(ProviderSide::RESPONSES, json!({"model": "m", "input": [question(), reference]}));
    let Ok(ParsedRequest::PassThrough(Some(body))) = passed else { panic!("{passed:?}") };
    assert_eq!(body["input"][1]["content"][0]["text"], "Grüß Gott");
}

#[test]
fn a_chat_model_is_asked_in_its_own_words() {
    let function = |id: &str| json!({"type": "function_call", "call_id": format!("call_{id}"), "name": "patch", "arguments": "{}"});
    let called = |id: &str| json!({"id": format!("call_{id}"), "type": "function", "function": {"name": "patch", "arguments": "{}"}});
    let mut body = plain(&json!([
        question(), {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "reasoning", "id": "rs_dc_1", "summary": [{"type": "summary_text", "text": "Hm."}]}, function("1"), function("2"),
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
        {"type": "function_call_output", "call_id": "call_2", "output": "done"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And this?"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
    ]));
    body["instructions"] = json!("Be brief.");
    body["max_output_tokens"] = json!(100);
    body["reasoning"] = json!({"effort": "minimal"});
    body["text"] = json!({"format": {"type": "json_object"}, "verbosity": "low"});
    body["truncation"] = json!("auto");
    body["tool_choice"] = json!("required");
    let turn = turn(ProviderSide::CHAT, body);
    assert_eq!(turn.dropped, ["truncation"]);
    let mut asked = asked(&turn, "");
    asked["tools"] = Value::Null;
    assert_eq!(
        asked,
        json!({
            "model": "m", "max_completion_tokens": 100, "reasoning_effort": "minimal", "verbosity": "low", "response_format": {"type": "json_object"},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "How is the weather in Oslo?"},
                {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [called("1"), called("2")]},
                {"role": "tool", "tool_call_id": "call_1", "content": "done"},
                {"role": "tool", "tool_call_id": "call_2", "content": "done"},
                {"role": "user", "content": [{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
            ],
            "tools": null, "tool_choice": "required",
        })
    );
}

#[test]
fn a_program_that_was_written_as_text_stays_text() {
    let model_response = ProviderSide::RESPONSES
        .decode_response(json!({"id": "r", "model": "m", "output": [{"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "execute", "input": CODE}]}))
        .expect("an answer");
    let turn = turn(ProviderSide::RESPONSES, plain(&json!("Hello")));
    let message: ModelMessage = model_response.message.normalized(&turn.model_tools, &[]);
    let carried: ModelMessage =
        serde_json::from_value(serde_json::to_value(&message).expect("JSON")).expect("a message");
    let written = |message: &ModelMessage| {
        let mut history = turn.model_history();
        history.push_model_message(message, &["1".to_owned().into()], &[]);
        history.entries(&turn.conversation).into_iter().cloned().collect::<Vec<Value>>()
    };
    let entries = written(&carried);
    assert_eq!(entries, written(&message));
    assert_eq!((&entries[0]["type"], &entries[0]["input"]), (&json!("custom_tool_call"), &json!(CODE)));
    assert_eq!(entries[1]["type"], "custom_tool_call_output");
    let call: &ModelCall = &carried.calls[0];
    assert_eq!(call.arguments, json!({"code": CODE}).to_string());
}

#[test]
fn direct_calls_come_back_whole_from_clients_that_keep_only_ids() {
    let mut body = with_direct(plain(&json!([question()])));
    body["tools"].as_array_mut().expect("tools").push(json!({"type": "custom", "name": "patch"}));
    let first = turn(ProviderSide::RESPONSES, body.clone());
    let function = json!({"type": "function_call", "call_id": "c1", "name": "ask", "arguments": "{\"a\":1}"});
    let custom = json!({"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "SELECT 1"});
    let found =
        json!({"type": "function_call", "call_id": "c3", "name": "look", "arguments": "{}", "namespace": "crm"});
    let output = answered(&first, &response(&json!([function, custom, found])));
    let outputs = [
        super::output("c1", "1"),
        json!({"type": "custom_tool_call_output", "call_id": "c2", "output": "2"}),
        super::output("c3", "3"),
    ];
    body["input"] = input(question(), references(&output).into_iter().chain(outputs.clone()));
    let again = turn(ProviderSide::RESPONSES, body.clone());
    assert_eq!(
        asked(&again, "")["input"],
        input(question(), [function.clone(), custom, found].into_iter().chain(outputs))
    );

    let mut large = function;
    large["arguments"] = json!(json!({"a": "x".repeat(10_000)}).to_string());
    let output = answered(&first, &response(&json!([large])));
    body["input"] = input(question(), references(&output));
    let error = read(ProviderSide::RESPONSES, body).expect_err("the arguments are nowhere");
    assert_eq!(error.param, "input[1].id");
    assert!(error.message.contains("`store: false`"), "{}", error.message);
}

#[test]
fn answers_to_calls_that_others_made_are_never_without_a_call() {
    let history = json!([
        question(), {"type": "item_reference", "id": "rs_1"}, {"type": "item_reference", "id": "fc_1"},
        {"type": "item_reference", "id": "fc_2"}, output("c1", "5"), question(),
    ]);
    for provider in [ProviderSide::RESPONSES, ProviderSide::CHAT] {
        let turn = turn(provider, plain(&history));
        let asked = asked(&turn, "");
        if provider.wire() == Wire::Responses {
            let call = json!({"type": "function_call", "call_id": "c1", "name": "unknown", "arguments": "{}"});
            assert_eq!(asked["input"], json!([question(), call, output("c1", "5"), question()]));
        } else {
            assert_eq!(asked["messages"][1]["tool_calls"][0]["id"], "c1");
        }
    }
}

#[test]
fn what_only_programs_may_call_has_to_be_a_function() {
    let custom = json!({"type": "custom", "name": "patch", "allowed_callers": ["programmatic"]});
    let mut body = explicit(&json!([question()]));
    body["tools"].as_array_mut().expect("tools").push(custom);
    let error = read(ProviderSide::RESPONSES, body.clone()).expect_err("no program can call it");
    assert_eq!(error.param, "tools[2].allowed_callers");
    assert_eq!(error.message, "only functions can be called by programs here; use [\"direct\"]");
    body["tools"][2]["allowed_callers"] = json!(["direct", "programmatic"]);
    let asked = asked(&turn(ProviderSide::RESPONSES, body), "");
    assert_eq!(asked["tools"][1], json!({"type": "custom", "name": "patch"}));
}

#[test]
fn functions_that_a_client_loads_later_are_called_by_the_model_itself() {
    let loaded = |name: &str| json!([{"type": "function", "name": name}]);
    let history = json!([
        {"type": "additional_tools", "role": "developer", "tools": loaded("first")},
        question(),
        {"type": "tool_search_call", "call_id": "c1", "execution": "client", "status": "completed", "arguments": {}},
        {"type": "tool_search_output", "call_id": "c1", "execution": "client", "status": "completed", "tools": loaded("second")},
        // What our own search found is for programs.
        {"type": "tool_search_output", "id": "tso_dc_1", "execution": "server", "tools": loaded("third")},
        {"type": "tool_search_output", "call_id": "c2", "execution": "client", "tools": loaded("get_weather")},
    ]);
    let turn = turn(ProviderSide::RESPONSES, plain(&history));
    let direct = ["first", "second", "third", "get_weather"].map(|name| {
        let call = json!({"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"});
        response(&json!([call])).message.direct_calls(&turn.model_tools).count()
    });
    assert_eq!(direct, [1, 1, 0, 0]);
}

#[test]
fn the_provider_searches_for_deferred_tools_that_the_model_calls_itself() {
    let function = |name: &str, callers: &str| json!({"type": "function", "name": name, "defer_loading": true, "allowed_callers": [callers]});
    let search = json!({"type": "tool_search"});
    let body = |tools: Value| json!({"model": "m", "input": "Hello", "store": false, "tools": tools});
    let tools = |turn: &Turn| {
        turn.model_request(&turn.model_history(), ToolChoiceOverride::Keep).into_json()["tools"]
            .as_array()
            .expect("tools")
            .clone()
    };
    let programs = function("f", "programmatic");
    let both = turn(ProviderSide::RESPONSES, body(json!([programs, search, function("g", "direct")])));
    assert_eq!(both.search_tool.as_deref(), Some("tool_search"));
    let passed = json!({"type": "function", "name": "g", "defer_loading": true});
    assert_eq!(tools(&both)[2..], [search.clone(), passed.clone()]);
    let declared = json!({"type": "function", "name": "f", "allowed_callers": ["programmatic"]});
    let direct = turn(ProviderSide::RESPONSES, body(json!([declared, function("g", "direct"), search])));
    assert_eq!((direct.search_tool.as_deref(), &tools(&direct)[1..]), (None, &[passed, search][..]));
}

#[test]
fn calls_without_ids_get_different_ones() {
    let turn = turn(ProviderSide::RESPONSES, with_direct(plain(&json!([question()]))));
    let call = json!({"type": "function_call", "call_id": "", "name": "ask", "arguments": "{}"});
    let output = answered(&turn, &response(&json!([call, call])));
    assert_ne!(output[0]["call_id"], output[1]["call_id"]);
    assert_ne!(output[0]["id"], output[1]["id"]);
}

#[test]
fn a_call_in_a_namespace_stays_in_it() {
    let turn = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let call = json!({"type": "function_call", "call_id": "c", "name": "look", "namespace": "crm", "arguments": "{}"});
    let mut history = turn.model_history();
    history.push_model_message(&response(&json!([call])).message, &["1".to_owned().into()], &[]);
    let entry = history.entries(&turn.conversation)[0];
    assert_eq!((&entry["namespace"], &entry["name"]), (&json!("crm"), &json!("look")));
}

#[test]
fn what_was_said_goes_back_once_from_a_client_on_another_wire() {
    let model_response = response(&json!([
        thought(),
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "final_answer", "content": [{"type": "output_text", "text": "Four."}]},
    ]));
    let read = |messages: Value| {
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages});
        match read_with(ClientSide::MESSAGES, ProviderSide::RESPONSES, &StoredStates::default(), body) {
            Ok(ParsedRequest::Turn(turn)) => turn,
            other => panic!("{other:?}"),
        }
    };
    let question = json!({"role": "user", "content": "How many?"});
    let mut encoder = read(json!([question])).encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&model_response.meta);
    encoder.answer(&model_response, AnswerParts::All);
    let content = encoder.body(&TurnUsage::default()).expect("a message")["content"].clone();
    let again = read(json!([question, {"role": "assistant", "content": content}, question]));
    let asked = asked(&again, "");
    let kinds: Vec<&str> =
        asked["input"].as_array().expect("items").iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "reasoning", "message", "message"]);
}

#[test]
fn thoughts_that_lead_to_nothing_are_left_out() {
    let words = json!({"type": "message", "role": "assistant", "content": "Hi!"});
    let history = json!([question(), thought(), question(), thought(), words, question(), thought()]);
    let asked = asked(&turn(ProviderSide::RESPONSES, plain(&history)), "");
    assert_eq!(asked["input"], json!([question(), question(), thought(), words, question()]));
}

#[test]
fn a_response_repeats_the_tools_as_they_came_but_no_credentials() {
    let long = json!({"type": "function", "name": "get_weather", "description": "x".repeat(600), "parameters": {}});
    let server =
        json!({"type": "mcp", "server_label": "docs", "server_url": "https://a.example", "authorization": "t0ken"});
    let lists = std::sync::Arc::new(ToolLists::default());
    for (tools, is_text) in [(json!([long]), true), (json!([long, server]), false)] {
        let spaced = serde_json::to_string_pretty(&tools).expect("JSON");
        let text = format!(r#"{{"model": "m", "metadata": {{"a": "b"}}, "tools": {spaced}, "input": "Hello"}}"#);
        let answered = |body: RequestBody| {
            let turn = turn(ProviderSide::RESPONSES, body);
            let (model_response, mut encoder) = (program_response(), turn.encoder(CallDeltas::Whole));
            encoder.meta(&model_response.meta);
            encoder.answer(&model_response, AnswerParts::Text);
            encoder
        };
        let known = || lists.parse("", text.as_bytes()).expect("a body");
        let response = answered(known()).body_text(&TurnUsage::default()).expect("a response");
        assert_eq!(response.contains(&spaced), is_text);
        assert!(!response.contains("t0ken"));
        let response: Value = serde_json::from_str(&response).expect("JSON");
        let read_as_value = serde_json::from_str::<Value>(&text).expect("JSON").into();
        assert_eq!(response, answered(read_as_value).body(&TurnUsage::default()).expect("a response"));
        assert_eq!(response, answered(known()).body(&TurnUsage::default()).expect("a response"));
        assert_eq!(response["tools"][0], tools[0]);
    }
}
