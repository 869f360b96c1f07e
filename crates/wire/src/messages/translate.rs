//! Messages between this wire and the neutral form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::fields;
use crate::neutral::{
    Media, MediaKind, MediaSource, MessagePart, MessageRole, NeutralMessage, ToolResult, ToolStatus, missing_text,
    text_or_json,
};
use crate::reasoning::Reasoning;
use crate::tool_answer::BlockFormat;

pub(super) const BLOCKS: BlockFormat = BlockFormat { read: media, write: write_media };

/// Reads the field `system`.
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

/// `None` for blocks that only providers of this wire understand: calls and results of their own tools.
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
        Some("content") => return MessagePart::Text(text_or_json(block.pointer("/source/content")).into_owned()),
        _ => None,
    };
    match source {
        Some(source) => MessagePart::Media(Media { kind, source, name, detail: None }),
        // A file that the provider stores; only its id is known.
        None => MessagePart::missing(fields::kind(block)),
    }
}

pub(super) fn read_result(block: &Value) -> ToolResult {
    let mut result = ToolResult {
        id: fields::tool_use_id(block).to_owned(),
        status: ToolStatus::of_flag(block.get("is_error")),
        ..ToolResult::default()
    };
    for block in fields::content(block).iter() {
        match part(block) {
            Some(MessagePart::Text(text)) => result.text.push_str(&text),
            Some(media @ MessagePart::Media(_)) => result.media.push(media),
            _ => {}
        }
    }
    result
}

pub(super) fn write(message: &NeutralMessage) -> Vec<Value> {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text(text) if text.trim().is_empty() => {}
            MessagePart::Text(text) => content.push(fields::text_block(text)),
            MessagePart::Media(_) | MessagePart::Native(_) => content.extend(BLOCKS.write_part(part)),
            MessagePart::Reasoning { state, .. } => {
                let blocks = state.blocks().unwrap_or_default().iter();
                content.extend(blocks.filter(|block| fields::is_reasoning(block)).cloned());
            }
            MessagePart::Call(call) => content.push(fields::write_call(&call.id, call)),
            MessagePart::Result(result) => content.push(write_result(result)),
        }
    }
    let role = match message.role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    if content.is_empty() { Vec::new() } else { vec![json!({"role": role, "content": content})] }
}

/// An image or a file, in the format of this wire.
fn write_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Url(url) => json!({"type": "url", "url": url}),
        MediaSource::Data { mime, data } => match plain_text(mime, data) {
            Some(text) => json!({"type": "text", "media_type": "text/plain", "data": text}),
            None if media.kind == MediaKind::File && mime != "application/pdf" => {
                return fields::text_block(&missing_text(mime));
            }
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

/// Providers accept only PDF in Base64, so text documents are decoded.
fn plain_text(mime: &str, data: &str) -> Option<String> {
    let bytes = STANDARD.decode(data).ok().filter(|_| mime.starts_with("text/"))?;
    String::from_utf8(bytes).ok()
}

pub(super) fn write_result(result: &ToolResult) -> Value {
    let id = fields::plain_id(&result.id);
    let content = if result.media.is_empty() {
        Value::from(result.text.as_str())
    } else {
        let text = (!result.text.trim().is_empty()).then(|| fields::text_block(&result.text));
        text.into_iter().chain(result.media.iter().filter_map(|part| BLOCKS.write_part(part))).collect()
    };
    let mut block = json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": content});
    if result.status == ToolStatus::Failed {
        block["is_error"] = Value::Bool(true);
    }
    block
}
