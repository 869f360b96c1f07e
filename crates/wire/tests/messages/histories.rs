//! Programs in what clients bring back.

use crate::*;

#[test]
fn a_plain_round_comes_back_in_the_ids_of_its_calls() {
    let question = json!({"role": "user", "content": "How is the weather?"});
    let turn = turn_for(ProviderSide::MESSAGES, plain(&json!([question])));
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0), asked(1)]);
    let response = decoded(answer(
        &json!([
            {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "execute", "input": {"code": CODE}},
            {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "ls"}},
        ]),
        "tool_use",
    ));
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&response.meta);
    encoder.preamble(&response);
    let (calls, direct) = ([call(0, "Oslo"), call(1, "Rome")], [response.message.calls[1].clone()]);
    encoder.calls_issued(&CallsIssued {
        response: Some(&response),
        state: &state,
        program: ProgramName::New,
        ids: &ids,
        calls: &calls,
        direct: &direct,
    });
    let body = encoder.body(&usage()).expect("an answer");
    let content = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "text", "text": "Let me see."},
        {"type": "redacted_thinking", "data": ids[0]},
        {"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": ids[1], "name": "get_weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "ls"}},
    ]);
    assert_eq!((&body["content"], &body["stop_reason"], &body["id"]), (&content, &json!("tool_use"), &json!("msg_1")));
    assert_eq!(body["usage"]["dacapo"]["model_calls"], 1);

    let answers = json!([
        {"type": "tool_result", "tool_use_id": ids[1], "content": [{"type": "text", "text": "no "}, {"type": "text", "text": "idea"}], "is_error": true},
        {"type": "tool_result", "tool_use_id": "t2", "content": "a.txt"},
        {"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"},
        {"type": "text", "text": "<system-reminder>And hurry.</system-reminder>"},
    ]);
    let echoed = json!([
        question, {"role": "assistant", "content": content}, {"role": "user", "content": answers},
    ]);
    let turn = turn_for(ProviderSide::MESSAGES, plain(&echoed));
    let live = turn.conversation.live().expect("the program goes on");
    let answers: Vec<_> = live.rounds[0].calls.iter().map(|call| call.answer.clone()).collect();
    let failed = Answer::Error { message: "no idea".to_owned(), data: None };
    assert_eq!(answers, [Some((2, ok("sunny"))), Some((0, failed))]);
    assert_eq!((live.run, live.rounds.len(), live.direct.len()), (state.run(), 1, 1));
    // The thought was not in the id, so the one that the client has brought back stands for it, but in no id.
    assert_eq!(live.state.run(), state.run());
    let asked = ask(&turn);
    assert_eq!(
        asked["messages"],
        json!([
            question,
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": asked["messages"][1]["content"][2]["id"], "name": "execute", "input": {"code": CODE}},
                {"type": "tool_use", "id": "t2", "name": "bash", "input": {"command": "ls"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": asked["messages"][1]["content"][2]["id"], "content": "done"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "a.txt"},
            ]},
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>And hurry.</system-reminder>"}]},
        ])
    );
}

#[test]
fn clipped_ids_are_mended_from_the_block_that_carries_the_state_too() {
    let state = state(&json!({"blocks": [{"type": "redacted_thinking", "data": "provider's"}]}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0), asked(1)]);
    let messages = |data: &str| {
        json!([
            {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": data},
                {"type": "tool_use", "id": "toolu_a", "name": "get_weather", "input": {}},
                {"type": "tool_use", "id": "toolu_b", "name": "get_weather", "input": {}},
                {"type": "tool_use", "id": "toolu_c", "name": "bash", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "toolu_b", "content": "rainy"},
                {"type": "tool_result", "tool_use_id": "toolu_c", "content": "a.txt"},
            ]},
        ])
    };
    let turn = turn_for(ProviderSide::MESSAGES, plain(&messages(&ids[0])));
    let live = turn.conversation.live().expect("the program goes on");
    let answers: Vec<_> =
        live.rounds[0].calls.iter().map(|call| (call.expected.index().0, call.answer.clone())).collect();
    assert_eq!(answers, [(0, Some((0, ok("sunny")))), (1, Some((1, ok("rainy"))))]);
    assert_eq!(live.direct.len(), 1);

    // Clipped itself, it proves nothing, and nothing of it reaches the model.
    let turn = turn_for(ProviderSide::MESSAGES, plain(&messages(&ids[0][..60])));
    let asked = ask(&turn)["messages"].to_string();
    assert!(
        turn.conversation.live().is_none() && asked.contains("state was lost") && !asked.contains("dc1_"),
        "{asked}"
    );
}

