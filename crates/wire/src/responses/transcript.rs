//! Messages of the model, as they stand in its history.

use serde_json::Value;

use super::{echoes, fields};
use crate::conversation::Given;
use crate::saying::Saying;
use crate::transcript::UNANSWERED;

pub(super) fn saying(saying: &Saying, ids: &[String], results: &[String], direct: &[Given]) -> Vec<Value> {
    let mut entries = echoes::items_of(saying).to_vec();
    if let Some(text) = &saying.text
        && !entries.iter().any(fields::is_message)
    {
        entries.push(fields::message(text));
    }
    let calls: Vec<_> = saying.calls.iter().map(fields::as_made).collect();
    entries.extend(ids.iter().zip(&calls).map(|(id, call)| fields::written(id, call)));
    entries.extend(direct.iter().map(|given| given.call.clone()));
    let results = ids.iter().zip(&calls).zip(results);
    entries.extend(results.map(|((id, call), result)| fields::output(id, result.as_str(), call.is_custom)));
    entries.extend(direct.iter().map(output));
    entries
}

fn output(given: &Given) -> Value {
    let is_custom = fields::kind(&given.call) == "custom_tool_call";
    let unanswered = || fields::output(fields::call_id(&given.call), UNANSWERED, is_custom);
    given.answer.clone().unwrap_or_else(unanswered)
}

/// `message` is the list of what stood before the calls.
pub(super) fn ordinary(message: &Value, calls: &[Given], ids: &[String], note: Option<&str>) -> Vec<Value> {
    let mut entries = message.as_array().cloned().unwrap_or_default();
    entries.extend(note.map(fields::message));
    let mut outputs = Vec::new();
    for (given, id) in calls.iter().zip(ids) {
        let (mut call, mut output) = (given.call.clone(), output(given));
        for item in [&mut call, &mut output] {
            if let Some(fields) = item.as_object_mut() {
                fields.insert("call_id".to_owned(), Value::from(id.as_str()));
                fields.shift_remove("id");
                fields.shift_remove("caller");
            }
        }
        entries.push(call);
        outputs.push(output);
    }
    entries.extend(outputs);
    entries
}
