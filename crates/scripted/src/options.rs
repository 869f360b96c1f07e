//! How a request wants to be answered.

use serde_json::{Map, Value};

use super::conversation::given;
use super::failure::Failure;

pub(super) struct Options {
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// How many choices.
    pub(super) n: usize,
    pub(super) tokens_max: Option<usize>,
    pub(super) stop: Vec<String>,
}

/// A flag, in the words of `OpenAI`'s API.
pub(super) fn flag(request: &Map<String, Value>, name: &str) -> Result<bool, Failure> {
    match given(request, name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(Failure::wrong_type(name.into(), "a boolean", other)),
    }
}

/// A whole number from 1, in the words of `OpenAI`'s API.
pub(super) fn whole(request: &Map<String, Value>, name: &str, max: u64) -> Result<Option<usize>, Failure> {
    given(request, name).map(|value| positive(name, value, max)).transpose()
}

fn positive(name: &str, value: &Value, max: u64) -> Result<usize, Failure> {
    if !value.is_i64() && !value.is_u64() {
        return Err(Failure::wrong_type(name.into(), "an integer", value));
    }
    let (side, bound, code) = match value.as_u64() {
        Some(number) if number > max => ("above maximum", format!("<= {max}"), "integer_above_max_value"),
        Some(number) if number > 0 => return Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => ("below minimum", ">= 1".into(), "integer_below_min_value"),
    };
    let message = format!("Invalid '{name}': integer {side} value. Expected a value {bound}, but got {value} instead.");
    Err(Failure::invalid(message, Some(name.into())).with_code(code))
}
