//! Things kept by digest, the most recently used ones, within a count and a number of bytes.

use std::collections::{BTreeMap, HashMap};

pub(crate) type Key = [u8; 32];

#[derive(Debug)]
pub struct LruCache<T> {
    count_max: usize,
    bytes_max: usize,
    bytes: usize,
    kept: HashMap<Key, CacheSlot<T>>,
    /// By last use, oldest first.
    order: BTreeMap<u64, Key>,
    clock: u64,
}

#[derive(Debug)]
struct CacheSlot<T> {
    thing: T,
    bytes: usize,
    used: u64,
}

impl<T> LruCache<T> {
    pub fn new(count_max: usize, bytes_max: usize) -> LruCache<T> {
        LruCache { count_max, bytes_max, bytes: 0, kept: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// A thing that stays, and counts as used.
    pub fn get(&mut self, key: &[u8; 32]) -> Option<&T> {
        let kept = self.kept.get_mut(key)?;
        self.clock += 1;
        self.order.remove(&kept.used);
        self.order.insert(self.clock, *key);
        kept.used = self.clock;
        Some(&kept.thing)
    }

    pub fn take(&mut self, key: &[u8; 32]) -> Option<T> {
        let kept = self.kept.remove(key)?;
        self.order.remove(&kept.used);
        self.bytes -= kept.bytes;
        Some(kept.thing)
    }

    /// Returns what had to make room, for the caller to drop where nobody waits for it.
    pub fn put(&mut self, key: [u8; 32], thing: T, bytes: usize) -> Vec<T> {
        let mut evicted: Vec<T> = self.take(&key).into_iter().collect();
        self.clock += 1;
        self.bytes += bytes;
        self.order.insert(self.clock, key);
        self.kept.insert(key, CacheSlot { thing, bytes, used: self.clock });
        while self.kept.len() > self.count_max || self.bytes > self.bytes_max {
            evicted.extend(self.evict());
        }
        evicted
    }

    /// What nobody has asked for the longest.
    pub fn evict(&mut self) -> Option<T> {
        let key = *self.order.first_key_value()?.1;
        self.take(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_make_room_for_count_and_for_bytes() {
        let key = |name: u8| [name; 32];
        let mut lru_cache = LruCache::new(2, 100);
        assert_eq!(lru_cache.put(key(1), "one", 10), [] as [&str; 0]);
        assert_eq!(lru_cache.put(key(2), "two", 10), [] as [&str; 0]);
        assert_eq!(lru_cache.get(&key(1)), Some(&"one"));
        assert_eq!(lru_cache.put(key(3), "three", 10), ["two"], "one was used later");
        assert_eq!(lru_cache.put(key(3), "again", 95), ["three", "one"]);
        assert_eq!(lru_cache.put(key(4), "too large", 101), ["again", "too large"]);
        assert_eq!((lru_cache.bytes, lru_cache.evict()), (0, None));
    }
}
