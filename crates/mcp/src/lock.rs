//! One way to take a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a panic elsewhere left half done here is whole: every change is one assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
