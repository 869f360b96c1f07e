//! What a client sends back of answers of which a program's state knows as well.

use serde_json::Value;

use super::fields;
use crate::carrier;
use crate::saying::Saying;
use crate::state::RunState;

/// The items that a state does not hold, so that the model hears the others once only.
pub(super) fn unknown(items: Vec<Value>, state: &RunState) -> Vec<Value> {
    items.into_iter().filter(|item| !is_known(item, state)).collect()
}

/// Is it something that the model said, and that the state holds?
pub(super) fn is_known(item: &Value, state: &RunState) -> bool {
    let sayings = &state.sayings;
    if !fields::is_said(item) {
        return false;
    }
    if fields::is_message(item) {
        let text = fields::said_text(item);
        let is_said = |saying: &Saying| saying.text.as_ref().is_some_and(|said| said.contains(text.trim()));
        return text.trim().is_empty() || sayings.iter().any(is_said);
    }
    if carrier::unwrap(fields::text_of(item, "encrypted_content")).is_some() {
        return sayings.iter().any(|saying| !saying.opaque.is_empty());
    }
    let is_same = |known: &Value| {
        ["id", "encrypted_content"].iter().any(|key| {
            let value = fields::text_of(item, key);
            !value.is_empty() && fields::text_of(known, key) == value
        })
    };
    if sayings.iter().flat_map(items_of).any(is_same) {
        return true;
    }
    if fields::is_reasoning(item) && !fields::is_whole_thought(item) {
        return true;
    }
    // Too large to be carried. Of several messages, nobody knows whose it was, and providers want thoughts in place.
    sayings.len() > 1 && !fields::is_client_call(item)
}

/// What of a message stands in its place as it came.
pub(super) fn items_of(saying: &Saying) -> &[Value] {
    saying.opaque.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
