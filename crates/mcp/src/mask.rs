//! Replaces configured secrets by `***` wherever a server echoes them.

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

const MASK: &str = "***";
/// Shorter pieces of base64 would be found in other people's data.
const BASE64_BYTES_MIN: usize = 8;
/// Shorter lines of a secret, such as a brace, would be found in everything.
const LINE_BYTES_MIN: usize = 12;

/// Finds secrets as they are, and as they are commonly encoded: in URLs, in JSON, in base64.
#[derive(Debug)]
pub(crate) struct Mask {
    forms: Option<(AhoCorasick, Vec<&'static str>)>,
}

impl Mask {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Mask {
        // Keys in several lines are often shown line by line.
        let with_lines = |secret: &'a str| {
            let lines =
                secret.lines().map(str::trim).filter(move |line| *line != secret && line.len() >= LINE_BYTES_MIN);
            std::iter::once(secret).chain(lines)
        };
        let mut forms: Vec<String> = secrets.into_iter().flat_map(with_lines).flat_map(forms).collect();
        forms.sort_unstable();
        forms.dedup();
        if forms.is_empty() {
            return Mask { forms: None };
        }
        let searcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms);
        let searcher = searcher.expect("a configuration file is far smaller than what the searcher can hold");
        Mask { forms: Some((searcher, vec![MASK; forms.len()])) }
    }

    pub(crate) fn text(&self, text: String) -> String {
        match &self.forms {
            Some((searcher, masks)) if searcher.is_match(&text) => searcher.replace_all(&text, masks),
            _ => text,
        }
    }

    /// Masks every string in the value, names included.
    pub(crate) fn value(&self, value: &mut Value) {
        if self.forms.is_none() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => *text = self.text(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    self.value(&mut value);
                    (self.text(name), value)
                });
                *fields = masked.collect::<Map<_, _>>();
            }
        }
    }
}

fn forms(secret: &str) -> Vec<String> {
    let json = Value::from(secret).to_string();
    let mut forms = vec![secret.to_owned(), percent_encoded(secret), json[1..json.len() - 1].to_owned()];
    // Inside longer base64 a secret begins at any of three places of a group, and its edges mix with its neighbours.
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret.as_bytes());
        let first = (before * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        if first < end && end - first >= BASE64_BYTES_MIN {
            forms.extend(
                [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
                    .map(|text| text[first..end].to_owned()),
            );
        }
    }
    forms
}

fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
