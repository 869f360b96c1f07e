//! Goes over a JSON object without parsing it: where it ends, and whether it may concern the gateway.
//!
//! Most of a history is text, so it is looked through in blocks for the few characters that matter in a string. What stands
//! between strings is checked as a parser would do it.

use serde::de::IgnoredAny;
use wide::u8x64;

use crate::json_fields::NotAnObject;
use crate::marks::{begins_with_mark, is_mark_around, spells_mark};

/// An object that was gone over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScannedObject {
    /// Nothing in it concerns the gateway.
    Unmarked {
        bytes: usize,
        /// Whether it has a field `role`, as messages do.
        has_role: bool,
    },
    /// It may concern the gateway, or has one of the words that were looked for.
    Marked,
}

impl ScannedObject {
    /// Goes over the object that a text begins with. `words` are other beginnings of strings to look for, with their
    /// quotation marks.
    pub(crate) fn of(text: &[u8], words: &[&str]) -> Result<ScannedObject, NotAnObject> {
        if text.first() != Some(&b'{') {
            return Err(NotAnObject);
        }
        ObjectScan::new(text, words).run()
    }
}

const BLOCK_BYTES: usize = 64;

/// Numbers that are longer are left to the parser.
const WORD_BYTES_MAX: usize = 256;

/// What may follow between strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
}

struct ObjectScan<'a> {
    text: &'a [u8],
    words: &'a [&'a str],
    expected: Expected,
    /// The brackets that are open.
    open: Vec<u8>,
    is_in_string: bool,
    /// Where the last string has ended.
    outside_from: usize,
    has_role: bool,
}

