//! Programs that wait between two requests: their client asks a person, and calls again with the answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::program_task::{ApprovalRequest, CallLedger, CallSummary, ProgramDigest, ProgramTask};
use crate::lock::lock;

/// Suspended programs, by the `requestState` that their clients send with the next request.
#[derive(Debug, Default)]
pub(super) struct SuspendedPrograms(Mutex<SuspendedStates>);

#[derive(Debug, Default)]
struct SuspendedStates {
    waiting: BTreeMap<String, SuspendedProgram>,
    /// States that were used or have expired, the oldest first.
    past: VecDeque<(String, ProgramDigest, Arc<CallLedger>)>,
}

/// What a `requestState` stands for.
#[derive(Debug)]
pub(super) enum ResumeOutcome {
    Resumed(Box<SuspendedProgram>),
    /// The state belongs to another program than the one that was sent with it. That program goes on waiting.
    OtherProgram,
    /// The state was used before, or came too late.
    Expired(CallSummary),
    Unknown,
}

#[derive(Debug)]
pub(super) struct SuspendedProgram {
    pub(super) task: ProgramTask,
    pub(super) requests: BTreeMap<String, ApprovalRequest>,
}

/// A person may take this long to decide. After that a suspended program is cancelled.
pub(super) const APPROVAL_TIMEOUT: Duration = Duration::from_mins(10);
pub(super) const SUSPENDED_MAX: usize = 64;
const PAST_MAX: usize = 1_000;

/// A state that nobody can guess.
pub(super) fn random_state() -> String {
    let mut entropy = [0; 16];
    getrandom::fill(&mut entropy).expect("the system has randomness");
    format!("{:032x}", u128::from_le_bytes(entropy))
}

impl SuspendedPrograms {
    /// Whether this program waits here, under this state.
    pub(super) fn has(&self, state: &str, digest: ProgramDigest) -> bool {
        lock(&self.0).waiting.get(state).is_some_and(|program| program.task.digest == digest)
    }

    /// Keeps a program and returns its state. An error if too many programs wait already.
    pub(super) fn put(self: &Arc<Self>, program: SuspendedProgram) -> Result<String, CallSummary> {
        let state = random_state();
        let mut states = lock(&self.0);
        if states.waiting.len() >= SUSPENDED_MAX {
            return Err(program.task.ledger.summary());
        }
        states.waiting.insert(state.clone(), program);
        let (programs, expiring) = (Arc::downgrade(self), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(APPROVAL_TIMEOUT).await;
            if let Some(programs) = programs.upgrade() {
                // Dropped after the lock is free.
                let expired = lock(&programs.0).take(&expiring);
                drop(expired);
            }
        });
        Ok(state)
    }

    /// Takes a program out. A state can be used once, with the program that it was made for.
    pub(super) fn take(&self, state: &str, digest: ProgramDigest) -> ResumeOutcome {
        let mut states = lock(&self.0);
        if states.waiting.get(state).is_some_and(|program| program.task.digest != digest) {
            return ResumeOutcome::OtherProgram;
        }
        if let Some(program) = states.take(state) {
            return ResumeOutcome::Resumed(Box::new(program));
        }
        match states.past.iter().find(|(past, ..)| past == state) {
            Some((_, other, _)) if *other != digest => ResumeOutcome::OtherProgram,
            Some((_, _, ledger)) => ResumeOutcome::Expired(ledger.summary()),
            None => ResumeOutcome::Unknown,
        }
    }
}

impl SuspendedStates {
    fn take(&mut self, state: &str) -> Option<SuspendedProgram> {
        let program = self.waiting.remove(state)?;
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((state.to_owned(), program.task.digest, Arc::clone(&program.task.ledger)));
        Some(program)
    }
}