#[test]
fn an_explicit_program_waits_ends_and_is_run_again() {
    let turn = turn_for(ProviderSide::MESSAGES, explicit(&json!([{"role": "user", "content": "How is the weather?"}])));
    assert!(turn.mode == ProgramMode::Explicit && turn.seals_call_ids());
    let state = state(&json!({"blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "s1"}]}));
    let sealed = sealer().seal(&state, &RoundHeader::default(), &[]).remove(0);
    let shown = json!({"status": "error", "logs": ["one", "two"],
        "error": {"kind": "exception", "name": "TypeError", "message": "no", "frame": "1 | x()"}});
    let response = decoded(answer(&json!([{"type": "thinking", "thinking": "Hm.", "signature": "s1"}]), "tool_use"));
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.response_started();
    encoder.meta(&response.meta);
    // One that comes to its end at once, and one that waits.
    encoder.preamble(&response);
    encoder.program_started(&ProgramStarted { state: &state, sealed: &sealed, progress: ProgramProgress::Finished });
    encoder.program_finished(&ProgramFinished { program: ProgramName::New, state: &state, shown: &shown });
    encoder.response_started();
    let waiting = RunState { seed: "other".to_owned(), ..state.clone() };
    let ids = sealer().seal(&waiting, &RoundHeader::default(), &[asked(0)]);
    encoder.preamble(&response);
    encoder.program_started(&ProgramStarted { state: &waiting, sealed: "", progress: ProgramProgress::Waiting });
    let calls = [call(0, "Oslo")];
    encoder.calls_issued(&CallsIssued {
        response: Some(&response),
        state: &waiting,
        program: ProgramName::New,
        ids: &ids,
        calls: &calls,
        direct: &[],
    });
    let body = encoder.body(&usage()).expect("an answer");
    let (first, second) = (format!("srvtoolu_{sealed}"), format!("srvtoolu_{}", waiting.run()));
    let content = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "server_tool_use", "id": first, "name": "code_execution", "input": {"code": CODE}},
        {"type": "code_execution_tool_result", "tool_use_id": first, "content": {
            "type": "code_execution_result", "stdout": "one\ntwo\n", "stderr": "TypeError: no\n1 | x()",
            "return_code": 1, "content": []}},
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "server_tool_use", "id": second, "name": "code_execution", "input": {"code": CODE}},
        {"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {"city": "Oslo"},
            "caller": {"type": "code_execution_20260120", "tool_id": second}},
    ]);
    let container = json!({"id": "container_dc_1", "expires_at": "2099-01-01T00:00:00Z"});
    assert_eq!((&body["content"], &body["container"]), (&content, &container));

    let mut messages = json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"}]},
    ]);
    let mut request = explicit(&messages);
    request["container"] = json!("container_dc_1");
    let turn = turn_for(ProviderSide::MESSAGES, request);
    let live = turn.conversation.live().expect("it goes on");
    assert_eq!((live.id.as_str(), live.run), (second.as_str(), waiting.run()));
    let read: Vec<_> = blocks(&turn).iter().map(|block| (block.run, block.is_closed(), block.result.clone())).collect();
    assert_eq!(read, [(state.run(), true, None), (waiting.run(), false, None)]);
    assert_eq!(ask(&turn).get("container"), None);

    // It ends, and the model says more.
    let mut encoder = turn.encoder(CallDeltas::Whole);
    encoder.meta(&ResponseMeta::resumed(ClientSide::MESSAGES, live.run, &live.state, 1, "m"));
    let shown = json!({"status": "success", "data": {"sky": "blue"}});
    encoder.program_finished(&ProgramFinished {
        program: ProgramName::Known(&live.id),
        state: &live.state,
        shown: &shown,
    });
    encoder.response_started();
    let response = decoded(answer(&json!([{"type": "text", "text": "Blue."}]), "end_turn"));
    encoder.meta(&response.meta);
    encoder.answer(&response, AnswerParts::All);
    let body = encoder.body(&usage()).expect("an answer");
    assert_eq!(body["content"][0]["content"]["stdout"], "{\"sky\":\"blue\"}");
    let list = messages.as_array_mut().expect("a list");
    list.push(json!({"role": "assistant", "content": body["content"]}));
    list.push(json!({"role": "user", "content": "Thanks."}));
    // Whoever does not declare programs any more is understood all the same.
    for request in [explicit(&messages), plain(&messages)] {
        let turn = turn_for(ProviderSide::MESSAGES, request);
        let read: Vec<_> = blocks(&turn).iter().map(|block| (block.run, block.is_closed(), &block.result)).collect();
        assert_eq!(read, [(state.run(), true, &None), (waiting.run(), true, &None)]);
        let tail = &turn.conversation.items[3..];
        let blue = json!({"role": "assistant", "content": [{"type": "text", "text": "Blue."}]});
        assert_eq!(
            tail,
            [ConversationItem::Entry(blue), ConversationItem::Entry(json!({"role": "user", "content": "Thanks."}))]
        );
        assert!(!ask(&turn).to_string().contains("srvtoolu"));
    }
    // Without code mode the calls are calls like others.
    let mut request = plain(&messages);
    request["code_mode"] = json!(false);
    let ParsedRequest::PassThrough(Some(body)) = read_for(ProviderSide::MESSAGES, request) else {
        panic!("no code mode")
    };
    let body = body["messages"].to_string();
    assert!(body.contains("sunny") && body.contains("Blue.") && !body.contains("dc1_") && !body.contains("srvtoolu"));
}

