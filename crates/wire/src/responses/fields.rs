//! Reads and writes the fields of items.

use std::borrow::Cow;

use dacapo_replay::Catalog;
use serde_json::{Value, json};

use super::translate;
use crate::model_message::{CallExtra, CallFormat, ModelCall};
use crate::neutral::{self, ToolStatus, field, string_or_json};
use crate::remarks::{Beside, MediaBeside, classify, is_titled_as_user_words};
use crate::tool_answer::ToolAnswer;

/// Calls of providers' tools that the client executes.
const CLIENT_CALLS: [&str; 5] =
    ["local_shell_call", "shell_call", "apply_patch_call", "computer_call", "mcp_approval_request"];
/// Results of such calls.
const CLIENT_OUTPUTS: [&str; 6] = [
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "computer_call_output",
    "mcp_approval_response",
    "tool_search_output",
];

pub(super) fn text_of<'a>(item: &'a Value, key: &str) -> &'a str {
    field(item, key).and_then(Value::as_str).unwrap_or_default()
}

/// The type of an item. It may be missing for messages and references.
pub(super) fn kind(item: &Value) -> &str {
    match text_of(item, "type") {
        "" if field(item, "role").is_some() => "message",
        "" if field(item, "id").is_some() => "item_reference",
        kind => kind,
    }
}

pub(super) fn call_id(item: &Value) -> &str {
    text_of(item, "call_id")
}

/// Whether it is a call of one of the client's tools.
pub(super) fn is_call(item: &Value) -> bool {
    matches!(kind(item), "function_call" | "custom_tool_call")
}

pub(super) fn is_output(item: &Value) -> bool {
    matches!(kind(item), "function_call_output" | "custom_tool_call_output")
}

pub(super) fn is_client_call(item: &Value) -> bool {
    CLIENT_CALLS.contains(&kind(item)) || kind(item) == "tool_search_call" && item["execution"] == "client"
}

pub(super) fn is_client_output(item: &Value) -> bool {
    CLIENT_OUTPUTS.contains(&kind(item)) && !is_search_result(item)
}

/// Whether it is the result of a tool search of the provider.
fn is_search_result(item: &Value) -> bool {
    kind(item) == "tool_search_output" && item["execution"] == "server"
}

pub(super) fn is_message(item: &Value) -> bool {
    kind(item) == "message"
}

/// Whether the message is from the developer of the application, not from its user.
pub(super) fn is_instruction(item: &Value) -> bool {
    is_message(item)
        && matches!(text_of(item, "role"), "developer" | "system")
        && !is_titled_as_user_words(&message_text(item))
}

pub(super) fn is_reasoning(item: &Value) -> bool {
    kind(item) == "reasoning"
}

/// Whether it is output of the model, except calls of the client's tools.
pub(super) fn is_model_output(item: &Value) -> bool {
    match kind(item) {
        "message" => text_of(item, "role") == "assistant",
        "reasoning" | "mcp_list_tools" | "mcp_approval_request" => true,
        kind => kind.ends_with("_call") && !is_call(item) || is_search_result(item),
    }
}

/// Whether the reasoning has the content that its provider needs to read it again.
pub(super) fn is_complete_reasoning(item: &Value) -> bool {
    let has_content = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
    !text_of(item, "encrypted_content").is_empty() || has_content
}

/// The id of the program that made the call.
pub(super) fn caller_id(item: &Value) -> Option<&str> {
    let caller = item.get("caller").filter(|caller| caller["type"] == "program")?;
    caller.get("caller_id")?.as_str()
}

/// A copy of an item or a tool with another value in one of its fields.
pub(super) fn with_field(item: &Value, key: &str, value: Value) -> Value {
    item.as_object().map_or(Value::Null, |fields| Value::Object(neutral::with_field(fields, key, value)))
}

/// The text of a message.
pub(super) fn message_text(item: &Value) -> String {
    match item.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str()).collect()
        }
        _ => String::new(),
    }
}

