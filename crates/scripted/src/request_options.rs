//! The parameters of a request that shape the reply.

use serde_json::{Map, Value};

use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::given;

pub(crate) struct RequestOptions<'a> {
    pub(crate) mode: ReplyMode,
    pub(crate) usage_chunk: UsageChunk,
    /// The number of choices.
    pub(crate) n: usize,
    pub(crate) tokens_max: Option<usize>,
    pub(crate) stop: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// One JSON document.
    Whole,
    /// Server-sent events.
    Stream,
}

/// Whether a Chat Completions stream ends with a chunk that has the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageChunk {
    Sent,
    Omitted,
}

/// Reads `stream`.
pub(crate) fn reply_mode(request: &Map<String, Value>) -> Result<ReplyMode, ProviderFailure> {
    Ok(if flag(request, "stream")? { ReplyMode::Stream } else { ReplyMode::Whole })
}

/// Reads a boolean. Errors have the wording of `OpenAI`'s API.
pub(crate) fn flag(request: &Map<String, Value>, name: &str) -> Result<bool, ProviderFailure> {
    match given(request, name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(ProviderFailure::wrong_type(name.into(), "a boolean", other)),
    }
}

/// Reads an integer from 1. Errors have the wording of `OpenAI`'s API.
pub(crate) fn positive_integer(
    request: &Map<String, Value>,
    name: &str,
    max: u64,
) -> Result<Option<usize>, ProviderFailure> {
    given(request, name).map(|value| positive(name, value, max)).transpose()
}

fn positive(name: &str, value: &Value, max: u64) -> Result<usize, ProviderFailure> {
    if !value.is_i64() && !value.is_u64() {
        return Err(ProviderFailure::wrong_type(name.into(), "an integer", value));
    }
    let (side, bound, code) = match value.as_u64() {
        Some(number) if number > max => ("above maximum", format!("<= {max}"), "integer_above_max_value"),
        Some(number) if number > 0 => return Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => ("below minimum", ">= 1".into(), "integer_below_min_value"),
    };
    let message = format!("Invalid '{name}': integer {side} value. Expected a value {bound}, but got {value} instead.");
    Err(ProviderFailure::invalid(message, Some(name.into())).with_code(code))
}
