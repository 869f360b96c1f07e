//! What models say, and what clients hear of it.

use crate::*;

/// What a client hears while the model speaks, and the response as a whole.
fn passed(encoder: &mut dyn ResponseEncoder, events: &[SseEvent]) -> (Vec<SseEvent>, ModelResponse) {
    let mut decoder = ProviderSide::MESSAGES.decoder();
    let mut sent = Vec::new();
    encoder.response_started();
    for event in events {
        let delta = decoder.decode_event(event).expect("in order");
        decoder.meta().into_iter().for_each(|meta| encoder.meta(meta));
        if !delta.is_empty() {
            sent.extend(encoder.delta(delta));
        }
    }
    (sent, decoder.finish().expect("a whole message"))
}

#[test]
fn a_model_is_understood_however_its_stream_is_cut() {
    let blocks = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "server_tool_use", "id": "srvtoolu_w", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_w", "content": []},
        {"type": "text", "text": "Good day."},
    ]);
    for size in [1, 7, 100, 10_000] {
        let response = assembled(&events(STREAM, size));
        let ModelMessage { text, reasoning, calls, .. } = response.message;
        assert_eq!((text.as_deref(), response.reasoning_text.as_str()), (Some("Good day."), "Hm."));
        assert_eq!(json!(reasoning), json!({"blocks": blocks}));
        assert_eq!((calls[0].arguments.as_str(), calls.len()), ("{\"a\": 1.0}", 1));
        assert_eq!(calls[0].native, json!({"type": "tool_use", "id": "t1", "name": "by_hand", "input": {"a": 1.0}}));
        assert_eq!(response.usage, Some(json!({"input_tokens": 10, "output_tokens": 7})));
        assert_eq!(response.native["content"].as_array().map(Vec::len), Some(5));
    }
    let all = events(STREAM, 10_000);
    let mut decoder = ProviderSide::MESSAGES.decoder();
    let deltas: Vec<ResponseDelta> = all.iter().map(|event| decoder.decode_event(event).expect("in order")).collect();
    let thought: Vec<Value> = deltas
        .into_iter()
        .filter_map(|delta| delta.reasoning)
        .map(|reasoning| json!(reasoning)["blocks"].take())
        .collect();
    assert_eq!(thought, [json!([blocks[0]])]);
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let event = SseEvent { name: Some("error".to_owned()), data: error.to_string() };
    assert_eq!(decoder.decode_event(&event), Err(StreamError::Provider(error)));
    let mut decoder = ProviderSide::MESSAGES.decoder();
    for event in &all[..all.len() - 2] {
        decoder.decode_event(event).expect("in order");
    }
    assert!(decoder.finish().is_none());
}

#[test]
fn a_stream_passes_on_with_places_of_its_own() {
    let mut body = plain(&json!([{"role": "user", "content": "Hi."}]));
    body["stream"] = json!(true);
    body["tools"][0]["allowed_callers"] = json!(["direct", "code_execution_20260120"]);
    let turn = turn_for(ProviderSide::MESSAGES, body);
    let mut encoder = turn.encoder(CallDeltas::Whole);
    // The client hears of a program's result first.
    let state = state(&json!({}));
    encoder.meta(&ResponseMeta::resumed(ClientSide::MESSAGES, state.run(), &state, 1, "m"));
    let shown = json!({"status": "success", "data": 1});
    let mut sent = encoder.program_finished(&ProgramFinished {
        program: ProgramName::Known("srvtoolu_a"),
        state: &state,
        shown: &shown,
    });
    let (more, response) = passed(&mut *encoder, &events(STREAM, 100));
    sent.extend(more);
    sent.extend(encoder.answer(&response, AnswerParts::All));
    let mut usage = TurnUsage::default();
    usage.add(response.usage.as_ref());
    sent.extend(encoder.finish(&usage));
    let expected = r#"{"type":"message_start","message":{"id":"msg_RUN-1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
{"type":"content_block_start","index":0,"content_block":{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_a","content":{"type":"code_execution_result","stdout":"1","stderr":"","return_code":0,"content":[]}}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"Hm"}}
{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"."}}
{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"s1"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_w","name":"web_search","input":{}}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_w","content":[]}}
{"type":"content_block_stop","index":3}
{"type":"content_block_start","index":4,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"Good "}}
{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"day."}}
{"type":"content_block_stop","index":4}
{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"t1","name":"by_hand","input":{}}}
{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1.0}"}}
{"type":"content_block_stop","index":5}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"output_tokens":7,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"dacapo":{"model_calls":1,"input_tokens":10,"cached_tokens":0,"cache_written_tokens":0,"output_tokens":7,"programs":0,"rounds":0,"calls":0,"tokens_kept_out":0}}}
{"type":"message_stop"}
"#;
    assert_eq!(lines(&sent), expected.replace("RUN", &state.run().to_string()));
}

