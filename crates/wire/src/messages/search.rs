//! Searches that we answered, as the client was told of them.

use serde_json::{Value, json};

use super::fields;
use crate::conversation::Item;
use crate::saying::ModelCall;

/// A message of the model that does nothing but search.
pub(super) struct Search {
    /// What it says before.
    pub said: Vec<Value>,
    pub calls: Vec<Value>,
}

impl Search {
    /// What a search finds is found again. `name` is what the model calls our search.
    pub(super) fn item(&self, name: &str) -> Item {
        let call = |block: &Value| {
            let input = block.get("input").unwrap_or(&Value::Null);
            let query = input.get("query").or_else(|| input.get("pattern")).unwrap_or(&Value::Null);
            let mut arguments = json!({"query": query});
            if let Some(limit) = input.get("limit") {
                arguments["limit"] = limit.clone();
            }
            ModelCall { name: name.to_owned(), arguments: arguments.to_string(), ..ModelCall::default() }
        };
        let mut saying = fields::saying(&self.said);
        saying.calls = self.calls.iter().map(call).collect();
        Item::Search(saying)
    }
}
