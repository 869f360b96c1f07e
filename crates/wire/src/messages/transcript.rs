//! Messages of the model, as they stand in its history.

use serde_json::{Value, json};

use super::{echo, fields};
use crate::conversation::Given;
use crate::saying::Saying;
use crate::transcript::UNANSWERED;

pub(super) fn saying(saying: &Saying, ids: &[String], results: &[String], direct: &[Given]) -> Vec<Value> {
    let blocks = echo::echoed(saying, fields::BLOCKS).or_else(|| saying.opaque.get(fields::BLOCKS));
    let mut content = match blocks.and_then(Value::as_array) {
        Some(blocks) => blocks.clone(),
        None => saying.text.as_deref().map(fields::text_block).into_iter().collect(),
    };
    content.extend(ids.iter().zip(&saying.calls).map(|(id, call)| fields::written(id, call)));
    content.extend(direct.iter().map(|given| given.call.clone()));
    let mut answers: Vec<Value> = ids.iter().zip(results).map(|(id, result)| answered(id, result)).collect();
    if let (Some(cached), Some(last)) = (echo::echoed(saying, echo::CACHE_CONTROL), answers.last_mut()) {
        last[echo::CACHE_CONTROL] = cached.clone();
    }
    answers.extend(direct.iter().map(answer_of));
    pair(&content, &answers)
}

pub(super) fn ordinary(message: &Value, calls: &[Given], ids: &[String], note: Option<&str>) -> Vec<Value> {
    let said = fields::content(message);
    let is_said = |block: &&Value| {
        fields::kind(block) != fields::TOOL_USE && !fields::is_carrier(block) && !fields::is_our_program(block)
    };
    let mut content: Vec<Value> = said.iter().filter(is_said).cloned().collect();
    content.extend(note.map(fields::text_block));
    let mut answers = Vec::new();
    for (given, id) in calls.iter().zip(ids) {
        let mut call = given.call.clone();
        let mut answer = answer_of(given);
        if let (Some(call), Some(answer)) = (call.as_object_mut(), answer.as_object_mut()) {
            call.shift_remove("caller");
            call.insert("id".to_owned(), Value::from(id.as_str()));
            answer.insert("tool_use_id".to_owned(), Value::from(id.as_str()));
        }
        content.push(call);
        answers.push(answer);
    }
    pair(&content, &answers)
}

fn answer_of(given: &Given) -> Value {
    given.answer.clone().unwrap_or_else(|| answered(fields::id(&given.call), UNANSWERED))
}

fn answered(id: &str, text: &str) -> Value {
    json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": text})
}

/// Answers follow their calls at once.
fn pair(content: &[Value], answers: &[Value]) -> Vec<Value> {
    let mut messages = vec![json!({"role": "assistant", "content": content})];
    if !answers.is_empty() {
        messages.push(json!({"role": "user", "content": answers}));
    }
    messages
}
