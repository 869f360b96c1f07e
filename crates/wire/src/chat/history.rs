//! Histories of plain mode, and what a model's history shows of its messages.

use serde_json::{Map, Value, json};

use super::fields;
use crate::conversation::{self, Conversation, ConversationItem, WireCall};
use crate::model_history::UNANSWERED;
use crate::model_message::ModelMessage;
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, StateOpener};
use crate::seal::Sealer;

/// Reads the programs of plain mode. Without `opener` their calls are calls like others.
pub(super) fn read(messages: Vec<Value>, opener: Option<&StateOpener<'_>>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if fields::tool_calls(&message).iter().any(|call| Sealer::is_own_id(fields::id(call))) {
            let mut answers = Vec::new();
            while let Some(answer) = messages.next_if(|next| fields::role(next) == "tool") {
                let (id, parsed) = (fields::tool_call_id(&answer).to_owned(), fields::answer(&answer));
                answers.push(HistoryAnswer { id, parsed, answer });
            }
            let call = |call: &Value| HistoryCall {
                id: fields::id(call).to_owned(),
                name: fields::function_name(call).to_owned(),
                call: call.clone(),
            };
            let calls = fields::tool_calls(&message).iter().map(call).collect();
            CallExchange { message, calls, answers, remarks: Vec::new() }.add_to(&mut conversation, opener);
        } else if fields::role(&message) == "tool" && Sealer::is_own_id(fields::tool_call_id(&message)) {
            plain_mode::add_late_answer(&mut conversation, fields::tool_call_id(&message), fields::answer(&message));
        } else {
            conversation.items.push(ConversationItem::Entry(message));
        }
    }
    conversation
}

pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: &[String],
    direct: &[WireCall],
) -> Vec<Value> {
    let mut calls: Vec<Value> =
        ids.iter().zip(&model_message.calls).map(|(id, call)| fields::written(id, call)).collect();
    calls.extend(direct.iter().map(|call| call.call.clone()));
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from("assistant"));
    message.insert("content".to_owned(), model_message.text.as_deref().map_or(Value::Null, Value::from));
    message.extend(model_message.reasoning.chat_fields().cloned().unwrap_or_default());
    message.insert("tool_calls".to_owned(), Value::Array(calls));
    let mut messages = vec![Value::Object(message)];
    for (id, result) in ids.iter().zip(results) {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    for call in direct {
        let unanswered = || json!({"role": "tool", "tool_call_id": fields::id(&call.call), "content": UNANSWERED});
        messages.push(call.answer.clone().unwrap_or_else(unanswered));
    }
    messages
}

pub(super) fn ordinary_calls(message: &Value, calls: &[WireCall], ids: &[String], note: Option<&str>) -> Vec<Value> {
    let content = match note {
        None => message.get("content").cloned().unwrap_or(Value::Null),
        Some(note) => {
            let said = conversation::text(message.get("content"));
            Value::from(if said.is_empty() { note.to_owned() } else { format!("{said}\n{note}") })
        }
    };
    let mut message = message.clone();
    let mut written = Vec::new();
    let mut answers = Vec::new();
    for (executed, id) in calls.iter().zip(ids) {
        let mut call = executed.call.clone();
        let mut answer = executed.answer.clone().unwrap_or_else(|| json!({"role": "tool", "content": UNANSWERED}));
        if let (Some(call), Some(answer)) = (call.as_object_mut(), answer.as_object_mut()) {
            call.insert("id".to_owned(), Value::from(id.as_str()));
            answer.shift_remove("toolCallId");
            answer.insert("tool_call_id".to_owned(), Value::from(id.as_str()));
        }
        written.push(call);
        answers.push(answer);
    }
    if let Some(fields) = message.as_object_mut() {
        fields.shift_remove("toolCalls");
        fields.insert("content".to_owned(), content);
        fields.insert("tool_calls".to_owned(), Value::Array(written));
    }
    std::iter::once(message).chain(answers).collect()
}
