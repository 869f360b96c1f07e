//! Plain mode: programs whose state is in the ids of their calls.

use crate::*;

#[test]
fn a_program_goes_on_with_what_a_client_sends_back() {
    let model_response = program_response();
    let mut state = state(&model_response);
    let first = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    state.tools = first.tools_digest;
    let response = issued(&first, &model_response, &state, &[call(0), call(1)]);
    assert_eq!(response["object"], "response");
    assert_eq!(response["service_tier"], "flex");
    assert_eq!(response["tools"][0]["name"], "get_weather");
    let kinds: Vec<String> =
        items(&response).iter().map(|item| item["type"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);

    let echoed = items(&response).into_iter().chain(answers(&response));
    // Some clients keep only the text of a message.
    let texts = [thought(), json!({"type": "message", "role": "assistant", "content": "Let me see."})];
    let texts = texts.into_iter().chain(items(&response).into_iter().skip(2)).chain(answers(&response));
    let referred = items(&response).into_iter().map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let referred = referred.chain(answers(&response));
    // One after the other, each with its answer.
    let paired = items(&response).into_iter().skip(2).zip(answers(&response)).flat_map(|(call, answer)| [call, answer]);
    for history in
        [input(question(), echoed), input(question(), texts), input(question(), referred), input(question(), paired)]
    {
        let turn = turn(ProviderSide::RESPONSES, plain(&history));
        let live = turn.conversation.live().expect("the program goes on");
        assert_eq!(live.journal().expect("whole").entries().len(), 2, "{history}");
        assert_eq!(live.state, state);
        assert_eq!(asked(&turn, "sunny!")["input"], expected_history(), "{history}");
    }
}

#[test]
fn rounds_are_told_apart_although_nothing_stands_between_them() {
    let (model_response, mut history) = (program_response(), vec![question()]);
    let state = state(&model_response);
    for round in 0..2 {
        let ids = sealer().seal(
            &state,
            &RoundHeader::new(round, [0; 8]),
            &[CallRef::from(&call(2 * round)), CallRef::from(&call(2 * round + 1))],
        );
        let function =
            |id: &String| json!({"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"});
        history.extend(ids.iter().map(function));
        history.extend(ids.iter().map(|id| json!({"type": "function_call_output", "call_id": id, "output": "1"})));
    }
    let turn = turn(ProviderSide::RESPONSES, plain(&Value::Array(history)));
    let live = turn.conversation.live().expect("the program goes on");
    let rounds: Vec<(u32, usize)> = live.rounds.iter().map(|round| (round.number, round.calls.len())).collect();
    assert_eq!(rounds, [(0, 2), (1, 2)]);
    assert!(live.rounds.iter().flat_map(|round| &round.calls).all(|call| call.answer.is_some()));
}

#[test]
fn a_thought_that_no_id_carries_is_taken_from_the_client() {
    let mut model_response = program_response();
    model_response.message.reasoning = Reasoning::default();
    let state = state(&model_response);
    let first = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let response = issued(&first, &model_response, &state, &[call(0)]);
    let history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let turn = turn(ProviderSide::RESPONSES, plain(&history));
    assert!(turn.conversation.live().is_some());
    assert_eq!(asked(&turn, "sunny!")["input"], expected_history());
}

#[test]
fn thoughts_of_answers_that_were_for_us_do_not_come_back() {
    let stream = |answers: &[&str]| {
        let mut body = plain(&json!("Hello"));
        body["stream"] = json!(true);
        let turn = turn(ProviderSide::RESPONSES, body);
        let mut encoder = turn.encoder(CallDeltas::Whole);
        for answer in answers {
            let mut decoder = ProviderSide::RESPONSES.decoder();
            encoder.response_started();
            for mut event in model_events().into_iter().take(3) {
                if let Some(item) = event.get_mut("item") {
                    item["id"] = json!(answer);
                    item["encrypted_content"] = json!(answer);
                }
                let delta = decoder.decode_event(&SseEvent { name: None, data: event.to_string() }).expect("delta");
                encoder.meta(decoder.meta().expect("meta"));
                if !delta.is_empty() {
                    encoder.delta(delta);
                }
            }
        }
        items(&encoder.body(&TurnUsage::default()).expect("a response"))
    };
    // Two searches, and an answer.
    let output = stream(&["rs_1", "rs_2", "rs_3"]);
    assert_eq!((&output[0]["id"], &output[2]["id"]), (&json!("rs_1"), &json!("rs_dcn_2_rs_3")));
    let words = json!({"type": "message", "role": "assistant", "content": "Hi!"});
    let history = input(question(), output.into_iter().chain([words.clone(), question()]));
    let third = json!({"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "rs_3"});
    for body in [plain(&history), explicit(&history)] {
        let turn = turn(ProviderSide::RESPONSES, body);
        assert_eq!(asked(&turn, "")["input"], json!([question(), third, words, question()]));
    }
}

#[test]
fn calls_whose_state_is_lost_are_ordinary_ones() {
    let history = json!([
        question(),
        {"type": "function_call", "call_id": format!("dc1_{}", "x".repeat(60)), "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": format!("dc1_{}", "x".repeat(60)), "output": "sunny"},
    ]);
    let turn = turn(ProviderSide::RESPONSES, plain(&history));
    let asked = asked(&turn, "");
    let id = asked["input"][2]["call_id"].clone();
    assert_eq!(id.as_str().map(str::len), Some(9));
    assert_eq!(
        asked["input"],
        json!([
            question(),
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "(These calls were made by a program whose state was lost on its way back, so it did not go on.)"}]},
            {"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": id, "output": "sunny"},
        ])
    );
}