#[test]
fn an_answer_from_another_wire_becomes_blocks() {
    let mut body = plain(&json!([{"role": "user", "content": "Hi."}]));
    body["stream"] = json!(true);
    let turn = turn_for(ProviderSide::CHAT, body.clone());
    let mut decoder = ProviderSide::CHAT.decoder();
    let mut encoder = turn.encoder(CallDeltas::Whole);
    let mut sent = Vec::new();
    encoder.response_started();
    for delta in [json!({"reasoning_content": "Hm."}), json!({"content": "Good "}), json!({"content": "day."})] {
        let chunk = json!({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta}]});
        let delta = decoder.decode_event(&SseEvent { name: None, data: chunk.to_string() }).expect("in order");
        decoder.meta().into_iter().for_each(|meta| encoder.meta(meta));
        sent.extend(encoder.delta(delta));
    }
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}});
    decoder.decode_event(&SseEvent { name: None, data: end.to_string() }).expect("in order");
    let response = decoder.finish().expect("a whole answer");
    sent.extend(encoder.answer(&response, AnswerParts::Text));
    let mut usage = TurnUsage::default();
    usage.add(response.usage.as_ref());
    sent.extend(encoder.finish(&usage));
    let streamed = assembled(&sent);
    let signature = &streamed.native["content"][0]["signature"];
    let expected = r#"{"type":"message_start","message":{"id":"msg_chatcmpl-1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm."}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":SIGNATURE}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Good "}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"day."}}
{"type":"content_block_stop","index":1}
{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3,"dacapo":{"model_calls":1,"input_tokens":9,"cached_tokens":4,"cache_written_tokens":0,"output_tokens":3,"programs":0,"rounds":0,"calls":0,"tokens_kept_out":0}}}
{"type":"message_stop"}
"#;
    assert_eq!(lines(&sent), expected.replace("SIGNATURE", &signature.to_string()));

    // The same as a whole.
    body["stream"] = json!(false);
    let mut encoder = turn_for(ProviderSide::CHAT, body).encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&response.meta);
    encoder.answer(&response, AnswerParts::Text);
    let whole = encoder.body(&usage).expect("an answer");
    assert_eq!(whole["content"], streamed.native["content"]);
    assert_eq!((&whole["id"], &whole["stop_reason"]), (&json!("msg_chatcmpl-1"), &json!("max_tokens")));

    // It comes back: the model on its own wire gets its thought, and no other ever sees it.
    let messages = json!([
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": whole["content"]},
        {"role": "user", "content": "Go on."},
    ]);
    let asked = ask(&turn_for(ProviderSide::CHAT, plain(&messages)));
    assert_eq!(asked["messages"][1], json!({"role": "assistant", "content": "Good day.", "reasoning_content": "Hm."}));
    let asked = ask(&turn_for(ProviderSide::MESSAGES, plain(&messages)));
    assert_eq!(asked["messages"][1]["content"], json!([{"type": "text", "text": "Good day."}]));
    let mut switched_off = plain(&messages);
    switched_off["code_mode"] = json!(false);
    let ParsedRequest::PassThrough(Some(body)) = read_for(ProviderSide::MESSAGES, switched_off) else {
        panic!("no code mode")
    };
    assert_eq!(body["messages"][1]["content"], json!([{"type": "text", "text": "Good day."}]));
}

