//! Views of the messages' fields, in both spellings that clients use.

use dacapo_replay::Answer;
use serde_json::{Map, Value, json};

use crate::conversation;
use crate::model_message::{CallExtra, CallFormat, ModelCall, ModelMessage};
use crate::neutral::ToolStatus;
use crate::reasoning::Reasoning;

pub(super) fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn tool_calls(message: &Value) -> &[Value] {
    let calls = ["tool_calls", "toolCalls"].iter().find_map(|key| message.get(key)?.as_array());
    calls.map_or(&[], Vec::as_slice)
}

pub(super) fn tool_call_id(message: &Value) -> &str {
    ["tool_call_id", "toolCallId"].iter().find_map(|key| message.get(key)?.as_str()).unwrap_or_default()
}

pub(super) fn id(call: &Value) -> &str {
    call.get("id").and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn function_name(call: &Value) -> &str {
    call.pointer("/function/name").and_then(Value::as_str).unwrap_or_default()
}

/// The arguments as text, however they are given.
pub(super) fn arguments(call: &Value) -> String {
    match call.pointer("/function/arguments") {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(object) => object.to_string(),
    }
}

/// What a model says aloud: of content in parts, the text.
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

pub(super) fn answer(message: &Value) -> Answer {
    let status = ToolStatus::of_flag(message.get("is_error"));
    conversation::answer(conversation::text(message.get("content")), status)
}

/// A message of the model in our words.
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

/// Thoughts that people can read.
pub(super) fn reasoning_text(message: &Value) -> &str {
    ["reasoning_content", "reasoning"].iter().find_map(|key| message.get(key)?.as_str()).unwrap_or_default()
}

pub(super) fn model_call(call: &Value) -> ModelCall {
    // Custom tools have a name of their own, and take text.
    let custom = call.get("custom").filter(|custom| custom.is_object());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, arguments, format) = match custom {
        Some(custom) => (text(custom.get("name")), text(custom.get("input")), CallFormat::Text),
        None => (function_name(call).to_owned(), arguments(call), CallFormat::Json),
    };
    let extra = CallExtra::of_chat_call(call);
    ModelCall { name, arguments, id: id(call).to_owned(), format, extra, native: Value::Null }
}

/// A call as it stands in a message.
pub(super) fn written(id: &str, call: &ModelCall) -> Value {
    let mut fields = Map::new();
    fields.insert("id".to_owned(), Value::from(id));
    if call.format == CallFormat::Text {
        fields.insert("type".to_owned(), Value::from("custom"));
        fields.insert("custom".to_owned(), json!({"name": call.name, "input": call.arguments}));
    } else {
        fields.insert("type".to_owned(), Value::from("function"));
        fields.insert("function".to_owned(), json!({"name": call.name, "arguments": call.arguments}));
    }
    if let CallExtra::ExtraContent(extra) = &call.extra {
        fields.insert(CallExtra::EXTRA_CONTENT.to_owned(), extra.clone());
    }
    Value::Object(fields)
}
