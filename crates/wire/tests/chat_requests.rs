//! Histories that clients have put together in their own way.

use dacapo_replay::{ArgsDigest, CallIndex, Toolboxes};
use dacapo_wire::{
    CallRef, ClientSide, CodeMode, CodeModeDefaults, ConversationItem, ModelCall, ModelMessage, ParsedRequest,
    ProgramMode, ProviderSide, RequestReader, RunState, Sealer, StoredStates, TextTools, ToolChoiceOverride, Turn,
};
use serde_json::{Value, json};

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn turn(messages: &Value) -> Box<Turn> {
    let tools = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    let body = json!({"model": "m", "messages": messages, "tools": tools}).to_string();
    let defaults =
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 1_000, execute_input: TextTools::No };
    let (sealer, stored, toolboxes) = (sealer(), StoredStates::default(), Toolboxes::default());
    let reader = RequestReader {
        provider: ProviderSide::CHAT,
        header: None,
        defaults,
        sealer: &sealer,
        stored: &stored,
        toolboxes: &toolboxes,
    };
    match reader.read(ClientSide::CHAT, serde_json::from_str(&body).expect("JSON")) {
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
        tools: [0; 8],
        continues: None,
        model_messages: vec![ModelMessage { calls: vec![call], ..ModelMessage::default() }],
        at: 0,
        code: code.to_owned(),
    };
    sealer().seal(&state, 0, [0; 8], &[CallRef { call: CallIndex(0), args: ArgsDigest([0; 4]) }]).remove(0)
}

/// What the model gets of all that is no program.
fn asked(turn: &Turn) -> Value {
    let mut history = turn.model_history();
    for item in &turn.conversation.items {
        match item {
            ConversationItem::Entry(entry) => history.push_entry(entry.clone()),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Program(_) | ConversationItem::Search(_) => {}
        }
    }
    turn.model_request(&history, ToolChoiceOverride::Keep)["messages"].clone()
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