/// What a client gets of an answer: in pieces as the model said it, in pieces of a whole, and as a whole.
fn encoded_in_every_way(response: &ModelResponse, passed: AnswerParts) -> [Map<String, Value>; 3] {
    let encoded = |is_stream: bool, has_streamed: bool| {
        let mut body = plain(&json!([{"role": "user", "content": "Hi."}]));
        body["stream"] = json!(is_stream);
        let mut encoder = turn_for(ProviderSide::MESSAGES, body).encoder(CallDeltas::Whole);
        encoder.response_started();
        encoder.meta(&response.meta);
        let mut sent = Vec::new();
        for (index, block) in response.native["content"].as_array().into_iter().flatten().enumerate() {
            if has_streamed && block["type"] != "tool_use" {
                for event in [
                    json!({"type": "content_block_start", "index": index, "content_block": block}),
                    json!({"type": "content_block_stop", "index": index}),
                ] {
                    sent.extend(encoder.delta(ResponseDelta { native: Some(event), ..ResponseDelta::default() }));
                }
            }
        }
        sent.extend(encoder.answer(response, passed));
        // Both are always asked for.
        sent.extend(encoder.finish(&usage()));
        let mut whole = encoder.body(&usage()).expect("an answer");
        let mut message =
            if is_stream { assembled(&sent).native } else { std::mem::take(whole.as_object_mut().expect("an object")) };
        message.shift_remove("usage");
        message
    };
    [encoded(true, true), encoded(true, false), encoded(false, false)]
}

#[test]
fn an_answer_ends_the_same_in_pieces_and_as_a_whole() {
    let mut pause = answer(&json!([{"type": "text", "text": "Wait."}]), "pause_turn");
    pause["stop_sequence"] = json!("\n");
    pause["stop_details"] = json!({"why": 1});
    pause["context_management"] = json!({"applied_edits": []});
    pause["container"] = json!({"id": "container_1"});
    let mut expected = pause.as_object().expect("an object").clone();
    expected.shift_remove("usage");
    for message in encoded_in_every_way(&decoded(pause), AnswerParts::All) {
        assert_eq!(message, expected);
    }
    // Whatever is left of a program that was cut can be sent back.
    let call = json!({"type": "tool_use", "id": "t1", "name": "execute", "input": {}});
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s1"});
    let cut = json!({"type": "text", "text": "(The answer was cut off before its program was complete.)"});
    for (content, left) in [
        (json!([call]), json!([cut])),
        (json!([thought, call]), json!([thought, cut])),
        (json!([{"type": "text", "text": "So"}, call]), json!([{"type": "text", "text": "So"}])),
    ] {
        for message in encoded_in_every_way(&decoded(answer(&content, "max_tokens")), AnswerParts::Text) {
            assert_eq!((&message["content"], &message["stop_reason"]), (&left, &json!("max_tokens")));
        }
    }
}

#[test]
fn what_led_to_a_program_comes_before_it_however_it_is_told() {
    let led = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "server_tool_use", "id": "srvtoolu_w", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_w", "content": []},
        {"type": "text", "text": "Let me see."},
    ]);
    let mut content = led.as_array().expect("a list").clone();
    content.push(json!({"type": "tool_use", "id": "t1", "name": "execute", "input": {"code": CODE}}));
    let response = decoded(answer(&json!(content), "tool_use"));
    let state = RunState { model_messages: vec![response.message.clone()], ..state(&json!({})) };
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0)]);
    for (is_explicit, is_stream) in [(false, false), (false, true), (true, false), (true, true)] {
        let messages = json!([{"role": "user", "content": "Hi."}]);
        let mut body = if is_explicit { explicit(&messages) } else { plain(&messages) };
        body["stream"] = json!(is_stream);
        let mut encoder = turn_for(ProviderSide::MESSAGES, body).encoder(CallDeltas::Whole);
        encoder.response_started();
        encoder.meta(&response.meta);
        let mut sent = encoder.preamble(&response);
        if is_explicit {
            sent.extend(encoder.program_started(&ProgramStarted {
                state: &state,
                sealed: "",
                progress: ProgramProgress::Waiting,
            }));
        }
        let calls = [call(0, "Oslo")];
        let issued = CallsIssued {
            response: Some(&response),
            state: &state,
            program: ProgramName::New,
            ids: &ids,
            calls: &calls,
            direct: &[],
        };
        sent.extend(encoder.calls_issued(&issued));
        sent.extend(encoder.finish(&usage()));
        let whole = encoder.body(&usage()).expect("an answer")["content"].take();
        let content = if is_stream { assembled(&sent).native["content"].take() } else { whole };
        let content = content.as_array().expect("a list");
        assert_eq!(json!(content[..4]), led);
        let beside = if is_explicit { "server_tool_use" } else { "redacted_thinking" };
        assert_eq!((content[4]["type"].as_str(), content[5]["type"].as_str()), (Some(beside), Some("tool_use")));
    }
}
