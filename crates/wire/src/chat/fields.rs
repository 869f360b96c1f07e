//! Reads and writes the fields of messages, in both spellings that clients use.

use serde_json::{Value, json};

use super::translate;
use crate::ids::UnsealedCallId;
use crate::model_message::{CallExtra, CallFormat, ModelCall, ModelMessage};
use crate::neutral::{ToolStatus, field, string_or_json};
use crate::reasoning::Reasoning;
use crate::remarks::{Beside, MediaBeside, classify, is_titled_as_user_words};
use crate::seal::Sealer;
use crate::tool_answer::ToolAnswer;

/// Whether a program of the gateway made the call of this id.
pub(super) fn is_of_program(call_id: &str) -> bool {
    Sealer::is_own_id(call_id) || UnsealedCallId::parse(call_id).is_some()
}

pub(super) fn role(message: &Value) -> &str {
    field(message, "role").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn tool_calls(message: &Value) -> &[Value] {
    let calls = ["tool_calls", "toolCalls"].iter().find_map(|key| field(message, key)?.as_array());
    calls.map_or(&[], Vec::as_slice)
}

pub(super) fn tool_call_id(message: &Value) -> &str {
    ["tool_call_id", "toolCallId"].iter().find_map(|key| field(message, key)?.as_str()).unwrap_or_default()
}

pub(super) fn id(call: &Value) -> &str {
    field(call, "id").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn function_name(call: &Value) -> &str {
    field(call, "function").and_then(|function| field(function, "name")?.as_str()).unwrap_or_default()
}

/// The arguments as text. Some providers send an object instead.
pub(super) fn arguments(call: &Value) -> String {
    string_or_json(field(call, "function").and_then(|function| field(function, "arguments")))
}

/// The text of a message; of content in parts, only the text parts.
pub(super) fn message_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

pub(super) fn answer(message: &Value, key: &str) -> ToolAnswer {
    let status = ToolStatus::of_flag(message.get("is_error"));
    ToolAnswer::read(message.get("content"), status, &translate::BLOCKS, key)
}

/// Reads a message of the model.
pub(super) fn model_message(message: &Value) -> ModelMessage {
    let reasoning = message.as_object().map(Reasoning::from_chat_fields).unwrap_or_default();
    let refusal = || message.get("refusal").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text = Some(message_text(message.get("content"))).filter(|text| !text.is_empty()).unwrap_or_else(refusal);
    let text = Some(text).filter(|text| !text.is_empty());
    ModelMessage {
        text,
        reasoning,
        calls: tool_calls(message).iter().map(model_call).collect(),
        ..ModelMessage::default()
    }
}

/// The readable text of the reasoning.
pub(super) fn reasoning_text(message: &Value) -> &str {
    ["reasoning_content", "reasoning"].iter().find_map(|key| field(message, key)?.as_str()).unwrap_or_default()
}

pub(super) fn model_call(call: &Value) -> ModelCall {
    // Custom tools take text, and have their name and input in an object of their own.
    let custom = call.get("custom").filter(|custom| custom.is_object());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, arguments, format) = match custom {
        Some(custom) => (text(custom.get("name")), text(custom.get("input")), CallFormat::Text),
        None => (function_name(call).to_owned(), arguments(call), CallFormat::Json),
    };
    let extra = CallExtra::of_chat_call(call);
    ModelCall { name, arguments, id: id(call).to_owned(), format, extra, native: Value::Null }
}

/// An element of `tool_calls`.
pub(super) fn write_call(id: &str, call: &ModelCall) -> Value {
    let written = match call.format {
        CallFormat::Text => {
            json!({"id": id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}})
        }
        CallFormat::Json => function_call(id, &call.name, &call.arguments),
    };
    with_extra(written, call)
}

/// The same for the model's history: its tools take only JSON.
pub(super) fn write_json_call(id: &str, call: &ModelCall) -> Value {
    match call.format {
        CallFormat::Text => {
            let written = function_call(id, &call.name, &json!({"input": call.arguments}).to_string());
            with_extra(written, call)
        }
        CallFormat::Json => write_call(id, call),
    }
}

fn with_extra(mut written: Value, call: &ModelCall) -> Value {
    if let CallExtra::ExtraContent(extra) = &call.extra {
        written[CallExtra::EXTRA_CONTENT] = extra.clone();
    }
    written
}

/// An element of `tool_calls` that calls a function.
pub(super) fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Whether a message beside tool results is a remark: text of the application, or of an agent on its own.
pub(super) fn is_remark(message: &Value) -> bool {
    match (role(message), message.get("content")) {
        ("system" | "developer", Some(Value::String(text))) => !is_titled_as_user_words(text),
        ("system" | "developer", Some(Value::Array(parts))) => {
            !parts.iter().filter_map(|part| part["text"].as_str()).any(is_titled_as_user_words)
        }
        ("system" | "developer", _) => true,
        ("user", Some(Value::String(text))) => classify([text.as_str()], MediaBeside::None) == Beside::Remark,
        ("user", Some(Value::Array(parts))) => {
            let is_text = |part: &&Value| part["type"] == "text";
            let texts = parts.iter().filter(is_text).filter_map(|part| part["text"].as_str());
            let media = MediaBeside::attached_if(parts.iter().any(|part| !is_text(&part)));
            classify(texts, media) == Beside::Remark
        }
        _ => false,
    }
}
