//! The events of a request.

use std::time::Duration;

use axum::http::StatusCode;
use dacapo_runner::StoreError;
use dacapo_wire::{AppliedMode, TurnUsage, UnopenedStates, Wire};

/// Something that happened to a request. Nothing in it is secret: no key, program, argument or answer.
#[derive(Debug)]
pub(crate) enum Event<'a> {
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
    ProgramStarted,
    /// The program waits for this many calls, which go to the client.
    ProgramPaused {
        calls: usize,
    },
    CallSent {
        tool: &'a str,
    },
    /// The client's request brought answers to calls of a program.
    CallsAnswered {
        count: usize,
    },
    ProgramFinished {
        end: ProgramEnd,
    },
    /// A fault of the gateway itself. The client reads only the request's id.
    Fault {
        message: &'a str,
    },
    StoreFailed {
        error: &'a StoreError,
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

/// How a request ended.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// The client got what it asked for.
    Answer { status: StatusCode, usage: Option<Box<TurnUsage>> },
    /// The client got tool calls to execute.
    Calls { usage: Box<TurnUsage> },
    Error {
        status: StatusCode,
        /// Names the kind of error.
        failure: &'static str,
    },
    /// The client disconnected before its response was complete.
    Left,
}
