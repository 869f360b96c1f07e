//! What is stored between the requests of a client: journals and sealed states of programs.

use std::error::Error;
use std::fmt::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use dacapo_lru::LruCache;
use dacapo_replay::{Journal, JournalFormatError};
use futures_util::future::{BoxFuture, join_all};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::lock::lock;

/// Stores texts under keys for a limited time.
///
/// A text expires when it has been neither stored nor read for the store's time to live. A store may forget a text earlier,
/// for want of room, and never returns part of one. What is secret is sealed before it is stored, so that a store need not
/// be trusted with it. Several processes may share a store; then the last `put` wins.
///
/// ```
/// use std::time::Duration;
///
/// use dacapo_replay::Journal;
/// use dacapo_runner::{JournalStore, MemoryStore, StoreKey};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), dacapo_runner::StoreError> {
/// let store = MemoryStore::new(1 << 20, Duration::from_secs(3600));
/// let run = StoreKey::new("a tenant", "run-1");
/// store.put_journal(&run, &Journal::default()).await?;
/// assert!(store.get_journal(&run).await?.is_some());
/// # Ok(())
/// # }
/// ```
pub trait JournalStore: fmt::Debug + Send + Sync {
    /// Stores a text, in place of what was stored under the same key.
    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Like [`JournalStore::put`], of a text that can be done without after a crash: the store may write it to its disk a
    /// little later. Whoever reads it finds it at once.
    fn put_soon<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.put(key, text)
    }

    /// Stores a text unless there is one under the key, in one step for all who share the store. Returns what is there.
    fn put_new<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        self.put_new_with(key, text, &[])
    }

    /// [`JournalStore::put_new`], and in the same step, if the text is stored, others with it, in place of what was stored
    /// under their keys.
    fn put_new_with<'a>(
        &'a self,
        key: &'a StoreKey,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>>;

    /// Stores a text in place of `known`, and others with it in place of whatever was stored under their keys, in one step for
    /// all who share the store. Returns whether `known` was there; if not, nothing is stored.
    fn replace_with<'a>(
        &'a self,
        key: &'a StoreKey,
        known: &'a str,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// [`JournalStore::put_new`] for several texts at once. Each is stored, or not, without regard to the others; a store may
    /// have one trip to its disk or server for all of them.
    fn put_new_all<'a>(
        &'a self,
        texts: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Vec<Result<Option<String>, StoreError>>> {
        Box::pin(join_all(texts.iter().map(|(key, text)| self.put_new(key, text))))
    }

    /// The text under each key, in the order of the keys. `None` where there is none, or it has expired.
    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>>;

    /// Like [`JournalStore::put`], of a text whose absence is to be explained later: see [`JournalStore::expired`].
    fn put_remembered<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.put(key, text)
    }

    /// Whether there was a text under each key that has expired. A store remembers it for a while, at least as long as the
    /// text lived, unless it has no room. A store that does not know it returns `false`.
    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        Box::pin(std::future::ready(Ok(vec![false; keys.len()])))
    }

    /// Stores a journal.
    fn put_journal<'a>(&'a self, key: &'a StoreKey, journal: &'a Journal) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.put(key, &journal.to_json()).await })
    }

    /// The journal under a key. `None` if there is none, or it has expired.
    fn get_journal<'a>(&'a self, key: &'a StoreKey) -> BoxFuture<'a, Result<Option<Journal>, StoreError>> {
        Box::pin(async move {
            let text = self.get(std::slice::from_ref(key)).await?.pop().flatten();
            Ok(text.map(|text| Journal::from_json(&text)).transpose()?)
        })
    }
}

/// Why a store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store did not answer, or answered with an error. The same request may succeed later.
    #[error("the store cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),

    /// What is stored is not a journal that this release can read.
    #[error("what is stored cannot be read")]
    Unreadable(#[from] JournalFormatError),
}

/// The key of a text: a name, which is unique for its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(String);

