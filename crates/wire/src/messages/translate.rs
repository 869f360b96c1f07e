//! Messages between this wire and the neutral form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fields;
use crate::conversation;
use crate::neutral::{Media, MediaKind, MediaSource, MessagePart, MessageRole, NeutralMessage, ToolResult, ToolStatus};
use crate::reasoning::Reasoning;

/// What a request says before its history.
pub(super) fn system_messages(system: Option<&Value>) -> Vec<NeutralMessage> {
    let parts = match system {
        Some(Value::String(text)) if !text.is_empty() => vec![MessagePart::Text(text.clone())],
        Some(Value::Array(blocks)) => blocks.iter().filter_map(part).collect(),
        _ => return Vec::new(),
    };
    vec![NeutralMessage { role: MessageRole::System, parts }]
}

pub(super) fn read(message: &Value) -> Vec<NeutralMessage> {
    let role = match fields::role(message) {
        "assistant" => MessageRole::Assistant,
        "system" => MessageRole::System,
        _ => MessageRole::User,
    };
    let parts: Vec<MessagePart> = fields::content(message).iter().filter_map(part).collect();
    if parts.is_empty() { Vec::new() } else { vec![NeutralMessage { role, parts }] }
}

/// `None` for what only providers of this wire understand: uses of their own tools and what those found are left out
/// of a history for another wire.
fn part(block: &Value) -> Option<MessagePart> {
    let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(match fields::kind(block) {
        "text" => MessagePart::Text(text("text")),
        "image" | "document" => media(block),
        fields::TOOL_USE => MessagePart::Call(fields::model_call(block)),
        fields::TOOL_RESULT => MessagePart::Result(read_result(block)),
        fields::THINKING | fields::REDACTED => {
            if fields::carried_state(block).is_some() {
                return None;
            }
            let own = || Reasoning::from_blocks(vec![block.clone()]);
            let state = fields::foreign_reasoning(block).unwrap_or_else(own);
            MessagePart::Reasoning { text: text("thinking"), state }
        }
        fields::SERVER_TOOL_USE | "mcp_tool_use" => return None,
        kind if kind.ends_with("_tool_result") => return None,
        _ => MessagePart::Text(block.to_string()),
    })
}

fn media(block: &Value) -> MessagePart {
    let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let kind = if fields::kind(block) == "image" { MediaKind::Image } else { MediaKind::File };
    let name = text("/title");
    let source = match text("/source/type").as_deref() {
        Some("base64") => text("/source/data")
            .map(|data| MediaSource::Data { mime: text("/source/media_type").unwrap_or_default(), data }),
        Some("url") => text("/source/url").map(MediaSource::Url),
        Some("text") => return MessagePart::Text(text("/source/data").unwrap_or_default()),
        Some("content") => return MessagePart::Text(conversation::text(block.pointer("/source/content"))),
        _ => None,
    };
    match source {
        Some(source) => MessagePart::Media(Media { kind, source, name }),
        // A file that the provider keeps.
        None => MessagePart::Text(block.to_string()),
    }
}

pub(super) fn read_result(block: &Value) -> ToolResult {
    let mut answered = ToolResult {
        id: fields::tool_use_id(block).to_owned(),
        status: ToolStatus::of_flag(block.get("is_error")),
        ..ToolResult::default()
    };
    for block in fields::content(block).iter() {
        match part(block) {
            Some(MessagePart::Text(text)) => answered.text.push_str(&text),
            Some(MessagePart::Media(media)) => answered.media.push(media),
            _ => {}
        }
    }
    answered
}

pub(super) fn write(message: &NeutralMessage) -> Vec<Value> {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text(text) if text.trim().is_empty() => {}
            MessagePart::Text(text) => content.push(fields::text_block(text)),
            MessagePart::Media(media) => content.push(write_media(media)),
            MessagePart::Reasoning { state, .. } => {
                let blocks = state.blocks().unwrap_or_default().iter();
                content.extend(blocks.filter(|block| fields::is_reasoning(block)).cloned());
            }
            MessagePart::Call(call) => content.push(fields::written(&call.id, call)),
            MessagePart::Result(answer) => content.push(write_result(answer)),
        }
    }
    let role = match message.role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    if content.is_empty() { Vec::new() } else { vec![json!({"role": role, "content": content})] }
}

fn write_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Url(url) => json!({"type": "url", "url": url}),
        MediaSource::Data { mime, data } => match plain_text(mime, data) {
            Some(text) => json!({"type": "text", "media_type": "text/plain", "data": text}),
            None => json!({"type": "base64", "media_type": mime, "data": data}),
        },
    };
    match media.kind {
        MediaKind::Image => json!({"type": "image", "source": source}),
        MediaKind::File => {
            let mut block = json!({"type": "document", "source": source});
            if let Some(name) = &media.name {
                block["title"] = Value::from(name.as_str());
            }
            block
        }
    }
}

/// Documents in Base64 must be PDF; text is taken as it is.
fn plain_text(mime: &str, data: &str) -> Option<String> {
    let bytes = STANDARD.decode(data).ok().filter(|_| mime.starts_with("text/"))?;
    String::from_utf8(bytes).ok()
}

pub(super) fn write_result(answer: &ToolResult) -> Value {
    let id = fields::plain_id(&answer.id);
    let content = if answer.media.is_empty() {
        Value::from(answer.text.as_str())
    } else {
        let text = (!answer.text.trim().is_empty()).then(|| fields::text_block(&answer.text));
        text.into_iter().chain(answer.media.iter().map(write_media)).collect()
    };
    let mut block = json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": content});
    if answer.status == ToolStatus::Failed {
        block["is_error"] = Value::Bool(true);
    }
    block
}
