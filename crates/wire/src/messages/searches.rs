//! Tool searches that the gateway answered, as the client's history holds them.

use serde_json::{Value, json};

use super::fields;
use crate::conversation::ConversationItem;
use crate::model_message::ModelCall;

/// A message of the model that only searches.
pub(super) struct AnsweredSearch {
    /// The content before the searches.
    pub content: Vec<Value>,
    /// The searches. Their results are not needed: the search is executed again.
    pub calls: Vec<Value>,
}

impl AnsweredSearch {
    /// `name` is the name of the search tool that the model has.
    pub(super) fn item(&self, name: &str) -> ConversationItem {
        let call = |block: &Value| {
            let input = block.get("input").unwrap_or(&Value::Null);
            let query = input.get("query").or_else(|| input.get("pattern")).unwrap_or(&Value::Null);
            let mut arguments = match input.get("queries") {
                Some(queries) => json!({"queries": queries}),
                None => json!({"query": query}),
            };
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
