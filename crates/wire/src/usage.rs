//! Tokens that a request used.

use serde_json::{Map, Value, json};

use crate::wire::{ClientSide, ProviderSide};

/// Tokens of all the model's responses in a request, as its provider reports them, and our own figures.
#[derive(Debug, Clone, Default)]
pub struct TurnUsage {
    pub(crate) sum: Map<String, Value>,
    pub model_calls: u64,
    pub programs: u64,
    pub rounds: u64,
    pub calls: u64,
    /// Of tool results that the model did not have to read, estimated.
    pub tokens_kept_out: u64,
}

/// Tokens, whatever the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TokenCounts {
    /// All that the model read.
    pub input: u64,
    /// Of these, read from a cache.
    pub cached: u64,
    /// Of these, written to a cache.
    pub cache_written: u64,
    pub output: u64,
    /// Of these, reasoning.
    pub reasoning: u64,
}

impl TurnUsage {
    pub fn add(&mut self, usage: Option<&Value>) {
        self.model_calls += 1;
        if let Some(Value::Object(usage)) = usage {
            add(&mut self.sum, usage);
        }
    }

    /// The fields of `usage` on the client's wire, with our own figures under `dacapo`.
    pub(crate) fn for_client(&self, client: ClientSide, provider: ProviderSide) -> Map<String, Value> {
        let mut usage = if client.wire() == provider.wire() {
            self.sum.clone()
        } else {
            client.0.write_usage(provider.0.read_usage(&self.sum))
        };
        for (key, zero) in client.0.write_usage(TokenCounts::default()) {
            usage.entry(key).or_insert(zero);
        }
        usage.insert("dacapo".to_owned(), self.ours());
        usage
    }

    pub fn ours(&self) -> Value {
        json!({
            "model_calls": self.model_calls,
            "programs": self.programs,
            "rounds": self.rounds,
            "calls": self.calls,
            "tokens_kept_out": self.tokens_kept_out,
        })
    }
}

fn add(sum: &mut Map<String, Value>, usage: &Map<String, Value>) {
    for (key, value) in usage {
        match (sum.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => add(known, more),
            (Some(known), Value::Number(_)) => *known = added(known, value),
            _ => _ = sum.insert(key.clone(), value.clone()),
        }
    }
}

fn added(a: &Value, b: &Value) -> Value {
    match (a.as_u64(), b.as_u64()) {
        (Some(a), Some(b)) => json!(a.saturating_add(b)),
        _ => json!(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
    }
}