impl StoreKey {
    /// The key of a tenant's text with this name. The tenant may be called anything: its name is hashed.
    pub fn new(tenant: &str, name: &str) -> StoreKey {
        let mut key = String::from("dacapo:1:");
        for byte in &Sha256::digest(tenant.as_bytes())[..8] {
            write!(key, "{byte:02x}").expect("a string takes what is written");
        }
        key.push(':');
        key.push_str(name);
        StoreKey(key)
    }

    /// The key as a store of other processes knows it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// A store in the memory of this process. When it is full, the texts that were used least recently are forgotten.
pub struct MemoryStore {
    texts: Mutex<LruCache<ExpiringText>>,
    ttl: Duration,
}

/// What an entry takes whose text is gone.
const EXPIRED_BYTES: usize = 128;

struct ExpiringText {
    text: String,
    expires_at: Instant,
}

impl MemoryStore {
    /// A store for at most `bytes_max` bytes of texts, each for the time `ttl` since it was last used.
    pub fn new(bytes_max: usize, ttl: Duration) -> MemoryStore {
        MemoryStore { texts: Mutex::new(LruCache::new(usize::MAX, bytes_max)), ttl }
    }

    fn expiring(&self, text: &str) -> ExpiringText {
        ExpiringText { text: text.to_owned(), expires_at: Instant::now() + self.ttl }
    }

    /// Stores texts, if what is there under the first key is as it should be. Returns what was there.
    fn put_if(
        &self,
        key: &StoreKey,
        is_expected: impl Fn(Option<&str>) -> bool,
        text: &str,
        others: &[(StoreKey, String)],
    ) -> Option<String> {
        let (now, digest) = (Instant::now(), key.digest());
        let mut texts = lock(&self.texts);
        let known = texts.get(&digest).filter(|known| known.expires_at > now).map(|known| known.text.clone());
        let mut evicted = Vec::new();
        if is_expected(known.as_deref()) {
            evicted.push(texts.put(digest, self.expiring(text), text.len()));
            let put = |(key, text): &(StoreKey, String)| texts.put(key.digest(), self.expiring(text), text.len());
            evicted.extend(others.iter().map(put));
        }
        drop(texts);
        drop(evicted);
        known
    }
}

impl JournalStore for MemoryStore {
    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let expiring = self.expiring(text);
        let evicted = lock(&self.texts).put(key.digest(), expiring, text.len());
        drop(evicted);
        Box::pin(std::future::ready(Ok(())))
    }

    fn put_new_with<'a>(
        &'a self,
        key: &'a StoreKey,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let known = self.put_if(key, |known| known.is_none(), text, others);
        Box::pin(std::future::ready(Ok(known)))
    }

    fn replace_with<'a>(
        &'a self,
        key: &'a StoreKey,
        known: &'a str,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let found = self.put_if(key, |found| found == Some(known), text, others);
        Box::pin(std::future::ready(Ok(found.as_deref() == Some(known))))
    }

    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>> {
        let now = Instant::now();
        let mut texts = lock(&self.texts);
        let get = |key: &StoreKey| {
            let digest = key.digest();
            let ExpiringText { text, expires_at } = texts.take(&digest)?;
            if expires_at <= now {
                // That it was there is remembered as long as other texts leave room.
                let without_text = ExpiringText { text: String::new(), expires_at };
                drop(texts.put(digest, without_text, EXPIRED_BYTES));
                return None;
            }
            let bytes = text.len();
            let renewed = ExpiringText { text: text.clone(), expires_at: now + self.ttl };
            drop(texts.put(digest, renewed, bytes));
            Some(text)
        };
        let found = keys.iter().map(get).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        let now = Instant::now();
        let mut texts = lock(&self.texts);
        let has_expired = |key: &StoreKey| texts.get(&key.digest()).is_some_and(|known| known.expires_at <= now);
        let expired = keys.iter().map(has_expired).collect();
        Box::pin(std::future::ready(Ok(expired)))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}
