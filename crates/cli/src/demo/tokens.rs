//! Tokens of a model call, and what a conversation adds up to.

use serde::Serialize;
use serde_json::Value;

/// Tokens of a text, as o200k has them.
pub(crate) fn count(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}

/// What one way of calling tools costs over a whole conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cost {
    pub model_calls: u64,
    /// Prompts, summed over all model calls.
    pub context_tokens: u64,
    pub completion_tokens: u64,
}

impl Cost {
    pub(crate) fn plus(self, other: Cost) -> Cost {
        Cost {
            model_calls: self.model_calls + other.model_calls,
            context_tokens: self.context_tokens + other.context_tokens,
            completion_tokens: self.completion_tokens + other.completion_tokens,
        }
    }
}

/// A prompt that grows message by message, counted as the scripted model counts: its messages and its tools as JSON.
///
/// Counting a long history again at each call would take minutes. The text is cut before each message's `role`
/// instead: the brackets and quotes in front of a word are a piece of their own for the tokenizer, so the parts add up
/// to the whole.
pub(crate) struct Prompt {
    tools: usize,
    /// All messages but the last.
    before: usize,
    /// The last message, if others follow it.
    last_within: usize,
    /// The last message at the end of the list.
    last_at_end: usize,
}

const OPENING: &str = "{\"";

impl Prompt {
    pub(crate) fn new(tools: &[Value]) -> Prompt {
        let tools = count(&Value::from(tools).to_string());
        Prompt { tools, before: count(&format!("[{OPENING}")), last_within: 0, last_at_end: 0 }
    }

    /// Adds a message whose first key is `role`.
    pub(crate) fn push(&mut self, message: &Value) {
        let text = message.to_string();
        let body = text.strip_prefix(OPENING).filter(|body| body.starts_with("role\"")).expect("a message has a role");
        self.before += self.last_within;
        self.last_within = count(&format!("{body},{OPENING}"));
        self.last_at_end = count(&format!("{body}]"));
    }

    pub(crate) fn tokens(&self) -> u64 {
        (self.tools + self.before + self.last_at_end) as u64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Prompt, count};

    #[test]
    fn a_prompt_in_parts_has_as_many_tokens_as_the_whole() {
        let tools = vec![json!({"type": "function", "function": {"name": "f"}})];
        let contents = ["", "x", "It's", "12", "a b ", "\n", "/", "{\"a\":[1,2]}", "né\\", "”", "日本", "\"'ll", "'s"];
        let mut prompt = Prompt::new(&tools);
        let mut messages: Vec<Value> = Vec::new();
        for content in contents {
            let message = json!({"role": "tool", "content": content});
            prompt.push(&message);
            messages.push(message);
            let whole =
                count(&Value::from(messages.clone()).to_string()) + count(&Value::from(tools.clone()).to_string());
            assert_eq!(prompt.tokens(), whole as u64, "after {content:?}");
        }
    }
}
