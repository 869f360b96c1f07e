//! Items of the client's history that a program's state holds too.

use serde_json::Value;

use super::fields;
use crate::model_message::ModelMessage;
use crate::reasoning::Reasoning;
use crate::state::RunState;

/// The items that a state does not hold. The others would be in the model's history twice.
pub(super) fn not_in_state(items: Vec<Value>, state: &RunState) -> Vec<Value> {
    items.into_iter().filter(|item| !is_in_state(item, state)).collect()
}

/// Whether it is output of the model that the state holds.
pub(super) fn is_in_state(item: &Value, state: &RunState) -> bool {
    let model_messages = &state.model_messages;
    if !fields::is_model_output(item) {
        return false;
    }
    if fields::is_message(item) {
        let text = fields::message_text(item);
        let has_text =
            |model_message: &ModelMessage| model_message.text.as_ref().is_some_and(|known| known.contains(text.trim()));
        return text.trim().is_empty() || model_messages.iter().any(has_text);
    }
    if Reasoning::from_carried(fields::text_of(item, "encrypted_content")).is_some() {
        return model_messages.iter().any(|model_message| !model_message.reasoning.is_empty());
    }
    let is_same = |known: &Value| {
        ["id", "encrypted_content"].iter().any(|key| {
            let value = fields::text_of(item, key);
            !value.is_empty() && fields::text_of(known, key) == value
        })
    };
    if model_messages.iter().flat_map(|message| message.reasoning.items()).any(is_same) {
        return true;
    }
    if fields::is_reasoning(item) && !fields::is_complete_reasoning(item) {
        return true;
    }
    // It was too large for the state. With several messages it is unknown which one it belongs to, and providers require
    // reasoning in its place, so it is dropped.
    model_messages.len() > 1 && !fields::is_client_call(item)
}
