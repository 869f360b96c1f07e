//! A store in a file, for one process: it survives a restart.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dacapo_runner::{BoxFuture, JournalStore, StoreError, StoreKey};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::gateway::now_ms;

/// By key: when it expires, in milliseconds since 1970, and the text.
const TEXTS: TableDefinition<'_, &str, (u64, &str)> = TableDefinition::new("texts");
/// Texts that have expired are removed after so many were stored.
const SWEEP_EVERY: u64 = 1_000;

/// An embedded database. Whatever it has stored is on the disk before `put` returns.
#[derive(Clone)]
pub(super) struct FileStore {
    database: Arc<Database>,
    ttl: Duration,
    puts: Arc<AtomicU64>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("store.path: {path} cannot be used: {reason}")]
pub struct FileStoreError {
    path: String,
    reason: String,
    /// Whether another process has it open.
    pub is_in_use: bool,
}

impl FileStore {
    pub(super) fn open(path: &Path, ttl: Duration) -> Result<FileStore, FileStoreError> {
        let unusable = |reason: String| FileStoreError { path: path.display().to_string(), reason, is_in_use: false };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // It is nobody's business but its user's.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| unusable(error.to_string()))?;
        let database = redb::Builder::new().create_file(file).map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => {
                let reason = "another process has it open; a file is for one process, and Redis for several";
                FileStoreError { is_in_use: true, ..unusable(reason.to_owned()) }
            }
            error => unusable(error.to_string()),
        })?;
        let store = FileStore { database: Arc::new(database), ttl, puts: Arc::default() };
        store.sweep().map_err(|error| unusable(error.to_string()))?;
        Ok(store)
    }

    fn expires_at(&self) -> u64 {
        now_ms().saturating_add(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// Stores a text, or leaves the one that is there, which is returned.
    fn write(&self, key: &str, text: &str, replace: Replace) -> Result<Option<String>, redb::Error> {
        let transaction = self.database.begin_write()?;
        let known = {
            let mut texts = transaction.open_table(TEXTS)?;
            let known = texts.get(key)?.map(|found| {
                let (expires_at, text) = found.value();
                (expires_at, text.to_owned())
            });
            let known = known.filter(|(expires_at, _)| *expires_at > now_ms()).map(|(_, text)| text);
            if replace == Replace::Yes || known.is_none() {
                texts.insert(key, (self.expires_at(), text))?;
            }
            known
        };
        transaction.commit()?;
        if self.puts.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.sweep()?;
        }
        Ok(known)
    }

    fn read(&self, keys: &[String]) -> Result<Vec<Option<String>>, redb::Error> {
        let now = now_ms();
        // A text whose time is half over is renewed, so that not every reading has to write.
        let renew_before = now.saturating_add(u64::try_from(self.ttl.as_millis() / 2).unwrap_or(u64::MAX));
        let (mut found, mut renewed) = (Vec::new(), Vec::new());
        let transaction = self.database.begin_read()?;
        let texts = transaction.open_table(TEXTS)?;
        for key in keys {
            let text = texts.get(key.as_str())?.map(|found| {
                let (expires_at, text) = found.value();
                (expires_at, text.to_owned())
            });
            let text = text.filter(|(expires_at, _)| *expires_at > now);
            if let Some((expires_at, text)) = &text
                && *expires_at < renew_before
            {
                renewed.push((key, text.clone()));
            }
            found.push(text.map(|(_, text)| text));
        }
        drop(texts);
        for (key, text) in renewed {
            self.write(key, &text, Replace::Yes)?;
        }
        Ok(found)
    }

    /// Removes what has expired. That a text was there is remembered as long again.
    fn sweep(&self) -> Result<(), redb::Error> {
        let now = now_ms();
        let forget_before = now.saturating_sub(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        let transaction = self.database.begin_write()?;
        {
            let mut texts = transaction.open_table(TEXTS)?;
            let mut expired = Vec::new();
            texts.retain(|key, (expires_at, text)| {
                if expires_at <= now && expires_at > forget_before && !text.is_empty() {
                    expired.push((key.to_owned(), expires_at));
                }
                expires_at > forget_before
            })?;
            for (key, expires_at) in &expired {
                texts.insert(key.as_str(), (*expires_at, ""))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn has_expired(&self, keys: &[String]) -> Result<Vec<bool>, redb::Error> {
        let now = now_ms();
        let transaction = self.database.begin_read()?;
        let texts = transaction.open_table(TEXTS)?;
        let expired = keys.iter().map(|key| Ok(texts.get(key.as_str())?.is_some_and(|found| found.value().0 <= now)));
        expired.collect()
    }

    /// The disk may take long.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileStore) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.map_err(|error| StoreError::Unreachable(Box::new(error)))?
            .map_err(|error| StoreError::Unreachable(Box::new(error)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replace {
    Yes,
    No,
}

impl JournalStore for FileStore {
    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let (key, text) = (key.as_str().to_owned(), text.to_owned());
        Box::pin(async move { self.off_thread(move |store| store.write(&key, &text, Replace::Yes)).await.map(drop) })
    }

    fn put_new<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let (key, text) = (key.as_str().to_owned(), text.to_owned());
        Box::pin(async move { self.off_thread(move |store| store.write(&key, &text, Replace::No)).await })
    }

    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>> {
        let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        Box::pin(async move { self.off_thread(move |store| store.read(&keys)).await })
    }

    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        let keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        Box::pin(async move { self.off_thread(move |store| store.has_expired(&keys)).await })
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_text_that_has_expired_is_gone_but_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let [was, never] = ["was", "never"].map(|name| StoreKey::new("a tenant", name));
        {
            let store = FileStore::open(&path, Duration::ZERO).expect("it opens");
            store.put(&was, "a text").await.expect("it is stored");
        }
        let store = FileStore::open(&path, Duration::from_mins(1)).expect("it opens again");
        let keys = [was, never];
        assert_eq!(store.get(&keys).await.expect("it is read"), [None, None]);
        assert_eq!(store.expired(&keys).await.expect("it is read"), [true, false]);
        drop(store);
        let store = FileStore::open(&path, Duration::ZERO).expect("it opens again");
        assert_eq!(store.expired(&keys).await.expect("it is read"), [false, false]);
    }
}
