//! Memories of programs that ended, for the next ones: they start in a fraction of the time that a new memory takes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::guest_memory::GuestMemory;

/// What all of them together may take.
const IDLE_BYTES_MAX: usize = 32 << 20;

pub(crate) struct IdleMemories<H: 'static> {
    list: Mutex<IdleList<H>>,
    /// A new memory, if there is room for one.
    make: Box<dyn Fn() -> Option<GuestMemory<H>> + Send + Sync>,
}

struct IdleList<H: 'static> {
    /// The last one is the first to be used again: more of it is in the processor's caches.
    memories: Vec<GuestMemory<H>>,
    bytes: usize,
    /// So many of the first were not used since unused ones were last given back.
    unused: usize,
}

impl<H> IdleMemories<H> {
    pub(crate) fn new(make: impl Fn() -> Option<GuestMemory<H>> + Send + Sync + 'static) -> IdleMemories<H> {
        let list = Mutex::new(IdleList { memories: Vec::new(), bytes: 0, unused: 0 });
        IdleMemories { list, make: Box::new(make) }
    }

    /// The memory that was used last.
    pub(crate) fn take(&self) -> Option<GuestMemory<H>> {
        let mut list = self.list();
        let memory = list.memories.pop()?;
        list.bytes -= memory.kept_bytes();
        list.unused = list.unused.min(list.memories.len());
        Some(memory)
    }

    /// Takes the memory of a program that has ended, if there is room for it. Where it cannot be made as new, a new one takes
    /// its place, so that the next program need not wait for its pages.
    pub(crate) fn put(&self, mut memory: GuestMemory<H>) {
        // Without the lock: it takes longer than all else here.
        if self.list().bytes >= IDLE_BYTES_MAX {
            return;
        }
        if !memory.reset() {
            let written = memory.written_pages();
            drop(memory);
            let Some(made) = (self.make)() else { return };
            memory = made;
            memory.take_pages(&written);
        }
        let mut list = self.list();
        if list.bytes + memory.kept_bytes() <= IDLE_BYTES_MAX {
            list.bytes += memory.kept_bytes();
            list.memories.push(memory);
        }
    }

    /// Gives all of them back.
    pub(crate) fn release(&self) {
        let mut list = self.list();
        let released = std::mem::take(&mut list.memories);
        (list.bytes, list.unused) = (0, 0);
        // After the lock was released: the system has much to do for each of them.
        drop(list);
        drop(released);
    }

    /// Gives back those that were not used since the last call.
    pub(crate) fn release_unused(&self) {
        let mut list = self.list();
        let unused = list.unused;
        let released: Vec<GuestMemory<H>> = list.memories.drain(..unused).collect();
        list.bytes -= released.iter().map(GuestMemory::kept_bytes).sum::<usize>();
        list.unused = list.memories.len();
        drop(list);
        drop(released);
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.list().memories.len()
    }

    fn list(&self) -> MutexGuard<'_, IdleList<H>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
