//! The items of a response.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::super::conversation::Input;
use super::super::message::{Call, Outgoing};
use super::super::seal::Seals;
use super::{Status, stores};

/// Reasoning, what the script has ready, the message, calls.
pub(super) fn items(outgoing: &Outgoing<'_>, status: Status) -> Vec<Value> {
    let message = outgoing.message;
    let mut items = Vec::new();
    if let Some(text) = message.reasoning.as_deref().filter(|text| !text.is_empty()) {
        let mut item = json!({
            "id": outgoing.ids.item("rs", 0),
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": text}],
        });
        if encrypts(outgoing) {
            item["encrypted_content"] = outgoing.draft.signature.clone().unwrap_or_else(|| Seals::make(text)).into();
        }
        items.push(item);
    }
    items.extend(outgoing.draft.native.on(Wire::Responses).iter().cloned());
    if let Some(text) = message.text.as_deref().filter(|text| !text.is_empty()) {
        let whole = if let Status::Incomplete(_) = status { "incomplete" } else { "completed" };
        items.push(json!({
            "id": outgoing.ids.item("msg", items.len()),
            "type": "message",
            "status": whole,
            "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}],
        }));
    }
    for call in &message.calls {
        items.push(item(call, outgoing, items.len()));
    }
    items
}

/// Whether reasoning must be able to come back to a provider that keeps nothing.
fn encrypts(outgoing: &Outgoing<'_>) -> bool {
    let include = outgoing.conversation.given("include").and_then(Value::as_array);
    let asked = include.is_some_and(|names| names.iter().any(|name| name == "reasoning.encrypted_content"));
    asked || !stores(outgoing.conversation.request)
}

fn item(call: &Call, outgoing: &Outgoing<'_>, number: usize) -> Value {
    let Call { id, name, arguments, .. } = call;
    match call.input {
        Input::Json => json!({
            "id": outgoing.ids.item("fc", number),
            "type": "function_call",
            "status": "completed",
            "arguments": arguments,
            "call_id": id,
            "name": name,
        }),
        Input::Text => json!({
            "id": outgoing.ids.item("ctc", number),
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": id,
            "input": only_text(arguments),
            "name": name,
        }),
    }
}

/// The only argument, if it is text: a tool that takes text has no names for what it takes.
fn only_text(arguments: &str) -> String {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) if fields.len() == 1 => {
            fields.values().next().and_then(Value::as_str).unwrap_or(arguments).to_owned()
        }
        _ => arguments.to_owned(),
    }
}
