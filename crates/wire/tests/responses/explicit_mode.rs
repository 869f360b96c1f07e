//! Explicit mode: programs that are items of the history.

use crate::*;

#[test]
fn clients_that_know_programs_carry_them_as_items() {
    let model_response = program_response();
    let mut state = state(&model_response);
    state.seed = "seed-0".to_owned();
    let first = turn(ProviderSide::RESPONSES, explicit(&json!([question()])));
    assert_eq!(first.mode, ProgramMode::Explicit);
    let response = issued(&first, &model_response, &state, &[call(0), call(1)]);
    let run = state.run();
    let program = &response["output"][2];
    assert_eq!(response["output"][0], thought());
    assert_eq!(program["type"], "program");
    assert_eq!(program["id"], format!("prog_{run}"));
    assert_eq!(program["call_id"], format!("call_prog_{run}"));
    assert_eq!(program["code"], CODE);
    let caller = json!({"type": "program", "caller_id": program["call_id"]});
    assert_eq!(response["output"][3]["caller"], caller);
    assert_eq!(response["output"][4]["call_id"], format!("call_{run}_0_1"));

    let mut history = input(question(), items(&response).into_iter().chain(answers(&response)));
    let again = turn(ProviderSide::RESPONSES, explicit(&history));
    let live = again.conversation.live().expect("the program goes on");
    assert_eq!((live.run, &live.id, &live.state), (run, &format!("call_prog_{run}"), &state));
    assert_eq!(live.journal().expect("whole").entries().len(), 2);

    let mut encoder = again.encoder(CallDeltas::Whole);
    encoder.meta(&model_response.meta);
    let shown = json!({"status": "success", "data": "sunny!"});
    encoder.program_finished(&ProgramFinished {
        program: ProgramName::Known(&live.id),
        state: &live.state,
        shown: &shown,
    });
    let response = encoder.body(&TurnUsage::default()).expect("a response");
    let result = json!({
        "id": format!("prog_out_{run}"), "type": "program_output", "call_id": format!("call_prog_{run}"),
        "result": shown.to_string(), "status": "completed",
    });
    assert_eq!(response["output"], json!([result]));
    history.as_array_mut().expect("items").extend([result, json!({"role": "user", "content": "Thanks."})]);
    let last = turn(ProviderSide::RESPONSES, explicit(&history));
    let ConversationItem::Program(block) = &last.conversation.items[1] else { panic!("{:?}", last.conversation) };
    assert_eq!((block.is_closed(), block.result.as_ref()), (true, Some(&shown)));
    let mut expected = expected_history();
    expected.as_array_mut().expect("items").push(json!({"role": "user", "content": "Thanks."}));
    assert_eq!(asked(&last, "sunny!")["input"], expected);
    assert_eq!(asked(&last, "")["store"], false);
}

#[test]
fn programs_are_found_again_by_their_ids_alone() {
    let model_response = program_response();
    let state = state(&model_response);
    let mut body = explicit(&json!([question()]));
    body.as_object_mut().expect("an object").shift_remove("store");
    let first = turn(ProviderSide::RESPONSES, body.clone());
    let response = issued(&first, &model_response, &state, &[call(0)]);
    let by_id = |item: Value| match item["type"].as_str() {
        Some("function_call") => item,
        _ => json!({"type": "item_reference", "id": item["id"]}),
    };
    body["input"] = input(question(), items(&response).into_iter().map(by_id).chain(answers(&response)));
    let again = turn(ProviderSide::RESPONSES, body.clone());
    let live = again.conversation.live().expect("the program goes on");
    assert_eq!((&live.state, live.journal().expect("whole").entries().len()), (&state, 1));
    body["input"].as_array_mut().expect("items").extend([
        json!({"type": "item_reference", "id": format!("prog_out_{}", state.run())}),
        json!({"type": "item_reference", "id": "msg_0123"}),
    ]);
    let last = turn(ProviderSide::RESPONSES, body);
    let ConversationItem::Program(block) = &last.conversation.items[1] else { panic!("{:?}", last.conversation) };
    assert!(block.is_closed());
    let ConversationItem::Entry(message) = &last.conversation.items[2] else { panic!("{:?}", last.conversation) };
    assert!(message["content"][0]["text"].as_str().is_some_and(|text| text.contains("not stored here")));
}