impl<'a> ObjectScan<'a> {
    fn new(text: &'a [u8], words: &'a [&'a str]) -> ObjectScan<'a> {
        ObjectScan {
            text,
            words,
            expected: Expected::Value,
            open: Vec::with_capacity(8),
            is_in_string: false,
            outside_from: 0,
            has_role: false,
        }
    }

    fn run(mut self) -> Result<ScannedObject, NotAnObject> {
        let (blocks, rest) = self.text.as_chunks::<BLOCK_BYTES>();
        // Spaces mean nothing anywhere.
        let mut last = [b' '; BLOCK_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let mut is_next_escaped = false;
        for (number, block) in blocks.iter().chain([&last]).enumerate() {
            let BlockMasks { mut found, escaped } = BlockMasks::of(block, &mut is_next_escaped);
            while found != 0 {
                let bit = found.trailing_zeros();
                found &= found - 1;
                let at = number * BLOCK_BYTES + bit as usize;
                let scanned = if escaped >> bit & 1 == 1 { self.look_at_escape(at)? } else { self.look_at(at)? };
                if let Some(scanned) = scanned {
                    return Ok(scanned);
                }
            }
            // An object without strings would end only where the text does.
            let block_end = (number + 1) * BLOCK_BYTES;
            if !self.is_in_string
                && block_end < self.text.len()
                && let Some(ended) = self.read_between(block_end)?
            {
                return Ok(ended);
            }
        }
        if self.is_in_string {
            return Err(NotAnObject);
        }
        self.read_between(self.text.len())?.ok_or(NotAnObject)
    }

    /// Looks at a character that may matter. Returns what is known if that is enough.
    fn look_at(&mut self, at: usize) -> Result<Option<ScannedObject>, NotAnObject> {
        let text = self.text;
        match text[at] {
            b'"' if self.is_in_string => {
                self.is_in_string = false;
                self.outside_from = at + 1;
            }
            b'"' => {
                if let Some(ended) = self.read_between(at)? {
                    return Ok(Some(ended));
                }
                let string = &text[at..];
                self.expected = match self.expected {
                    Expected::Value | Expected::ValueOrEnd => Expected::CommaOrEnd,
                    Expected::Key | Expected::KeyOrEnd => Expected::Colon,
                    Expected::Colon | Expected::CommaOrEnd => return Err(NotAnObject),
                };
                let is_field = self.expected == Expected::Colon && self.open.len() == 1;
                self.has_role |= is_field && string.starts_with(b"\"role\"");
                self.is_in_string = true;
                if begins_with_mark(string) || self.words.iter().any(|word| string.starts_with(word.as_bytes())) {
                    return Ok(Some(ScannedObject::Marked));
                }
            }
            b'_' if is_mark_around(text, at) => return Ok(Some(ScannedObject::Marked)),
            // Control characters.
            byte if byte < b' ' && self.is_in_string => return Err(NotAnObject),
            // What stands between strings is read with the next one.
            _ => {}
        }
        Ok(None)
    }

    /// Looks at a character after a backslash that is rare there.
    fn look_at_escape(&self, at: usize) -> Result<Option<ScannedObject>, NotAnObject> {
        if !self.is_in_string {
            return Ok(None);
        }
        let escape = &self.text[at - 1..];
        let is_valid = match escape.get(1) {
            Some(b'/' | b'b' | b'f' | b'r' | b't') => true,
            Some(b'u') => escape.get(2..6).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
            _ => false,
        };
        if is_valid { Ok(spells_mark(escape).then_some(ScannedObject::Marked)) } else { Err(NotAnObject) }
    }

    /// Reads what stands after the last string, up to here. Returns the object if it ends there.
    fn read_between(&mut self, to: usize) -> Result<Option<ScannedObject>, NotAnObject> {
        let text = self.text;
        let mut at = self.outside_from;
        while at < to {
            let byte = text[at];
            at += 1;
            self.expected = match (byte, self.expected) {
                (b' ' | b'\n' | b'\t' | b'\r', expected) => expected,
                (b'{' | b'[', Expected::Value | Expected::ValueOrEnd) => {
                    self.open.push(byte);
                    if byte == b'{' { Expected::KeyOrEnd } else { Expected::ValueOrEnd }
                }
                (b'}', Expected::KeyOrEnd | Expected::CommaOrEnd) if self.open.last() == Some(&b'{') => {
                    self.open.pop();
                    if self.open.is_empty() {
                        return Ok(Some(ScannedObject::Unmarked { bytes: at, has_role: self.has_role }));
                    }
                    Expected::CommaOrEnd
                }
                (b']', Expected::ValueOrEnd | Expected::CommaOrEnd) if self.open.last() == Some(&b'[') => {
                    self.open.pop();
                    Expected::CommaOrEnd
                }
                (b',', Expected::CommaOrEnd) if self.open.last() == Some(&b'{') => Expected::Key,
                (b',', Expected::CommaOrEnd) | (b':', Expected::Colon) => Expected::Value,
                (b'-' | b'0'..=b'9' | b't' | b'f' | b'n', Expected::Value | Expected::ValueOrEnd) => {
                    let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r');
                    let word = &text[at - 1..to];
                    let end = word.iter().position(is_end);
                    let may_go_on = end.is_none() && text.get(to).is_some_and(|next| *next != b'"');
                    if may_go_on && word.len() <= WORD_BYTES_MAX {
                        // It is read with what follows.
                        self.outside_from = at - 1;
                        return Ok(None);
                    }
                    let word = &word[..end.unwrap_or(word.len())];
                    at += word.len() - 1;
                    serde_json::from_slice::<IgnoredAny>(word).ok().ok_or(NotAnObject)?;
                    Expected::CommaOrEnd
                }
                _ => return Err(NotAnObject),
            };
        }
        self.outside_from = to;
        Ok(None)
    }
}

/// Characters of a block, a bit for each.
struct BlockMasks {
    /// Those that have to be looked at.
    found: u64,
    /// Those that follow a backslash.
    escaped: u64,
}

impl BlockMasks {
    fn of(block: &[u8; BLOCK_BYTES], is_next_escaped: &mut bool) -> BlockMasks {
        let block = u8x64::new(*block);
        let all = |byte: u8| block.simd_eq(u8x64::splat(byte)).to_bitmask();
        let (quotes, backslashes) = (all(b'"'), all(b'\\'));
        let escaped = escaped(backslashes, is_next_escaped);
        let controls = block.simd_eq(block.min(u8x64::splat(b' ' - 1))).to_bitmask();
        // Nearly all escapes are of these three.
        let rare_escapes = escaped & !(quotes | backslashes | all(b'n'));
        BlockMasks { found: quotes & !escaped | all(b'_') | controls | rare_escapes, escaped }
    }
}

/// The characters after a backslash that is not escaped itself. `is_next_escaped` is about the first one, and is then set for
/// the next block.
fn escaped(backslashes: u64, is_next_escaped: &mut bool) -> u64 {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let first = u64::from(*is_next_escaped);
    let escaping = backslashes & !first;
    let following = escaping << 1 | first;
    // Adding a run of backslashes to its first one carries to the character behind it: whether that is at an even or an odd
    // place tells how long the run is.
    let odd_starts = escaping & !EVEN & !following;
    let (carried, overflow) = odd_starts.overflowing_add(escaping);
    *is_next_escaped = overflow;
    (EVEN ^ (carried << 1)) & following
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn scan(text: &str) -> Result<ScannedObject, NotAnObject> {
        ScannedObject::of(text.as_bytes(), &["\"linked\""])
    }

    fn unmarked(bytes: usize, has_role: bool) -> ScannedObject {
        ScannedObject::Unmarked { bytes, has_role }
    }

    #[test]
    fn an_object_ends_where_the_parser_ends_it() {
        let long = "Text with \"quotes\", \\ and\n lines, ".repeat(9);
        for (object, has_role) in [
            (json!({}), false),
            (json!({"role": "user", "content": long}), true),
            (json!({"content": [{"role": "user"}, "role", {"a": {}}, [], [[]]], "n": [-1.5e3, true, null]}), false),
            (json!({"type": "role", "é": "é\u{1f600}\u{1}", "": false}), false),
            (json!({"x": "}", "role": null}), true),
        ] {
            let spaced = serde_json::to_string_pretty(&object).unwrap();
            for text in [object.to_string(), spaced.replace('\n', "\r\n\t")] {
                for rest in ["", ",", ", {\"role\": 1}]}", "]} \\ _", "]\n}"] {
                    assert_eq!(scan(&format!("{text}{rest}")), Ok(unmarked(text.len(), has_role)), "{text}{rest}");
                }
            }
        }
    }

    #[test]
    fn numbers_and_brackets_are_read_across_blocks() {
        for padding in 0..2 * BLOCK_BYTES {
            let text = format!("{{\"a\": [{}-12.5e+10, true, {{}}]{0}}}", " ".repeat(padding));
            assert_eq!(scan(&text), Ok(unmarked(text.len(), false)), "{text}");
            assert_eq!(scan(&format!("{text}, {{}}")), Ok(unmarked(text.len(), false)), "{text}");
            for wrong in
                [text.replace("12.5", "12.5.1"), text.replace("true", "true\"\""), text.replace(" true", "1 true")]
            {
                assert_eq!(scan(&wrong), Err(NotAnObject), "{wrong}");
            }
        }
        let long = format!("{{\"a\": {}}}", "1".repeat(WORD_BYTES_MAX + 2 * BLOCK_BYTES));
        assert_eq!(scan(&format!("{long} {}", " ".repeat(BLOCK_BYTES))), Err(NotAnObject));
    }

    /// In quadratic time this would take minutes.
    #[test]
    fn objects_without_strings_end_soon() {
        let text = "{},".repeat(200_000);
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            assert_eq!(ScannedObject::of(rest, &[]), Ok(unmarked(2, false)));
            rest = &rest[3..];
        }
    }

    #[test]
    fn backslashes_escape_each_other_across_blocks() {
        for padding in 0..2 * BLOCK_BYTES {
            for count in 0..6 {
                let text = format!("{{\"a\": \"{}{}", "x".repeat(padding), "\\".repeat(count));
                let whole = format!("{text}\", \"b\": 1}}");
                let expected = if count % 2 == 0 { Ok(unmarked(whole.len(), false)) } else { Err(NotAnObject) };
                assert_eq!(scan(&whole), expected, "{whole}");
                let quoted = format!("{text}\"\"}}");
                let expected = if count % 2 == 1 { Ok(unmarked(quoted.len(), false)) } else { Err(NotAnObject) };
                assert_eq!(scan(&quoted), expected, "{quoted}");
            }
        }
    }

    #[test]
    fn what_may_concern_the_gateway_is_marked() {
        for text in [
            r#"{"id": "call_dc1_x"}"#,
            r#"{"a": {"role": "code"}}"#,
            r#"{"allowed_callers": []}"#,
            r#"{"linked": 1}"#,
            r#"{"a": ["linked"]}"#,
            r#"{"a": "\u0063ode"}"#,
            r#"{"id": "dc1_"#,
        ] {
            assert_eq!(scan(text), Ok(ScannedObject::Marked), "{text}");
        }
        let text = r#"{"a": "{\"code\": 1, \"linked\": 2} \\\"code", "b": "not_dc \u00e9 \\u0063 a_b", "c_": 1}"#;
        assert_eq!(scan(&text.replace("not_dc", "note_d")), Ok(unmarked(text.len(), false)));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "{]",
            "{\"a\"}",
            "{\"a\": }",
            "{\"a\": 1,}",
            "{\"a\" 1}",
            "{\"a\": 1 2}",
            "{\"a\": \"b\" \"c\"}",
            "{\"a\": [1,]}",
            "{\"a\": [}",
            "{\"a\": 01}",
            "{\"a\": tru}",
            "{\"a\": \"\n\"}",
            "{\"a\": \"\\x\"}",
            "{\"a\": \"\\u12g4\"}",
            "{\"a\": \"\\",
            "{\"a\": \"b",
            "{,}",
            "{1: 2}",
            "{\"a\": [{\"b\": 1]}",
            "{\"a\": \u{1}1}",
        ] {
            assert_eq!(scan(text), Err(NotAnObject), "{text}");
        }
        // How deep an object may be is for the provider to say.
        let nested = format!("{{\"a\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(scan(&nested), Ok(unmarked(nested.len(), false)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the text, it is an object for the scan if and only if it is one for the parser.
        #[test]
        fn the_scan_and_the_parser_agree(text in "\\{[ \\[\\]{},:\"\\\\abnu01.\\-e\n]{0,24}\\}?", padding in 0_usize..70) {
            let text = text.replacen('{', &format!("{{\"k\": \"{}\", ", "x".repeat(padding)), 1);
            let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Map<String, Value>>();
            let parsed = values.next().and_then(Result::ok).map(|_| values.byte_offset());
            let scanned = match scan(&text) {
                Ok(ScannedObject::Unmarked { bytes, .. }) => Some(bytes),
                Ok(ScannedObject::Marked) => return Ok(()),
                Err(NotAnObject) => None,
            };
            // A pair of surrogates is looked at by who reads the text.
            prop_assert!(parsed == scanned || text.contains("\\u"), "{text}: {parsed:?} {scanned:?}");
        }
    }
}
