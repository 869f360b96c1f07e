//! Journals as JSON, for stores and files.
//!
//! `{"version": 1, "entries": […]}`, where an entry is written as in the step request: `call`, `tool`, `args`, and `ok` or
//! `error`. An entry that recorded only a digest of the arguments has `args_digest`, in hexadecimal digits, instead of
//! `args`; one that recorded nothing of them has neither. The version changes when a reader of the old form would
//! misunderstand the new one. Old versions stay readable: `tests/journals/` has samples of each.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;

use crate::journal::{Answer, ArgsDigest, Journal, JournalEntry, RecordedArgs};
use crate::json_text::JsonText;
use crate::request::{ObjectFields, RequestError, read_journal};

/// The version that is written.
const VERSION: u64 = 1;

/// The fields of an entry.
const ENTRY_FIELDS: [&str; 6] = ["call", "tool", "args", "args_digest", "ok", "error"];

/// What a journal of any version has.
#[derive(Deserialize)]
struct JournalVersion {
    version: u64,
}

/// Why a serialised journal cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalFormatError {
    /// It was written by a later release.
    #[error("the journal has version {found}, and this release reads version {VERSION}; update dacapo to read it")]
    UnknownVersion {
        /// The version that it has.
        found: u64,
    },

    /// It is no journal.
    #[error("the journal cannot be read: {0}")]
    Invalid(#[from] RequestError),
}

impl Journal {
    /// Serialises the journal, in the current version.
    ///
    /// ```
    /// use dacapo_replay::{Answer, CallIndex, Journal, JournalEntry, JsonText};
    /// let answer = Answer::Ok(JsonText::parse("21").unwrap());
    /// let journal: Journal = [JournalEntry::new(CallIndex(0), "temperature", None, answer)].into_iter().collect();
    /// let json = r#"{"version":1,"entries":[{"call":0,"tool":"temperature","ok":21}]}"#;
    /// assert_eq!(journal.to_json(), json);
    /// assert_eq!(Journal::from_json(json).unwrap().entries(), journal.entries());
    /// ```
    pub fn to_json(&self) -> String {
        let entries: Vec<String> = self.entries().iter().map(entry_json).collect();
        format!(r#"{{"version":{VERSION},"entries":[{}]}}"#, entries.join(","))
    }

    /// Reads a serialised journal of any known version. White space around the JSON of an answer is not part of it.
    pub fn from_json(text: &str) -> Result<Journal, JournalFormatError> {
        let not_json = |error| RequestError::new("", format!("it is not JSON: {error}"));
        let raw: &RawValue = serde_json::from_str(text).map_err(not_json)?;
        // A later version may have fields that are not known here, so the version is looked at first.
        match serde_json::from_str(raw.get()) {
            Ok(JournalVersion { version }) if version != VERSION => {
                return Err(JournalFormatError::UnknownVersion { found: version });
            }
            // What else is wrong is found below.
            _ => {}
        }
        let fields = ObjectFields::read(raw, "", &["version", "entries"])?;
        fields.required::<u64>("version")?;
        fields.required::<Vec<IgnoredAny>>("entries")?;
        Ok(read_journal(&fields.list("entries")?, &ENTRY_FIELDS)?)
    }
}

/// Answers and arguments are copied as they are: reading them into numbers of ours could change them.
fn entry_json(entry: &JournalEntry) -> String {
    let args = match &entry.args {
        RecordedArgs::Unknown => String::new(),
        RecordedArgs::Canonical(args) => format!(r#","args":{args}"#),
        RecordedArgs::Digest(ArgsDigest(bytes)) => {
            format!(r#","args_digest":"{:08x}""#, u32::from_be_bytes(*bytes))
        }
    };
    let answer = match &entry.answer {
        Answer::Ok(value) => format!(r#","ok":{}"#, value.as_str()),
        Answer::Error { message, data } => {
            let data = data.as_ref().map(|data: &JsonText| format!(r#","data":{}"#, data.as_str()));
            format!(r#","error":{{"message":{}{}}}"#, json!(message), data.unwrap_or_default())
        }
    };
    format!(r#"{{"call":{},"tool":{}{args}{answer}}}"#, entry.call.0, json!(entry.tool))
}
