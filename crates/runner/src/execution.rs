//! The outcome of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use dacapo_replay::{Attachment, CompletedCall, LogLine, MadeCall, ProgramFailure, StoredValues, ToolShape};
use serde::Serialize;
use serde_json::value::RawValue;

/// One program, run to its end.
#[derive(Debug)]
pub struct Execution {
    /// What the program returned, as JSON, or why it did not return.
    pub result: Result<Box<RawValue>, RunError>,
    /// What the program logged.
    pub logs: Vec<LogLine>,
    /// How often each tool was called, whether it answered, failed or was not waited for. Refused calls do not count.
    pub calls: BTreeMap<String, u64>,
    /// Calls that were not sent: not allowed, or not possible.
    pub refused: Vec<MadeCall>,
    /// Calls that were sent and not waited for. They may have taken effect.
    pub unfinished: Vec<MadeCall>,
    /// Attachments whose handles are in what the program returned or wrote, in this order.
    pub attachments: Vec<Attachment>,
    /// What this and earlier programs keep for later ones.
    pub stored: StoredValues,
    /// Calls that the record of earlier programs answered: they were not sent.
    pub reused: Vec<MadeCall>,
    /// If it failed or was stopped: what it was given to reuse, the calls that it completed, and those of which it is not
    /// known whether they took effect. The next program may reuse it.
    pub record: Vec<CompletedCall>,
    /// What the answers of tools without an output schema looked like.
    pub shapes: Vec<ToolShape>,
    /// Wall-clock time of the run, approvals included.
    pub duration: Duration,
}

/// Why there is no result.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum RunError {
    /// The program failed.
    Failed(Box<ProgramFailure>),
    /// The program was ended from outside.
    Stopped(Box<StoppedRun>),
}

/// A program that was ended from outside. Serialises like a [`ProgramFailure`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoppedRun {
    /// What ended it.
    pub kind: StopKind,
    /// The name of the error, as in JavaScript.
    pub name: &'static str,
    /// What happened, and what to do about it.
    pub message: String,
    /// Calls that were answered.
    pub completed: Vec<MadeCall>,
    /// Calls that the program made and that were not answered.
    pub unfinished: Vec<MadeCall>,
}

/// What ended a program from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopKind {
    /// It took more wall-clock time than [`RunLimits`](crate::RunLimits) allow.
    Limit,
    /// The caller cancelled it.
    Cancelled,
    /// The runner failed, not the program.
    Internal,
}

impl RunError {
    /// The name of the error, as in JavaScript: `TypeError`, `ToolError`, `LimitError`.
    pub fn name(&self) -> &str {
        match self {
            RunError::Failed(failure) => &failure.name,
            RunError::Stopped(stopped) => stopped.name,
        }
    }
}

impl StopKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            StopKind::Limit => "LimitError",
            StopKind::Cancelled => "AbortError",
            StopKind::Internal => "InternalError",
        }
    }
}
