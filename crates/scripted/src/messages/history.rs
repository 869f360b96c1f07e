//! The messages of a request. Consecutive messages of the same role are merged, as Anthropic does.

use serde_json::{Map, Value};

use super::refusal;
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::{HistoryMessage, Role, text_of};

pub(super) struct MergedMessage<'a> {
    pub(super) role: Role,
    /// The index of the first message that was merged.
    pub(super) at: usize,
    pub(super) parts: Vec<InputPart<'a>>,
}

pub(super) struct InputPart<'a> {
    pub(super) path: String,
    pub(super) block: InputBlock<'a>,
}

/// A content block, or the text of a `content` that is a string.
pub(super) enum InputBlock<'a> {
    Text(&'a str),
    Typed(&'a str, &'a Map<String, Value>),
}

pub(super) fn read(request: &Map<String, Value>) -> Result<Vec<MergedMessage<'_>>, ProviderFailure> {
    let messages = match request.get("messages") {
        None => return Err(refusal("messages: Field required")),
        Some(Value::Array(messages)) if messages.is_empty() => {
            return Err(refusal("messages: at least one message is required"));
        }
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(refusal("messages: Input should be a valid list")),
    };
    let mut merged: Vec<MergedMessage<'_>> = Vec::new();
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
            None => merged.push(MergedMessage { role, at, parts }),
        }
    }
    Ok(merged)
}

fn role(message: &Map<String, Value>, path: &str) -> Result<Role, ProviderFailure> {
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

fn parts<'a>(message: &'a Map<String, Value>, path: &str) -> Result<Vec<InputPart<'a>>, ProviderFailure> {
    let path = format!("{path}.content");
    match message.get("content") {
        None => Err(refusal(format!("{path}: Field required"))),
        Some(Value::String(text)) if text.is_empty() => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![InputPart { path, block: InputBlock::Text(text) }]),
        Some(Value::Array(blocks)) => blocks.iter().enumerate().map(|(i, block)| part(block, &path, i)).collect(),
        Some(_) => Err(refusal(format!("{path}: Input should be a valid list"))),
    }
}

fn part<'a>(block: &'a Value, path: &str, i: usize) -> Result<InputPart<'a>, ProviderFailure> {
    let path = format!("{path}.{i}");
    let block = dictionary(block, &path)?;
    match block.get("type").and_then(Value::as_str) {
        Some(kind) => Ok(InputPart { path, block: InputBlock::Typed(kind, block) }),
        None => Err(refusal(format!("{path}: Unable to extract tag using discriminator 'type'"))),
    }
}

fn dictionary<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, ProviderFailure> {
    value.as_object().ok_or_else(|| refusal(format!("{path}: Input should be a valid dictionary")))
}

impl<'a> MergedMessage<'a> {
    /// One message per tool result, then one with the rest.
    pub(super) fn history_messages(&self) -> Vec<HistoryMessage<'a>> {
        let mut history_messages = Vec::new();
        let mut rest: Option<String> = None;
        for part in &self.parts {
            match &part.block {
                InputBlock::Typed("tool_result", block) => {
                    history_messages.push(HistoryMessage { role: Role::Tool, text: text_of(block.get("content")) });
                }
                InputBlock::Text(text) => rest.get_or_insert_default().push_str(text),
                InputBlock::Typed(_, block) => {
                    let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
                    rest.get_or_insert_default().push_str(text);
                }
            }
        }
        if rest.is_some() || history_messages.is_empty() {
            history_messages.push(HistoryMessage { role: self.role, text: rest.unwrap_or_default().into() });
        }
        history_messages
    }

    pub(super) fn blocks<'b>(
        &'b self,
        wanted: &'b str,
    ) -> impl Iterator<Item = (&'b InputPart<'b>, &'b Map<String, Value>)> {
        self.parts.iter().filter_map(move |part| match &part.block {
            InputBlock::Typed(kind, block) if *kind == wanted => Some((part, *block)),
            _ => None,
        })
    }
}
