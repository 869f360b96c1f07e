//! One way to take a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock whether or not a thread panicked while it held it. Every change under these locks is one assignment, so
/// the value is whole either way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
