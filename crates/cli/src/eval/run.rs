//! What came of one task, played once.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How tools are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// The model calls them itself.
    Classic,
    /// Programs call them.
    Code,
}

/// A task, played once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EvalRun {
    #[serde(flatten)]
    pub id: EvalRunId,
    pub kind: String,
    /// The last answer is the final one.
    pub answers: Vec<String>,
    /// `None` if the task was done.
    pub failure: Option<EvalFailure>,
    pub cost: RunCost,
}

/// What a result belongs to. Results are reused if all of it is the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct EvalRunId {
    pub task: String,
    /// Of the task's data.
    pub digest: String,
    pub mode: Mode,
    /// Counted from 1.
    pub repeat: u32,
    pub model: String,
    pub upstream: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EvalFailure {
    pub kind: FailureKind,
    pub details: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    WrongAnswer,
    /// The world is not as it should be in the end.
    WrongWorld,
    NoAnswer,
    /// The model went on calling tools.
    TooManyRequests,
    TimedOut,
    /// The model could not be asked, or refused.
    Upstream,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunCost {
    pub model_calls: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub tool_calls: u64,
    pub programs: u64,
    pub seconds: f64,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Classic => "classic",
            Mode::Code => "code",
        }
    }
}

impl FailureKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailureKind::WrongAnswer => "wrong answer",
            FailureKind::WrongWorld => "wrong end state",
            FailureKind::NoAnswer => "no answer",
            FailureKind::TooManyRequests => "too many requests",
            FailureKind::TimedOut => "timed out",
            FailureKind::Upstream => "upstream",
        }
    }
}

impl EvalFailure {
    pub(crate) fn new(kind: FailureKind, detail: impl Into<String>) -> EvalFailure {
        EvalFailure { kind, details: vec![detail.into()] }
    }

    /// From what is wrong with the answers and the world.
    pub(crate) fn of_mistakes(answers: Vec<String>, world: Vec<String>) -> Option<EvalFailure> {
        let kind = match (answers.is_empty(), world.is_empty()) {
            (true, true) => return None,
            (_, false) => FailureKind::WrongWorld,
            (false, true) => FailureKind::WrongAnswer,
        };
        Some(EvalFailure { kind, details: world.into_iter().chain(answers).collect() })
    }
}

impl RunCost {
    pub(crate) fn took(&mut self, time: Duration) {
        self.seconds = time.as_secs_f64();
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
