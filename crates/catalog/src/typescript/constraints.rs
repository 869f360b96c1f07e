use serde_json::{Map, Value};

use super::comment::{cut, one_line};
use super::kinds::Kinds;

/// A pattern or a default longer than this is cut.
const VALUE_BYTES_MAX: usize = 60;
/// The largest whole number that JavaScript counts to exactly: as a bound it says nothing.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// What the schema says in words, and what it demands that no type can say.
pub(super) fn words(fields: &Map<String, Value>, title: Title, kinds: Kinds) -> String {
    let mut words = fields.get("description").and_then(Value::as_str).map(one_line).unwrap_or_default();
    if words.is_empty()
        && let Some(text) = fields.get("title").and_then(Value::as_str)
        && title.adds_to_name(text)
    {
        words = one_line(text);
    }
    let constraints = constraints(fields, kinds);
    match (words.is_empty(), constraints.is_empty()) {
        (_, true) => words,
        (true, false) => constraints,
        (false, false) => format!("{words} ({constraints})"),
    }
}

/// Where the title of a schema stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Title<'a> {
    /// On a property, whose name most titles only repeat.
    OfProperty(&'a str),
    /// Where the words around it say what it would.
    Redundant,
}

impl Title<'_> {
    fn adds_to_name(self, title: &str) -> bool {
        let letters = |text: &str| -> String {
            text.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        match self {
            Title::OfProperty(name) => letters(name) != letters(title),
            Title::Redundant => false,
        }
    }
}

fn constraints(fields: &Map<String, Value>, kinds: Kinds) -> String {
    let mut found = Vec::new();
    let declares_integers = match fields.get("type") {
        Some(Value::Array(names)) => names.iter().any(|name| name == "integer"),
        Some(name) => name == "integer",
        None => false,
    };
    if declares_integers && !fields.contains_key("enum") && !fields.contains_key("const") {
        found.push("integer".to_owned());
    }
    for (keyword, value) in fields {
        let told = match (keyword.as_str(), value) {
            ("minimum" | "maximum", Value::Number(bound)) if is_technical(bound.as_f64()) => None,
            ("minimum", Value::Number(bound)) => Some(format!("min {bound}")),
            ("maximum", Value::Number(bound)) => Some(format!("max {bound}")),
            ("exclusiveMinimum", Value::Number(bound)) => Some(format!("> {bound}")),
            ("exclusiveMaximum", Value::Number(bound)) => Some(format!("< {bound}")),
            ("multipleOf", Value::Number(step)) => Some(format!("multiple of {step}")),
            ("minLength" | "minItems" | "minProperties", Value::Number(bound)) if bound.as_u64() == Some(0) => None,
            ("minItems" | "maxItems", _) if fields.contains_key("prefixItems") => None,
            (
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties",
                Value::Number(bound),
            ) => Some(format!("{keyword} {bound}")),
            ("uniqueItems", Value::Bool(true)) => Some("unique".to_owned()),
            ("format", Value::String(name)) if kinds.contains(Kinds::STRING) => Some(format!("format {}", short(name))),
            ("pattern", Value::String(pattern)) => Some(format!("pattern {}", short(pattern))),
            ("contentEncoding", Value::String(name)) => Some(short(name)),
            ("propertyNames", Value::Object(names)) => {
                names.get("pattern").and_then(Value::as_str).map(|pattern| format!("keys match {}", short(pattern)))
            }
            ("patternProperties", Value::Object(patterns)) if !patterns.is_empty() => {
                let patterns: Vec<String> = patterns.keys().take(3).map(|pattern| short(pattern)).collect();
                Some(format!("keys match {}", patterns.join(" or ")))
            }
            ("default", Value::Null) => None,
            ("default", value) => default(value),
            ("deprecated", Value::Bool(true)) => Some("deprecated".to_owned()),
            _ => None,
        };
        found.extend(told);
    }
    found.join(", ")
}

/// Bounds that a generator wrote for all whole numbers.
fn is_technical(bound: Option<f64>) -> bool {
    bound.is_some_and(|bound| bound.abs() >= SAFE_INTEGER_MAX)
}

/// Longer defaults are left out: half a value helps nobody.
fn default(value: &Value) -> Option<String> {
    if let Value::Array(_) | Value::Object(_) = value
        && crate::schema::is_deeper_than(value, 4)
    {
        return None;
    }
    let text = value.to_string();
    (text.len() <= VALUE_BYTES_MAX).then(|| format!("default {}", one_line(&text)))
}

fn short(text: &str) -> String {
    cut(&one_line(text), VALUE_BYTES_MAX)
}
