//! What a client sends back of answers of which a program's state knows as well.

use serde_json::Value;

use super::fields;
use crate::model_message::ModelMessage;
use crate::reasoning::Reasoning;
use crate::state::RunState;

/// The items that a state does not hold, so that the model hears the others once only.
pub(super) fn unknown(items: Vec<Value>, state: &RunState) -> Vec<Value> {
    items.into_iter().filter(|item| !is_known(item, state)).collect()
}

/// Is it something that the model said, and that the state holds?
pub(super) fn is_known(item: &Value, state: &RunState) -> bool {
    let model_messages = &state.model_messages;
    if !fields::is_model_output(item) {
        return false;
    }
    if fields::is_message(item) {
        let text = fields::message_text(item);
        let is_model_output =
            |model_message: &ModelMessage| model_message.text.as_ref().is_some_and(|said| said.contains(text.trim()));
        return text.trim().is_empty() || model_messages.iter().any(is_model_output);
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
    // Too large to be carried. Of several messages, nobody knows whose it was, and providers want thoughts in place.
    model_messages.len() > 1 && !fields::is_client_call(item)
}
