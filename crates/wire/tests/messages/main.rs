//! Anthropic Messages: what clients bring back, what models are asked, and what both are told.

use dacapo_replay::{Answer, ArgsDigest, Call, CallIndex, JsonText, Toolboxes};
use dacapo_wire::{
    AnswerParts, ApiError, BadRequest, CallDeltas, CallRef, CallsIssued, CallsPerMessage, ClientSide, CodeMode,
    CodeModeDefaults, ConversationItem, DeltaKind, ModelCall, ModelMessage, ModelResponse, ParsedRequest, ProgramBlock,
    ProgramFinished, ProgramMode, ProgramName, ProgramProgress, ProgramStarted, ProviderSide, RequestReader,
    ResponseDelta, ResponseEncoder, ResponseMeta, RoundHeader, RunState, Sealer, SseEvent, SseReader, StoredStates,
    StreamError, TextTools, ToolChoiceOverride, ToolsSearched, Turn, TurnUsage, UnopenedStates,
};
use serde_json::{Map, Value, json};

mod broken;
mod histories;
mod requests;
mod searches;
mod streams;
mod turns;

const CODE: &str = "return await get_weather({city: \"Oslo\"})";

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn read(client: ClientSide, provider: ProviderSide, body: Value) -> Result<ParsedRequest, BadRequest> {
    let defaults =
        CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 1_000, execute_input: TextTools::No };
    let (sealer, stored, toolboxes) = (sealer(), StoredStates::default(), Toolboxes::default());
    let reader = RequestReader {
        tenant: "",
        servers: None,
        provider,
        callers: dacapo_wire::CallerRules::default(),
        header: None,
        defaults,
        sealer: &sealer,
        stored: &stored,
        unopened: &UnopenedStates::default(),
        toolboxes: &toolboxes,
    };
    reader.read(client, body).map(|read| read.parsed)
}

fn read_for(provider: ProviderSide, body: Value) -> ParsedRequest {
    read(ClientSide::MESSAGES, provider, body).expect("a request in order")
}

fn turn_for(provider: ProviderSide, body: Value) -> Box<Turn> {
    match read_for(provider, body) {
        ParsedRequest::Turn(turn) => turn,
        ParsedRequest::PassThrough(body) => panic!("passed through: {body:?}"),
    }
}

fn weather() -> Value {
    json!({"name": "get_weather", "description": "Says how the weather is.", "input_schema": {"type": "object"}})
}

fn plain(messages: &Value) -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": messages, "tools": [weather()]})
}

fn explicit(messages: &Value) -> Value {
    let mut weather = weather();
    weather["allowed_callers"] = json!(["code_execution_20260120"]);
    let programs = json!({"type": "code_execution_20260120", "name": "code_execution"});
    json!({"model": "m", "max_tokens": 100, "messages": messages, "tools": [programs, weather]})
}

fn state(reasoning: &Value) -> RunState {
    let arguments = json!({"code": CODE}).to_string();
    let call = ModelCall { name: "execute".to_owned(), arguments, ..ModelCall::default() };
    let reasoning = serde_json::from_value(reasoning.clone()).expect("reasoning");
    let text = Some("Let me see.".to_owned());
    RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        model_messages: vec![ModelMessage { text, reasoning, calls: vec![call], ..ModelMessage::default() }],
        code: CODE.to_owned(),
        ..RunState::default()
    }
}

fn asked(call: u32) -> CallRef {
    CallRef { call: CallIndex(call), args: ArgsDigest([0; 4]) }
}

fn call(index: u32, city: &str) -> Call {
    let (tool, key) = ("get_weather".to_owned(), String::new());
    Call { call: CallIndex(index), tool, args: json!({"city": city}), key }
}

fn usage() -> TurnUsage {
    let mut usage = TurnUsage::default();
    usage.add(Some(&json!({"input_tokens": 10, "output_tokens": 5})));
    usage
}

fn blocks(turn: &Turn) -> Vec<&ProgramBlock> {
    let block = |item: &'_ ConversationItem| matches!(item, ConversationItem::Program(_));
    let items = turn.conversation.items.iter().filter(|item| block(item));
    items.map(|item| if let ConversationItem::Program(block) = item { &**block } else { panic!("a block") }).collect()
}

/// What the model is asked with, where every program comes to "done".
fn ask(turn: &Turn) -> Value {
    let mut history = turn.model_history();
    for (at, item) in turn.conversation.items.iter().enumerate() {
        match item {
            ConversationItem::Entry(entry) => history.push_item(at, entry),
            ConversationItem::LostCalls(lost) => history.push_lost_calls(lost),
            ConversationItem::Search(message) => {
                history.push_model_message(message, &vec!["found".to_owned().into(); message.calls.len()], &[]);
            }
            ConversationItem::Program(block) => {
                for message in &block.state.model_messages {
                    history.push_model_message(message, &["done".to_owned().into()], &block.direct);
                }
                for remark in &block.remarks {
                    history.push_entry(remark.clone());
                }
            }
        }
    }
    turn.model_request(&history, ToolChoiceOverride::Keep).into_json()
}

fn decoded(body: Value) -> ModelResponse {
    ProviderSide::MESSAGES.decode_response(body).expect("an answer")
}

fn answer(content: &Value, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}})
}

/// One line for each event; the name must be the type.
fn lines(events: &[SseEvent]) -> String {
    let line = |event: &SseEvent| {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!(event.name.as_deref(), data["type"].as_str());
        format!("{}\n", event.data)
    };
    events.iter().map(line).collect()
}

/// What a client has of a stream in the end.
fn assembled(events: &[SseEvent]) -> ModelResponse {
    let mut decoder = ProviderSide::MESSAGES.decoder();
    for event in events {
        decoder.decode_event(event).expect("in order");
    }
    assert!(decoder.is_complete());
    decoder.finish().expect("a whole message")
}

fn ok(text: &str) -> Answer {
    Answer::Ok(JsonText::from(&json!(text)))
}

/// A model that thinks, searches, speaks and calls.
const STREAM: &str = include_str!("stream.sse");

fn events(wire: &str, size: usize) -> Vec<SseEvent> {
    let mut reader = SseReader::default();
    let mut events: Vec<SseEvent> =
        wire.as_bytes().chunks(size).flat_map(|piece| reader.read(piece).expect("small")).collect();
    events.extend(reader.finish());
    events
}
