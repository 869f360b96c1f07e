//! Anthropic Messages: what clients bring back, what models are asked, and what both are told.

use dacapo_replay::{Answer, ArgsDigest, Call, CallIndex, JsonText, Toolboxes};
use dacapo_wire::{
    Announced, Asked, Block, CallDeltas, Defaults, Ended, Event, Handing, Head, Heard, Item, Kept, ModelCall, Passed,
    Reader, Reading, RunState, Said, Saying, Sealer, Searched, Speaker, SseReader, Switch, Trouble, Turn, Unheard,
    Urge, Usage, Wire,
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

fn read_for(upstream: Wire, body: Value) -> Reading {
    let defaults = Defaults { switch: Switch::Plain, declarations_tokens_max: 1_000, custom_execute: false };
    let (sealer, kept, toolboxes) = (sealer(), Kept::default(), Toolboxes::default());
    let reader = Reader { upstream, header: None, defaults, sealer: &sealer, kept: &kept, toolboxes: &toolboxes };
    reader.read(Wire::Messages, body).expect("a request in order")
}

fn turn_for(upstream: Wire, body: Value) -> Box<Turn> {
    match read_for(upstream, body) {
        Reading::Turn(turn) => turn,
        Reading::PassThrough(body) => panic!("passed through: {body:?}"),
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

fn state(opaque: &Value) -> RunState {
    let arguments = json!({"code": CODE}).to_string();
    let call = ModelCall { name: "execute".to_owned(), arguments, ..ModelCall::default() };
    let opaque = opaque.as_object().expect("an object").clone();
    RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        tools: [0; 8],
        continues: None,
        sayings: vec![Saying { text: Some("Let me see.".to_owned()), opaque, calls: vec![call] }],
        at: 0,
        code: CODE.to_owned(),
    }
}

fn asked(call: u32) -> Asked {
    Asked { call: CallIndex(call), args: ArgsDigest([0; 4]) }
}

fn call(index: u32, city: &str) -> Call {
    let (tool, key) = ("get_weather".to_owned(), String::new());
    Call { call: CallIndex(index), tool, args: json!({"city": city}), key }
}

fn usage() -> Usage {
    let mut usage = Usage::default();
    usage.add(Some(&json!({"input_tokens": 10, "output_tokens": 5})));
    usage
}

fn blocks(turn: &Turn) -> Vec<&Block> {
    let block = |item: &'_ Item| matches!(item, Item::Block(_));
    let items = turn.conversation.items.iter().filter(|item| block(item));
    items.map(|item| if let Item::Block(block) = item { &**block } else { panic!("a block") }).collect()
}

/// What the model is asked with, where every program comes to "done".
fn ask(turn: &Turn) -> Value {
    let mut transcript = turn.transcript();
    for item in &turn.conversation.items {
        match item {
            Item::Message(message) => transcript.message(message.clone()),
            Item::Lost(lost) => transcript.lost(lost),
            Item::Search(saying) => transcript.saying(saying, &vec!["found".to_owned(); saying.calls.len()], &[]),
            Item::Block(block) => {
                for saying in &block.state.sayings {
                    transcript.saying(saying, &["done".to_owned()], &block.direct);
                }
                for remark in &block.remarks {
                    transcript.message(remark.clone());
                }
            }
        }
    }
    turn.ask(&transcript, Urge::AsTheClientSays)
}

fn said(body: Value) -> Said {
    Wire::Messages.said(body).expect("an answer")
}

fn answer(content: &Value, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 5}})
}

/// One line for each event; the name must be the type.
fn lines(events: &[Event]) -> String {
    let line = |event: &Event| {
        let data: Value = serde_json::from_str(&event.data).expect("JSON");
        assert_eq!(event.name.as_deref(), data["type"].as_str());
        format!("{}\n", event.data)
    };
    events.iter().map(line).collect()
}

/// What a client has of a stream in the end.
fn assembled(events: &[Event]) -> Said {
    let mut listener = Wire::Messages.listener();
    for event in events {
        listener.hear(event).expect("in order");
    }
    assert!(listener.is_over());
    listener.finish().expect("a whole message")
}

fn ok(text: &str) -> Answer {
    Answer::Ok(JsonText::from(&json!(text)))
}

/// A model that thinks, searches, speaks and calls.
const STREAM: &str = include_str!("stream.sse");

fn events(wire: &str, size: usize) -> Vec<Event> {
    let mut reader = SseReader::default();
    let mut events: Vec<Event> =
        wire.as_bytes().chunks(size).flat_map(|piece| reader.read(piece).expect("small")).collect();
    events.extend(reader.finish());
    events
}
