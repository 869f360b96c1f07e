//! Writing JSON: the same bytes as `serde_json` writes, in less time.

use std::fmt::Write;

use serde_json::Value;

/// The JSON of a value.
///
/// ```
/// assert_eq!(dacapo_replay::json_text(&serde_json::json!({"a": ["\n", 1.5]})), r#"{"a":["\n",1.5]}"#);
/// ```
pub fn json_text(value: &Value) -> String {
    // A history of a megabyte would be moved a dozen times while it grows.
    let mut json = String::with_capacity(json_size(value));
    write_json(&mut json, value);
    json
}

/// About as many bytes as the JSON of a value has; texts with very many escapes have more.
pub fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + text.len() / 8 + 3,
        Value::Array(values) => values.iter().map(json_size).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum::<usize>() + 2,
    }
}

/// As many bytes as a text has as JSON.
pub(crate) fn json_string_size(text: &str) -> usize {
    // In chunks, so that bytes are enough to count with: many of them are added with one instruction.
    const CHUNK_BYTES: usize = 32;
    let added = |chunk: &[u8]| usize::from(chunk.iter().map(|byte| bytes_added(*byte)).sum::<u8>());
    text.len() + text.as_bytes().chunks(CHUNK_BYTES).map(added).sum::<usize>() + 2
}

/// What escaping adds to a byte: most escapes have two bytes, and those of rare control characters six.
fn bytes_added(byte: u8) -> u8 {
    let is_rare = byte < 0x20 && !matches!(byte, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c);
    u8::from(is_escaped(byte)) + 4 * u8::from(is_rare)
}

/// Appends the JSON of a value.
pub fn write_json(json: &mut String, value: &Value) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(true) => json.push_str("true"),
        Value::Bool(false) => json.push_str("false"),
        Value::Number(number) => write!(json, "{number}").expect("a string takes everything"),
        Value::String(text) => write_json_string(json, text),
        Value::Array(values) => {
            json.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write_json(json, value);
            }
            json.push(']');
        }
        Value::Object(fields) => {
            json.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write_json_string(json, key);
                json.push(':');
                write_json(json, value);
            }
            json.push('}');
        }
    }
}

/// Appends a text as JSON, in quotation marks.
pub fn write_json_string(json: &mut String, text: &str) {
    json.push('"');
    write_escaped(json, text);
    json.push('"');
}

/// Appends a text as JSON, without quotation marks.
pub(crate) fn write_escaped(json: &mut String, text: &str) {
    let mut written = 0;
    while let Some(at) = next_escaped(text.as_bytes(), written) {
        json.push_str(&text[written..at]);
        write_escape(json, text.as_bytes()[at]);
        written = at + 1;
    }
    json.push_str(&text[written..]);
}

/// Where the next byte is that has to be escaped, from here on.
fn next_escaped(text: &[u8], from: usize) -> Option<usize> {
    let (words, rest) = text[from..].as_chunks::<8>();
    for (at, word) in (from..).step_by(8).zip(words) {
        let marks = marks_of_escaped(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
    }
    rest.iter().position(|byte| is_escaped(*byte)).map(|at| text.len() - rest.len() + at)
}

/// Sets the highest bit of the first byte that has to be escaped, and perhaps of bytes after it: subtracting may borrow from
/// the next byte. What is below a limit has its highest bit set after subtracting that, unless it was set before.
fn marks_of_escaped(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let below = |word: u64, limit: u8| word.wrapping_sub(EACH * u64::from(limit)) & !word;
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    (below(word, 0x20) | is(b'"') | is(b'\\')) & (EACH * 0x80)
}

fn write_escape(json: &mut String, byte: u8) {
    match byte {
        b'"' => json.push_str("\\\""),
        b'\\' => json.push_str("\\\\"),
        b'\n' => json.push_str("\\n"),
        b'\r' => json.push_str("\\r"),
        b'\t' => json.push_str("\\t"),
        0x08 => json.push_str("\\b"),
        0x0c => json.push_str("\\f"),
        control => write!(json, "\\u{control:04x}").expect("a string takes everything"),
    }
}

fn is_escaped(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let text = || prop_oneof!["\\PC{0,100}", "[a-z \"\\\\\u{0}-\u{20}\u{7f}é😀]{0,100}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec((text(), inner), 0..8)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_written_as_serde_json_writes_it(value in any_value()) {
            prop_assert_eq!(json_text(&value), serde_json::to_string(&value).unwrap());
        }
    }

    #[test]
    fn an_escape_is_found_wherever_it_stands() {
        let escaped: Vec<char> = (0..0x80_u8).filter(|byte| is_escaped(*byte)).map(char::from).collect();
        for length in [0, 1, 7, 8, 9, 15, 16, 31, 32, 33] {
            for at in 0..=length {
                for escape in &escaped {
                    let text = format!("{}{escape}{}", "x".repeat(at), "x".repeat(length - at));
                    assert_eq!(json_text(&json!(text)), serde_json::to_string(&text).unwrap());
                }
                let among_others = format!("{}\"{}\n", "é".repeat(at), "\u{7f}😀".repeat(length - at));
                assert_eq!(json_text(&json!(among_others)), serde_json::to_string(&among_others).unwrap());
            }
        }
    }

    #[test]
    fn the_size_of_a_text_is_known_before_it_is_written() {
        for text in [
            "",
            "x",
            "a \"quoted\" text\n",
            &"{\"id\": 1}\n".repeat(1_000),
            &"é\\".repeat(99),
            "\u{0}\u{8}\t\n\u{b}\u{c}\r\u{1f} ",
        ] {
            assert_eq!(json_string_size(text), json_text(&json!(text)).len());
        }
    }
}