#[test]
fn programs_that_others_wrote_down_are_run_as_they_stand() {
    let program = json!({"type": "program", "id": "prog_a", "call_id": "call_a", "code": CODE, "fingerprint": "fp"});
    let caller = json!({"type": "program", "caller_id": "call_a"});
    let function = |id: &str| json!({"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}", "caller": caller});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": [{"type": "input_text", "text": "sunny"}]});
    let history = json!([
        question(),
        thought(),
        program,
        function("a"),
        function("b"),
        output("b"),
        output("a"),
        function("c"),
        output("c"),
    ]);
    let first = turn(ProviderSide::RESPONSES, explicit(&history));
    let live = first.conversation.live().expect("the program goes on");
    assert_eq!((live.state.seed.as_str(), live.rounds.len()), ("call_a", 2));
    let calls: Vec<u32> = live.journal().expect("whole").entries().iter().map(|entry| entry.call.0).collect();
    assert_eq!(calls, [1, 0, 2]);
    assert_eq!(asked(&first, "")["input"][1], thought());

    let wrong = |item: Value| {
        let history = input(question(), [item]);
        match read(ProviderSide::RESPONSES, explicit(&history)) {
            Err(error) => error.param,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(wrong(json!({"type": "program", "call_id": "call_a"})), "input[1].code");

    // A message overtakes it.
    let overtaken = turn(ProviderSide::RESPONSES, explicit(&json!([program, function("a"), question()])));
    assert!(overtaken.conversation.live().is_none());
    assert_eq!(overtaken.conversation.items.len(), 2);
}

#[test]
fn a_program_goes_on_for_a_client_that_sends_only_ids() {
    let model_response = program_response();
    let state = state(&model_response);
    let mut body = explicit(&json!([question()]));
    body["store"] = json!(true);
    let first = turn(ProviderSide::RESPONSES, body.clone());
    let response = issued(&first, &model_response, &state, &[call(0), call(1)]);
    body["input"] = input(question(), references(&items(&response)).into_iter().chain(answers(&response)));
    let again = turn(ProviderSide::RESPONSES, body);
    let live = again.conversation.live().expect("the program goes on");
    let expected: Vec<ExpectedCall> =
        [call(0), call(1)].iter().map(|call| ExpectedCall::Digest(CallRef::from(call))).collect();
    let known: Vec<ExpectedCall> = live.rounds[0].calls.iter().map(|call| call.expected.clone()).collect();
    assert_eq!(known, expected);
    assert_eq!(live.journal().expect("whole").entries().len(), 2);
}

/// A program with one call, and the answer to it.
fn one_call() -> (RunState, Vec<Value>, Value) {
    let model_response = program_response();
    let state = state(&model_response);
    let first = turn(ProviderSide::RESPONSES, explicit(&json!([question()])));
    let response = issued(&first, &model_response, &state, &[call(0)]);
    let mut answer = answers(&response).remove(0);
    answer["caller"] = response["output"][3]["caller"].clone();
    (state, items(&response), answer)
}

#[test]
fn what_comes_late_reaches_its_program() {
    let (state, output, answer) = one_call();
    let note = json!({"type": "message", "role": "developer", "content": "Be brief."});
    let history = |middle: &[Value], last: &[Value]| {
        let items = output.iter().chain(middle).chain([&answer]).chain(last).cloned();
        turn(ProviderSide::RESPONSES, explicit(&input(question(), items)))
    };
    let overtaken = history(&[question()], &[]);
    assert!(overtaken.conversation.live().is_none());
    assert_eq!(overtaken.conversation.items.len(), 3);
    let ConversationItem::Program(block) = &overtaken.conversation.items[1] else {
        panic!("{:?}", overtaken.conversation)
    };
    assert_eq!(block.journal().expect("whole").entries().len(), 1);

    let noted = history(std::slice::from_ref(&note), &[]);
    let live = noted.conversation.live().expect("the program goes on");
    assert_eq!((live.journal().expect("whole").entries().len(), &live.remarks), (1, &vec![note.clone()]));

    // So does an answer that comes early, and the client says again what the model said.
    let mut items = output.clone();
    items.insert(3, answer.clone());
    items.push(json!({"type": "message", "role": "assistant", "content": "Let me see."}));
    let early = turn(ProviderSide::RESPONSES, explicit(&input(question(), items.clone())));
    assert_eq!(early.conversation.live().expect("it goes on").journal().expect("whole").entries().len(), 1);
    items.push(json!({"type": "message", "role": "user", "content": "see"}));
    let overtaken = turn(ProviderSide::RESPONSES, explicit(&input(question(), items)));
    assert_eq!((overtaken.conversation.live(), overtaken.conversation.items.len()), (None, 3));

    // Its later calls, and its result, belong to it too.
    let mut later = output[3].clone();
    later["call_id"] = json!(format!("call_{}_1_1", state.run()));
    let result = json!({"type": "program_output", "call_id": output[2]["call_id"], "result": "1"});
    let ended = history(&[question(), later], &[result]);
    let ConversationItem::Program(block) = &ended.conversation.items[1] else { panic!("{:?}", ended.conversation) };
    assert_eq!((block.rounds.len(), block.is_closed()), (2, true));
    assert_eq!(ended.conversation.items.len(), 3);
}

#[test]
fn what_is_left_of_a_program_that_was_trimmed_is_no_error() {
    let (_, output, answer) = one_call();
    let result = json!({"type": "program_output", "call_id": output[2]["call_id"], "result": "1"});
    let without_program = json!([question(), output[3], answer, result, question()]);
    let asked_with = |history: &Value| asked(&turn(ProviderSide::RESPONSES, explicit(history)), "")["input"].clone();
    let asked = asked_with(&without_program);
    let kinds: Vec<&str> = asked.as_array().expect("items").iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["message", "message", "function_call", "function_call_output", "message"]);
    assert_eq!((asked[2].get("caller"), &asked[2]["call_id"]), (None, &asked[3]["call_id"]));
    assert_eq!(asked[3]["output"], "sunny");
    // An answer alone tells nobody anything.
    let asked = asked_with(&json!([question(), answer, result, question()]));
    assert_eq!(asked, json!([question(), question()]));
}

#[test]
fn only_the_program_that_goes_on_can_be_wrong() {
    let (_, output, answer) = one_call();
    let stray = json!({"type": "function_call_output", "call_id": "mangled", "output": "1"});
    let history = |last: &[Value]| {
        let items = output.iter().chain([&answer, &stray]).chain(last).cloned();
        read(ProviderSide::RESPONSES, explicit(&input(question(), items)))
    };
    let Err(error) = history(&[]) else { panic!("the answer is to nothing") };
    assert_eq!(error.param, "input[6].call_id");
    assert!(history(&[question()]).is_ok());
}