#[test]
fn programs_and_direct_calls_stay_in_their_order() {
    let model_response = program_response();
    let mut state = state(&model_response);
    state.model_messages[0].reasoning = Reasoning::default();
    let direct = |id: &str| json!({"type": "function_call", "call_id": id, "name": "ask", "arguments": "{}"});
    let sealed = sealer().seal(&state, &RoundHeader::default(), &[CallRef::from(&call(0))]).remove(0);
    let short = Sealer::short(ClientSide::RESPONSES, state.run(), 0, &[CallRef::from(&call(0))]).remove(0);
    for id in [&sealed, &short] {
        let function = json!({"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"});
        let before = [question(), direct("c1"), output("c1", "1")];
        let after = [function, output(id, "sunny"), direct("c2"), output("c2", "2")];
        let body = with_direct(plain(&before.into_iter().chain(after).collect()));
        let mut stored = StoredStates::default();
        assert_eq!(StoredStates::referred_to(ClientSide::RESPONSES, &body).len(), usize::from(*id == short));
        stored.insert(state.run(), 0, sealed.clone());
        let read = read_with(ClientSide::RESPONSES, ProviderSide::RESPONSES, &stored, body);
        let Ok(ParsedRequest::Turn(turn)) = read else { panic!("{read:?}") };
        let kinds: Vec<bool> = turn
            .conversation
            .items
            .iter()
            .map(|item| matches!(item, ConversationItem::Program(block) if block.direct.is_empty()))
            .collect();
        assert_eq!(kinds, [false, false, false, true, false, false], "{:?}", turn.conversation);
    }
}

#[test]
fn instructions_beside_answers_do_not_stop_a_program() {
    let model_response = program_response();
    let state = state(&model_response);
    let first = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let response = issued(&first, &model_response, &state, &[call(0)]);
    let history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let beside = |item: &Value| {
        let mut history = history.clone();
        history.as_array_mut().expect("items").push(item.clone());
        turn(ProviderSide::RESPONSES, plain(&history))
    };
    for role in ["developer", "system"] {
        let remark = json!({"type": "message", "role": role, "content": "Remember the units."});
        let turn = beside(&remark);
        let live = turn.conversation.live().expect("the program goes on");
        assert_eq!(live.remarks, std::slice::from_ref(&remark));
        assert_eq!(asked(&turn, "sunny!")["input"].as_array().and_then(|items| items.last()), Some(&remark));
    }
    assert!(beside(&question()).conversation.live().is_none());
}

#[test]
fn an_answer_that_comes_late_reaches_the_call_beside_the_program() {
    let model_response = program_response();
    let state = state(&model_response);
    let first = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let mut history = items(&issued(&first, &model_response, &state, &[call(0)]));
    let direct = json!({"type": "function_call", "call_id": "c1", "name": "ask", "arguments": "{}"});
    let program = history[2]["call_id"].as_str().expect("an id").to_owned();
    history.extend([direct, question(), output(&program, "sunny"), output("c1", "yes")]);
    let turn = turn(ProviderSide::RESPONSES, with_direct(plain(&input(question(), history))));
    let ConversationItem::Program(block) = &turn.conversation.items[1] else { panic!("{:?}", turn.conversation) };
    assert_eq!(block.journal().expect("whole").entries().len(), 1);
    assert_eq!(block.direct[0].answer, Some(output("c1", "yes")));
    assert_eq!(turn.conversation.items.len(), 3);
}

#[test]
fn what_led_to_a_program_that_has_ended_is_told() {
    let turn = turn(ProviderSide::RESPONSES, plain(&json!([question()])));
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let output_before = |preamble: Option<&ModelResponse>| {
        let mut encoder = turn.encoder(CallDeltas::Whole);
        for (number, last) in [
            (1, json!({"type": "function_call", "call_id": "c", "name": "execute", "arguments": "{}"})),
            (2, search.clone()),
        ] {
            let mut thought = thought();
            thought["id"] = json!(format!("rs_{number}"));
            let model_response = response(&json!([thought, search, last]));
            encoder.response_started();
            encoder.meta(&model_response.meta);
            if number == 1 {
                encoder.preamble(&model_response);
            } else {
                encoder.answer(&model_response, AnswerParts::All);
            }
            encoder.finish(&TurnUsage::default());
        }
        if let Some(preamble) = preamble {
            encoder.response_started();
            encoder.preamble(preamble);
        }
        items(&encoder.body(&TurnUsage::default()).expect("a response"))
    };
    let output = output_before(None);
    let ids: Vec<&str> = output.iter().filter_map(|item| item["id"].as_str()).collect();
    assert_eq!(ids, ["rs_1", "ws_1", "rs_dcn_1_rs_2", "ws_1", "ws_1"]);
    let words =
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]});
    let model_response = response(&json!([words, search, words]));
    let more = output_before(Some(&model_response));
    assert_eq!(
        more[output.len()..].iter().map(|item| &item["type"]).collect::<Vec<_>>(),
        ["message", "web_search_call", "message"]
    );
    // What a thought led to goes with it.
    let again = turn_of(&input(question(), output));
    let ids: Vec<Value> =
        asked(&again, "")["input"].as_array().expect("items").iter().map(|item| item["id"].clone()).collect();
    assert_eq!(ids, [Value::Null, json!("rs_2"), json!("ws_1"), json!("ws_1")]);
}

fn turn_of(history: &Value) -> Box<Turn> {
    turn(ProviderSide::RESPONSES, plain(history))
}
