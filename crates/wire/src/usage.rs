//! Tokens that a request used.
//!
//! Agents take `usage` for the size of their context, and compact by it. It is that of the turn's last model call,
//! therefore, and not the sum over all of them, which stands under `dacapo` for billing.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::wire::{ClientSide, ProviderSide};

/// Tokens of the model's responses in a request, as its provider reports them, and our own figures.
#[derive(Debug, Clone, Default)]
pub struct TurnUsage {
    /// Over all model calls.
    sum: Map<String, Value>,
    /// Of the last model call that reported it.
    last: Map<String, Value>,
    /// The context of the program that goes on, for a turn without a model call.
    pub carried: Option<ContextTokens>,
    /// How often a model was asked.
    pub model_calls: u64,
    /// Programs that ran, or went on.
    pub programs: u64,
    /// Rounds of calls to the client.
    pub rounds: u64,
    /// Calls of programs, whoever executes them.
    pub calls: u64,
    /// Of these, calls that the gateway executed itself.
    pub mcp_calls: u64,
    /// Of tool results that the model did not have to read, estimated.
    pub tokens_kept_out: u64,
}

/// Tokens that a model read in one call: the size of its context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextTokens {
    /// All tokens of the prompt, cached ones included.
    pub input: u64,
    /// Of these, read from a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
    /// Of these, written to a cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_written: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &u64) -> bool {
    *number == 0
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

/// A figure of a provider's usage, by its field, or by its object and field; 0 if it is not there.
pub(crate) fn usage_count(usage: &Map<String, Value>, (field, detail): (&str, Option<&str>)) -> u64 {
    let value = usage.get(field).and_then(|value| detail.map_or(Some(value), |detail| value.get(detail)));
    value.and_then(Value::as_u64).unwrap_or_default()
}

impl From<TokenCounts> for ContextTokens {
    fn from(TokenCounts { input, cached, cache_written, .. }: TokenCounts) -> ContextTokens {
        ContextTokens { input, cached, cache_written }
    }
}

impl From<ContextTokens> for TokenCounts {
    fn from(ContextTokens { input, cached, cache_written }: ContextTokens) -> TokenCounts {
        TokenCounts { input, cached, cache_written, ..TokenCounts::default() }
    }
}

impl TurnUsage {
    /// Adds a model call, with the usage that its provider reports.
    pub fn add(&mut self, usage: Option<&Value>) {
        self.model_calls += 1;
        if let Some(Value::Object(usage)) = usage {
            add(&mut self.sum, usage);
            self.last.clone_from(usage);
        }
    }

    /// What the model has read in the last call; `None` if its provider does not say.
    pub fn context(&self, provider: ProviderSide) -> Option<ContextTokens> {
        if self.last.is_empty() { self.carried } else { Some(provider.0.read_usage(&self.last).into()) }
    }

    /// The fields of `usage` on the client's wire, with the sums and our own figures under `dacapo`.
    pub(crate) fn for_client(&self, client: ClientSide, provider: ProviderSide) -> Map<String, Value> {
        let is_same_wire = client.wire() == provider.wire();
        let mut usage = match self.carried {
            Some(context) if self.last.is_empty() => client.0.write_usage(context.into()),
            _ if is_same_wire => self.last_with_summed_output(provider),
            _ => {
                let last = provider.0.read_usage(&self.last);
                let TokenCounts { output, reasoning, .. } = provider.0.read_usage(&self.sum);
                client.0.write_usage(TokenCounts { output, reasoning, ..last })
            }
        };
        for (key, zero) in client.0.write_usage(TokenCounts::default()) {
            usage.entry(key).or_insert(zero);
        }
        usage.insert("dacapo".to_owned(), self.ours(provider));
        usage
    }

    /// The provider's own fields: of the last call what it says about the input, and the sum of everything else.
    fn last_with_summed_output(&self, provider: ProviderSide) -> Map<String, Value> {
        if self.model_calls < 2 {
            return self.last.clone();
        }
        let is_input = |key: &str| ["prompt", "input", "cache"].iter().any(|start| key.starts_with(start));
        let mut usage = self.sum.clone();
        usage.retain(|key, value| match self.last.get(key) {
            Some(last) if is_input(key) => {
                value.clone_from(last);
                true
            }
            last => last.is_some() || !is_input(key),
        });
        if usage.contains_key("total_tokens") {
            let TokenCounts { input, output, .. } = provider.0.read_usage(&usage);
            usage.insert("total_tokens".to_owned(), json!(input.saturating_add(output)));
        }
        usage
    }

    /// Tokens that the model read and wrote, in all its responses together.
    pub fn tokens(&self, provider: ProviderSide) -> (u64, u64) {
        let TokenCounts { input, output, .. } = provider.0.read_usage(&self.sum);
        (input, output)
    }

    /// Sums over all model calls of the request, and what its programs did.
    pub fn ours(&self, provider: ProviderSide) -> Value {
        let sum = provider.0.read_usage(&self.sum);
        let mut ours = json!({
            "model_calls": self.model_calls,
            "input_tokens": sum.input,
            "cached_tokens": sum.cached,
            "cache_written_tokens": sum.cache_written,
            "output_tokens": sum.output,
            "programs": self.programs,
            "rounds": self.rounds,
            "calls": self.calls,
            "tokens_kept_out": self.tokens_kept_out,
        });
        if self.mcp_calls > 0 {
            ours["mcp_calls"] = json!(self.mcp_calls);
        }
        ours
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
