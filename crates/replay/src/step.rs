//! What a step ends with, in our words and as JSON.

use dacapo_sandbox::LogLevel;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::canonical::canonical;
use crate::journal::{ArgsDigest, CallIndex, CompletedCall};
use crate::limits::Limit;

/// The end of one step.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    #[serde(flatten)]
    pub outcome: Outcome,
    pub logs: Vec<LogLine>,
    pub usage: ResourceUsage,
    /// Of a program that failed, what the next one may reuse: calls that were answered successfully, in issue order, and
    /// then records of the request that were not used. Otherwise empty.
    #[serde(skip)]
    pub record: Vec<CompletedCall>,
}

impl Step {
    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        const AROUND: usize = 1 << 10;
        let result = match &self.outcome {
            Outcome::Finished { result: Ok(data) } => data.get().len(),
            Outcome::Finished { result: Err(failure) } => {
                let texts = [&failure.message, &failure.stack, failure.frame.as_ref().unwrap_or(&failure.name)];
                texts.map(String::len).iter().sum()
            }
            Outcome::Paused { .. } => 0,
        };
        let logs = self.logs.iter().map(|line| line.text.len()).sum::<usize>();
        AROUND + result + logs + self.record.iter().map(CompletedCall::bytes).sum::<usize>()
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The program waits for these calls.
    Paused { calls: Vec<Call> },
    Finished {
        #[serde(serialize_with = "serialize_result")]
        result: Result<Box<RawValue>, Box<ProgramFailure>>,
    },
}

/// A question to a tool that nobody has answered yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    pub call: CallIndex,
    pub tool: String,
    pub args: Value,
    /// The same on every replay and every replica: makes executing the call twice avoidable.
    pub key: String,
}

impl Call {
    /// What a journal needs of the arguments; see [`JournalEntry::with_digest`](crate::JournalEntry::with_digest).
    pub fn args_digest(&self) -> ArgsDigest {
        ArgsDigest::of(&canonical(&self.args))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    #[serde(serialize_with = "serialize_level")]
    pub level: LogLevel,
    pub text: String,
}

/// What the program has used up since its start, replayed parts included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResourceUsage {
    pub fuel: u64,
    pub memory_bytes: usize,
}

/// Why a program did not return.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramFailure {
    #[serde(flatten)]
    pub kind: ErrorKind,
    pub name: String,
    pub message: String,
    /// In the model's own source, like column, frame and stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stack: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    pub completed: Vec<MadeCall>,
    pub unfinished: Vec<MadeCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ErrorKind {
    /// The program threw, or awaited something that rejected.
    Exception {
        /// Whose error it was, if a tool's.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
    },
    Syntax,
    Limit {
        limit: Limit,
        value: u64,
    },
    /// The program waits on something that nothing will ever settle.
    Deadlock,
    /// The program asked something other than what the journal recorded.
    Diverged {
        /// Which journal entry.
        path: String,
        recorded: ComparedCall,
        #[serde(skip_serializing_if = "Option::is_none")]
        actual: Option<ComparedCall>,
    },
    /// The guest died of something that is nobody's limit.
    Internal,
}

/// A call as it is told to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MadeCall {
    pub call: CallIndex,
    pub tool: String,
}

/// One side of a divergence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedCall {
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
}

impl Serialize for CallIndex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

fn serialize_result<S: Serializer>(
    result: &Result<Box<RawValue>, Box<ProgramFailure>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(2))?;
    match result {
        Ok(data) => {
            map.serialize_entry("status", "success")?;
            map.serialize_entry("data", data)?;
        }
        Err(failure) => {
            map.serialize_entry("status", "error")?;
            map.serialize_entry("error", failure)?;
        }
    }
    map.end()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn serialize_level<S: Serializer>(level: &LogLevel, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match level {
        LogLevel::Debug => "debug",
        LogLevel::Log => "log",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    })
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
