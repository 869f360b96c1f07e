//! Searches that we answered, as the client was told of them.

use serde_json::{Value, json};

use super::fields;
use crate::conversation::ConversationItem;
use crate::model_message::ModelCall;

/// A message of the model that does nothing but search.
pub(super) struct AnsweredSearch {
    /// What it says before.
    pub content: Vec<Value>,
    pub calls: Vec<Value>,
}

impl AnsweredSearch {
    /// What a search finds is found again. `name` is what the model calls our search.
    pub(super) fn item(&self, name: &str) -> ConversationItem {
        let call = |block: &Value| {
            let input = block.get("input").unwrap_or(&Value::Null);
            let query = input.get("query").or_else(|| input.get("pattern")).unwrap_or(&Value::Null);
            let mut arguments = json!({"query": query});
            if let Some(limit) = input.get("limit") {
                arguments["limit"] = limit.clone();
            }
            ModelCall { name: name.to_owned(), arguments: arguments.to_string(), ..ModelCall::default() }
        };
        let mut model_message = fields::model_message(&self.content);
        model_message.calls = self.calls.iter().map(call).collect();
        ConversationItem::Search(model_message)
    }
}
