//! Values that stand for themselves, as TypeScript writes them.

use serde_json::Value;

use super::comment::{cut, one_line};
use super::shape::{Literal, Object, OtherProperties, Presence, Property, Tuple, Type, TypeShape};
use crate::schema::is_deeper_than;

const VALUE_DEPTH_MAX: usize = 8;
const FIRST_FEW: usize = 12;

/// The type that only this value has.
pub(super) fn ty(value: &Value) -> Type<'_> {
    if is_deeper_than(value, VALUE_DEPTH_MAX) { Type::unknown() } else { Type::of(shape(value)) }
}

fn shape(value: &Value) -> TypeShape<'_> {
    match value {
        Value::Null => TypeShape::Null,
        Value::Bool(value) => TypeShape::Literal(Literal::Boolean(*value)),
        Value::Number(number) => TypeShape::Literal(Literal::Number(number.to_string())),
        Value::String(text) => TypeShape::Literal(Literal::String(quoted(text))),
        Value::Array(items) => {
            let items: Vec<Type> = items.iter().map(|item| Type::of(shape(item))).collect();
            TypeShape::Tuple(Tuple { required: items.len(), items, rest: None })
        }
        Value::Object(fields) => {
            let properties = fields.iter().map(|(name, value)| Property {
                name,
                presence: Presence::Required,
                value: Type::of(shape(value)),
            });
            TypeShape::Object(Object { properties: properties.collect(), rest: OtherProperties::Closed })
        }
    }
}

/// JSON's quotes are TypeScript's, but for two letters that end a line there; and what would end
/// a Markdown code block is written so that it does not.
pub(super) fn quoted(text: &str) -> String {
    // Most are of this kind.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'`')) {
        return ["\"", text, "\""].concat();
    }
    let json = Value::from(text).to_string();
    json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029").replace("```", "\\u0060\\u0060\\u0060")
}

/// A list of values that is too long to show.
pub(super) fn first_few(values: &[Value]) -> String {
    let shown = values.iter().filter(|value| !is_deeper_than(value, 1)).take(FIRST_FEW);
    let shown: Vec<String> = shown.map(|value| cut(&one_line(&value.to_string()), 40)).collect();
    format!("one of {} values: {}, …", values.len(), shown.join(", "))
}

/// The text with which a key must begin, where the pattern says no more than that.
pub(super) fn prefix(pattern: &str) -> Option<&str> {
    let prefix = pattern.strip_prefix('^')?;
    let prefix = prefix.strip_suffix(".*").unwrap_or(prefix);
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | ':' | '@' | '/');
    (!prefix.is_empty() && prefix.chars().all(is_plain)).then_some(prefix)
}
