//! Replaces configured secrets by `***` wherever a server echoes them.

mod escapes;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use crate::lock::lock;
use escapes::{source_ranges, unescape};

const MASK: &str = "***";
/// Shorter pieces of base64, and shorter texts that a secret with escapes in it stands for, would be found in other
/// people's data.
const FORM_BYTES_MIN: usize = 8;
/// Shorter lines of a secret, such as a brace, would be found in everything.
const LINE_BYTES_MIN: usize = 12;
/// Between the bytes of a secret in hexadecimal.
const HEX_SEPARATORS: [&str; 4] = ["", ":", " ", "-"];
/// How often a secret may be escaped: a URL in HTML in JSON is escaped three times. Each time costs one pass over the text.
const ESCAPE_LEVELS_MAX: usize = 3;

/// Finds secrets as they are, and as they are commonly encoded: in hexadecimal, in base64, and with escapes of URLs, HTML,
/// JSON and JavaScript, of which an encoder may use any for any character.
#[derive(Debug)]
pub(crate) struct Mask {
    /// Those that are known from the start, and the last few that were added.
    secrets: Mutex<MaskedSecrets>,
    searchers: RwLock<Option<Arc<SecretSearchers>>>,
}

#[derive(Debug)]
struct MaskedSecrets {
    fixed: Vec<String>,
    added: VecDeque<String>,
}

/// Tokens replace each other. Those before the last ones are of no use to anybody.
const ADDED_MAX: usize = 16;

#[derive(Debug)]
struct SecretSearchers {
    exact: AhoCorasick,
    /// In any case.
    hex: AhoCorasick,
    /// For text whose escapes were decoded.
    unescaped: AhoCorasick,
}

impl Mask {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Mask {
        let fixed: Vec<String> = secrets.into_iter().map(str::to_owned).collect();
        let searchers = SecretSearchers::new(fixed.iter().map(String::as_str)).map(Arc::new);
        let secrets = MaskedSecrets { fixed, added: VecDeque::new() };
        Mask { secrets: Mutex::new(secrets), searchers: RwLock::new(searchers) }
    }

    /// Masks a further secret from now on.
    pub(crate) fn add(&self, secret: &str) {
        let mut secrets = lock(&self.secrets);
        if secrets.added.iter().any(|known| known == secret) {
            return;
        }
        if secrets.added.len() == ADDED_MAX {
            secrets.added.pop_front();
        }
        secrets.added.push_back(secret.to_owned());
        let all = secrets.fixed.iter().chain(&secrets.added).map(String::as_str);
        let searchers = SecretSearchers::new(all).map(Arc::new);
        *self.searchers.write().unwrap_or_else(PoisonError::into_inner) = searchers;
    }

    fn searchers(&self) -> Option<Arc<SecretSearchers>> {
        self.searchers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn text(&self, text: String) -> String {
        match self.searchers() {
            Some(searchers) => searchers.mask(text),
            None => text,
        }
    }

    /// Masks every string in the value, names included.
    pub(crate) fn value(&self, value: &mut Value) {
        if let Some(searchers) = self.searchers() {
            searchers.mask_value(value);
        }
    }
}

impl SecretSearchers {
    /// `None` if there is nothing to search for.
    fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Option<SecretSearchers> {
        // Keys in several lines are often shown line by line.
        let with_lines = |secret: &'a str| {
            let lines =
                secret.lines().map(str::trim).filter(move |line| *line != secret && line.len() >= LINE_BYTES_MIN);
            std::iter::once(secret).chain(lines)
        };
        let mut secrets: Vec<&str> = secrets.into_iter().flat_map(with_lines).collect();
        secrets.sort_unstable();
        secrets.dedup();
        if secrets.is_empty() {
            return None;
        }
        let hex = secrets.iter().flat_map(|secret| HEX_SEPARATORS.map(|separator| hex(secret, separator)));
        Some(SecretSearchers {
            exact: searcher(secrets.iter().flat_map(|secret| exact_forms(secret)), CaseOf::Text),
            hex: searcher(hex, CaseOf::Hex),
            unescaped: searcher(secrets.iter().flat_map(|secret| unescaped_forms(secret)), CaseOf::Text),
        })
    }

