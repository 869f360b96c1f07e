//! Checks of values that Chat Completions and Responses share, with `OpenAI`'s error messages.

use serde_json::{Map, Value};

use crate::provider_failure::ProviderFailure;

pub(crate) fn text(value: Option<&Value>, path: impl Fn() -> String) -> Result<&str, ProviderFailure> {
    match value {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(ProviderFailure::missing(path())),
        Some(other) => Err(ProviderFailure::wrong_type(path(), "a string", other)),
    }
}

pub(crate) fn short(
    value: Option<&Value>,
    chars_max: usize,
    path: impl Fn() -> String,
) -> Result<&str, ProviderFailure> {
    let id = text(value, &path)?;
    let length = id.chars().count();
    if length <= chars_max {
        return Ok(id);
    }
    let path = path();
    let message = format!(
        "Invalid '{path}': string too long. Expected a string with maximum length {chars_max}, but got a string with length {length} instead."
    );
    Err(ProviderFailure::invalid(message, Some(path)).with_code("string_above_max_length"))
}

/// The request as an object.
pub(crate) fn object(request: &Value) -> Result<&Map<String, Value>, ProviderFailure> {
    request.as_object().ok_or_else(|| {
        let message = "We could not parse the JSON body of your request. The API expects a JSON object.";
        ProviderFailure::invalid(message, None)
    })
}

pub(crate) fn one_of(value: &str, known: &[&str], path: String) -> Result<(), ProviderFailure> {
    if known.contains(&value) {
        return Ok(());
    }
    let mut supported: Vec<_> = known.iter().map(|name| format!("'{name}'")).collect();
    if let Some(last) = supported.last_mut() {
        *last = format!("and {last}");
    }
    let message = format!("Invalid value: '{value}'. Supported values are: {}.", supported.join(", "));
    Err(ProviderFailure::invalid(message, Some(path)).with_code("invalid_value"))
}
