//! What every strict provider of `OpenAI`'s formats refuses, in the words of its API.

use serde_json::{Map, Value};

use super::failure::Failure;

pub(super) fn text(value: Option<&Value>, path: impl Fn() -> String) -> Result<&str, Failure> {
    match value {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(Failure::missing(path())),
        Some(other) => Err(Failure::wrong_type(path(), "a string", other)),
    }
}

pub(super) fn short(value: Option<&Value>, chars_max: usize, path: impl Fn() -> String) -> Result<&str, Failure> {
    let id = text(value, &path)?;
    let length = id.chars().count();
    if length <= chars_max {
        return Ok(id);
    }
    let path = path();
    let message = format!(
        "Invalid '{path}': string too long. Expected a string with maximum length {chars_max}, but got a string with length {length} instead."
    );
    Err(Failure::invalid(message, Some(path)).with_code("string_above_max_length"))
}

/// A request that is an object.
pub(super) fn object(request: &Value) -> Result<&Map<String, Value>, Failure> {
    request.as_object().ok_or_else(|| {
        let message = "We could not parse the JSON body of your request. The API expects a JSON object.";
        Failure::invalid(message, None)
    })
}

pub(super) fn one_of(value: &str, known: &[&str], path: String) -> Result<(), Failure> {
    if known.contains(&value) {
        return Ok(());
    }
    let mut supported: Vec<_> = known.iter().map(|name| format!("'{name}'")).collect();
    if let Some(last) = supported.last_mut() {
        *last = format!("and {last}");
    }
    let message = format!("Invalid value: '{value}'. Supported values are: {}.", supported.join(", "));
    Err(Failure::invalid(message, Some(path)).with_code("invalid_value"))
}
