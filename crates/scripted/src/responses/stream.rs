//! A response as named, numbered events.

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::message::Outgoing;
use super::super::stream::named;
use super::super::turn::Pace;
use super::{Status, output, response, status};

/// Calls of provider's tools that tell how far they are.
const TOLD: [&str; 5] =
    ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"];

pub(in super::super) fn events(outgoing: &Outgoing<'_>) -> Vec<String> {
    let status = status(outgoing);
    let items = output::items(outgoing, status);
    let opened = response(outgoing, Status::InProgress, &[]);
    let mut events = vec![
        json!({"type": "response.created", "response": opened}),
        json!({"type": "response.in_progress", "response": opened}),
    ];
    for (index, item) in items.iter().enumerate() {
        let spot = Spot { item_id: &item["id"], index };
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": opening(item)}));
        events.extend(growth(item, &spot, &outgoing.turn.pace));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let last = if let Status::Incomplete(_) = status { "response.incomplete" } else { "response.completed" };
    events.push(json!({"type": last, "response": response(outgoing, status, &items)}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    named(outgoing, events, |failure, number| failed(outgoing, failure, number))
}

/// What the provider brought about fails the response; what the client did is an error.
fn failed(outgoing: &Outgoing<'_>, failure: &Failure, number: usize) -> Value {
    let Failure { status, message, param, code, .. } = failure;
    if *status < 500 {
        return json!({"type": "error", "code": code, "message": message, "param": param, "sequence_number": number});
    }
    let mut response = response(outgoing, Status::Failed, &[]);
    response["error"] = json!({"code": code.as_deref().unwrap_or("server_error"), "message": message});
    json!({"type": "response.failed", "response": response, "sequence_number": number})
}

struct Spot<'a> {
    item_id: &'a Value,
    index: usize,
}

impl Spot<'_> {
    fn event(&self, kind: &str, more: Value) -> Value {
        let mut event = json!({"type": kind, "item_id": self.item_id, "output_index": self.index});
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        event
    }
}

/// The item before it grows.
fn opening(item: &Value) -> Value {
    let mut opening = item.clone();
    if opening.get("status").is_some() {
        opening["status"] = "in_progress".into();
    }
    let (field, empty) = match item["type"].as_str().unwrap_or_default() {
        "reasoning" => ("summary", json!([])),
        "message" => ("content", json!([])),
        "function_call" => ("arguments", "".into()),
        "custom_tool_call" => ("input", "".into()),
        _ => return opening,
    };
    opening[field] = empty;
    opening
}

/// What comes between the item's beginning and its end.
fn growth(item: &Value, spot: &Spot<'_>, pace: &Pace) -> Vec<Value> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let list = |name: &str| item[name].as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
    match text("type") {
        "reasoning" => list("summary").flat_map(|(i, part)| summary(part, i, spot, pace)).collect(),
        "message" => list("content").flat_map(|(i, part)| content(part, i, spot, pace)).collect(),
        "function_call" => {
            let deltas = pace.split_arguments(text("arguments")).into_iter();
            let delta = |delta| spot.event("response.function_call_arguments.delta", json!({"delta": delta}));
            let done = json!({"name": item["name"], "arguments": item["arguments"]});
            deltas.map(delta).chain([spot.event("response.function_call_arguments.done", done)]).collect()
        }
        "custom_tool_call" => {
            let deltas = pace.split_arguments(text("input")).into_iter();
            let delta = |delta| spot.event("response.custom_tool_call_input.delta", json!({"delta": delta}));
            let done = json!({"input": item["input"]});
            deltas.map(delta).chain([spot.event("response.custom_tool_call_input.done", done)]).collect()
        }
        kind if TOLD.contains(&kind) => ["in_progress", "completed"]
            .iter()
            .map(|state| spot.event(&format!("response.{kind}.{state}"), json!({})))
            .collect(),
        _ => Vec::new(),
    }
}

fn summary(part: &Value, i: usize, spot: &Spot<'_>, pace: &Pace) -> Vec<Value> {
    let text = part["text"].as_str().unwrap_or_default();
    let mut empty = part.clone();
    empty["text"] = "".into();
    let mut events =
        vec![spot.event("response.reasoning_summary_part.added", json!({"summary_index": i, "part": empty}))];
    events.extend(
        pace.split_text(text).into_iter().map(|delta| {
            spot.event("response.reasoning_summary_text.delta", json!({"summary_index": i, "delta": delta}))
        }),
    );
    events.push(spot.event("response.reasoning_summary_text.done", json!({"summary_index": i, "text": text})));
    events.push(spot.event("response.reasoning_summary_part.done", json!({"summary_index": i, "part": part})));
    events
}

fn content(part: &Value, i: usize, spot: &Spot<'_>, pace: &Pace) -> Vec<Value> {
    let text = part["text"].as_str().unwrap_or_default();
    let mut empty = part.clone();
    empty["text"] = "".into();
    empty["annotations"] = json!([]);
    let mut events = vec![spot.event("response.content_part.added", json!({"content_index": i, "part": empty}))];
    events.extend(pace.split_text(text).into_iter().map(|delta| {
        spot.event("response.output_text.delta", json!({"content_index": i, "delta": delta, "logprobs": []}))
    }));
    events.extend(part["annotations"].as_array().into_iter().flatten().enumerate().map(|(at, annotation)| {
        let more = json!({"content_index": i, "annotation_index": at, "annotation": annotation});
        spot.event("response.output_text.annotation.added", more)
    }));
    events.push(spot.event("response.output_text.done", json!({"content_index": i, "text": text, "logprobs": []})));
    events.push(spot.event("response.content_part.done", json!({"content_index": i, "part": part})));
    events
}
