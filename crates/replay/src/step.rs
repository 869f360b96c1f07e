//! The outcome of a step, which is also serialised as JSON.

use std::collections::BTreeSet;
use std::fmt;

use dacapo_sandbox::LogLevel;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::canonical::canonical;
use crate::journal::{ArgsDigest, CallIndex};
use crate::limits::Limit;
use crate::record::CompletedCall;
use crate::stored::StoredValues;

/// The outcome of one step. Serialises as the response of `dacapo step`.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    #[serde(flatten)]
    /// Where the program stands now.
    pub outcome: Outcome,
    /// What the program has logged since its start, replayed parts included.
    pub logs: Vec<LogLine>,
    /// What the program has used since its start.
    pub usage: ResourceUsage,
    /// Calls that the record answered: they were not executed again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reused: Vec<MadeCall>,
    /// What a later program may [reuse](crate::StepRequest::reuse), oldest first. If the program failed: what it was given,
    /// and the calls that it completed. If it succeeded: what it was given and has not used. Empty while it is paused.
    #[serde(skip)]
    pub record: Vec<CompletedCall>,
    /// What this and earlier programs have kept so far, for the [request](crate::StepRequest::stored) of the next program. A
    /// program that exceeded a limit keeps nothing, so that this is what it was given.
    #[serde(skip_serializing_if = "StoredValues::is_empty")]
    pub stored: StoredValues,
    /// What the answers of tools without an output schema looked like; empty while the program is paused.
    #[serde(skip)]
    pub shapes: Vec<ToolShape>,
}

impl Step {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        /// Bytes besides its texts.
        const OVERHEAD: usize = 1 << 10;
        let result = match &self.outcome {
            Outcome::Finished { result: Ok(data) } => data.get().len(),
            Outcome::Finished { result: Err(failure) } => {
                let texts = [&failure.message, &failure.stack, failure.frame.as_ref().unwrap_or(&failure.name)];
                texts.map(String::len).iter().sum()
            }
            Outcome::Paused { .. } => 0,
        };
        let logs = self.logs.iter().map(|line| line.text.len()).sum::<usize>();
        OVERHEAD + result + logs + self.stored.bytes() + self.record.iter().map(CompletedCall::bytes).sum::<usize>()
    }
}

/// What the answers of a tool looked like. Reads as `get_order returns { id: string }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolShape {
    /// What a program writes to call the tool.
    pub function: String,
    /// A TypeScript type without values.
    pub shape: String,
}

impl fmt::Display for ToolShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returns {}", self.function, self.shape)
    }
}

/// Characters of shapes that go with one result.
const SHAPES_CHARS_MAX: usize = 2_000;

impl ToolShape {
    /// The lines that go with the result of a program, within a budget: the shapes of all answers if the program failed, and
    /// else those of functions that are not in `known`. All that are returned are added to `known`.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use dacapo_replay::ToolShape;
    /// let shapes = [ToolShape { function: "get_order".to_owned(), shape: "{ id: string }".to_owned() }];
    /// let mut known = BTreeSet::new();
    /// assert_eq!(ToolShape::lines(&shapes, false, &mut known), ["get_order returns { id: string }"]);
    /// assert!(ToolShape::lines(&shapes, false, &mut known).is_empty(), "the model has read it");
    /// ```
    pub fn lines(shapes: &[ToolShape], is_failed: bool, known: &mut BTreeSet<String>) -> Vec<String> {
        let mut chars_left = SHAPES_CHARS_MAX;
        let mut lines = Vec::new();
        for shape in shapes {
            let line = shape.to_string();
            let chars = line.chars().count();
            if (is_failed || !known.contains(&shape.function)) && chars <= chars_left {
                chars_left -= chars;
                lines.push(line);
                known.insert(shape.function.clone());
            }
        }
        lines
    }
}

/// Where a program stands at the end of a step.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The program waits for answers that the journal does not hold.
    Paused {
        /// The calls without an answer, in issue order. Any of them may be answered first.
        calls: Vec<Call>,
    },
    /// The program is over.
    Finished {
        /// What it returned, as JSON, or why it did not return.
        #[serde(serialize_with = "serialize_result")]
        result: Result<Box<RawValue>, Box<ProgramFailure>>,
    },
}

