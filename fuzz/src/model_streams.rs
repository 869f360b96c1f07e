//! Any bytes as a model's stream, cut anywhere: the same events; and any JSON as its chunks: a response.
#![no_main]

mod json;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use dacapo_replay::{Toolbox, read_tools};
use dacapo_wire::{Intent, ModelMessage, ModelTools, ProviderSide, SseEvent, SseReader};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static MODEL_TOOLS: LazyLock<ModelTools> = LazyLock::new(|| {
    let tools = read_tools(&json!([{ "name": "get_weather" }, { "name": "b", "server": "s" }])).expect("tools");
    ModelTools::new(
        Arc::new(Toolbox::new(tools).expect("two tools")),
        BTreeSet::from(["direct".to_owned()]),
        &BTreeSet::new(),
        0,
    )
});

static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let keys = "id created model choices index delta message role content text type tool_calls toolCalls function custom \
         name arguments execute search direct get_weather finish_reason usage reasoning_content reasoning \
         reasoning_details extra_content summary";
    keys.split(' ').collect()
});

fuzz_target!(|data: &[u8]| {
    check_pieces(data);
    // Too little data for a chunk is no finding.
    check_chunks(&mut Unstructured::new(data)).unwrap_or_default();
});

fn check_pieces(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let whole = events([stream].into_iter());
    assert_eq!(whole, events(stream.chunks(usize::from(size) + 1)));
    assert_eq!(whole, events(stream.chunks(1)));
    decode(&whole);
    if let Ok(body) = serde_json::from_slice(stream) {
        check_whole(&body);
    }
}

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<SseEvent> {
    let mut reader = SseReader::default();
    let mut events: Vec<SseEvent> = pieces.flat_map(|piece| reader.read(piece).expect("a small event")).collect();
    events.extend(reader.finish());
    events
}

fn check_chunks(input: &mut Unstructured<'_>) -> Result<()> {
    let mut chunks = Vec::new();
    while input.ratio(7, 8)? && !input.is_empty() {
        chunks.push(chunk(input)?);
    }
    check_whole(&json!({"id": "x", "choices": chunks.first().map(|chunk| &chunk["choices"])}));
    let event = |chunk: Value| SseEvent { name: None, data: chunk.to_string() };
    let events: Vec<SseEvent> = chunks.into_iter().map(event).collect();
    decode(&events);
    Ok(())
}

fn chunk(input: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match input.int_in_range(0..=4)? {
        0 => json::any(input, &KEYS)?,
        1 => json!({"id": "x", "choices": [{"index": 0, "delta": json::object(input, &KEYS)?}]}),
        2 => json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": json::any(input, &KEYS)?}]}),
        _ => {
            let name = *input.choose(&["execute", "search_functions", "search", "direct", "get_weather", ""])?;
            let mut call = json!({"id": input.choose(&["", "1", "2"])?, "function": {"name": name}});
            if input.arbitrary()? {
                call["index"] = json!(input.arbitrary::<u8>()?);
            }
            call["function"]["arguments"] = match input.int_in_range(0..=4)? {
                0 => json::any(input, &KEYS)?,
                1 => Value::from(json!({"code": input.arbitrary::<&str>()?}).to_string()),
                2 => Value::from(json!({"query": input.arbitrary::<&str>()?}).to_string()),
                _ => Value::from(input.arbitrary::<&str>()?),
            };
            let calls = json!([call]);
            json!({"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": calls}, "message": {"tool_calls": calls}}]})
        }
    })
}

fn decode(events: &[SseEvent]) {
    for provider in ProviderSide::ALL {
        let mut decoder = provider.decoder();
        for event in events {
            // An event that cannot be understood ends the turn, not the decoder.
            drop(decoder.decode_event(event));
        }
        if let Some(response) = decoder.finish() {
            check_message(&response.message);
        }
    }
}

fn check_whole(body: &Value) {
    for provider in ProviderSide::ALL {
        if let Ok(response) = provider.decode_response(body.clone()) {
            check_message(&response.message);
        }
    }
}

/// What is carried means the same as what was said.
fn check_message(message: &ModelMessage) {
    let intent = message.intent(&MODEL_TOOLS);
    let normalized = message.clone().normalized(&MODEL_TOOLS, &[]);
    assert_eq!(normalized.clone().normalized(&MODEL_TOOLS, &[]), normalized);
    assert_eq!(message.replies(&MODEL_TOOLS, &|_| String::new()).len(), message.calls.len());
    match (&intent, normalized.clone().without_direct(&MODEL_TOOLS).intent(&MODEL_TOOLS)) {
        (Intent::Program { code, .. }, Intent::Program { code: carried, .. }) => assert_eq!(*code, carried),
        (Intent::Program { .. }, other) => panic!("the program is gone: {other:?}"),
        (_, Intent::Program { .. }) if intent != Intent::Reply => panic!("a program came from {intent:?}"),
        _ => {}
    }
}
