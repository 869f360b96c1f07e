//! Stream events of content blocks.

use serde_json::{Map, Value, json};

use super::fields;
use crate::sse::SseEvent;

pub(super) fn start(index: usize, block: &Value) -> SseEvent {
    SseEvent::typed(&json!({"type": "content_block_start", "index": index, "content_block": block}))
}

pub(super) fn delta(index: usize, delta: &Value) -> SseEvent {
    SseEvent::typed(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

pub(super) fn stop(index: usize) -> SseEvent {
    SseEvent::typed(&json!({"type": "content_block_stop", "index": index}))
}

pub(super) fn text_delta(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

pub(super) fn thinking_delta(text: &str) -> Value {
    json!({"type": "thinking_delta", "thinking": text})
}

pub(super) fn signature_delta(signature: &str) -> Value {
    json!({"type": "signature_delta", "signature": signature})
}

/// The events of a block that is already complete. Clients expect its content in deltas.
pub(super) fn whole(index: usize, mut block: Value) -> Vec<SseEvent> {
    let kind = fields::kind(&block).to_owned();
    let mut deltas = Vec::new();
    if let Some(fields) = block.as_object_mut() {
        match kind.as_str() {
            "text" => {
                deltas.push(text_delta(&take_text(fields, "text")));
                if let Some(Value::Array(citations)) = fields.get_mut("citations").map(Value::take) {
                    fields.insert("citations".to_owned(), json!([]));
                    let cited = citations.into_iter().map(|one| json!({"type": "citations_delta", "citation": one}));
                    deltas.extend(cited);
                }
            }
            fields::THINKING => {
                deltas.push(thinking_delta(&take_text(fields, "thinking")));
                deltas.push(signature_delta(&take_text(fields, "signature")));
            }
            fields::TOOL_USE | fields::SERVER_TOOL_USE | fields::MCP_TOOL_USE => {
                let input = fields.insert("input".to_owned(), json!({})).unwrap_or_else(|| json!({}));
                deltas.push(json!({"type": "input_json_delta", "partial_json": input.to_string()}));
            }
            _ => {}
        }
    }
    let mut events = vec![start(index, &block)];
    events.extend(deltas.iter().map(|content| delta(index, content)));
    events.push(stop(index));
    events
}

/// Takes a text out, and leaves the field empty.
fn take_text(fields: &mut Map<String, Value>, key: &str) -> String {
    match fields.insert(key.to_owned(), Value::from("")) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}
