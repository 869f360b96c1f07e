//! The history as the model sees it.

use serde_json::{Map, Value, json};

use super::fields;
use crate::conversation::{Given, Lost};
use crate::ids::short_id;
use crate::saying::Saying;

/// Messages for the model. The same items give the same bytes, so that providers' prompt caches keep hitting.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    messages: Vec<Value>,
    /// Calls written so far.
    calls: usize,
}

/// What stands for an answer that never came.
const UNANSWERED: &str = "(no answer came back)";
const LOST: &str = "(These calls were made by a program whose state was lost on its way back, so it did not go on.)";

impl Transcript {
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// A message that is none of ours.
    pub fn message(&mut self, message: Value) {
        self.messages.push(message);
    }

    /// A message of the model with the results of its calls, and the calls beside them that the client executed.
    pub fn saying(&mut self, saying: &Saying, results: &[String], direct: &[Given]) {
        let ids = saying.short_ids(self.calls);
        self.calls += ids.len();
        let mut calls: Vec<Value> = ids.iter().zip(&saying.calls).map(|(id, call)| fields::written(id, call)).collect();
        calls.extend(direct.iter().map(|given| given.call.clone()));
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), saying.text.as_deref().map_or(Value::Null, Value::from));
        message.extend(saying.opaque.clone());
        message.insert("tool_calls".to_owned(), Value::Array(calls));
        self.messages.push(Value::Object(message));
        for (id, result) in ids.iter().zip(results) {
            self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        }
        for given in direct {
            let unanswered = || json!({"role": "tool", "tool_call_id": fields::id(&given.call), "content": UNANSWERED});
            self.messages.push(given.answer.clone().unwrap_or_else(unanswered));
        }
    }

    /// Calls that were a program's, as ordinary ones, with a line that says so.
    pub fn lost(&mut self, lost: &Lost) {
        let said = fields::text(lost.message.get("content"));
        let content = if said.is_empty() { LOST.to_owned() } else { format!("{said}\n{LOST}") };
        self.ordinary(lost, Value::from(content));
    }

    /// The same, for a request without code mode.
    pub fn off(&mut self, lost: &Lost) {
        self.ordinary(lost, lost.message.get("content").cloned().unwrap_or(Value::Null));
    }

    fn ordinary(&mut self, lost: &Lost, content: Value) {
        let mut message = lost.message.clone();
        let mut calls = Vec::new();
        let mut answers = Vec::new();
        for given in &lost.calls {
            let id = short_id(fields::function_name(&given.call), &fields::arguments(&given.call), self.calls);
            self.calls += 1;
            let mut call = given.call.clone();
            let mut answer = given.answer.clone().unwrap_or_else(|| json!({"role": "tool", "content": UNANSWERED}));
            if let (Some(call), Some(answer)) = (call.as_object_mut(), answer.as_object_mut()) {
                call.insert("id".to_owned(), Value::from(id.as_str()));
                answer.shift_remove("toolCallId");
                answer.insert("tool_call_id".to_owned(), Value::from(id));
            }
            calls.push(call);
            answers.push(answer);
        }
        if let Some(fields) = message.as_object_mut() {
            fields.shift_remove("toolCalls");
            fields.insert("content".to_owned(), content);
            fields.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        self.messages.push(message);
        self.messages.extend(answers);
    }
}

/// Messages of the model that explicit clients carry for us, without results.
pub(super) fn carried(saying: &Saying) -> Value {
    let mut message = Map::new();
    if let Some(text) = &saying.text {
        message.insert("content".to_owned(), Value::from(text.as_str()));
    }
    message.extend(saying.opaque.clone());
    let calls = saying.calls.iter().map(|call| {
        let mut call = fields::written("", call);
        call.as_object_mut().map(|fields| fields.shift_remove("id"));
        call
    });
    message.insert("tool_calls".to_owned(), calls.collect());
    Value::Object(message)
}
