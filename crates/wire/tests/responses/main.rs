//! Conversations on `OpenAI` Responses.

use dacapo_replay::{Call, CallIndex, Toolboxes};
use dacapo_wire::{
    Announced, Asked, BadRequest, CallDeltas, Defaults, Ended, Event, Expected, Handing, Item, Kept, ModelCall, Passed,
    Reader, Reading, RunState, Said, Saying, Sealer, SseReader, Switch, Transcript, Turn, Urge, Usage, Wire,
};
use serde_json::{Map, Value, json};

mod broken;
mod explicit_mode;
mod plain_mode;
mod requests;
mod streams;

const CODE: &str = "return await get_weather({city: 'Oslo'})";

fn sealer() -> Sealer {
    Sealer::new(b"a secret of some length", "")
}

fn read(upstream: Wire, body: Value) -> Result<Reading, BadRequest> {
    read_with(Wire::Responses, upstream, &Kept::default(), body)
}

fn read_with(client: Wire, upstream: Wire, kept: &Kept, body: Value) -> Result<Reading, BadRequest> {
    let defaults = Defaults { switch: Switch::Plain, declarations_tokens_max: 1_000, custom_execute: false };
    let (sealer, toolboxes) = (sealer(), Toolboxes::default());
    Reader { upstream, header: None, defaults, sealer: &sealer, kept, toolboxes: &toolboxes }.read(client, body)
}

fn turn(upstream: Wire, body: Value) -> Box<Turn> {
    match read(upstream, body) {
        Ok(Reading::Turn(turn)) => turn,
        other => panic!("{other:?}"),
    }
}

fn plain(input: &Value) -> Value {
    json!({"model": "m", "input": input, "tools": [{"type": "function", "name": "get_weather", "parameters": {}}]})
}

fn explicit(input: &Value) -> Value {
    let function = json!({"type": "function", "name": "get_weather", "allowed_callers": ["programmatic"]});
    json!({"model": "m", "input": input, "store": false, "tools": [{"type": "programmatic_tool_calling"}, function]})
}

fn question() -> Value {
    json!({"type": "message", "role": "user", "content": "How is the weather in Oslo?"})
}

fn thought() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"})
}

/// A model that writes a program, after a thought and some words.
fn said() -> Said {
    let words = json!({"type": "output_text", "text": "Let me see.", "annotations": []});
    Wire::Responses
        .said(json!({
            "id": "resp_1", "object": "response", "created_at": 1_767_225_600, "model": "m-1", "status": "completed",
            "service_tier": "flex",
            "output": [
                thought(),
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [words]},
                {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "execute",
                    "arguments": json!({"code": CODE}).to_string(), "status": "completed"},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        }))
        .expect("an answer")
}

fn state(said: &Said) -> RunState {
    let mut saying = said.saying.clone();
    for call in &mut saying.calls {
        // What no id carries.
        (call.id, call.native) = (String::new(), Value::Null);
    }
    RunState {
        seed: "seed".to_owned(),
        started_at_ms: 1_767_225_600_000,
        tools: [0; 8],
        continues: None,
        sayings: vec![saying],
        at: 0,
        code: CODE.to_owned(),
    }
}

fn call(index: u32) -> Call {
    let args = json!({"city": "Oslo"});
    Call { call: CallIndex(index), tool: "get_weather".to_owned(), args, key: String::new() }
}

fn handed_out(turn: &Turn, said: &Said, state: &RunState, calls: &[Call]) -> Value {
    let ids = if turn.explicit {
        Turn::open_ids(state.run(), 0, calls)
    } else {
        sealer().seal(state, 0, [0; 8], &calls.iter().map(Asked::from).collect::<Vec<_>>())
    };
    let mut speaker = turn.speaker(CallDeltas::Whole);
    speaker.begins();
    speaker.head(&said.head);
    if turn.explicit {
        let sealed = sealer().seal(state, 0, [0; 8], &[]).remove(0);
        speaker.aside(said);
        speaker.program(&Announced { state, sealed: &sealed, is_finished: false });
    }
    speaker.calls(&Handing { said: Some(said), state, program: "", ids: &ids, calls, direct: &[] });
    speaker.body(&Usage::default()).expect("a response")
}

