//! A cache of the most recently used values, bounded by a count and a number of bytes.
//!
//! Values are found by a 32-byte digest of what they were made from. The caller says how many bytes a value takes, and
//! drops what was evicted: large values are better dropped after a lock has been released. The cache has no lock, no
//! clock and no expiry of its own.
//!
//! Start reading at [`LruCache::put`].

#![warn(missing_docs)]

use std::collections::{BTreeMap, HashMap};

/// Digest of what a value was made from.
pub type CacheKey = [u8; 32];

/// A bounded cache that evicts the least recently used values first.
///
/// ```
/// let mut cache = dacapo_lru::LruCache::new(1, 1_000);
/// assert!(cache.put([1; 32], "one", 3).is_empty());
/// assert_eq!(cache.put([2; 32], "two", 3), ["one"]);
/// assert_eq!(cache.get(&[2; 32]), Some(&"two"));
/// ```
#[derive(Debug)]
pub struct LruCache<T> {
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
    slots: HashMap<CacheKey, CacheSlot<T>>,
    /// By last use, oldest first.
    order: BTreeMap<u64, CacheKey>,
    /// Counts uses.
    clock: u64,
    /// The clock when the period began.
    period_began: u64,
}

#[derive(Debug)]
struct CacheSlot<T> {
    value: T,
    bytes: usize,
    used: u64,
}

impl<T> LruCache<T> {
    /// An empty cache for at most `count_max` values that take at most `bytes_max` together.
    pub fn new(count_max: usize, bytes_max: usize) -> LruCache<T> {
        LruCache {
            count_max,
            bytes_max,
            bytes: 0,
            slots: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            period_began: 0,
        }
    }

    /// The value under this key, which counts as a use.
    pub fn get(&mut self, key: &CacheKey) -> Option<&T> {
        let slot = self.slots.get_mut(key)?;
        self.clock += 1;
        self.order.remove(&slot.used);
        self.order.insert(self.clock, *key);
        slot.used = self.clock;
        Some(&slot.value)
    }

    /// Removes the value under this key.
    pub fn take(&mut self, key: &CacheKey) -> Option<T> {
        let slot = self.slots.remove(key)?;
        self.order.remove(&slot.used);
        self.bytes -= slot.bytes;
        Some(slot.value)
    }

    /// Puts a value that takes `bytes` under this key. Returns the values that had to go: an earlier one under the same
    /// key, the least recently used ones, and this one itself if it is too large.
    pub fn put(&mut self, key: CacheKey, value: T, bytes: usize) -> Vec<T> {
        let mut evicted: Vec<T> = self.take(&key).into_iter().collect();
        self.clock += 1;
        self.bytes += bytes;
        self.order.insert(self.clock, key);
        self.slots.insert(key, CacheSlot { value, bytes, used: self.clock });
        while self.slots.len() > self.count_max || self.bytes > self.bytes_max {
            evicted.extend(self.evict());
        }
        evicted
    }

    /// How many values there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// How many bytes they take together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes the least recently used value.
    pub fn evict(&mut self) -> Option<T> {
        let key = *self.order.first_key_value()?.1;
        self.take(&key)
    }

    /// Removes the least recently used value, if it was not used in this period.
    pub fn evict_unused(&mut self) -> Option<(CacheKey, T)> {
        let key = *self.order.first_key_value().filter(|(used, _)| **used <= self.period_began)?.1;
        self.take(&key).map(|value| (key, value))
    }

    /// From now on, only what is used counts as used.
    pub fn begin_period(&mut self) {
        self.period_began = self.clock;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_make_room_for_count_and_for_bytes() {
        let key = |name: u8| [name; 32];
        let mut cache = LruCache::new(2, 100);
        assert_eq!(cache.put(key(1), "one", 10), [] as [&str; 0]);
        assert_eq!(cache.put(key(2), "two", 10), [] as [&str; 0]);
        assert_eq!(cache.get(&key(1)), Some(&"one"));
        assert_eq!(cache.put(key(3), "three", 10), ["two"], "one was used later");
        assert_eq!(cache.put(key(3), "again", 95), ["three", "one"]);
        assert_eq!(cache.put(key(4), "too large", 101), ["again", "too large"]);
        assert_eq!((cache.bytes, cache.evict()), (0, None));
    }

    #[test]
    fn what_is_used_in_a_period_stays() {
        let mut cache = LruCache::new(3, 100);
        for name in 1..=3 {
            assert!(cache.put([name; 32], name, 10).is_empty());
        }
        assert_eq!(cache.evict_unused(), None, "all of them are new");
        cache.begin_period();
        assert_eq!(cache.get(&[2; 32]), Some(&2));
        assert_eq!(cache.evict_unused(), Some(([1; 32], 1)));
        assert_eq!(cache.evict_unused(), Some(([3; 32], 3)));
        assert_eq!(cache.evict_unused(), None, "it was used");
        cache.begin_period();
        assert_eq!(cache.evict_unused(), Some(([2; 32], 2)));
        assert_eq!((cache.bytes, cache.evict()), (0, None));
    }
}
