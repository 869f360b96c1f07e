//! What clients do to a program's messages on their way back.

use crate::*;

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

fn model(content: &Value) -> Value {
    json!({"role": "assistant", "content": content})
}

fn used(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "get_weather", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": format!("of {}", &id[id.len() - 2..])})
}

fn history(messages: &[Value]) -> Value {
    let question = user(&json!("How is the weather?"));
    std::iter::once(&question).chain(messages).cloned().collect()
}

/// The answers that the program goes on with, in order.
fn answered(turn: &Turn) -> Option<Vec<u32>> {
    let live = turn.conversation.live()?;
    let calls = live.rounds.iter().flat_map(|round| &round.calls).filter(|call| call.answer.is_some());
    Some(calls.map(|call| call.expected.index().0).collect())
}

#[test]
fn neighbours_of_one_role_are_one_message() {
    let state = state(&json!({"blocks": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"}, {"type": "text", "text": "Let me see."}]}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0), asked(1)]);
    let (first, second) = (used(&ids[0]), used(&ids[1]));
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s1"});
    let carrier = json!({"type": "redacted_thinking", "data": ids[0]});
    let (one, other) = (result(&ids[0]), result(&ids[1]));
    let reminder = user(&json!("<system-reminder>Be brief.</system-reminder>"));
    let text = model(&json!("Let me see."));
    let both = model(&json!([first, second]));
    let split = [text, model(&json!([thought])), model(&json!([carrier, first])), model(&json!([second]))];
    let asked_once = |messages: &[Value]| {
        let body = plain(&history(messages));
        assert!(ClientSide::MESSAGES.awaits_answers(&body));
        let turn = turn_for(ProviderSide::MESSAGES, body);
        assert_eq!(answered(&turn), Some(vec![0, 1]), "{messages:#?}");
        let asked = ask(&turn)["messages"].to_string();
        for once in ["s1", "Let me see.", "Be brief."] {
            assert_eq!(asked.matches(once).count(), 1, "{asked}");
        }
    };
    asked_once(&[both.clone(), user(&json!([one, other])), reminder.clone()]);
    asked_once(&[both.clone(), reminder.clone(), user(&json!([one, other]))]);
    asked_once(&[both.clone(), user(&json!([other])), reminder.clone(), user(&json!([one]))]);
    let mut messages = split.to_vec();
    messages.extend([user(&json!([one, other])), reminder.clone()]);
    asked_once(&messages);

    // What the model has not said itself stays, as it came.
    let note = model(&json!("(Summary.)"));
    let turn =
        turn_for(ProviderSide::MESSAGES, plain(&history(&[note.clone(), both.clone(), user(&json!([one, other]))])));
    assert_eq!(
        (answered(&turn), &turn.conversation.items[1]),
        (Some(vec![0, 1]), &ConversationItem::Entry(note.clone()))
    );
    let others = [note.clone(), note.clone(), reminder.clone(), reminder.clone()];
    let turn = turn_for(ProviderSide::MESSAGES, plain(&history(&others)));
    assert_eq!(turn.conversation.items[1..], others.map(ConversationItem::Entry));

    // Something else was said: the program is abandoned.
    let answers = user(&json!([one, other]));
    for messages in [
        vec![both.clone(), reminder.clone()],
        vec![both.clone(), note.clone()],
        vec![both.clone(), answers.clone(), note],
    ] {
        let turn = turn_for(ProviderSide::MESSAGES, plain(&history(&messages)));
        assert_eq!((answered(&turn), blocks(&turn).len()), (None, 1), "{messages:#?}");
    }
    // Without code mode its calls are calls like others, answered at once.
    let mut body = plain(&history(&[split.to_vec(), vec![answers]].concat()));
    body["code_mode"] = json!(false);
    let ParsedRequest::PassThrough(Some(body)) = read_for(ProviderSide::MESSAGES, body) else { panic!("no code mode") };
    let messages = body["messages"].as_array().expect("a list");
    let kinds = |message: &Value| {
        message["content"].as_array().map_or(0, |content| {
            content.iter().filter(|block| block["type"] != "thinking" && block["type"] != "text").count()
        })
    };
    assert_eq!(messages.iter().map(kinds).collect::<Vec<_>>(), [0, 2, 2]);
}

#[test]
fn programs_of_the_provider_pass_untouched() {
    let program =
        json!({"type": "server_tool_use", "id": "srvtoolu_01", "name": "code_execution", "input": {"code": "1"}});
    let caller = json!({"type": "code_execution_20260120", "tool_id": "srvtoolu_01"});
    let filtered = history(&[
        model(&json!([
            program,
            {"type": "server_tool_use", "id": "srvtoolu_02", "name": "web_search", "input": {}, "caller": caller},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_02", "content": []},
            {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_01", "content":
                {"type": "encrypted_code_execution_result", "encrypted_stdout": "x", "return_code": 0}},
            {"type": "text", "text": "Found."},
        ])),
        user(&json!("Go on.")),
    ]);
    for body in [plain(&filtered), explicit(&filtered)] {
        assert_eq!(ask(&turn_for(ProviderSide::MESSAGES, body))["messages"], filtered);
    }
    // One that nobody else ran is ours only where programs are declared.
    let bare = history(&[model(&json!([program])), user(&json!("Go on."))]);
    assert_eq!(ask(&turn_for(ProviderSide::MESSAGES, plain(&bare)))["messages"], bare);
    assert_eq!(blocks(&turn_for(ProviderSide::MESSAGES, explicit(&bare))).len(), 1);
}

#[test]
fn siblings_go_on_without_the_call_that_had_the_state() {
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0), asked(1), asked(2)]);
    let carrier = json!({"type": "redacted_thinking", "data": ids[0]});
    let by_hand = json!({"type": "tool_use", "id": "toolu_d", "name": "by_hand", "input": {}});
    let history = history(&[
        model(&json!([carrier, used(&ids[1]), used(&ids[2]), by_hand])),
        user(&json!([result(&ids[1]), result(&ids[2]), result("toolu_d")])),
    ]);
    let turn = turn_for(ProviderSide::MESSAGES, plain(&history));
    assert_eq!(answered(&turn), Some(vec![1, 2]));
    assert_eq!(turn.conversation.live().map(|live| live.direct.len()), Some(1));
}