    fn mask(&self, text: String) -> String {
        let ranges = self.find(&text);
        if ranges.is_empty() {
            return text;
        }
        let mut masked = String::with_capacity(text.len());
        let mut end = 0;
        for range in ranges {
            masked.push_str(&text[end..range.start]);
            masked.push_str(MASK);
            end = range.end;
        }
        masked.push_str(&text[end..]);
        masked
    }

    fn mask_value(&self, value: &mut Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => *text = self.mask(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    self.mask_value(&mut value);
                    (self.mask(name), value)
                });
                *fields = masked.collect::<Map<_, _>>();
            }
        }
    }

    /// Where secrets are, in order, without overlaps, and in whole characters.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = self.exact.find_iter(text).map(|found| found.range()).collect();
        found.extend(self.hex.find_iter(text).map(|found| found.range()));
        let mut levels: Vec<Vec<u8>> = Vec::new();
        for _level in 0..ESCAPE_LEVELS_MAX {
            let source = levels.last().map_or(text.as_bytes(), Vec::as_slice);
            let Some(decoded) = unescape(source) else { break };
            let mut ranges: Vec<Range<usize>> = self.unescaped.find_iter(&decoded).map(|found| found.range()).collect();
            if !ranges.is_empty() {
                for source in levels.iter().rev().map(Vec::as_slice).chain([text.as_bytes()]) {
                    ranges = source_ranges(source, &ranges);
                }
                found.extend(ranges);
            }
            levels.push(decoded);
        }
        found.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for Range { start, end } in found {
            let range = text.floor_char_boundary(start)..text.ceil_char_boundary(end);
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

/// What decides whether upper and lower case are the same.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CaseOf {
    Text,
    Hex,
}

fn searcher(forms: impl Iterator<Item = Vec<u8>>, case: CaseOf) -> AhoCorasick {
    let mut forms: Vec<Vec<u8>> = forms.collect();
    forms.sort_unstable();
    forms.dedup();
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).ascii_case_insensitive(case == CaseOf::Hex);
    builder.build(forms).expect("a configuration file is far smaller than what the searcher can hold")
}

fn exact_forms(secret: &str) -> Vec<Vec<u8>> {
    let json = Value::from(secret).to_string();
    let mut forms = vec![secret.to_owned(), form_encoded(secret), json[1..json.len() - 1].to_owned()];
    // Inside longer base64 a secret begins at any of three places of a group, and its edges mix with its neighbours.
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret.as_bytes());
        let first = (before * 8).div_ceil(6);
        let end = bytes.len() * 8 / 6;
        if first < end && end - first >= FORM_BYTES_MIN {
            forms.extend(
                [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
                    .map(|text| text[first..end].to_owned()),
            );
        }
    }
    forms.into_iter().map(String::into_bytes).collect()
}

/// A secret as it looks when the escapes around it are decoded. Escapes that belong to the secret itself are decoded with
/// the others.
fn unescaped_forms(secret: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.as_bytes().to_vec(), form_encoded(secret).into_bytes()];
    let mut form = unescape(secret.as_bytes());
    for _level in 0..ESCAPE_LEVELS_MAX {
        let Some(decoded) = form.filter(|decoded| decoded.len() >= FORM_BYTES_MIN) else { break };
        form = unescape(&decoded);
        forms.push(decoded);
    }
    forms
}

/// Forms in URLs have `+` for a space.
fn form_encoded(secret: &str) -> String {
    secret.replace(' ', "+")
}

