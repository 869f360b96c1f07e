//! The record of the calls a program made and the answers it got.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::canonical::canonical;
use crate::json_text::{json_string_size, json_text, write_json_string};
use crate::step::Call;

/// Position of a call in issue order, starting at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallIndex(
    /// The number itself; the first call of a program is call 0.
    pub u32,
);

impl fmt::Display for CallIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// One JSON value, kept as text. The program parses the text itself, so that large integers and the order of keys
/// survive: nothing is read into numbers or maps on the way. Clones share the text, which may be large.
///
/// ```
/// use dacapo_replay::JsonText;
/// assert_eq!(JsonText::parse("[1, 18446744073709551616]").unwrap().as_str(), "[1, 18446744073709551616]");
/// assert_eq!(JsonText::from(serde_json::json!({"a": 1})).as_str(), r#"{"a":1}"#);
/// assert_eq!(JsonText::parse("[1,"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Arc<String>);

impl JsonText {
    /// `None` if the text is not one JSON value.
    pub fn parse(text: impl Into<String>) -> Option<JsonText> {
        let text = text.into();
        serde_json::from_str::<&RawValue>(&text).is_ok().then(|| JsonText(Arc::new(text)))
    }

    /// A text as a JSON string.
    pub fn of_text(text: &str) -> JsonText {
        let mut json = String::with_capacity(json_string_size(text));
        write_json_string(&mut json, text);
        JsonText(Arc::new(json))
    }

    /// The JSON as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> JsonText {
        JsonText(Arc::new(json_text(value)))
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> JsonText {
        JsonText::from(&value)
    }
}

impl From<&RawValue> for JsonText {
    fn from(raw: &RawValue) -> JsonText {
        JsonText(Arc::new(raw.get().to_owned()))
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

/// What a tool answered to a call.
///
/// ```
/// use dacapo_replay::Answer;
/// use serde_json::json;
/// let found = Answer::ok(json!(["a.txt", "b.txt"]));
/// let failed = Answer::error("no such folder");
/// assert_ne!(found, failed);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The value that the call's promise is fulfilled with. A JSON string is decoded first if the tool's output schema
    /// says that it is JSON in text; see [`Catalog::decode`](crate::Catalog::decode).
    Ok(JsonText),
    /// The call's promise is rejected with a `ToolError`.
    Error {
        /// The error's `message`.
        message: String,
        /// The error's `data`, if the tool gave details.
        data: Option<JsonText>,
    },
}

impl Answer {
    /// A successful answer.
    pub fn ok(value: impl Into<JsonText>) -> Answer {
        Answer::Ok(value.into())
    }

    /// A failed call, without details.
    pub fn error(message: impl Into<String>) -> Answer {
        Answer::Error { message: message.into(), data: None }
    }

    /// The handles of images and files in it.
    pub fn handles(&self) -> Vec<&str> {
        match self {
            Answer::Ok(json) => crate::handles_in(&json.0),
            Answer::Error { .. } => Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Answer::Ok(json) => json.0.len(),
            Answer::Error { message, data } => message.len() + data.as_ref().map_or(0, |data| data.0.len()),
        }
    }
}

/// The first bytes of a hash of a call's [canonical arguments](crate::canonical_args). A journal that is kept by an
/// untrusted client, or in a tool-call id with no room for arguments, compares these instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArgsDigest(
    /// The bytes, as [`Call::args_digest`](crate::Call::args_digest) gave them.
    pub [u8; 4],
);

impl ArgsDigest {
    /// The digest of a call's arguments.
    pub fn of_args(args: &Value) -> ArgsDigest {
        ArgsDigest::of(&canonical(args))
    }

    pub(crate) fn of(canonical: &str) -> ArgsDigest {
        let digest = Sha256::new_with_prefix(b"dacapo args 1\0").chain_update(canonical).finalize();
        ArgsDigest(std::array::from_fn(|i| digest[i]))
    }
}

/// What a journal recorded of a call's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordedArgs {
    /// Nothing: only the tool is compared.
    Unknown,
    Canonical(String),
    Digest(ArgsDigest),
}

impl RecordedArgs {
    pub(crate) fn match_canonical(&self, args: &str) -> bool {
        match self {
            RecordedArgs::Unknown => true,
            RecordedArgs::Canonical(recorded) => recorded == args,
            RecordedArgs::Digest(recorded) => *recorded == ArgsDigest::of(args),
        }
    }
}

/// One answered call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// Which call of the program was answered.
    pub call: CallIndex,
    /// The tool's qualified name, `name` or `server.name`. The entry is refused if the program called another tool.
    pub tool: String,
    pub(crate) args: RecordedArgs,
    /// What the tool answered.
    pub answer: Answer,
}

impl JournalEntry {
    /// The answer to a call of a paused program; its tool and arguments are recorded with it.
    pub fn answering(call: &Call, answer: Answer) -> JournalEntry {
        JournalEntry::new(call.call, &call.tool, Some(&call.args), answer)
    }

