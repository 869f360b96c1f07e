//! Messages between this wire and the neutral form.

use serde_json::{Map, Value, json};

use super::fields;
use crate::neutral::{
    Media, MediaKind, MediaSource, MessagePart, MessageRole, NeutralMessage, ToolResult, ToolStatus, content,
    missing_text,
};
use crate::reasoning::Reasoning;
use crate::tool_answer::BlockFormat;

pub(super) const BLOCKS: BlockFormat = BlockFormat { read: content_part, write: write_media };

pub(super) fn read(message: &Value) -> Vec<NeutralMessage> {
    let parts = content(message.get("content"), content_part);
    let (role, parts) = match fields::role(message) {
        "system" | "developer" => (MessageRole::System, parts),
        "assistant" => {
            let state = message.as_object().map(Reasoning::from_chat_fields).unwrap_or_default();
            let text = fields::reasoning_text(message).to_owned();
            let reasoning = (!state.is_empty()).then_some(MessagePart::Reasoning { text, state });
            let calls = fields::tool_calls(message).iter().map(fields::model_call).map(MessagePart::Call);
            (MessageRole::Assistant, reasoning.into_iter().chain(parts).chain(calls).collect())
        }
        "tool" => (MessageRole::User, vec![MessagePart::Result(read_result(message))]),
        _ => (MessageRole::User, parts),
    };
    vec![NeutralMessage { role, parts }]
}

pub(super) fn read_result(message: &Value) -> ToolResult {
    let result = ToolResult {
        id: fields::tool_call_id(message).to_owned(),
        status: ToolStatus::of_flag(message.get("is_error")),
        ..ToolResult::default()
    };
    result.with_content(content(message.get("content"), content_part))
}

fn content_part(part: &Value) -> MessagePart {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    if let Some(url) = text("/image_url/url").or_else(|| text("/image_url")) {
        return MessagePart::Media(Media::image(url, text("/image_url/detail")));
    }
    if let Some(data) = text("/file/file_data") {
        return MessagePart::Media(Media::file(data, text("/file/filename")));
    }
    match text("/text").or_else(|| text("/refusal")) {
        Some(text) => MessagePart::Text(text.to_owned()),
        None => MessagePart::missing(text("/type").unwrap_or("part")),
    }
}

pub(super) fn write(message: &NeutralMessage) -> Vec<Value> {
    let mut written = Vec::new();
    let mut fields = Map::new();
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text(text) => content.push(json!({"type": "text", "text": text})),
            MessagePart::Media(_) | MessagePart::Native(_) => content.extend(BLOCKS.write_part(part)),
            MessagePart::Reasoning { text, state } => {
                fields.extend(state.chat_fields().cloned().unwrap_or_default());
                if fields.is_empty() && !text.is_empty() {
                    fields.insert("reasoning_content".to_owned(), Value::from(text.as_str()));
                }
            }
            MessagePart::Call(call) => calls.push(fields::write_json_call(&call.id, call)),
            MessagePart::Result(result) => {
                written.push(write_result(result));
                // A tool message holds only text, so media go into a message of the user.
                content.extend(result.media.iter().filter_map(|part| BLOCKS.write_part(part)));
            }
        }
    }
    if content.is_empty() && calls.is_empty() {
        return written;
    }
    let role = match message.role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from(role));
    message.insert("content".to_owned(), plain_content(content));
    message.extend(fields);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    written.push(Value::Object(message));
    written
}

/// Content that is only text becomes one string, because not every provider accepts parts.
fn plain_content(parts: Vec<Value>) -> Value {
    if parts.is_empty() {
        return Value::Null;
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect();
    match texts {
        Some(texts) => Value::from(texts.join("\n\n")),
        None => Value::Array(parts),
    }
}

/// An image or a file, in the format of this wire.
fn write_media(media: &Media) -> Value {
    match media.kind {
        MediaKind::Image => {
            let mut image = json!({"url": media.source.url()});
            if let Some(detail) = &media.detail {
                image["detail"] = Value::from(detail.as_str());
            }
            json!({"type": "image_url", "image_url": image})
        }
        MediaKind::File if matches!(media.source, MediaSource::Url(_)) => {
            json!({"type": "text", "text": missing_text(&format!("a file at {}", media.source.url()))})
        }
        MediaKind::File => {
            json!({"type": "file", "file": {"filename": media.name.as_deref().unwrap_or("file"), "file_data": media.source.url()}})
        }
    }
}

pub(super) fn write_result(result: &ToolResult) -> Value {
    json!({"role": "tool", "tool_call_id": result.id, "content": result.text_with_failure()})
}
