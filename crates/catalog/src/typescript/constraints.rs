//! What TypeScript cannot express of a schema, as words for a comment: bounds, patterns, formats, defaults.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde_json::{Map, Number, Value};

use super::comment::{cut, one_line};
use super::keywords::Keywords;
use super::kinds::Kinds;

/// A pattern or a default longer than this is cut.
const VALUE_BYTES_MAX: usize = 60;
/// The largest whole number that JavaScript counts to exactly: as a bound it says nothing.
const SAFE_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// The schema's description, and the constraints that no type can express.
pub(super) fn words<'s>(
    fields: &Map<String, Value>,
    keywords: &Keywords<'s>,
    title: Title,
    kinds: Kinds,
) -> Cow<'s, str> {
    let mut words = keywords.description.and_then(Value::as_str).map(one_line).unwrap_or_default();
    if words.is_empty()
        && let Some(text) = keywords.title.and_then(Value::as_str)
        && title.adds_to_name(text)
    {
        words = one_line(text);
    }
    // A comment ends by itself, and constraints may follow.
    if words.ends_with('.') && !words.ends_with("..") {
        match &mut words {
            Cow::Borrowed(text) => *text = &text[..text.len() - 1],
            Cow::Owned(text) => text.truncate(text.len() - 1),
        }
    }
    let is_integer = is_integer(keywords);
    if !is_integer && !keywords.has_others {
        return words;
    }
    let mut constraints = Constraints { described: &words, lower_case: OnceCell::new(), found: String::new() };
    if is_integer && !constraints.described().contains("integer") {
        constraints.add("integer");
    }
    if keywords.has_others {
        constraints.read(fields, kinds);
    }
    let found = constraints.found;
    match (words.is_empty(), found.is_empty()) {
        (_, true) => words,
        (true, false) => Cow::Owned(found),
        (false, false) => Cow::Owned([&words, "; ", &found].concat()),
    }
}

/// Where the title of a schema stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Title<'a> {
    /// On a property, whose name most titles only repeat.
    OfProperty(&'a str),
    /// Left out, because the surrounding words say the same.
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

/// Puts the constraints together. What the description says already is left out: each word costs tokens.
struct Constraints<'a> {
    described: &'a str,
    lower_case: OnceCell<String>,
    found: String,
}

impl Constraints<'_> {
    /// The description in lower case.
    fn described(&self) -> &str {
        self.lower_case.get_or_init(|| self.described.to_lowercase())
    }

    fn add(&mut self, words: &str) {
        if !self.found.is_empty() {
            self.found.push_str(", ");
        }
        self.found.push_str(words);
    }

    fn read(&mut self, fields: &Map<String, Value>, kinds: Kinds) {
        for (keyword, value) in fields {
            let words = match (keyword.as_str(), value) {
                ("minimum" | "maximum", Value::Number(bound)) if is_technical(bound.as_f64()) => None,
                ("minimum", Value::Number(bound)) if is_set(fields, "exclusiveMinimum") => Some(format!("> {bound}")),
                ("maximum", Value::Number(bound)) if is_set(fields, "exclusiveMaximum") => Some(format!("< {bound}")),
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
                ("format", Value::String(name)) if self.described().contains(&name.to_lowercase()) => None,
                ("format", Value::String(name)) if kinds.contains(Kinds::STRING) => {
                    Some(format!("format {}", short(name)))
                }
                ("pattern", Value::String(pattern)) => Some(format!("pattern {}", short(pattern))),
                ("contentEncoding", Value::String(name)) => Some(short(name)),
                ("propertyNames", Value::Object(names)) => {
                    names.get("pattern").and_then(Value::as_str).map(|pattern| format!("keys match {}", short(pattern)))
                }
                ("patternProperties", Value::Object(patterns)) if !patterns.is_empty() => {
                    let patterns: Vec<String> = patterns.keys().take(3).map(|pattern| short(pattern)).collect();
                    Some(format!("keys match {}", patterns.join(" or ")))
                }
                ("default", value) if is_nothing(value) || tells_default(self.described(), value) => None,
                ("default", value) => default(value),
                ("deprecated", Value::Bool(true)) => Some("deprecated".to_owned()),
                _ => None,
            };
            if let Some(words) = words {
                self.add(&words);
            }
        }
    }
}

/// Whether numbers must be whole, and the values themselves do not say so.
fn is_integer(keywords: &Keywords) -> bool {
    let is_named = match keywords.types {
        Some(Value::String(name)) => name == "integer",
        Some(Value::Array(names)) => {
            names.iter().any(|name| name == "integer") && !names.iter().any(|name| name == "number")
        }
        _ => false,
    };
    is_named && keywords.constant.is_none() && keywords.enumeration.is_none()
}

/// In draft 4 a flag excludes the bound.
fn is_set(fields: &Map<String, Value>, flag: &str) -> bool {
    fields.get(flag) == Some(&Value::Bool(true))
}

/// Bounds that a generator wrote for all whole numbers.
fn is_technical(bound: Option<f64>) -> bool {
    bound.is_some_and(|bound| bound.abs() >= SAFE_INTEGER_MAX)
}

/// Defaults that are the same as leaving the property out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Does the description name this value and call it the default?
fn tells_default(described: &str, value: &Value) -> bool {
    // Shorter texts, and numbers, may stand there for something else.
    const TELLING_BYTES_MIN: usize = 4;
    let text = match value {
        Value::String(text) => text.to_lowercase(),
        Value::Number(number) => written(number),
        Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return false,
    };
    let is_after = |at: usize| described[at..].contains(&text);
    let is_anywhere = || value.is_string() && text.len() >= TELLING_BYTES_MIN && described.contains(&text);
    !text.is_empty() && described.find("default").is_some_and(|at| is_after(at) || is_anywhere())
}

/// The number as JavaScript writes it: `10` for `10.0`.
fn written(number: &Number) -> String {
    let text = number.to_string();
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// Longer defaults are left out: a part of a value would be of no use.
fn default(value: &Value) -> Option<String> {
    if let Value::Array(_) | Value::Object(_) = value
        && crate::schema::is_deeper_than(value, 4)
    {
        return None;
    }
    let text = match value {
        // The type says that it is text; quotes would cost more than the word.
        Value::String(word) if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) => {
            word.clone()
        }
        Value::Number(number) => written(number),
        _ => value.to_string(),
    };
    (text.len() <= VALUE_BYTES_MAX).then(|| format!("default {}", one_line(&text)))
}

fn short(text: &str) -> String {
    cut(&one_line(text), VALUE_BYTES_MAX)
}
