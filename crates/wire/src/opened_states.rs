//! States of programs that were opened before: every round of a program carries the same one, and comes back with every
//! request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dacapo_lru::{CacheKey, LruCache};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::seal::PackedState;
use crate::state::RunState;

/// A state as ids carry it, and what it says.
pub(crate) type OpenedState = (Arc<PackedState>, Arc<RunState>);

const STATES_MAX: usize = 512;
const BYTES_MAX: usize = 2 << 20;

/// The states, of all tenants. What one tenant has opened does not hasten a request of another.
pub(crate) struct OpenedStates(Mutex<LruCache<OpenedState>>);

impl Default for OpenedStates {
    fn default() -> OpenedStates {
        OpenedStates::new(STATES_MAX, BYTES_MAX)
    }
}

impl OpenedStates {
    fn new(states_max: usize, bytes_max: usize) -> OpenedStates {
        OpenedStates(Mutex::new(LruCache::new(states_max, bytes_max)))
    }

    /// Reads a state that an id of this tenant held. `None` if it is none of this release.
    pub(crate) fn read(&self, tenant: &str, compressed: &[u8]) -> Option<OpenedState> {
        let tenant = Sha256::digest(tenant);
        let key: CacheKey = Sha256::new().chain_update(tenant).chain_update(compressed).finalize().into();
        if let Some(known) = self.cache().get(&key) {
            return Some(known.clone());
        }
        let (packed, bytes) = PackedState::inflated(compressed)?;
        let opened = (Arc::new(packed), Arc::new(RunState::from_bytes(&bytes)?));
        let _evicted = self.cache().put(key, opened.clone(), compressed.len() + bytes_of(&bytes));
        Some(opened)
    }

    /// Gives up all states. They are read again when they come back.
    pub(crate) fn release(&self) {
        while self.cache().evict().is_some() {}
    }

    fn cache(&self) -> MutexGuard<'_, LruCache<OpenedState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a state takes in memory: its texts twice, because its program is also an argument of a call, and the values of the
/// model's reasoning, of which there may be one in two bytes.
fn bytes_of(state: &[u8]) -> usize {
    let header = state.split(|byte| *byte == 0).next().unwrap_or_default();
    let values = header.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    2 * state.len() + values * size_of::<Value>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_message::{ModelCall, ModelMessage};

    /// A state as ids carry it.
    fn compressed(code: &str) -> Vec<u8> {
        let message = ModelMessage { calls: vec![ModelCall::default()], ..ModelMessage::default() };
        let state = RunState { code: code.to_owned(), model_messages: vec![message], ..RunState::default() };
        PackedState::of(&state).compressed().to_vec()
    }

    #[test]
    fn a_state_is_read_once_for_each_tenant() {
        let states = OpenedStates::default();
        let (one, other) = (compressed("return 1"), compressed("return 2"));
        let read = |tenant: &str, state: &[u8]| states.read(tenant, state).expect("a state").1;
        assert_eq!(read("ann", &one).code, "return 1");
        assert!(Arc::ptr_eq(&read("ann", &one), &read("ann", &one)));
        assert_eq!(read("ann", &other).code, "return 2");
        assert!(!Arc::ptr_eq(&read("ann", &one), &read("bob", &one)));
        let before = read("ann", &one);
        states.release();
        assert!(!Arc::ptr_eq(&read("ann", &one), &before));
        assert!(states.read("ann", b"no state").is_none());
    }

    #[test]
    fn the_bytes_of_all_states_are_bounded() {
        let states = OpenedStates::new(STATES_MAX, 100_000);
        for number in 0..40 {
            let code = format!("{number}: {}", "x".repeat(5_000));
            assert!(states.read("ann", &compressed(&code)).is_some());
        }
        let cache = states.cache();
        let (count, bytes) = (cache.count(), cache.bytes());
        assert!((5..10).contains(&count) && bytes <= 100_000, "{count} states, {bytes} bytes");
        // Small values take many times as much as their text.
        assert!(bytes_of(b"[0,0,0,0,0,0,0,0]\0x") > 8 * size_of::<Value>());
    }
}