#[test]
fn a_program_written_by_hand_is_read_from_its_blocks() {
    let request = explicit(&json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "server_tool_use", "id": "srvtoolu_a", "name": "code_execution", "input": {"code": CODE}},
            {"type": "tool_use", "id": "x", "name": "get_weather", "input": {"city": "Oslo"},
                "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_a"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "sunny"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "y", "name": "get_weather", "input": {"city": "Rome"},
                "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_a"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "y", "content": "rainy"}]},
        {"role": "assistant", "content": [
            {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_a", "content":
                {"type": "code_execution_result", "stdout": "fine", "stderr": "", "return_code": 0, "content": []}},
            {"type": "text", "text": "Fine."},
            {"type": "server_tool_use", "id": "srvtoolu_b", "name": "code_execution", "input": {"code": "return 2"}},
        ]},
    ]));
    let turn = turn_for(ProviderSide::MESSAGES, request);
    let read = blocks(&turn);
    let [first, second] = read[..] else { panic!("{read:?}") };
    assert_eq!(first.result, Some(json!({"status": "success", "data": "fine"})));
    assert_eq!((first.state.seed.as_str(), first.state.code.as_str(), first.is_closed()), ("srvtoolu_a", CODE, true));
    assert_eq!(first.state.model_messages[0].text.as_deref(), Some("Let me see."));
    let rounds: Vec<_> = first.rounds.iter().map(|round| (round.number, round.calls[0].expected.index().0)).collect();
    assert_eq!(rounds, [(0, 0), (1, 1)]);
    assert_eq!(first.journal().expect("all is there").entries().len(), 2);
    assert_eq!((second.state.model_messages[0].text.as_deref(), second.is_closed()), (Some("Fine."), false));
    assert_eq!(turn.conversation.live().map(|block| block.id.as_str()), Some("srvtoolu_b"));
}

#[test]
fn programs_survive_clients_that_drop_or_rewrite_blocks() {
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0)]);
    let program = format!("srvtoolu_{}", state.run());
    let call = json!({"type": "tool_use", "id": ids[0], "name": "get_weather", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": ids[0], "content": "sunny"});
    let ended = json!({"type": "code_execution_tool_result", "tool_use_id": program, "content":
        {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0, "content": []}});
    // One leaves the program out; another makes a call of it, and answers that too.
    let dropped = (json!([call]), json!([result]));
    let rewritten = (
        json!([{"type": "tool_use", "id": program, "name": "code_execution", "input": {"code": CODE}}, call]),
        json!([{"type": "tool_result", "tool_use_id": program, "content": "no such tool"}, result]),
    );
    for (content, answers) in [dropped, rewritten] {
        let mut messages = json!([
            {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": answers},
        ]);
        let turn = turn_for(ProviderSide::MESSAGES, explicit(&messages));
        let live = turn.conversation.live().expect("it goes on");
        assert_eq!((live.run, live.rounds[0].calls[0].answer.clone()), (state.run(), Some((0, ok("sunny")))));
        let list = messages.as_array_mut().expect("a list");
        list.push(json!({"role": "assistant", "content": [ended]}));
        list.push(json!({"role": "user", "content": "Thanks."}));
        let turn = turn_for(ProviderSide::MESSAGES, explicit(&messages));
        assert!(blocks(&turn)[0].is_closed() && blocks(&turn)[0].result.is_none());
        // Answers that are not there any more leave the result that the client was told.
        messages[2]["content"] = json!("(cleared)");
        let turn = turn_for(ProviderSide::MESSAGES, explicit(&messages));
        assert_eq!(blocks(&turn)[0].result, Some(json!({"status": "success", "data": "1"})));
    }
}
