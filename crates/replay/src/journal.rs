//! The record of the calls a program made and the answers it got.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::canonical;
use crate::json_text::JsonText;
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
            Answer::Ok(json) => json.handles(),
            Answer::Error { .. } => Vec::new(),
        }
    }

    /// Bytes of its text.
    pub fn size(&self) -> usize {
        match self {
            Answer::Ok(json) => json.size(),
            Answer::Error { message, data } => message.len() + data.as_ref().map_or(0, JsonText::size),
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
                json.absorb_into(&mut hash);
            }
            Answer::Error { message, data } => {
                hash.update([1]);
                absorb(&mut hash, Some(message));
                absorb(&mut hash, data.as_ref().map(JsonText::as_str));
            }
        }
        self.bytes += entry.answer.size();
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