fn hex(secret: &str, separator: &str) -> Vec<u8> {
    let bytes: Vec<String> = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(separator).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "ghp_\"s3cr3t/+=";

    fn masked(secret: &str, text: &str) -> String {
        Mask::new([secret]).text(text.to_owned())
    }

    #[test]
    fn a_secret_is_found_however_it_is_encoded() {
        for text in [
            "<ghp_\"s3cr3t/+=>",
            "<6768705f227333637233742f2b3d>",
            "<6768705F227333637233742F2B3D>",
            "<67:68:70:5f:22:73:33:63:72:33:74:2f:2b:3d>",
            "<67 68 70 5F 22 73 33 63 72 33 74 2F 2B 3D>",
            "<ghp_%22s3cr3t%2F%2B%3D>",
            "<ghp_%22s3cr3t/%2b%3d>",
            "<%67%68%70%5F%22%73%33%63%72%33%74%2F%2B%3D>",
            "<ghp%5F%2522s3cr3t%252F%252B%253D>",
            "<ghp_&quot;s3cr3t/+=>",
            "<ghp_&#34;s3cr3t&#47;&#43;&#x3D;>",
            "<ghp&lowbar;&QUOT;s3cr3t&sol;&plus;&equals;>",
            "<&#103;&#104;&#112;&#95;&#34;&#115;&#51;&#99;&#114;&#51;&#116;&#47;&#43;&#61;>",
            "<&#x67;&#x68;&#x70;&#x5f;&#x22;&#x73;&#x33;&#x63;&#x72;&#x33;&#x74;&#x2f;&#x2b;&#x3d;>",
            "<ghp_&amp;quot;s3cr3t/+=>",
            "<ghp_\\\"s3cr3t\\/+=>",
            "<ghp_\\u0022s3cr3t\\u002F\\x2b\\u{3d}>",
            "<ghp_%5C%22s3cr3t/+=>",
        ] {
            assert_eq!(masked(SECRET, text), "<***>", "{text}");
        }
        assert_eq!(masked("correct horse", "q=correct+horse&a=correct%20horse"), "q=***&a=***");
        assert_eq!(masked("correct horse!", "q=correct+horse%21"), "q=***");
        assert_eq!(masked("grün-schlüssel", "é gr&#252;n-schl\\u00fcssel é gr%C3%BCn-schlüssel é"), "é *** é *** é");
    }

    #[test]
    fn a_secret_that_has_escapes_itself_is_found_in_others() {
        let secret = "a%41b&amp;c\\n\"d";
        for text in [
            "<a%41b&amp;c\\n\"d>",
            "<a%41b&amp;c\\\\n\\\"d>",
            "<a%2541b%26amp%3Bc%5Cn%22d>",
            "<a%41b&amp;amp;c\\n&quot;d>",
        ] {
            assert_eq!(masked(secret, text), "<***>", "{text}");
        }
    }

    #[test]
    fn the_rest_of_a_text_stays_as_it_is() {
        for text in [
            "100% of &copy; \\q %zz &#; &#x; &#99999999; \\u12 \\ud800 \\u{} & % \\",
            "",
            "&amp;&amp;",
            "ghp_%22s3cr3t",
        ] {
            assert_eq!(masked(SECRET, text), text);
        }
        let echoed = "é %E9 ghp_%22s3cr3t%2F%2B%3D ü &amp; \\n ghp_\"s3cr3t/+=ghp_\"s3cr3t/+= end";
        assert_eq!(masked(SECRET, echoed), "é %E9 *** ü &amp; \\n ****** end");
        assert_eq!(Mask::new([]).text("as it is %41".to_owned()), "as it is %41");
    }

    #[test]
    fn a_text_of_nothing_but_escapes_is_read_a_few_times_and_not_more() {
        let nested = format!("%{}22", "25".repeat(200_000));
        assert_eq!(masked(SECRET, &nested), nested);
        let many = "&amp;%25\\\\".repeat(100_000);
        assert_eq!(masked(SECRET, &many), many);
    }
}
