//! How much the model reads in a conversation, estimated: in code mode, and if it called the tools itself.

use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_wire::{ClientSide, EntryAuthor};
use serde_json::{Map, Value};

use super::explanation::ModelCalls;

/// Stands for a tool-call id of a provider.
const PROVIDER_ID_BYTES: usize = 30;

/// Every call of the model reads the request and all entries before its message.
pub(super) fn model_calls(client: ClientSide, request: &Map<String, Value>, history: &[Value]) -> ModelCalls {
    let mut bytes: usize = request.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
    let mut calls = ModelCalls { model_calls: 0, tokens: 0, tokens_last: 0 };
    let mut ask = |bytes: usize| {
        let tokens = (bytes / BYTES_PER_TOKEN) as u64;
        calls = ModelCalls { model_calls: calls.model_calls + 1, tokens: calls.tokens + tokens, tokens_last: tokens };
    };
    let mut was_model = false;
    for entry in history {
        let is_model = client.entry_author(entry) != EntryAuthor::Client;
        if is_model && !was_model {
            ask(bytes);
        }
        was_model = is_model;
        bytes += entry_bytes(entry);
    }
    if !was_model {
        ask(bytes);
    }
    calls
}

/// The size of an entry. Our ids are longer than those of a provider, which a model does not read more of.
fn entry_bytes(entry: &Value) -> usize {
    let text = entry.to_string();
    let is_of_id = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let ids = text
        .match_indices("\"dc1_")
        .map(|(at, _)| text.as_bytes()[at + 1..].iter().take_while(|b| is_of_id(b)).count());
    text.len() - ids.map(|bytes| bytes.saturating_sub(PROVIDER_ID_BYTES)).sum::<usize>()
}
