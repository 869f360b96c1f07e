//! What a program came to.

use std::collections::BTreeMap;
use std::time::Duration;

use dacapo_replay::{LogLine, MadeCall, ProgramFailure};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ask::Attachment;

/// One program, run to its end.
#[derive(Debug)]
pub struct Execution {
    pub result: Result<Box<RawValue>, Fault>,
    pub logs: Vec<LogLine>,
    /// How often each tool was called, whatever came of it; what was not allowed does not count.
    pub calls: BTreeMap<String, u64>,
    /// Calls that were not made: not allowed, or not possible.
    pub refused: Vec<MadeCall>,
    /// Calls that were sent and not waited for: they may have taken effect.
    pub unfinished: Vec<MadeCall>,
    /// What the handles in the returned data stand for, in the order of the data.
    pub attachments: Vec<Attachment>,
    pub duration: Duration,
}

/// Why there is no result.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Fault {
    /// The program's own.
    Failed(Box<ProgramFailure>),
    Stopped(Box<Stopped>),
}

/// A program that was ended from outside, in the shape of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stopped {
    pub kind: StopKind,
    pub name: &'static str,
    pub message: String,
    pub completed: Vec<MadeCall>,
    pub unfinished: Vec<MadeCall>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopKind {
    /// It took too much wall-clock time.
    Limit,
    Cancelled,
    /// This machine failed, not the program.
    Internal,
}

impl Fault {
    pub(crate) fn name(&self) -> &str {
        match self {
            Fault::Failed(failure) => &failure.name,
            Fault::Stopped(stopped) => stopped.name,
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
