//! The calls of one program: on their way, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use dacapo_replay::{Call, CallIndex, LogLine, MadeCall};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

use crate::ask::{Attachment, Refusal, Told};
use crate::run::{Moment, Progress, Watcher};

/// Handing a step to another thread and back takes about as long as this: answers that come sooner save as much as they
/// are waited for.
const QUIET: Duration = Duration::from_micros(50);
const GATHERING_MAX: Duration = Duration::from_millis(1);

pub(crate) struct Round<'a> {
    pub(crate) flying: FuturesUnordered<BoxFuture<'a, Landed>>,
    pub(crate) flights: Flights,
    pub(crate) watcher: Watcher<'a>,
}

/// A call that has come back.
pub(crate) struct Landed {
    pub(crate) call: Call,
    pub(crate) told: Result<Told, Refusal>,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    /// It never left us.
    Refused,
}

/// What is known of a program's calls.
#[derive(Default)]
pub(crate) struct Flights {
    pub(crate) issued: BTreeSet<CallIndex>,
    pub(crate) open: BTreeMap<CallIndex, String>,
    pub(crate) completed: Vec<MadeCall>,
    pub(crate) refused: Vec<MadeCall>,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) attachment_bytes: usize,
    pub(crate) logs: Vec<LogLine>,
}

impl Flights {
    /// Calls are handed out in the order of their numbers.
    pub(crate) fn next(&self) -> CallIndex {
        CallIndex(self.issued.last().map_or(0, |last| last.0 + 1))
    }

    pub(crate) fn has_settled(&self, call: CallIndex) -> bool {
        self.issued.contains(&call) && !self.open.contains_key(&call)
    }

    pub(crate) fn unfinished(&self) -> Vec<MadeCall> {
        self.open.iter().map(|(call, tool)| MadeCall { call: *call, tool: tool.clone() }).collect()
    }
}

impl Round<'_> {
    /// Waits for answers that come right behind others.
    pub(crate) async fn gather(&mut self, landed: &mut Vec<Landed>) {
        let began = Instant::now();
        let mut last = began;
        loop {
            let before = landed.len();
            while let Some(Some(next)) = self.flying.next().now_or_never() {
                landed.push(next);
            }
            let now = Instant::now();
            if landed.len() > before {
                last = now;
            }
            if self.flying.is_empty() || now - last > QUIET || now - began > GATHERING_MAX {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn tell(&self, tool: &str, moment: Moment) {
        let made = self.flights.issued.len();
        let done = made - self.flights.open.len();
        (self.watcher)(Progress { tool, moment, done, made });
    }
}

/// Those whose handles occur in the data. A handle is a string without escapes, so it can be found in the text.
pub(crate) fn in_order_of_handles(attachments: Vec<Attachment>, data: &str) -> Vec<Attachment> {
    let place = |attachment: Attachment| {
        let quoted = Value::from(attachment.handle.as_str()).to_string();
        data.find(&quoted).map(|at| (at, attachment))
    };
    let mut found: Vec<(usize, Attachment)> = attachments.into_iter().filter_map(place).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, attachment)| attachment).collect()
}
