//! Calls with effects, before and after they are sent. Whoever finds one here does not send it again.

use std::sync::Arc;

use dacapo_replay::{Answer, Call, Journal, JournalEntry};
use dacapo_runner::StoreError;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Store;
use super::live_record::{LiveRecord, WorkOutcome};
use crate::observe::CallOutcome;

/// One call of one program.
pub(crate) struct CallRecord(LiveRecord);

/// What is to be done about a call.
pub(crate) enum Claim {
    /// Nobody has sent it: it is to be sent, and recorded.
    Send,
    /// It was executed.
    Answered(Answer),
    /// It was sent, and its sender has died.
    Unknown,
}

#[derive(Deserialize)]
struct Answered<'a> {
    #[serde(borrow)]
    answer: &'a RawValue,
}

impl CallRecord {
    pub(crate) fn new(store: &Arc<Store>, tenant: &Arc<str>, call: &Call) -> CallRecord {
        // The key is the same for another call of a program that has got other answers.
        let digest = crate::http::hex(&call.args_digest().0);
        CallRecord(LiveRecord::new(store, tenant, format!("call:{}:{}:{digest}", call.key, call.tool)))
    }

    /// Records that calls are about to be sent. For each, returns what was recorded of it before, if anything: see
    /// [`CallRecord::decide`].
    pub(crate) async fn claim_all(
        store: &Store,
        tenant: &str,
        calls: impl Iterator<Item = &CallRecord> + Clone,
    ) -> Vec<Result<Option<String>, StoreError>> {
        LiveRecord::claim_all(store, tenant, calls.map(|call| &call.0)).await
    }

    /// What is to be done about the call, of which this was recorded before. Waits for the answer while its sender lives.
    pub(crate) async fn decide(&self, known: Option<String>) -> Result<Claim, StoreError> {
        if known.is_none() {
            return Ok(Claim::Send);
        }
        Ok(match self.0.outcome(answer).await? {
            Some(WorkOutcome::Known(answer)) => Claim::Answered(answer),
            // A record that is gone says nothing of the call.
            Some(WorkOutcome::Unknown) | None => Claim::Unknown,
        })
    }

    /// Says that the call is being executed, until it is dropped. Never returns.
    pub(crate) async fn keep_alive(&self) {
        self.0.keep_alive().await;
    }

    /// Records the outcome of the call.
    pub(crate) async fn answered(&self, call: &Call, answer: &Answer) -> Result<(), StoreError> {
        let journal: Journal = [JournalEntry::answering(call, answer.clone())].into_iter().collect();
        self.0.put(&format!(r#"{{"answer":{}}}"#, journal.to_json())).await
    }
}

fn answer(text: &str) -> Option<Answer> {
    let answered: Answered<'_> = serde_json::from_str(text).ok()?;
    let journal = Journal::from_json(answered.answer.get()).ok()?;
    journal.entries().first().map(|entry| entry.answer.clone())
}

/// For the program, about a call that may have been executed.
pub(crate) fn unknown(tool: &str) -> Answer {
    let message = format!(
        "`{tool}` was sent before, and whoever waited for its answer is gone: it is not known whether it took effect; look \
         before you call it again"
    );
    CallOutcome::Unknown.error(message)
}
