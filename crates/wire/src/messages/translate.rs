//! Messages between this wire and our own words.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::fields;
use crate::conversation::{self, Given};
use crate::message::{Answered, Media, MediaKind, Message, Part, Role, Source};
use crate::saying::ModelCall;

/// What a request says before its history.
pub(super) fn preface(system: Option<&Value>) -> Vec<Message> {
    let parts = match system {
        Some(Value::String(text)) if !text.is_empty() => vec![Part::Text(text.clone())],
        Some(Value::Array(blocks)) => blocks.iter().filter_map(part).collect(),
        _ => return Vec::new(),
    };
    vec![Message { role: Role::System, parts }]
}

pub(super) fn read(message: &Value) -> Vec<Message> {
    let role = match fields::role(message) {
        "assistant" => Role::Assistant,
        "system" => Role::System,
        _ => Role::User,
    };
    let parts: Vec<Part> = fields::content(message).iter().filter_map(part).collect();
    if parts.is_empty() { Vec::new() } else { vec![Message { role, parts }] }
}

/// `None` for what only providers of this wire understand: uses of their own tools and what those found are left out
/// of a history for another wire.
fn part(block: &Value) -> Option<Part> {
    let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(match fields::kind(block) {
        "text" => Part::Text(text("text")),
        "image" | "document" => media(block),
        fields::TOOL_USE => Part::Call(fields::model_call(block)),
        fields::TOOL_RESULT => Part::Answer(answered(block)),
        fields::THINKING | fields::REDACTED => {
            if fields::carried_state(block).is_some() {
                return None;
            }
            let own = || Map::from_iter([(fields::BLOCKS.to_owned(), json!([block]))]);
            Part::Reasoning { text: text("thinking"), opaque: fields::foreign_reasoning(block).unwrap_or_else(own) }
        }
        fields::SERVER_TOOL_USE | "mcp_tool_use" => return None,
        kind if kind.ends_with("_tool_result") => return None,
        _ => Part::Text(block.to_string()),
    })
}

fn media(block: &Value) -> Part {
    let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let kind = if fields::kind(block) == "image" { MediaKind::Image } else { MediaKind::File };
    let name = text("/title");
    let source = match text("/source/type").as_deref() {
        Some("base64") => {
            text("/source/data").map(|data| Source::Data { mime: text("/source/media_type").unwrap_or_default(), data })
        }
        Some("url") => text("/source/url").map(Source::Url),
        Some("text") => return Part::Text(text("/source/data").unwrap_or_default()),
        Some("content") => return Part::Text(conversation::text(block.pointer("/source/content"))),
        _ => None,
    };
    match source {
        Some(source) => Part::Media(Media { kind, source, name }),
        // A file that the provider keeps.
        None => Part::Text(block.to_string()),
    }
}

pub(super) fn answered(block: &Value) -> Answered {
    let mut answered = Answered {
        id: fields::tool_use_id(block).to_owned(),
        is_error: block.get("is_error") == Some(&Value::Bool(true)),
        ..Answered::default()
    };
    for block in fields::content(block).iter() {
        match part(block) {
            Some(Part::Text(text)) => answered.text.push_str(&text),
            Some(Part::Media(media)) => answered.media.push(media),
            _ => {}
        }
    }
    answered
}

pub(super) fn write(message: &Message) -> Vec<Value> {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) if text.trim().is_empty() => {}
            Part::Text(text) => content.push(fields::text_block(text)),
            Part::Media(media) => content.push(write_media(media)),
            Part::Reasoning { opaque, .. } => {
                let blocks = opaque.get(fields::BLOCKS).and_then(Value::as_array).into_iter().flatten();
                content.extend(blocks.filter(|block| fields::is_thought(block)).cloned());
            }
            Part::Call(call) => content.push(fields::written(&call.id, call)),
            Part::Answer(answer) => content.push(write_answer(answer)),
        }
    }
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    if content.is_empty() { Vec::new() } else { vec![json!({"role": role, "content": content})] }
}

fn write_media(media: &Media) -> Value {
    let source = match &media.source {
        Source::Url(url) => json!({"type": "url", "url": url}),
        Source::Data { mime, data } => match plain_text(mime, data) {
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

pub(super) fn write_answer(answer: &Answered) -> Value {
    let id = fields::plain_id(&answer.id);
    let content = if answer.media.is_empty() {
        Value::from(answer.text.as_str())
    } else {
        let text = (!answer.text.trim().is_empty()).then(|| fields::text_block(&answer.text));
        text.into_iter().chain(answer.media.iter().map(write_media)).collect()
    };
    let mut block = json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": content});
    if answer.is_error {
        block["is_error"] = Value::Bool(true);
    }
    block
}

pub(super) fn read_given(given: &Given) -> (ModelCall, Option<Answered>) {
    (fields::model_call(&given.call), given.answer.as_ref().map(answered))
}

pub(super) fn write_given(call: &ModelCall, answer: Option<&Answered>) -> Given {
    Given { call: fields::written(&call.id, call), answer: answer.map(write_answer) }
}
