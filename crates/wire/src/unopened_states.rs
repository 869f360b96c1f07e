//! States of a request that cannot be opened, for whoever runs the replicas.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sealing_key::UnsealError;

/// Which states a request refers to that cannot be opened, and why. A client that goes on regardless gets an answer, so
/// that only this shows that replicas have different secrets, or that a client shortens ids.
#[derive(Debug, Default)]
pub struct UnopenedStates(Mutex<BTreeMap<String, UnopenedReason>>);

/// Why a state is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnopenedReason {
    /// It is there, and cannot be opened.
    Sealed(UnsealError),
    /// The id refers to a state that was stored, for longer than its time to live.
    Expired,
    /// The id refers to a state that is not stored, and perhaps never was.
    Missing,
}

impl UnopenedStates {
    /// Adds a state by its id, or by the name under which it is stored. One that is there already is not added again.
    pub fn add(&self, id: &str, reason: UnopenedReason) {
        self.lock().entry(id.to_owned()).or_insert(reason);
    }

    /// How many there are for this reason.
    pub fn count(&self, reason: UnopenedReason) -> usize {
        self.lock().values().filter(|other| **other == reason).count()
    }

    /// All of them: ids, or names in the store, and why they cannot be opened.
    pub fn list(&self) -> Vec<(String, UnopenedReason)> {
        self.lock().iter().map(|(id, reason)| (id.clone(), *reason)).collect()
    }

    /// Whether every state could be opened.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, UnopenedReason>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
