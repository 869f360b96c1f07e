//! The messages of a request, those that follow each other in the same role made one.

use serde_json::{Map, Value};

use super::super::conversation::{Role, Spoken, text_of};
use super::super::failure::Failure;
use super::refusal;

pub(super) struct Merged<'a> {
    pub(super) role: Role,
    /// The first of the messages that this is made of.
    pub(super) at: usize,
    pub(super) parts: Vec<Part<'a>>,
}

pub(super) struct Part<'a> {
    pub(super) path: String,
    pub(super) block: Block<'a>,
}

/// A block of content; text may come without one.
pub(super) enum Block<'a> {
    Text(&'a str),
    Typed(&'a str, &'a Map<String, Value>),
}

pub(super) fn read(request: &Map<String, Value>) -> Result<Vec<Merged<'_>>, Failure> {
    let messages = match request.get("messages") {
        None => return Err(refusal("messages: Field required")),
        Some(Value::Array(messages)) if messages.is_empty() => {
            return Err(refusal("messages: at least one message is required"));
        }
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(refusal("messages: Input should be a valid list")),
    };
    let mut merged: Vec<Merged<'_>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages.{at}");
        let message = dictionary(message, &path)?;
        let role = role(message, &path)?;
        let parts = parts(message, &path)?;
        if parts.is_empty() && !(role == Role::Assistant && at + 1 == messages.len()) {
            let except = "all messages must have non-empty content except for the optional final assistant message";
            return Err(refusal(format!("{path}: {except}")));
        }
        match merged.last_mut().filter(|last| last.role == role) {
            Some(last) => last.parts.extend(parts),
            None => merged.push(Merged { role, at, parts }),
        }
    }
    Ok(merged)
}

fn role(message: &Map<String, Value>, path: &str) -> Result<Role, Failure> {
    match message.get("role").map(Value::as_str) {
        None => Err(refusal(format!("{path}.role: Field required"))),
        Some(Some("user")) => Ok(Role::User),
        Some(Some("assistant")) => Ok(Role::Assistant),
        Some(Some("system")) => Err(refusal(
            "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, not \"system\" as an input message role.",
        )),
        Some(_) => Err(refusal(format!("{path}.role: Input should be 'user' or 'assistant'"))),
    }
}

fn parts<'a>(message: &'a Map<String, Value>, path: &str) -> Result<Vec<Part<'a>>, Failure> {
    let path = format!("{path}.content");
    match message.get("content") {
        None => Err(refusal(format!("{path}: Field required"))),
        Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![Part { path, block: Block::Text(text) }]),
        Some(Value::Array(blocks)) => blocks.iter().enumerate().map(|(i, block)| part(block, &path, i)).collect(),
        Some(_) => Err(refusal(format!("{path}: Input should be a valid list"))),
    }
}

fn part<'a>(block: &'a Value, path: &str, i: usize) -> Result<Part<'a>, Failure> {
    let path = format!("{path}.{i}");
    let block = dictionary(block, &path)?;
    match block.get("type").and_then(Value::as_str) {
        Some(kind) => Ok(Part { path, block: Block::Typed(kind, block) }),
        None => Err(refusal(format!("{path}: Unable to extract tag using discriminator 'type'"))),
    }
}

fn dictionary<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Failure> {
    value.as_object().ok_or_else(|| refusal(format!("{path}: Input should be a valid dictionary")))
}

impl Merged<'_> {
    /// Results of tools come first, each for itself.
    pub(super) fn spoken(&self) -> Vec<Spoken> {
        let mut spoken = Vec::new();
        let mut rest: Option<String> = None;
        for part in &self.parts {
            match &part.block {
                Block::Typed("tool_result", block) => {
                    spoken.push(Spoken { role: Role::Tool, text: text_of(block.get("content")) });
                }
                Block::Text(text) => rest.get_or_insert_default().push_str(text),
                Block::Typed(_, block) => {
                    let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
                    rest.get_or_insert_default().push_str(text);
                }
            }
        }
        if rest.is_some() || spoken.is_empty() {
            spoken.push(Spoken { role: self.role, text: rest.unwrap_or_default() });
        }
        spoken
    }

    pub(super) fn blocks<'b>(
        &'b self,
        wanted: &'b str,
    ) -> impl Iterator<Item = (&'b Part<'b>, &'b Map<String, Value>)> {
        self.parts.iter().filter_map(move |part| match &part.block {
            Block::Typed(kind, block) if *kind == wanted => Some((part, *block)),
            _ => None,
        })
    }
}