#[test]
fn a_place_to_cache_stays_with_the_program() {
    let state = state(&json!({}));
    let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0)]);
    let mut turns = Vec::new();
    for pointer in ["/1/content/0", "/2/content/0", "/2/content/0/content/0", "/2/content/1"] {
        let mut history = history(&[
            model(&json!([used(&ids[0]), {"type": "tool_use", "id": "toolu_d", "name": "by_hand", "input": {}}])),
            user(&json!([
                {"type": "tool_result", "tool_use_id": ids[0], "content": [{"type": "text", "text": "sunny"}]},
                {"type": "tool_result", "tool_use_id": "toolu_d", "content": "done"},
            ])),
        ]);
        history.pointer_mut(pointer).expect("a block")["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
        let turn = turn_for(ProviderSide::MESSAGES, plain(&history));
        assert_eq!(turn.conversation.live().map(|live| live.state.run()), Some(state.run()));
        let mut asked = ask(&turn)["messages"].take();
        // The last is no program's, and keeps its own.
        let at = usize::from(pointer == "/2/content/1");
        let cached = asked[2]["content"][at].as_object_mut().expect("a block").shift_remove("cache_control");
        assert_eq!(cached, Some(json!({"type": "ephemeral", "ttl": "1h"})), "{pointer}");
        turns.push(asked);
    }
    assert!(turns.iter().all(|asked| *asked == turns[0] && !asked.to_string().contains("cache_control")));
}

#[test]
fn what_is_too_large_for_an_id_comes_back_in_its_place() {
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "s1"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let search = json!({"type": "server_tool_use", "id": "srvtoolu_w", "name": "web_search", "input": {}});
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_w", "content": [{"encrypted_content": "x"}]});
    // What is left of its message in the id, what the client brings back, and what the model has to see.
    let cases = [
        (
            Some(json!([thought, text("Let me see.")])),
            json!([thought, search, found]),
            json!([thought, search, found, text("Let me see.")]),
        ),
        (
            Some(json!([thought, text("Let me "), text("see.")])),
            json!([thought, text("Let me "), search, found]),
            json!([thought, text("Let me "), search, found, text("see.")]),
        ),
        (Some(json!([thought, search, found])), json!([thought]), json!([thought, search, found])),
        // No thought comes twice, whatever a client makes of it.
        (Some(json!([thought])), json!([{"type": "thinking", "thinking": "Hm."}]), json!([thought])),
        (
            None,
            json!([thought, text("Let me "), search, found]),
            json!([thought, text("Let me "), search, found, text("see.")]),
        ),
        (None, json!([search, found, text("Edited.")]), json!([search, found, text("Let me see.")])),
        (None, json!([text("Let me see.")]), json!([text("Let me see.")])),
    ];
    for (kept, echoed, expected) in cases {
        let state = state(&kept.map_or_else(|| json!({}), |kept| json!({"blocks": kept})));
        let ids = sealer().seal(&state, &RoundHeader::default(), &[asked(0)]);
        let mut content = echoed.as_array().expect("a list").clone();
        content.push(used(&ids[0]));
        let turn = turn_for(
            ProviderSide::MESSAGES,
            plain(&history(&[model(&json!(content)), user(&json!([result(&ids[0])]))])),
        );
        let mut asked = ask(&turn)["messages"][1]["content"].take();
        assert_eq!(
            asked.as_array_mut().expect("a list").pop().map(|call| call["name"].clone()),
            Some(json!("execute"))
        );
        assert_eq!(asked, expected);
    }
}
