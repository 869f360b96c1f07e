//! Encodes a response as named, numbered events.

use serde_json::{Value, json};

use super::{ResponseStatus, output, response, status};
use crate::provider_failure::ProviderFailure;
use crate::reply_message::OutgoingMessage;
use crate::script_turn::Pace;
use crate::stream::named;

/// Calls of hosted tools that have progress events.
const WITH_PROGRESS_EVENTS: [&str; 5] =
    ["web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"];

pub(crate) fn events(outgoing: &OutgoingMessage<'_>) -> Vec<String> {
    let status = status(outgoing);
    let items = output::items(outgoing, status);
    let opened = response(outgoing, ResponseStatus::InProgress, &[]);
    let mut events = vec![
        json!({"type": "response.created", "response": opened}),
        json!({"type": "response.in_progress", "response": opened}),
    ];
    for (index, item) in items.iter().enumerate() {
        let position = ItemPosition { item_id: &item["id"], index };
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": opening(item)}));
        events.extend(progress_events(item, &position, &outgoing.turn.pace));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    let last = if let ResponseStatus::Incomplete(_) = status { "response.incomplete" } else { "response.completed" };
    events.push(json!({"type": last, "response": response(outgoing, status, &items)}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    named(outgoing, events, |failure, number| failed(outgoing, failure, number))
}

/// The last event of a stream that fails: `response.failed` for server errors, `error` for others.
fn failed(outgoing: &OutgoingMessage<'_>, failure: &ProviderFailure, number: usize) -> Value {
    let ProviderFailure { status, message, param, code, .. } = failure;
    if *status < 500 {
        return json!({"type": "error", "code": code, "message": message, "param": param, "sequence_number": number});
    }
    let mut response = response(outgoing, ResponseStatus::Failed, &[]);
    response["error"] = json!({"code": code.as_deref().unwrap_or("server_error"), "message": message});
    json!({"type": "response.failed", "response": response, "sequence_number": number})
}

/// The fields that all events of an item share.
struct ItemPosition<'a> {
    item_id: &'a Value,
    index: usize,
}

impl ItemPosition<'_> {
    fn event(&self, kind: &str, more: Value) -> Value {
        let mut event = json!({"type": kind, "item_id": self.item_id, "output_index": self.index});
        if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
            event.extend(more);
        }
        event
    }
}

/// The item in `response.output_item.added`.
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

/// The events between `response.output_item.added` and `response.output_item.done`.
fn progress_events(item: &Value, position: &ItemPosition<'_>, pace: &Pace) -> Vec<Value> {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let list = |name: &str| item[name].as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
    match text("type") {
        "reasoning" => list("summary").flat_map(|(i, part)| summary(part, i, position, pace)).collect(),
        "message" => list("content").flat_map(|(i, part)| content(part, i, position, pace)).collect(),
        "function_call" => {
            let deltas = pace.split_arguments(text("arguments")).into_iter();
            let delta = |delta| position.event("response.function_call_arguments.delta", json!({"delta": delta}));
            let done = json!({"name": item["name"], "arguments": item["arguments"]});
            deltas.map(delta).chain([position.event("response.function_call_arguments.done", done)]).collect()
        }
        "custom_tool_call" => {
            let deltas = pace.split_arguments(text("input")).into_iter();
            let delta = |delta| position.event("response.custom_tool_call_input.delta", json!({"delta": delta}));
            let done = json!({"input": item["input"]});
            deltas.map(delta).chain([position.event("response.custom_tool_call_input.done", done)]).collect()
        }
        kind if WITH_PROGRESS_EVENTS.contains(&kind) => ["in_progress", "completed"]
            .iter()
            .map(|state| position.event(&format!("response.{kind}.{state}"), json!({})))
            .collect(),
        _ => Vec::new(),
    }
}

fn summary(part: &Value, i: usize, position: &ItemPosition<'_>, pace: &Pace) -> Vec<Value> {
    let text = part["text"].as_str().unwrap_or_default();
    let mut empty = part.clone();
    empty["text"] = "".into();
    let mut events =
        vec![position.event("response.reasoning_summary_part.added", json!({"summary_index": i, "part": empty}))];
    events.extend(pace.split_text(text).into_iter().map(|delta| {
        position.event("response.reasoning_summary_text.delta", json!({"summary_index": i, "delta": delta}))
    }));
    events.push(position.event("response.reasoning_summary_text.done", json!({"summary_index": i, "text": text})));
    events.push(position.event("response.reasoning_summary_part.done", json!({"summary_index": i, "part": part})));
    events
}

fn content(part: &Value, i: usize, position: &ItemPosition<'_>, pace: &Pace) -> Vec<Value> {
    let text = part["text"].as_str().unwrap_or_default();
    let mut empty = part.clone();
    empty["text"] = "".into();
    empty["annotations"] = json!([]);
    let mut events = vec![position.event("response.content_part.added", json!({"content_index": i, "part": empty}))];
    events.extend(pace.split_text(text).into_iter().map(|delta| {
        position.event("response.output_text.delta", json!({"content_index": i, "delta": delta, "logprobs": []}))
    }));
    events.extend(part["annotations"].as_array().into_iter().flatten().enumerate().map(|(at, annotation)| {
        let more = json!({"content_index": i, "annotation_index": at, "annotation": annotation});
        position.event("response.output_text.annotation.added", more)
    }));
    events.push(position.event("response.output_text.done", json!({"content_index": i, "text": text, "logprobs": []})));
    events.push(position.event("response.content_part.done", json!({"content_index": i, "part": part})));
    events
}
