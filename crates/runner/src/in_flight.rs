//! The calls of one program: those that are being executed, and what became of the others.

use std::collections::{BTreeMap, BTreeSet};

use dacapo_replay::{
    Answer, Attachment, Call, CallIndex, CompletedCall, Journal, JournalEntry, LogLine, MadeCall, handles_in,
};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use crate::runner::{CallPhase, CallProgress, ProgressSink, RunProgress};
use crate::tool_host::{CallError, ToolOutput};

/// Calls that are being executed.
pub(crate) struct InFlight<'a> {
    pub(crate) futures: FuturesUnordered<BoxFuture<'a, Completed>>,
    pub(crate) tracker: CallTracker,
    pub(crate) progress: ProgressSink<'a>,
}

/// A call that is over.
pub(crate) struct Completed {
    pub(crate) call: Call,
    pub(crate) output: Result<ToolOutput, CallError>,
    pub(crate) disposition: Disposition,
}

/// Whether a call was sent to its server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    Sent,
    Refused,
}

/// What became of each call of a program.
pub(crate) struct CallTracker {
    /// The first call that is not issued yet. Calls are issued in the order of their indexes.
    pub(crate) next: CallIndex,
    /// Every call that the program has made.
    pub(crate) made: BTreeMap<CallIndex, MadeCall>,
    pub(crate) open: BTreeSet<CallIndex>,
    /// In the order in which they were settled, like `refused`.
    pub(crate) completed: Vec<CallIndex>,
    pub(crate) refused: Vec<CallIndex>,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) attachment_bytes: usize,
    pub(crate) logs: Vec<LogLine>,
    /// Calls that a record has answered.
    pub(crate) reused: Vec<MadeCall>,
}

impl CallTracker {
    /// Of a program that has got these answers so far. Its open calls are issued again.
    pub(crate) fn of(journal: &Journal, refused: Vec<CallIndex>) -> CallTracker {
        let made = journal.entries().iter().map(|entry| {
            let args = entry.args().unwrap_or_default();
            (entry.call, MadeCall::new(entry.call, entry.tool.as_str(), args))
        });
        let sent = journal.entries().iter().map(|entry| entry.call).filter(|call| !refused.contains(call));
        CallTracker {
            next: CallIndex(0),
            made: made.collect(),
            open: BTreeSet::new(),
            completed: sent.collect(),
            refused,
            attachments: Vec::new(),
            attachment_bytes: 0,
            logs: Vec::new(),
            reused: Vec::new(),
        }
    }

    pub(crate) fn has_settled(&self, call: CallIndex) -> bool {
        self.made.contains_key(&call) && !self.open.contains(&call)
    }

    /// Calls that have succeeded, in the order of the journal.
    pub(crate) fn succeeded(journal: &[JournalEntry]) -> Vec<CompletedCall> {
        let succeeded = |entry: &JournalEntry| match &entry.answer {
            Answer::Ok(ok) => Some(CompletedCall::new(entry.tool.as_str(), &entry.args()?, ok.clone())),
            Answer::Error { .. } => None,
        };
        journal.iter().filter_map(succeeded).collect()
    }

    pub(crate) fn list<'a>(&self, calls: impl IntoIterator<Item = &'a CallIndex>) -> Vec<MadeCall> {
        calls.into_iter().map(|call| self.made[call].clone()).collect()
    }
}

impl InFlight<'_> {
    pub(crate) fn report(&self, tool: &str, phase: CallPhase) {
        let made = self.tracker.made.len();
        let done = made - self.tracker.open.len();
        (self.progress)(RunProgress::Call(CallProgress { tool, phase, done, made }));
    }

    /// Takes all that the program has written so far, and reports what is new.
    pub(crate) fn keep_logs(&mut self, logs: Vec<LogLine>) {
        for line in logs.iter().skip(self.tracker.logs.len()) {
            (self.progress)(RunProgress::Log(line));
        }
        self.tracker.logs = logs;
    }
}

/// The attachments whose handles are in the text, in the order of the text.
pub(crate) fn in_order_of_handles(mut attachments: Vec<Attachment>, text: &str) -> Vec<Attachment> {
    let places: BTreeMap<&str, usize> = handles_in(text).into_iter().zip(0..).collect();
    attachments.retain(|attachment| places.contains_key(attachment.handle.as_str()));
    attachments.sort_by_key(|attachment| places.get(attachment.handle.as_str()));
    attachments
}
