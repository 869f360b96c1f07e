//! The events of a request.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use dacapo_replay::{Answer, JsonText};
use dacapo_runner::StoreError;
use dacapo_wire::{AppliedMode, TurnUsage, UnopenedStates, Wire};
use serde_json::{Value, json};

/// Something that happened to a request. Nothing in it is secret: no key, program, argument or answer.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The first event of every request. Of the headers, only those that name a trace may be shown.
    RequestStarted {
        headers: &'a HeaderMap,
    },
    /// The request has a key of this client.
    ClientKnown {
        client: &'a str,
    },
    RequestRead {
        /// The configured client's name; empty if everybody is let in.
        client: &'a str,
        model: &'a str,
        mode: AppliedMode,
    },
    /// The model's wire cannot carry these parameters and tools.
    ParamsDropped {
        client: Wire,
        provider: Wire,
        dropped: &'a [String],
    },
    ModelAsked {
        upstream: &'a str,
    },
    /// The upstream asked to be tried again later.
    ModelRetried {
        upstream: &'a str,
        status: StatusCode,
        wait: Duration,
    },
    ModelResponded {
        upstream: &'a str,
        status: StatusCode,
    },
    /// An upstream could not answer, so another one is asked.
    FellBack {
        from: &'a str,
        to: &'a str,
    },
    /// No response came.
    ModelUnreachable {
        upstream: &'a str,
    },
    /// The first piece of a streamed response is there.
    ModelBegan {
        status: StatusCode,
    },
    /// The response is there as a whole, or broke off.
    ModelFinished {
        status: StatusCode,
        /// That the model read, and wrote, if it is known.
        tokens: Option<(u64, u64)>,
    },
    ProgramStarted,
    /// The program waits for this many calls, which go to the client.
    ProgramPaused {
        calls: usize,
    },
    CallSent {
        tool: &'a str,
    },
    /// The gateway has executed a call itself, or did not send it.
    CallExecuted {
        tool: &'a str,
        outcome: CallOutcome,
        took: Duration,
    },
    /// The client's request brought answers to calls of a program.
    CallsAnswered {
        count: usize,
        /// Of these, those that say that they failed.
        failed: usize,
    },
    ProgramFinished {
        outcome: ProgramOutcome,
    },
    /// What a turn in code mode has used, at its end, whether or not it failed.
    TurnUsed {
        usage: &'a TurnUsage,
        /// That the model read, and wrote.
        tokens: (u64, u64),
    },
    /// A fault of the gateway itself. The client reads only the request's id.
    Fault {
        message: &'a str,
    },
    StoreFailed {
        error: &'a StoreError,
    },
    /// The request has this many programs whose states could be opened.
    StatesOpened {
        count: usize,
    },
    /// The request refers to states that cannot be opened. At most once per request.
    StatesUnopened {
        states: &'a UnopenedStates,
    },
    /// The last event of every request.
    RequestEnded {
        outcome: RequestOutcome,
    },
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    Success,
    Failed,
}

/// How a program ended, by the kind of its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgramOutcome(&'static str);

impl ProgramOutcome {
    const FAILURES: [&str; 7] = ["exception", "syntax", "limit", "deadlock", "diverged", "abandoned", "internal"];

    /// From the result as the model reads it.
    pub(crate) fn of(shown: &Value) -> ProgramOutcome {
        let kind = shown.pointer("/error/kind").and_then(Value::as_str);
        let failure = kind.map(|kind| ProgramOutcome::FAILURES.into_iter().find(|known| *known == kind));
        ProgramOutcome(failure.map_or("success", |known| known.unwrap_or("internal")))
    }

    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

/// The outcome of a call that the gateway executes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Ok,
    Error,
    /// It was not sent.
    Refused,
    /// It was sent before, and its outcome is not known.
    Unknown,
}

impl CallOutcome {
    pub(crate) const ALL: [CallOutcome; 4] =
        [CallOutcome::Ok, CallOutcome::Error, CallOutcome::Refused, CallOutcome::Unknown];

    /// Reads it from the answer that the program gets: errors of the gateway have it in their data.
    pub(crate) fn of(answer: &Answer) -> CallOutcome {
        match answer {
            Answer::Ok(_) => CallOutcome::Ok,
            Answer::Error { data, .. } => {
                let is_data_of = |outcome: &CallOutcome| *data == Some(outcome.error_data());
                [CallOutcome::Refused, CallOutcome::Unknown].into_iter().find(is_data_of).unwrap_or(CallOutcome::Error)
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            CallOutcome::Ok => "ok",
            CallOutcome::Error => "error",
            CallOutcome::Refused => "refused",
            CallOutcome::Unknown => "unknown",
        }
    }

    /// An error of the gateway, not of the tool. Its data says so.
    pub(crate) fn error(self, message: String) -> Answer {
        Answer::Error { message, data: Some(self.error_data()) }
    }

    fn error_data(self) -> JsonText {
        json!({"outcome": self.name()}).into()
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// The client got what it asked for.
    Answer { status: StatusCode },
    /// The client got tool calls to execute.
    Calls,
    Error {
        status: StatusCode,
        /// Names the kind of error.
        failure: &'static str,
    },
    /// The client disconnected before its response was complete.
    Left,
}

impl RequestOutcome {
    /// Its name, the status that the client got, and the kind of error.
    pub(crate) fn parts(&self) -> (&'static str, Option<StatusCode>, Option<&'static str>) {
        match self {
            RequestOutcome::Answer { status } => ("answer", Some(*status), None),
            RequestOutcome::Calls => ("calls", Some(StatusCode::OK), None),
            RequestOutcome::Error { status, failure } => ("error", Some(*status), Some(failure)),
            RequestOutcome::Left => ("left", None, None),
        }
    }
}
