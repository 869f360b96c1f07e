//! Stream events of items.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fields;

/// The type and fields of an event, without its sequence number.
pub(super) type ItemEvent = (&'static str, Value);

pub(super) const ADDED: &str = "response.output_item.added";
pub(super) const DONE: &str = "response.output_item.done";

/// The events of an item that is already complete.
pub(super) fn whole(at: usize, item: &Value) -> Vec<ItemEvent> {
    let id = fields::text_of(item, "id");
    let mut events = vec![added(at, &without_content(item))];
    match fields::kind(item) {
        "message" => {
            for (part_at, part) in item["content"].as_array().into_iter().flatten().enumerate() {
                events.extend(part_added(at, id, part_at, part));
                events.extend(part_delta(at, id, part_at, part));
                events.extend(part_done(at, id, part_at, part));
            }
        }
        "reasoning" => {
            for (part_at, part) in item["summary"].as_array().into_iter().flatten().enumerate() {
                events.push(summary_added(at, id, part_at));
                events.push(summary_delta(at, id, part_at, fields::text_of(part, "text")));
                events.extend(summary_done(at, id, part_at, fields::text_of(part, "text")));
            }
        }
        "function_call" => {
            let arguments = &item["arguments"];
            let place = || json!({"item_id": id, "output_index": at});
            events.push(("response.function_call_arguments.delta", with(place(), "delta", arguments)));
            let done = with(with(place(), "name", &item["name"]), "arguments", arguments);
            events.push(("response.function_call_arguments.done", done));
        }
        "custom_tool_call" => {
            let place = || json!({"item_id": id, "output_index": at});
            events.push(("response.custom_tool_call_input.delta", with(place(), "delta", &item["input"])));
            events.push(("response.custom_tool_call_input.done", with(place(), "input", &item["input"])));
        }
        _ => {}
    }
    events.push(done(at, item));
    events
}

pub(super) fn added(at: usize, item: &Value) -> ItemEvent {
    (ADDED, json!({"output_index": at, "item": item}))
}

pub(super) fn done(at: usize, item: &Value) -> ItemEvent {
    (DONE, json!({"output_index": at, "item": item}))
}

/// The item at the start of its stream: in progress, with the content still empty.
fn without_content(item: &Value) -> Value {
    let mut started = item.clone();
    let (key, empty) = match fields::kind(item) {
        "message" => ("content", json!([])),
        "reasoning" => ("summary", json!([])),
        "function_call" => ("arguments", json!("")),
        "custom_tool_call" => ("input", json!("")),
        _ => return started,
    };
    if let Some(fields) = started.as_object_mut() {
        fields.insert(key.to_owned(), empty);
        if fields.contains_key("status") {
            fields.insert("status".to_owned(), Value::from("in_progress"));
        }
    }
    started
}

pub(super) fn empty_text() -> Value {
    json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
}

pub(super) fn part_added(at: usize, id: &str, part_at: usize, part: &Value) -> Option<ItemEvent> {
    let part = match fields::text_of(part, "type") {
        "output_text" => empty_text(),
        "refusal" => json!({"type": "refusal", "refusal": ""}),
        _ => return None,
    };
    Some(("response.content_part.added", with(place(at, id, part_at), "part", &part)))
}

fn part_delta(at: usize, id: &str, part_at: usize, part: &Value) -> Option<ItemEvent> {
    match fields::text_of(part, "type") {
        "output_text" => Some(text_delta(at, id, part_at, fields::text_of(part, "text"))),
        "refusal" => Some(("response.refusal.delta", with(place(at, id, part_at), "delta", &part["refusal"]))),
        _ => None,
    }
}

pub(super) fn text_delta(at: usize, id: &str, part_at: usize, text: &str) -> ItemEvent {
    let delta = with(place(at, id, part_at), "delta", text);
    ("response.output_text.delta", with(delta, "logprobs", json!([])))
}

pub(super) fn part_done(at: usize, id: &str, part_at: usize, part: &Value) -> Vec<ItemEvent> {
    let place = || place(at, id, part_at);
    let done = match fields::text_of(part, "type") {
        "output_text" => {
            let done = with(place(), "text", &part["text"]);
            ("response.output_text.done", with(done, "logprobs", json!([])))
        }
        "refusal" => ("response.refusal.done", with(place(), "refusal", &part["refusal"])),
        _ => return Vec::new(),
    };
    vec![done, ("response.content_part.done", with(place(), "part", part))]
}

pub(super) fn summary_added(at: usize, id: &str, part_at: usize) -> ItemEvent {
    let part = json!({"type": "summary_text", "text": ""});
    ("response.reasoning_summary_part.added", with(summary_place(at, id, part_at), "part", &part))
}

pub(super) fn summary_delta(at: usize, id: &str, part_at: usize, text: &str) -> ItemEvent {
    ("response.reasoning_summary_text.delta", with(summary_place(at, id, part_at), "delta", text))
}

pub(super) fn summary_done(at: usize, id: &str, part_at: usize, text: &str) -> [ItemEvent; 2] {
    let place = || summary_place(at, id, part_at);
    let part = json!({"type": "summary_text", "text": text});
    [
        ("response.reasoning_summary_text.done", with(place(), "text", text)),
        ("response.reasoning_summary_part.done", with(place(), "part", &part)),
    ]
}

fn place(at: usize, id: &str, part_at: usize) -> Value {
    json!({"item_id": id, "output_index": at, "content_index": part_at})
}

fn summary_place(at: usize, id: &str, part_at: usize) -> Value {
    json!({"item_id": id, "output_index": at, "summary_index": part_at})
}

/// The fields of an event, and one more.
pub(super) fn with(mut fields: Value, key: &str, value: impl Serialize) -> Value {
    fields[key] = json!(value);
    fields
}

/// The data of an event, with its sequence number.
pub(super) fn numbered(kind: &str, fields: Value, number: u64) -> Value {
    let mut event = Map::new();
    event.insert("type".to_owned(), Value::from(kind));
    if let Value::Object(fields) = fields {
        event.extend(fields);
    }
    event.insert("sequence_number".to_owned(), Value::from(number));
    Value::Object(event)
}