/// The client's answers to all calls of a response.
fn answers(response: &Value) -> Vec<Value> {
    let calls = response["output"].as_array().expect("items").iter().filter(|item| item["type"] == "function_call");
    calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"})).collect()
}

/// What the model gets, with this for the result of each program.
fn asked(turn: &Turn, result: &str) -> Value {
    let mut transcript: Transcript = turn.transcript();
    for item in &turn.conversation.items {
        match item {
            Item::Message(message) => transcript.message(message.clone()),
            Item::Lost(lost) => transcript.lost(lost),
            Item::Search(saying) => transcript.saying(saying, &vec![result.to_owned(); saying.calls.len()], &[]),
            Item::Block(block) => {
                for saying in &block.state.sayings {
                    transcript.saying(saying, &vec![result.to_owned(); saying.calls.len()], &block.direct);
                }
                block.remarks.iter().for_each(|remark| transcript.message(remark.clone()));
            }
        }
    }
    turn.ask(&transcript, Urge::AsTheClientSays)
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

/// The client's tools, and one that the model calls by itself.
fn with_direct(mut body: Value) -> Value {
    let direct = json!({"type": "function", "name": "ask", "allowed_callers": ["direct"]});
    body["tools"].as_array_mut().expect("tools").push(direct);
    body
}

/// What of the items a client sends back that trusts in ids.
fn references(items: &[Value]) -> Vec<Value> {
    items.iter().map(|item| json!({"type": "item_reference", "id": item["id"]})).collect()
}

/// What a client gets of this answer.
fn answered(turn: &Turn, said: &Said) -> Vec<Value> {
    let mut speaker = turn.speaker(CallDeltas::Whole);
    speaker.begins();
    speaker.head(&said.head);
    speaker.answer(said, Passed::All);
    items(&speaker.body(&Usage::default()).expect("a response"))
}

/// An answer of a model.
fn response(output: &Value) -> Said {
    Wire::Responses.said(json!({"id": "resp_7", "model": "m", "output": output})).expect("an answer")
}

fn input(first: Value, more: impl IntoIterator<Item = Value>) -> Value {
    std::iter::once(first).chain(more).collect()
}

fn items(response: &Value) -> Vec<Value> {
    response["output"].as_array().expect("items").clone()
}

/// The history that the model has of the program, whatever the client sent back of it.
fn told() -> Value {
    let arguments = json!({"code": CODE}).to_string();
    json!([
        question(),
        thought(),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "ud0NMOtsC", "name": "execute", "arguments": arguments},
        {"type": "function_call_output", "call_id": "ud0NMOtsC", "output": "sunny!"},
    ])
}

/// A model's stream: a thought, some words, a call of a tool.
fn model_events() -> Vec<Value> {
    let response = json!({"id": "resp_1", "object": "response", "created_at": 7, "model": "m-1", "status": "in_progress", "output": [], "tools": [{"name": "execute"}]});
    let message = |content: Value, status: &str| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": content});
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let function = |arguments: &str| json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "patch", "arguments": arguments, "status": "completed"});
    let output = json!([thought(), message(json!([part("Hi!")]), "completed"), function("{}")]);
    let mut end = response.clone();
    end["status"] = json!("completed");
    end["output"] = output;
    end["usage"] = json!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
    let of = |event: &str, at: u64, key: &str, value: Value| json!({"type": event, "output_index": at, key: value, "sequence_number": 99});
    vec![
        json!({"type": "response.created", "response": response, "sequence_number": 0}),
        of("response.output_item.added", 0, "item", json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        of("response.output_item.done", 0, "item", thought()),
        of("response.output_item.added", 1, "item", message(json!([]), "in_progress")),
        of("response.content_part.added", 1, "part", part("")),
        of("response.output_text.delta", 1, "delta", json!("Hi")),
        of("response.output_text.delta", 1, "delta", json!("!")),
        of("response.output_text.done", 1, "text", json!("Hi!")),
        of("response.content_part.done", 1, "part", part("Hi!")),
        of("response.output_item.done", 1, "item", message(json!([part("Hi!")]), "completed")),
        of("response.output_item.added", 2, "item", function("")),
        of("response.function_call_arguments.delta", 2, "delta", json!("{}")),
        of("response.output_item.done", 2, "item", function("{}")),
        json!({"type": "response.completed", "response": end, "sequence_number": 13}),
    ]
}
