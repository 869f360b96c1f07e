//! Searches that we answered, as the client was told of them.

use serde_json::{Value, json};

use super::{fields, program};
use crate::conversation::Item;
use crate::saying::ModelCall;
use crate::state::RunState;

/// A message of the model that does nothing but search.
pub(super) struct Search {
    /// What it says before.
    pub said: Vec<Value>,
    pub calls: Vec<Value>,
}

impl Search {
    /// It becomes a program that is over and was no call of its message: what a search finds is found again. `name` is
    /// what the model calls our search.
    pub(super) fn item(&self, name: &str) -> Item {
        let call = |block: &Value| {
            let input = block.get("input").unwrap_or(&Value::Null);
            let query = input.get("query").or_else(|| input.get("pattern")).unwrap_or(&Value::Null);
            ModelCall { name: name.to_owned(), arguments: json!({"query": query}).to_string(), ..ModelCall::default() }
        };
        let mut saying = fields::saying(&self.said);
        saying.calls = self.calls.iter().map(call).collect();
        let id = self.calls.first().map(fields::id).unwrap_or_default();
        let mut block = program::block(
            id,
            RunState {
                seed: id.to_owned(),
                started_at_ms: RunState::STARTED_AT_DEFAULT_MS,
                tools: [0; 8],
                continues: None,
                sayings: vec![saying],
                at: usize::MAX,
                code: String::new(),
            },
        );
        block.is_closed = true;
        block.result = Some(json!({"status": "success"}));
        Item::Block(Box::new(block))
    }
}
