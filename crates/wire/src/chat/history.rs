//! Reads histories of plain mode, and writes the messages of a model's history.

use serde_json::{Map, Value, json};

use super::{fields, translate};
use crate::conversation::{Conversation, ConversationItem, LostCalls, WireCall};
use crate::model_history::UNANSWERED;
use crate::model_message::ModelMessage;
use crate::neutral::{ToolResult, text_or_json};
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, StateOpener};

/// Reads a history of plain mode. Without `opener` the calls of programs become lost calls.
pub(super) fn read(messages: Vec<Value>, opener: Option<&StateOpener<'_>>) -> Conversation {
    let mut conversation = Conversation { items: Vec::with_capacity(messages.len()), ..Conversation::default() };
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if has_own_calls(&message) {
            let mut exchange =
                CallExchange { calls: calls(&message), message, answers: Vec::new(), remarks: Vec::new() };
            loop {
                while let Some(next) = messages.next_if(|next| fields::role(next) == "tool" || fields::is_remark(next))
                {
                    if fields::role(&next) != "tool" {
                        exchange.remarks.push(next);
                        continue;
                    }
                    let id = fields::tool_call_id(&next).to_owned();
                    exchange.answers.push(HistoryAnswer { id, native: next, read: fields::answer });
                }
                let is_same_round = |next: &Value| opener.is_some_and(|opener| exchange.is_continued_by(next, opener));
                let Some(next) = messages.next_if(is_same_round) else { break };
                exchange.calls.extend(calls(&next));
            }
            exchange.add_to(&mut conversation, opener);
        } else if fields::role(&message) == "tool" && fields::is_of_program(fields::tool_call_id(&message)) {
            let id = fields::tool_call_id(&message);
            plain_mode::add_late_answer(&mut conversation, id, &message, fields::answer);
        } else {
            conversation.items.push(ConversationItem::Entry(message));
        }
    }
    conversation
}

fn has_own_calls(message: &Value) -> bool {
    fields::tool_calls(message).iter().any(|call| fields::is_of_program(fields::id(call)))
}

fn calls(message: &Value) -> Vec<HistoryCall> {
    let call = |call: &Value| HistoryCall {
        id: fields::id(call).to_owned(),
        name: fields::function_name(call).to_owned(),
        arguments: fields::arguments(call),
        native: call.clone(),
    };
    fields::tool_calls(message).iter().map(call).collect()
}

impl CallExchange {
    /// Whether the next message has more calls of the same round.
    fn is_continued_by(&self, next: &Value, opener: &StateOpener<'_>) -> bool {
        let before: Vec<&str> = self.calls.iter().map(|call| call.id.as_str()).collect();
        let next: Vec<&str> = fields::tool_calls(next).iter().map(fields::id).collect();
        opener.is_same_round(&before, &next)
    }
}

/// A message of the model with the results of its calls. `direct` are calls that the client executed.
pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: &[ToolResult],
    direct: Vec<WireCall>,
) -> Vec<Value> {
    let mut calls: Vec<Value> =
        ids.iter().zip(&model_message.calls).map(|(id, call)| fields::write_call(id, call)).collect();
    let mut answers: Vec<Value> = results.iter().map(translate::write_result).collect();
    for WireCall { call, answer } in direct {
        let unanswered = || json!({"role": "tool", "tool_call_id": fields::id(&call), "content": UNANSWERED});
        answers.push(answer.unwrap_or_else(unanswered));
        calls.push(call);
    }
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from("assistant"));
    message.insert("content".to_owned(), model_message.text.as_deref().map_or(Value::Null, Value::from));
    message.extend(model_message.reasoning.chat_fields().cloned().unwrap_or_default());
    message.insert("tool_calls".to_owned(), Value::Array(calls));
    std::iter::once(Value::Object(message)).chain(answers).collect()
}

/// Lost calls as ordinary tool calls with these ids.
pub(super) fn ordinary_calls(lost: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value> {
    let LostCalls { mut message, calls, .. } = lost;
    let mut written = Vec::new();
    let mut answers = Vec::new();
    for (WireCall { mut call, answer }, id) in calls.into_iter().zip(ids) {
        let mut answer = answer.unwrap_or_else(|| json!({"role": "tool", "content": UNANSWERED}));
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
        let content = fields.entry("content").or_insert(Value::Null);
        if let Some(note) = note {
            let text = text_or_json(Some(content));
            *content = Value::from(if text.is_empty() { note.to_owned() } else { format!("{text}\n{note}") });
        }
        fields.insert("tool_calls".to_owned(), Value::Array(written));
    }
    std::iter::once(message).chain(answers).collect()
}