/// A call that waits for its answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Which call of the program it is.
    pub call: CallIndex,
    /// The tool's qualified name, `name` or `server.name`.
    pub tool: String,
    /// The arguments, checked against the tool's input schema.
    pub args: Value,
    /// An idempotency key: the same on every replay and every replica, so that a call is not executed twice.
    pub key: String,
}

impl Call {
    /// Enough of the arguments to compare them later; see [`JournalEntry::with_digest`](crate::JournalEntry::with_digest).
    pub fn args_digest(&self) -> ArgsDigest {
        ArgsDigest::of(&canonical(&self.args))
    }
}

/// One line that the program wrote with `console`, or a warning about the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Which function of `console` wrote it.
    #[serde(serialize_with = "serialize_level")]
    pub level: LogLevel,
    /// The arguments as text.
    pub text: String,
}

/// What the program has used since its start, replayed parts included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ResourceUsage {
    /// Instructions executed; see [`Limit::Fuel`].
    pub fuel: u64,
    /// Size of its memory, which never shrinks; see [`Limit::MemoryBytes`].
    pub memory_bytes: usize,
}

/// Why a program did not return, in words for the model that wrote it.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramFailure {
    /// What kind of failure it is.
    #[serde(flatten)]
    pub kind: ErrorKind,
    /// The error's `name`, such as `TypeError`.
    pub name: String,
    /// The error's `message`, or what to do about a limit.
    pub message: String,
    /// What may help to correct the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The line where it happened, from 1; like column, frame and stack, it refers to the source that the model wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column where it happened, from 1, in Unicode code points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The source lines around it, with a caret under the column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// One line per function that was running, innermost first; empty if the engine reported none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The error's `cause`, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Calls that were answered. Their effects have happened.
    pub completed: Vec<MadeCall>,
    /// Calls that were not answered. They may have been executed.
    pub unfinished: Vec<MadeCall>,
}

impl fmt::Display for ProgramFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.message)
    }
}

impl std::error::Error for ProgramFailure {}

/// The kinds of failure of a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ErrorKind {
    /// The program threw, or awaited something that rejected.
    Exception {
        /// The tool whose call failed, if the error is a `ToolError`.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        /// The `data` of a `ToolError`.
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Value>,
        /// What was wrong with the arguments of a call: `path`, `expected` and `found` of each violation.
        #[serde(skip_serializing_if = "Option::is_none")]
        violations: Option<Value>,
    },
    /// The program does not parse.
    Syntax,
    /// The program exceeded a limit.
    Limit {
        /// Which one.
        limit: Limit,
        /// Its value.
        value: u64,
    },
    /// The program waits for a promise that nothing will ever settle.
    Deadlock,
    /// The program made other calls than the journal recorded.
    Diverged {
        /// The journal entry that does not fit, like `journal[2]`.
        path: String,
        /// The call that the entry answers.
        recorded: ComparedCall,
        /// The call that the program made instead; `None` if it made fewer calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        actual: Option<ComparedCall>,
    },
    /// The sandbox failed: a defect of Da Capo, not of the program.
    Internal,
}

/// A call that a program made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MadeCall {
    /// Which call of the program it is.
    pub call: CallIndex,
    /// The tool's qualified name, `name` or `server.name`.
    pub tool: String,
    /// The arguments. If their JSON is long: a text with its beginning, which says how much is missing.
    pub args: Value,
}

impl MadeCall {
    /// The most characters of JSON that `args` has.
    pub const ARGS_CHARS_MAX: usize = 300;

    /// A call with these arguments, shortened if they are long.
    pub fn new(call: CallIndex, tool: impl Into<String>, args: Value) -> MadeCall {
        let json = args.to_string();
        let count = json.chars().count();
        let args = if count <= MadeCall::ARGS_CHARS_MAX {
            args
        } else {
            let shown: String = json.chars().take(MadeCall::ARGS_CHARS_MAX).collect();
            Value::from(format!("{shown}… ({} more characters)", count - MadeCall::ARGS_CHARS_MAX))
        };
        MadeCall { call, tool: tool.into(), args }
    }
}

/// One side of a divergence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedCall {
    /// The tool's qualified name, `name` or `server.name`.
    pub tool: String,
    /// The arguments; `None` if the journal recorded a digest of them, or nothing.
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
