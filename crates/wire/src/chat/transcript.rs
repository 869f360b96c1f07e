//! Messages of the model, as they stand in its history.

use serde_json::{Map, Value, json};

use super::{explicit, fields};
use crate::conversation::{self, Given};
use crate::saying::Saying;
use crate::transcript::UNANSWERED;

pub(super) fn saying(saying: &Saying, ids: &[String], results: &[String], direct: &[Given]) -> Vec<Value> {
    let mut calls: Vec<Value> = ids.iter().zip(&saying.calls).map(|(id, call)| fields::written(id, call)).collect();
    calls.extend(direct.iter().map(|given| given.call.clone()));
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from("assistant"));
    message.insert("content".to_owned(), saying.text.as_deref().map_or(Value::Null, Value::from));
    message.extend(fields::reasoning(&saying.opaque));
    message.insert("tool_calls".to_owned(), Value::Array(calls));
    let mut messages = vec![Value::Object(message)];
    for (id, result) in ids.iter().zip(results) {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    for given in direct {
        let unanswered = || json!({"role": "tool", "tool_call_id": fields::id(&given.call), "content": UNANSWERED});
        messages.push(given.answer.clone().unwrap_or_else(unanswered));
    }
    messages
}

pub(super) fn ordinary(message: &Value, calls: &[Given], ids: &[String], note: Option<&str>) -> Vec<Value> {
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
    for (given, id) in calls.iter().zip(ids) {
        let mut call = given.call.clone();
        let mut answer = given.answer.clone().unwrap_or_else(|| json!({"role": "tool", "content": UNANSWERED}));
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

/// Messages of the model that explicit clients carry for us, without results.
pub(super) fn carried(saying: &Saying) -> Value {
    let mut message = Map::new();
    if let Some(text) = &saying.text {
        message.insert("content".to_owned(), Value::from(text.as_str()));
    }
    message.extend(explicit::carried_opaque(&saying.opaque));
    let calls = saying.calls.iter().map(|call| {
        let mut call = fields::written("", call);
        call.as_object_mut().map(|fields| fields.shift_remove("id"));
        call
    });
    message.insert("tool_calls".to_owned(), calls.collect());
    Value::Object(message)
}
