//! The output items of a response.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::{ItemStorage, ResponseStatus, item_storage};
use crate::reply_message::{OutgoingMessage, ReplyCall};
use crate::scripted_conversation::InputKind;

/// Reasoning, native items, the message, calls.
pub(super) fn items(outgoing: &OutgoingMessage<'_>, status: ResponseStatus) -> Vec<Value> {
    let message = outgoing.message;
    let mut items = Vec::new();
    if let Some(text) = message.reasoning.as_deref().filter(|text| !text.is_empty()) {
        let mut item = json!({
            "id": outgoing.ids.item("rs", 0),
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}],
        });
        if encrypts(outgoing) {
            item["encrypted_content"] = outgoing.template.signature_of(text).into();
        }
        items.push(item);
    }
    items.extend(outgoing.template.native.on(Wire::Responses).iter().cloned());
    if let Some(text) = message.text.as_deref().filter(|text| !text.is_empty()) {
        let item_status = if let ResponseStatus::Incomplete(_) = status { "incomplete" } else { "completed" };
        items.push(json!({
            "id": outgoing.ids.item("msg", items.len()),
            "type": "message",
            "status": item_status,
            "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
        }));
    }
    for call in &message.calls {
        items.push(item(call, outgoing, items.len()));
    }
    items
}

/// Whether reasoning has `encrypted_content`: on request, and when the response is not stored.
fn encrypts(outgoing: &OutgoingMessage<'_>) -> bool {
    let include = outgoing.conversation.given("include").and_then(Value::as_array);
    let is_requested = include.is_some_and(|names| names.iter().any(|name| name == "reasoning.encrypted_content"));
    is_requested || item_storage(outgoing.conversation.request) == ItemStorage::NotStored
}

fn item(call: &ReplyCall, outgoing: &OutgoingMessage<'_>, number: usize) -> Value {
    let ReplyCall { id, name, arguments, .. } = call;
    match call.input {
        InputKind::Json => json!({
            "id": outgoing.ids.item("fc", number),
            "type": "function_call",
            "status": "completed",
            "arguments": arguments,
            "call_id": id,
            "name": name,
        }),
        InputKind::Text => json!({
            "id": outgoing.ids.item("ctc", number),
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": id,
            "input": only_text(arguments),
            "name": name,
        }),
    }
}

/// The value of the only argument, if it is a string: the input of a custom tool is text without argument names.
fn only_text(arguments: &str) -> String {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) if fields.len() == 1 => {
            fields.values().next().and_then(Value::as_str).unwrap_or(arguments).to_owned()
        }
        _ => arguments.to_owned(),
    }
}