/// The readable text of the reasoning.
pub(super) fn reasoning_text(item: &Value) -> String {
    let parts =
        ["summary", "content"].iter().find_map(|key| item.get(key)?.as_array().filter(|parts| !parts.is_empty()));
    let texts = parts.into_iter().flatten().filter_map(|part| part.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n\n")
}

pub(super) fn answer(item: &Value, key: &str) -> ToolAnswer {
    ToolAnswer::read(item.get("output"), ToolStatus::Ok, &translate::BLOCKS, key)
}

/// The name of a function, with its namespace.
pub(super) fn full_name(item: &Value) -> String {
    match text_of(item, "namespace") {
        "" => text_of(item, "name").to_owned(),
        namespace => format!("{namespace}.{}", text_of(item, "name")),
    }
}

/// The name in journals of the tool that is called.
pub(super) fn tool_name(item: &Value, catalog: &Catalog) -> String {
    let (namespace, name) = (text_of(item, "namespace"), text_of(item, "name"));
    let tool = catalog.functions().iter().find(|function| {
        let tool = &catalog.tools()[function.tool.0 as usize];
        !namespace.is_empty() && tool.server.as_deref() == Some(namespace) && tool.name == name
    });
    match tool {
        Some(function) => catalog.qualified_name(function.tool).to_owned(),
        None => crate::plain_mode::tool_name(&full_name(item), catalog),
    }
}

pub(super) fn model_call(item: &Value) -> ModelCall {
    let (format, extra, key) = match kind(item) {
        "custom_tool_call" => (CallFormat::Text, CallExtra::WrittenAsText, "input"),
        _ => (CallFormat::Json, CallExtra::None, "arguments"),
    };
    let arguments = string_or_json(item.get(key));
    let id = call_id(item).to_owned();
    ModelCall { name: full_name(item), arguments, id, format, native: item.clone(), extra }
}

/// A call item.
pub(super) fn write_call(id: &str, call: &ModelCall) -> Value {
    let (namespace, name) = match call.name.split_once('.') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => (Some(namespace), name),
        _ => (None, call.name.as_str()),
    };
    let mut item = match call.format {
        CallFormat::Text => json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": call.arguments}),
        CallFormat::Json => json!({"type": "function_call", "call_id": id, "name": name, "arguments": call.arguments}),
    };
    if let Some(namespace) = namespace {
        item["namespace"] = Value::from(namespace);
    }
    item
}

/// The output item of a call.
pub(super) fn output(id: &str, text: impl Into<Value>, format: CallFormat) -> Value {
    let kind = match format {
        CallFormat::Text => "custom_tool_call_output",
        CallFormat::Json => "function_call_output",
    };
    json!({"type": kind, "call_id": id, "output": text.into()})
}

/// The call as the model made it. A state carries calls of text tools with JSON arguments.
pub(super) fn original_call(call: &ModelCall) -> Cow<'_, ModelCall> {
    if call.extra != CallExtra::WrittenAsText {
        return Cow::Borrowed(call);
    }
    let mut call = call.clone();
    call.format = CallFormat::Text;
    if let Ok(Value::Object(mut fields)) = serde_json::from_str(&call.arguments)
        && let (1, Some(Value::String(code))) = (fields.len(), fields.get_mut("code"))
    {
        call.arguments = std::mem::take(code);
    }
    Cow::Owned(call)
}

pub(super) fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

/// Whether a message of the user is one that an agent wrote on its own: a reminder, or the image that a tool returned.
pub(super) fn is_user_remark(item: &Value) -> bool {
    if !is_message(item) || text_of(item, "role") != "user" {
        return false;
    }
    match item.get("content") {
        Some(Value::String(text)) => classify([text.as_str()], MediaBeside::None) == Beside::Remark,
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            let media = MediaBeside::attached_if(parts.iter().any(|part| part.get("text").is_none()));
            classify(texts, media) == Beside::Remark
        }
        _ => false,
    }
}
