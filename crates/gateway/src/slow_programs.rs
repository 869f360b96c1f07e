//! Programs that have taken too long for a thread that serves connections.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dacapo_lru::{CacheKey, LruCache};
use sha2::{Digest, Sha256};

/// The last programs that were interrupted there. An interrupted program loses its memory and is replayed from its start on
/// another thread. Its next rounds begin on that thread, so that this happens once and not in every round.
#[derive(Debug)]
pub(crate) struct SlowPrograms(Mutex<LruCache<()>>);

const PROGRAMS_MAX: usize = 1_024;

impl Default for SlowPrograms {
    fn default() -> SlowPrograms {
        SlowPrograms(Mutex::new(LruCache::new(PROGRAMS_MAX, usize::MAX)))
    }
}

impl SlowPrograms {
    /// Remembers a program of this client.
    pub(crate) fn add(&self, client: &str, code: &str) {
        let key = key(client, code);
        drop(self.cache().put(key, (), 0));
    }

    /// Whether it was interrupted. What one client ran says nothing to another.
    pub(crate) fn has(&self, client: &str, code: &str) -> bool {
        if self.cache().count() == 0 {
            return false;
        }
        let key = key(client, code);
        self.cache().get(&key).is_some()
    }

    fn cache(&self) -> MutexGuard<'_, LruCache<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(client: &str, code: &str) -> CacheKey {
    Sha256::new().chain_update(Sha256::digest(client)).chain_update(code).finalize().into()
}
