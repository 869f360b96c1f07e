//! Programs that wait for their clients to come back with what a person said.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock::lock;
use crate::running::{Account, Identity, Ledger, Question, Running};

/// Programs whose clients are away to ask a person, by the state that they will bring back.
#[derive(Debug, Default)]
pub(crate) struct Suspended(Mutex<States>);

#[derive(Debug, Default)]
struct States {
    waiting: BTreeMap<String, Away>,
    /// Those that are no longer good, the oldest first.
    past: VecDeque<(String, Identity, Arc<Ledger>)>,
}

/// What came of a state that a client brought back.
#[derive(Debug)]
pub(crate) enum Return {
    Welcome(Box<Away>),
    /// It is for another program, which goes on waiting.
    OtherProgram,
    /// It was used before, or came too late.
    Past(Account),
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) running: Running,
    pub(crate) asked: BTreeMap<String, Question>,
}

/// People take their time, but a program that nobody comes back for must not stay.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);
pub(crate) const SUSPENDED_MAX: usize = 64;
const PAST_MAX: usize = 1_000;

impl Suspended {
    /// An error if too many programs wait already.
    pub(crate) fn put(self: &Arc<Self>, away: Away) -> Result<String, Account> {
        let mut chance = [0; 16];
        getrandom::fill(&mut chance).expect("the system has randomness");
        let state = format!("{:032x}", u128::from_le_bytes(chance));
        let mut states = lock(&self.0);
        if states.waiting.len() >= SUSPENDED_MAX {
            return Err(away.running.ledger.account());
        }
        states.waiting.insert(state.clone(), away);
        let (suspended, forgotten) = (Arc::downgrade(self), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            if let Some(suspended) = suspended.upgrade() {
                let away = lock(&suspended.0).take(&forgotten);
                drop(away);
            }
        });
        Ok(state)
    }

    /// Each state is good for one return, of the program that it was given to.
    pub(crate) fn back(&self, state: &str, identity: Identity) -> Return {
        let mut states = lock(&self.0);
        if states.waiting.get(state).is_some_and(|away| away.running.identity != identity) {
            return Return::OtherProgram;
        }
        if let Some(away) = states.take(state) {
            return Return::Welcome(Box::new(away));
        }
        match states.past.iter().find(|(past, ..)| past == state) {
            Some((_, other, _)) if *other != identity => Return::OtherProgram,
            Some((_, _, ledger)) => Return::Past(ledger.account()),
            None => Return::Unknown,
        }
    }
}

impl States {
    fn take(&mut self, state: &str) -> Option<Away> {
        let away = self.waiting.remove(state)?;
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((state.to_owned(), away.running.identity, Arc::clone(&away.running.ledger)));
        Some(away)
    }
}
