//! Items between this wire and the neutral form.

use serde_json::{Map, Value, json};

use super::fields;
use crate::model_message::{CallFormat, ModelCall};
use crate::neutral::{Media, MediaKind, MediaSource, MessagePart, MessageRole, NeutralMessage, ToolResult, content};
use crate::reasoning::Reasoning;
use crate::tool_answer::BlockFormat;

pub(super) const BLOCKS: BlockFormat = BlockFormat { read: content_part, write: write_media };

/// Reads the field `instructions`.
pub(super) fn system_messages(body: &Map<String, Value>) -> Vec<NeutralMessage> {
    match body.get("instructions") {
        Some(Value::String(text)) if !text.is_empty() => {
            vec![NeutralMessage { role: MessageRole::System, parts: vec![MessagePart::Text(text.clone())] }]
        }
        Some(Value::Array(items)) => items.iter().flat_map(read).collect(),
        _ => Vec::new(),
    }
}

/// Items that only providers of this wire understand are left out.
pub(super) fn read(item: &Value) -> Vec<NeutralMessage> {
    let (role, parts) = match fields::kind(item) {
        "message" => {
            let role = match fields::text_of(item, "role") {
                "system" | "developer" => MessageRole::System,
                "assistant" => MessageRole::Assistant,
                _ => MessageRole::User,
            };
            (role, content(item.get("content"), content_part))
        }
        "reasoning" => (MessageRole::Assistant, vec![read_reasoning(item)]),
        "function_call" | "custom_tool_call" => (MessageRole::Assistant, vec![MessagePart::Call(read_call(item))]),
        "function_call_output" | "custom_tool_call_output" => {
            (MessageRole::User, vec![MessagePart::Result(read_result(item))])
        }
        _ => return Vec::new(),
    };
    if parts.is_empty() { Vec::new() } else { vec![NeutralMessage { role, parts }] }
}

/// Other wires allow no dots in names.
pub(super) fn read_call(item: &Value) -> ModelCall {
    let mut call = fields::model_call(item);
    if !fields::text_of(item, "namespace").is_empty() {
        call.name = format!("{}__{}", fields::text_of(item, "namespace"), fields::text_of(item, "name"));
    }
    call
}

fn read_reasoning(item: &Value) -> MessagePart {
    let state = match Reasoning::from_carried(fields::text_of(item, "encrypted_content")) {
        Some(carried) => carried,
        None if fields::is_complete_reasoning(item) => Reasoning::from_items(vec![item.clone()]),
        None => Reasoning::default(),
    };
    MessagePart::Reasoning { text: fields::reasoning_text(item), state }
}

pub(super) fn read_result(item: &Value) -> ToolResult {
    let result = ToolResult {
        id: fields::call_id(item).to_owned(),
        format: match fields::kind(item) {
            "custom_tool_call_output" => CallFormat::Text,
            _ => CallFormat::Json,
        },
        ..ToolResult::default()
    };
    result.with_content(content(item.get("output"), content_part))
}

fn content_part(part: &Value) -> MessagePart {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    if let Some(url) = text("image_url") {
        return MessagePart::Media(Media::image(url, text("detail")));
    }
    if let Some(data) = text("file_data").or_else(|| text("file_url")) {
        return MessagePart::Media(Media::file(data, text("filename")));
    }
    match text("text").or_else(|| text("refusal")) {
        Some(text) => MessagePart::Text(text.to_owned()),
        None => match fields::kind(part).strip_prefix("input_") {
            // Sound, or a file that the provider stores.
            Some(kind) => MessagePart::missing(kind),
            None => MessagePart::Text(part.to_string()),
        },
    }
}

pub(super) fn write(message: &NeutralMessage) -> Vec<Value> {
    let mut items = Vec::new();
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text(text) => {
                let kind = if message.role == MessageRole::Assistant { "output_text" } else { "input_text" };
                content.push(json!({"type": kind, "text": text}));
                continue;
            }
            MessagePart::Media(_) | MessagePart::Native(_) => {
                content.extend(BLOCKS.write_part(part));
                continue;
            }
            _ => write_message(message.role, &mut content, &mut items),
        }
        match part {
            MessagePart::Reasoning { state, .. } => {
                // The text of messages is a part of its own.
                items.extend(state.items().iter().filter(|item| !fields::is_message(item)).cloned());
            }
            MessagePart::Call(call) => items.push(fields::write_call(&call.id, call)),
            MessagePart::Result(result) => items.push(write_result(result)),
            MessagePart::Text(_) | MessagePart::Media(_) | MessagePart::Native(_) => {}
        }
    }
    write_message(message.role, &mut content, &mut items);
    items
}

fn write_message(role: MessageRole, content: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !content.is_empty() {
        let role = match role {
            MessageRole::System => "system",
            MessageRole::User => "user",
            MessageRole::Assistant => "assistant",
        };
        items.push(json!({"type": "message", "role": role, "content": std::mem::take(content)}));
    }
}

/// An image or a file, in the format of this wire.
fn write_media(media: &Media) -> Value {
    match (media.kind, &media.source) {
        (MediaKind::Image, source) => {
            let detail = media.detail.as_deref().unwrap_or("auto");
            json!({"type": "input_image", "image_url": source.url(), "detail": detail})
        }
        (MediaKind::File, MediaSource::Url(url)) => json!({"type": "input_file", "file_url": url}),
        (MediaKind::File, data) => {
            json!({"type": "input_file", "filename": media.name.as_deref().unwrap_or("file"), "file_data": data.url()})
        }
    }
}

pub(super) fn write_result(result: &ToolResult) -> Value {
    let text = result.text_with_failure();
    if result.media.is_empty() {
        return fields::output(&result.id, text, result.format);
    }
    let text = (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}));
    let parts: Vec<Value> =
        text.into_iter().chain(result.media.iter().filter_map(|part| BLOCKS.write_part(part))).collect();
    fields::output(&result.id, parts, result.format)
}
