//! One JSON value as text.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::journal::absorb;
use crate::json_writer::{json_string_size, json_text, write_json_string};

/// One JSON value, kept as text. The program parses the text itself, so that large integers and the order of keys
/// survive: nothing is read into numbers or maps on the way. Clones share the text, which may be large.
///
/// ```
/// use dacapo_replay::JsonText;
/// assert_eq!(JsonText::parse("[1, 18446744073709551616]").unwrap().as_str(), "[1, 18446744073709551616]");
/// assert_eq!(JsonText::from(serde_json::json!({"a": 1})).as_str(), r#"{"a":1}"#);
/// assert_eq!(JsonText::string("a \"b\"").as_str(), r#""a \"b\"""#);
/// assert_eq!(JsonText::parse("[1,"), None);
/// ```
#[derive(Debug, Clone)]
pub struct JsonText(Arc<Stored>);

#[derive(Debug)]
struct Stored {
    /// Of a string that was not given as JSON.
    string: Option<Box<str>>,
    /// Of such a string it is written when it is first asked for. Most answers of tools are strings, and only read by
    /// programs, which need none.
    json: OnceLock<String>,
    /// Bytes of the JSON, once they were counted.
    size: OnceLock<usize>,
}

impl JsonText {
    /// `None` if the text is not one JSON value.
    pub fn parse(text: impl Into<String>) -> Option<JsonText> {
        let text = text.into();
        serde_json::from_str::<&RawValue>(&text).is_ok().then(|| JsonText::written(text))
    }

    /// A JSON string that says this text.
    pub fn string(text: &str) -> JsonText {
        JsonText(Arc::new(Stored { string: Some(text.into()), json: OnceLock::new(), size: OnceLock::new() }))
    }

    fn written(json: String) -> JsonText {
        JsonText(Arc::new(Stored { string: None, json: OnceLock::from(json), size: OnceLock::new() }))
    }

    /// The JSON as it was given.
    pub fn as_str(&self) -> &str {
        self.0.json.get_or_init(|| {
            let text = self.0.string.as_deref().unwrap_or_default();
            let mut json = String::with_capacity(json_string_size(text));
            write_json_string(&mut json, text);
            json
        })
    }

    /// What it says, if it is a string.
    pub fn as_string(&self) -> Option<Cow<'_, str>> {
        match &self.0.string {
            Some(text) => Some(Cow::Borrowed(text)),
            None => serde_json::from_str(self.as_str()).ok().map(Cow::Owned),
        }
    }

    /// Bytes of the JSON.
    pub fn size(&self) -> usize {
        match (&self.0.string, self.0.json.get()) {
            (Some(text), None) => *self.0.size.get_or_init(|| json_string_size(text)),
            _ => self.as_str().len(),
        }
    }

    /// The handles of images and files in it. No part of a handle is ever escaped.
    pub(crate) fn handles(&self) -> Vec<&str> {
        crate::handles_in(self.0.string.as_deref().unwrap_or_else(|| self.as_str()))
    }

    /// Hashes it. A string is hashed by its text, whether it was given as text or as JSON, so that large answers of tools need
    /// not be escaped. JSON that spells it in another way than we do is another value: reading it may take other fuel.
    pub(crate) fn absorb_into(&self, hash: &mut Sha256) {
        let is_our_spelling = |text: &Cow<'_, str>| self.0.string.is_some() || JsonText::string(text) == *self;
        let text = self.as_string().filter(is_our_spelling);
        hash.update([u8::from(text.is_some())]);
        absorb(hash, Some(text.as_deref().unwrap_or_else(|| self.as_str())));
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &JsonText) -> bool {
        match (&self.0.string, &other.0.string) {
            (Some(text), Some(other)) => text == other,
            _ => self.as_str() == other.as_str(),
        }
    }
}

impl Eq for JsonText {}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> JsonText {
        match value {
            Value::String(text) => JsonText::string(text),
            value => JsonText::written(json_text(value)),
        }
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> JsonText {
        JsonText::from(&value)
    }
}

impl From<&RawValue> for JsonText {
    fn from(raw: &RawValue) -> JsonText {
        JsonText::written(raw.get().to_owned())
    }
}

/// Does some integer in valid JSON have more digits than a double can hold?
pub(crate) fn holds_big_integers(json: &str) -> bool {
    const DIGITS_MIN: usize = 16;
    const SAFE_INTEGER_MAX: u128 = (1 << 53) - 1;
    let mut rest = json.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'"' || byte.is_ascii_digit()) {
        rest = &rest[at..];
        let length = if rest[0] == b'"' {
            string_length(rest)
        } else {
            let number =
                rest.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')).count();
            let digits = std::str::from_utf8(&rest[..number]).unwrap_or_default();
            // What does not even fit into 128 bits does not fit into a double.
            if number >= DIGITS_MIN
                && digits.bytes().all(|byte| byte.is_ascii_digit())
                && !digits.parse().is_ok_and(|integer: u128| integer <= SAFE_INTEGER_MAX)
            {
                return true;
            }
            number
        };
        rest = &rest[length..];
    }
    false
}

/// Bytes of the string that begins here, quotes included.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(next) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if text[at + next] == b'"' {
            return at + next + 1;
        }
        at += next + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integers_beyond_a_double_are_big() {
        let big =
            ["9007199254740993", "[1, -12345678901234567890]", r#"{"a\\": 99999999999999999999999999999999999999999}"#];
        let small = [
            "9007199254740991",
            "0.12345678901234567",
            "1e400",
            "12345678901234567.5",
            r#""12345678901234567890""#,
            r#"["\"12345678901234567890"]"#,
        ];
        assert!(big.into_iter().all(holds_big_integers));
        assert!(!small.into_iter().any(holds_big_integers));
    }

    #[test]
    fn a_string_is_the_same_however_it_was_given() {
        let long = "a \"b\"\n\u{1b}[0m é 😀 ".repeat(1_000);
        for text in ["", "x", "\u{0}\u{8}\t\n\u{c}\r\u{1f}\"\\\u{7f}", &long] {
            let (given, parsed) = (JsonText::string(text), JsonText::parse(Value::from(text).to_string()).unwrap());
            let digest = |json: &JsonText| {
                let mut hash = Sha256::new();
                json.absorb_into(&mut hash);
                hash.finalize()
            };
            assert_eq!((given.size(), digest(&given)), (parsed.size(), digest(&parsed)));
            let spelled = JsonText::parse(format!("\"{}\\u0061\"", &parsed.as_str()[1..parsed.size() - 1])).unwrap();
            assert_ne!(digest(&spelled), digest(&JsonText::string(&format!("{text}a"))), "its JSON is longer");
            assert!(given.0.json.get().is_none(), "it is not written before it is needed");
            assert_eq!((given.as_string().as_deref(), parsed.as_string().as_deref()), (Some(text), Some(text)));
            assert_eq!(given, parsed);
            assert_eq!(given.as_str(), parsed.as_str());
        }
        assert_eq!(JsonText::parse("[1]").unwrap().as_string(), None);
    }
}
