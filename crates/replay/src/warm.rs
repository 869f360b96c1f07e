//! Paused programs kept in memory. A cache: what is not here is replayed.

use std::collections::{BTreeMap, HashMap};

use crate::run::Run;

/// Stands for program, tools, limits, record and the journal so far.
pub(crate) type Key = [u8; 32];

/// What a paused program takes besides the memory it has grown.
const BYTES_PER_PROGRAM: usize = 256 << 10;

pub(crate) struct Warm {
    programs_max: usize,
    bytes_max: usize,
    bytes: usize,
    runs: HashMap<Key, (u64, Run)>,
    /// By last use, oldest first.
    order: BTreeMap<u64, Key>,
    clock: u64,
}

impl Warm {
    pub(crate) fn new(programs_max: usize, bytes_max: usize) -> Warm {
        Warm { programs_max, bytes_max, bytes: 0, runs: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    pub(crate) fn take(&mut self, key: &Key) -> Option<Run> {
        let (used, run) = self.runs.remove(key)?;
        self.order.remove(&used);
        self.bytes -= size(&run);
        Some(run)
    }

    /// Returns what had to make room, for the caller to drop where nobody waits for it.
    pub(crate) fn put(&mut self, key: Key, run: Run) -> Vec<Run> {
        let mut evicted: Vec<Run> = self.take(&key).into_iter().collect();
        self.clock += 1;
        self.bytes += size(&run);
        self.order.insert(self.clock, key);
        self.runs.insert(key, (self.clock, run));
        while self.runs.len() > self.programs_max || self.bytes > self.bytes_max {
            evicted.extend(self.evict());
        }
        evicted
    }

    /// The program that nobody has asked for the longest.
    pub(crate) fn evict(&mut self) -> Option<Run> {
        let (_, key) = self.order.first_key_value()?;
        let key = *key;
        self.take(&key)
    }
}

fn size(run: &Run) -> usize {
    BYTES_PER_PROGRAM + run.memory_bytes()
}