    /// An entry made of its parts. Without `args`, the program may have called the tool with any arguments.
    pub fn new(call: CallIndex, tool: impl Into<String>, args: Option<&Value>, answer: Answer) -> JournalEntry {
        let args = args.map_or(RecordedArgs::Unknown, |args| RecordedArgs::Canonical(canonical(args)));
        JournalEntry { call, tool: tool.into(), args, answer }
    }

    /// An entry that recorded only a digest of the arguments; see [`Call::args_digest`].
    pub fn with_digest(call: CallIndex, tool: impl Into<String>, digest: ArgsDigest, answer: Answer) -> JournalEntry {
        JournalEntry { call, tool: tool.into(), args: RecordedArgs::Digest(digest), answer }
    }

    /// The arguments, if the entry recorded them.
    pub fn args(&self) -> Option<Value> {
        match &self.args {
            RecordedArgs::Canonical(args) => serde_json::from_str(args).ok(),
            RecordedArgs::Unknown | RecordedArgs::Digest(_) => None,
        }
    }

    /// The digest of the arguments, if the entry recorded anything of them.
    pub fn args_digest(&self) -> Option<ArgsDigest> {
        match &self.args {
            RecordedArgs::Canonical(args) => Some(ArgsDigest::of(args)),
            RecordedArgs::Digest(digest) => Some(*digest),
            RecordedArgs::Unknown => None,
        }
    }
}

/// Answered calls, in the order in which their promises settle. Together with the program it is the whole state of a run.
///
/// Holds a digest of each of its prefixes, so that a [`Stepper`](crate::Stepper) finds the paused program that has come
/// furthest into it without hashing the journal again.
///
/// ```
/// use dacapo_replay::{Answer, CallIndex, Journal, JournalEntry};
/// let mut journal = Journal::default();
/// journal.push(JournalEntry::new(CallIndex(0), "add", None, Answer::ok(serde_json::json!(3))));
/// assert_eq!((journal.entries().len(), journal.bytes()), (1, 1));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Journal {
    entries: Vec<JournalEntry>,
    digests: Vec<[u8; 32]>,
    bytes: usize,
}

impl Journal {
    /// Appends the value that a tool answered to a call of a paused program.
    pub fn push_ok(&mut self, call: &Call, value: impl Into<JsonText>) {
        self.push(JournalEntry::answering(call, Answer::ok(value)));
    }

    /// Appends the message of a call that failed; the program can catch it as a `ToolError`.
    pub fn push_error(&mut self, call: &Call, message: impl Into<String>) {
        self.push(JournalEntry::answering(call, Answer::error(message)));
    }

    /// Appends an answered call. Its promise settles after those of all earlier entries.
    pub fn push(&mut self, entry: JournalEntry) {
        let mut hash = Sha256::new();
        hash.update(self.digest(self.entries.len()));
        hash.update(entry.call.0.to_le_bytes());
        absorb(&mut hash, Some(&entry.tool));
        match &entry.args {
            RecordedArgs::Unknown => hash.update([0]),
            RecordedArgs::Canonical(args) => {
                hash.update([1]);
                absorb(&mut hash, Some(args));
            }
            RecordedArgs::Digest(ArgsDigest(bytes)) => {
                hash.update([2]);
                hash.update(bytes);
            }
        }
        match &entry.answer {
            Answer::Ok(json) => {
                hash.update([0]);
                absorb(&mut hash, Some(&json.0));
            }
            Answer::Error { message, data } => {
                hash.update([1]);
                absorb(&mut hash, Some(message));
                absorb(&mut hash, data.as_ref().map(JsonText::as_str));
            }
        }
        self.bytes += entry.answer.bytes();
        self.digests.push(hash.finalize().into());
        self.entries.push(entry);
    }

    /// The answered calls, in the order in which they were pushed.
    pub fn entries(&self) -> &[JournalEntry] {
        &self.entries
    }

    /// The answered calls, to be changed or pushed to another journal.
    pub fn into_entries(self) -> Vec<JournalEntry> {
        self.entries
    }

    /// A short hash of all entries, for comparing journals; not for use against an attacker.
    pub fn fingerprint(&self) -> [u8; 8] {
        let digest = self.digest(self.entries.len());
        std::array::from_fn(|i| digest[i])
    }

    /// Bytes of all answers, which [`Limit::JournalBytes`](crate::Limit::JournalBytes) bounds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Digest of the first `count` entries.
    pub(crate) fn digest(&self, count: usize) -> [u8; 32] {
        count.checked_sub(1).map_or([0; 32], |last| self.digests[last])
    }
}

impl FromIterator<JournalEntry> for Journal {
    fn from_iter<I: IntoIterator<Item = JournalEntry>>(entries: I) -> Journal {
        let mut journal = Journal::default();
        entries.into_iter().for_each(|entry| journal.push(entry));
        journal
    }
}

pub(crate) fn absorb(hash: &mut Sha256, text: Option<&str>) {
    let length = text.map_or(u64::MAX, |text| text.len() as u64);
    hash.update(length.to_le_bytes());
    hash.update(text.unwrap_or_default().as_bytes());
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
}
