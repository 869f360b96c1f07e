//! Histories that clients have put together in their own way.

use dacapo_replay::{ArgsDigest, CallIndex, Toolboxes};
use dacapo_wire::{
    CallRef, ClientSide, CodeMode, CodeModeDefaults, ConversationItem, ModelCall, ModelMessage, ParsedRequest,
    ProgramMode, ProviderSide, RequestReader, RoundHeader, RunState, Sealer, StoredStates, TextTools,
    ToolChoiceOverride, Turn, UnopenedReason, UnopenedStates, UnsealError, Unsealed,
};
use serde_json::{Value, json};

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn turn(messages: &Value) -> Box<Turn> {
    turn_noting(messages, &UnopenedStates::default())
}

fn turn_noting(messages: &Value, unopened: &UnopenedStates) -> Box<Turn> {
    turn_of(messages, &StoredStates::default(), unopened)
}

fn turn_of(messages: &Value, stored: &StoredStates, unopened: &UnopenedStates) -> Box<Turn> {
    let tools = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    let body = json!({"model": "m", "messages": messages, "tools": tools}).to_string();
    let defaults =
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 1_000, execute_input: TextTools::No };
    let (sealer, toolboxes) = (sealer(), Toolboxes::default());
    let reader = RequestReader {
        tenant: "",
        servers: None,
        provider: ProviderSide::CHAT,
        callers: dacapo_wire::CallerRules::default(),
        header: None,
        defaults,
        sealer: &sealer,
        stored,
        unopened,
        toolboxes: &toolboxes,
    };
    match reader.read(ClientSide::CHAT, serde_json::from_str(&body).expect("JSON")).map(|read| read.parsed) {
        Ok(ParsedRequest::Turn(turn)) => turn,
        other => panic!("{other:?}"),
    }
}

fn sealed_id() -> String {
    let code = "return await get_weather({})";
    let call =
        ModelCall { name: "execute".to_owned(), arguments: json!({"code": code}).to_string(), ..ModelCall::default() };
    let state = RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        model_messages: vec![ModelMessage { calls: vec![call], ..ModelMessage::default() }],
        code: code.to_owned(),
        ..RunState::default()
    };
    sealer()
        .seal(&state, &RoundHeader::default(), &[CallRef { call: CallIndex(0), args: ArgsDigest([0; 4]) }])
        .remove(0)
}

/// What the model gets of all that is no program.
fn asked(turn: &Turn) -> Value {
    let mut history = turn.model_history();
    for (at, item) in turn.conversation.items.iter().enumerate() {
        match item {
            ConversationItem::Entry(entry) => history.push_item(at, entry),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Program(_) | ConversationItem::Search(_) => {}
        }
    }
    turn.model_request(&history, ToolChoiceOverride::Keep).into_json()["messages"].clone()
}

#[test]
fn calls_of_plain_mode_among_explicit_programs_reach_the_model_as_ordinary_ones() {
    let id = sealed_id();
    let turn = turn(&json!([
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": id, "content": "sunny"},
        {"role": "code", "id": "c", "code": "return 1"},
        {"role": "code_result", "id": "c", "result": {"status": "success", "data": 1}},
        {"role": "user", "content": "Thanks."},
    ]));
    let short = "YxwCsEAb3";
    let lost = "(These calls were made by a program whose state was lost on its way back, so it did not go on.)";
    assert_eq!(turn.mode, ProgramMode::Explicit);
    assert_eq!(
        asked(&turn),
        json!([
            {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": lost, "tool_calls": [
                {"id": short, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": short, "content": "sunny"},
            {"role": "user", "content": "Thanks."},
        ])
    );
}

#[test]
fn calls_are_found_in_either_spelling_when_the_other_holds_nothing() {
    let id = sealed_id();
    let turn = turn(&json!([
        {"role": "assistant", "tool_calls": null, "toolCalls": [
            {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": null, "toolCallId": id, "content": "sunny"},
    ]));
    let live = turn.conversation.live().expect("the program goes on");
    assert_eq!(live.journal().unwrap().entries().len(), 1);
}

#[test]
fn states_that_cannot_be_opened_are_noted_by_reason() {
    let exchange = |id: &str| {
        [
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": id, "content": "sunny"}),
        ]
    };
    let own = sealed_id();
    let mut changed = own.clone();
    changed.replace_range(40..42, if &own[40..42] == "aa" { "bb" } else { "aa" });
    // Of version 1.
    let mut foreign = own.clone();
    foreign.replace_range(..6, "dc1_AQ");
    let ids = [
        own.as_str(),
        &changed,
        &own[..own.len() - 9],
        &foreign,
        "dc1_0123456789AB_1_0",
        "call_of_somebody_else",
        &changed,
    ];
    let mut messages = vec![json!({"role": "user", "content": "How is the weather?"})];
    messages.extend(ids.into_iter().flat_map(exchange));

    let unopened = UnopenedStates::default();
    let turn = turn_noting(&Value::from(messages), &unopened);

    let lost = turn.conversation.items.iter().filter(|item| matches!(item, ConversationItem::LostCalls(_))).count();
    assert_eq!(lost, 5);
    let reasons = [
        UnopenedReason::Sealed(UnsealError::Damaged),
        UnopenedReason::Sealed(UnsealError::Foreign),
        UnopenedReason::Missing,
    ];
    assert_eq!(reasons.map(|reason| unopened.count(reason)), [2, 1, 1]);
    let none = UnopenedStates::default();
    turn_noting(&json!(exchange(&own)), &none);
    assert!(none.is_empty());
}

#[test]
fn a_state_stored_under_another_rounds_name_does_not_count() {
    let own = sealed_id();
    let sealed = sealer().unseal(&own).expect("our own");
    let Unsealed::Round { packed, header, .. } = sealed else { panic!("{sealed:?}") };
    let run = packed.run();
    for (stored_round, is_opened) in [(header.number, true), (header.number + 1, false)] {
        let mut stored = StoredStates::default();
        stored.insert(run, stored_round, own.clone());
        let id = format!("dc1_{run}_{stored_round}_0");
        let messages = json!([
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": id, "content": "sunny"},
        ]);
        let unopened = UnopenedStates::default();
        let turn = turn_of(&messages, &stored, &unopened);
        assert_eq!(turn.conversation.live().is_some(), is_opened);
        assert_eq!(unopened.count(UnopenedReason::Sealed(UnsealError::Damaged)), usize::from(!is_opened));
    }
}
