//! Answers that came as text: whether they are JSON or just text.

use jsonschema::{JsonType, JsonTypeSet};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::{CompiledSchema, is_whole};
use crate::work::{OutOfBudget, WorkBudget};

/// What an answer that came as text is for the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// A value, as the JSON text that was found: nothing in it was rounded or reordered.
    Json(String),
    /// The text itself.
    Text,
}

/// Without a schema only objects, arrays and quoted strings count as JSON: a page that says `42`
/// is a page.
pub(crate) fn decode(text: &str) -> Decoded {
    let trimmed = text.trim();
    match json_kind(trimmed) {
        Some(JsonType::Object | JsonType::Array | JsonType::String) => Decoded::Json(trimmed.to_owned()),
        _ => Decoded::Text,
    }
}

pub(crate) fn decode_as(schema: &CompiledSchema, text: &str, budget: &mut WorkBudget) -> Result<Decoded, OutOfBudget> {
    let kinds = schema.kinds();
    if kinds == JsonTypeSet::all() {
        return Ok(decode(text));
    }
    if kinds == JsonTypeSet::from(JsonType::String) {
        return Ok(Decoded::Text);
    }
    let trimmed = text.trim();
    let kind = json_kind(trimmed);
    if !kinds.contains(JsonType::String) {
        return Ok(match kind {
            Some(kind) if kinds.contains(kind) => Decoded::Json(trimmed.to_owned()),
            _ => decode(text),
        });
    }
    if matches!(kind, Some(JsonType::Object | JsonType::Array))
        && let Ok(value) = serde_json::from_str(trimmed)
        && schema.is_valid(&value, budget)?
    {
        return Ok(Decoded::Json(trimmed.to_owned()));
    }
    if schema.is_valid(&Value::String(text.to_owned()), budget)? {
        return Ok(Decoded::Text);
    }
    Ok(decode(text))
}

/// The kind of value, if the text is JSON. A raw value is scanned without recursion, so deep
/// nesting costs no stack.
fn json_kind(text: &str) -> Option<JsonType> {
    serde_json::from_str::<&RawValue>(text).ok()?;
    Some(match text.as_bytes().first()? {
        b'{' => JsonType::Object,
        b'[' => JsonType::Array,
        b'"' => JsonType::String,
        b't' | b'f' => JsonType::Boolean,
        b'n' => JsonType::Null,
        _ if is_whole(text.parse().ok()) => JsonType::Integer,
        _ => JsonType::Number,
    })
}
