//! Views of the messages' fields, in both spellings that clients use.

use dacapo_replay::Answer;
use serde_json::{Map, Value, json};

use crate::conversation;
use crate::saying::{ModelCall, Saying};

/// What providers want back in later requests, as it was.
pub(super) const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];
/// The same, on a tool call.
pub(super) const CALL_OPAQUE: &str = "extra_content";

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
pub(super) fn said_text(content: Option<&Value>) -> String {
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
    let is_error = message.get("is_error") == Some(&Value::Bool(true));
    conversation::answer(conversation::text(message.get("content")), is_error)
}

/// What a provider wants back, of all that a message or a saying has.
pub(super) fn reasoning(fields: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> + '_ {
    let known = REASONING.iter().filter_map(|key| Some((*key, fields.get(*key)?)));
    known.filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_owned(), value.clone()))
}

/// A message of the model in our words.
pub(super) fn saying(message: &Value) -> Saying {
    let opaque = message.as_object().map(|fields| reasoning(fields).collect()).unwrap_or_default();
    let refusal = || message.get("refusal").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text = Some(said_text(message.get("content"))).filter(|text| !text.is_empty()).unwrap_or_else(refusal);
    let text = Some(text).filter(|text| !text.is_empty());
    Saying { text, opaque, calls: tool_calls(message).iter().map(model_call).collect() }
}

/// Thoughts that people can read.
pub(super) fn thoughts(message: &Value) -> &str {
    ["reasoning_content", "reasoning"].iter().find_map(|key| message.get(key)?.as_str()).unwrap_or_default()
}

pub(super) fn model_call(call: &Value) -> ModelCall {
    let mut opaque = Map::new();
    if let Some(value) = call.get(CALL_OPAQUE).filter(|value| !value.is_null()) {
        opaque.insert(CALL_OPAQUE.to_owned(), value.clone());
    }
    // Custom tools have a name of their own, and take text.
    let custom = call.get("custom").filter(|custom| custom.is_object());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (name, arguments) = match custom {
        Some(custom) => (text(custom.get("name")), text(custom.get("input"))),
        None => (function_name(call).to_owned(), arguments(call)),
    };
    ModelCall { name, arguments, id: id(call).to_owned(), is_custom: custom.is_some(), opaque, native: Value::Null }
}

/// A call as it stands in a message.
pub(super) fn written(id: &str, call: &ModelCall) -> Value {
    let mut fields = Map::new();
    fields.insert("id".to_owned(), Value::from(id));
    if call.is_custom {
        fields.insert("type".to_owned(), Value::from("custom"));
        fields.insert("custom".to_owned(), json!({"name": call.name, "input": call.arguments}));
    } else {
        fields.insert("type".to_owned(), Value::from("function"));
        fields.insert("function".to_owned(), json!({"name": call.name, "arguments": call.arguments}));
    }
    fields.extend(call.opaque.get(CALL_OPAQUE).map(|value| (CALL_OPAQUE.to_owned(), value.clone())));
    Value::Object(fields)
}
