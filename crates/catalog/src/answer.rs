//! Answers that came as text: whether they are JSON or just text.

use jsonschema::{JsonType, JsonTypeSet};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::{CompiledSchema, is_whole};
use crate::work::{OutOfBudget, WorkBudget};

/// What an answer that came as text is for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A value, as the JSON text that was found: nothing in it was rounded or reordered.
    Json(&'a str),
    /// The text itself.
    Text,
}

/// Without a schema, numbers count as JSON only as JavaScript would write them: `007` and `1e5` may be codes. A number that
/// is taken for text adds up to text in silence; text that is taken for a number fails loudly.
pub(crate) fn decode(text: &str) -> Decoded<'_> {
    let trimmed = text.trim();
    match json_kind(trimmed) {
        Some(JsonType::Integer | JsonType::Number) if !is_as_javascript_writes(trimmed) => Decoded::Text,
        Some(_) => Decoded::Json(trimmed),
        None => Decoded::Text,
    }
}

fn is_as_javascript_writes(number: &str) -> bool {
    /// JavaScript writes smaller numbers with an exponent.
    const PLAIN_MIN: f64 = 1e-6;
    const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
    let Ok(value) = number.parse::<f64>() else { return false };
    let size = value.abs();
    let is_plain = value == 0.0 || (PLAIN_MIN..=SAFE_INTEGER_MAX).contains(&size);
    // Both write the shortest digits that give the same number.
    is_plain && number != "-0" && value.to_string() == number
}

pub(crate) fn decode_as<'a>(
    schema: &CompiledSchema,
    text: &'a str,
    budget: &mut WorkBudget,
) -> Result<Decoded<'a>, OutOfBudget> {
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
            Some(kind) if kinds.contains(kind) => Decoded::Json(trimmed),
            _ => decode(text),
        });
    }
    if matches!(kind, Some(JsonType::Object | JsonType::Array))
        && let Ok(value) = serde_json::from_str(trimmed)
        && schema.is_valid(&value, budget)?
    {
        return Ok(Decoded::Json(trimmed));
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
