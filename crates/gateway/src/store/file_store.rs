//! A store in a file, for one process: it survives a restart.
//!
//! One thread writes. While it waits for the disk, more texts arrive, and the next transaction stores them all: a hundred
//! calls that are recorded at the same time cost a few waits for the disk, and not a hundred. Nobody waits for the disk for a
//! text that can be done without after a crash.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dacapo_runner::{BoxFuture, JournalStore, StoreError, StoreKey};
use futures_util::future::join_all;
use redb::{AccessGuard, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::unreachable;
use crate::gateway::now_ms;

/// By key: when it expires, in milliseconds since 1970, and the text.
const TEXTS: TableDefinition<'_, &str, (u64, &str)> = TableDefinition::new("texts");
/// Texts that have expired are removed after so many were stored.
const SWEEP_EVERY: usize = 1_000;
/// A transaction that stores as many texts takes no more, so that the first of them does not wait for all others.
const WRITES_PER_TRANSACTION_MAX: usize = 1_000;
/// Texts that are to be stored soon are on the disk after this time.
const SOON: Duration = Duration::from_millis(200);

/// An embedded database. What it has stored is on the disk before `put` returns, and soon after `put_soon`.
pub(super) struct FileStore {
    database: Arc<Database>,
    ttl: Duration,
    writer: WriterThread,
}

/// The thread that writes. It ends, and the file can be opened again, when this is dropped.
struct WriterThread {
    /// `None` when it is to end.
    writes: Option<mpsc::Sender<WriteBatch>>,
    thread: Option<JoinHandle<()>>,
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

/// Texts that are to be stored in one transaction.
struct WriteBatch {
    writes: Vec<Write>,
    sync: Sync,
}

/// What is to be stored under a key.
struct Write {
    key: String,
    put: Put,
    /// Is sent the text that was there, once the transaction has ended.
    done: oneshot::Sender<Result<Option<String>, StoreError>>,
}

enum Put {
    Text(String),
    /// Unless there is a text.
    IfNew(String),
    /// In place of this text.
    Instead {
        of: String,
        text: String,
    },
    /// If the text before it in the batch was stored.
    IfPreviousStored(String),
    /// The text that is there, for as long as a new one.
    Renewal,
}

/// When texts are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sync {
    /// Before whoever stores them goes on.
    Now,
    /// A little later.
    Soon,
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
        let database = Arc::new(database);
        let writer = Writer { database: Arc::clone(&database), ttl, writes_since_sweep: 0 };
        writer.sweep().map_err(|error| unusable(error.to_string()))?;
        let writer = WriterThread::start(writer).map_err(|error| unusable(error.to_string()))?;
        Ok(FileStore { database, ttl, writer })
    }

    /// Stores texts in one transaction. Returns what was there under the first key.
    async fn write(
        &self,
        puts: impl IntoIterator<Item = (String, Put)>,
        sync: Sync,
    ) -> Result<Option<String>, StoreError> {
        let known = self.write_all(puts, sync).await.into_iter().next();
        known.unwrap_or(Ok(None))
    }

    /// Stores texts in one transaction. Returns what was there under each key.
    async fn write_all(
        &self,
        puts: impl IntoIterator<Item = (String, Put)>,
        sync: Sync,
    ) -> Vec<Result<Option<String>, StoreError>> {
        let write = |(key, put)| {
            let (done, stored) = oneshot::channel();
            (Write { key, put, done }, stored)
        };
        let (writes, stored): (Vec<Write>, Vec<_>) = puts.into_iter().map(write).unzip();
        self.writer.send(WriteBatch { writes, sync });
        // If the thread has ended, nobody sends anything.
        join_all(stored.into_iter().map(async |stored| stored.await.map_err(unreachable)?)).await
    }

    async fn read(&self, keys: Vec<String>) -> Result<Vec<Option<String>>, StoreError> {
        let ttl = self.ttl;
        let read = move |database: &Database| {
            let now = now_ms();
            // A text whose time is half over is renewed, so that not every reading has to write.
            let renew_before = now.saturating_add(u64::try_from(ttl.as_millis() / 2).unwrap_or(u64::MAX));
            let (mut found, mut renewed) = (Vec::new(), Vec::new());
            let transaction = database.begin_read()?;
            let texts = transaction.open_table(TEXTS)?;
            for key in keys {
                let text = unexpired(texts.get(key.as_str())?, now);
                if text.as_ref().is_some_and(|(expires_at, _)| *expires_at < renew_before) {
                    renewed.push((key, Put::Renewal));
                }
                found.push(text.map(|(_, text)| text));
            }
            Ok((found, renewed))
        };
        let (found, renewed) = self.off_thread(read).await?;
        self.write(renewed, Sync::Soon).await?;
        Ok(found)
    }

    async fn has_expired(&self, keys: Vec<String>) -> Result<Vec<bool>, StoreError> {
        let has_expired = move |database: &Database| {
            let now = now_ms();
            let transaction = database.begin_read()?;
            let texts = transaction.open_table(TEXTS)?;
            let expired = |key: &String| Ok(texts.get(key.as_str())?.is_some_and(|found| found.value().0 <= now));
            keys.iter().map(expired).collect()
        };
        self.off_thread(has_expired).await
    }

    /// The disk may take long.
    async fn off_thread<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.database);
        tokio::task::spawn_blocking(move || read(&database)).await.map_err(unreachable)?.map_err(unreachable)
    }
}

/// A text, and others that are stored if it is.
fn with_others(first: (String, Put), others: &[(StoreKey, String)]) -> impl Iterator<Item = (String, Put)> {
    let other = |(key, text): &(StoreKey, String)| (key.as_str().to_owned(), Put::IfPreviousStored(text.clone()));
    std::iter::once(first).chain(others.iter().map(other))
}

/// When a text expires, and the text, if it has not.
fn unexpired(found: Option<AccessGuard<'_, (u64, &str)>>, now: u64) -> Option<(u64, String)> {
    let found = found?;
    let (expires_at, text) = found.value();
    (expires_at > now).then(|| (expires_at, text.to_owned()))
}

impl WriterThread {
    fn start(writer: Writer) -> std::io::Result<WriterThread> {
        let (sender, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("dacapo-store".to_owned());
        let thread = thread.spawn(move || writer.run(&received))?;
        Ok(WriterThread { writes: Some(sender), thread: Some(thread) })
    }

    /// To be stored in one transaction. Whoever waits for it notices if the thread has ended.
    fn send(&self, batch: WriteBatch) {
        if let Some(thread) = self.writes.as_ref().filter(|_| !batch.writes.is_empty()) {
            thread.send(batch).unwrap_or_default();
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        drop(self.writes.take());
        // What it was sent is stored first. If it has panicked, whoever waited for it knows.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// What the thread that writes has.
struct Writer {
    database: Arc<Database>,
    ttl: Duration,
    writes_since_sweep: usize,
}

impl Writer {
    /// Stores what arrives, until nobody can send anything any more.
    fn run(mut self, received: &mpsc::Receiver<WriteBatch>) {
        // When what is not on the disk has to be there, however much arrives meanwhile.
        let mut sync_at: Option<Instant> = None;
        loop {
            let next = match sync_at.map(|at| at.saturating_duration_since(Instant::now())) {
                None => received.recv().map_err(|_closed| RecvTimeoutError::Disconnected),
                Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
                Some(rest) => received.recv_timeout(rest),
            };
            match next {
                Ok(batch) => match self.store(batch, received) {
                    Sync::Now => sync_at = None,
                    Sync::Soon => sync_at = sync_at.or_else(|| Some(Instant::now() + SOON)),
                },
                Err(ended) => {
                    if sync_at.take().is_some()
                        && let Err(error) = self.sync()
                    {
                        tracing::warn!(%error, "the store could not be written to the disk");
                    }
                    if ended == RecvTimeoutError::Disconnected {
                        return;
                    }
                }
            }
        }
    }

    /// Stores a batch, and all that have arrived meanwhile. Returns whether they are on the disk.
    fn store(&mut self, batch: WriteBatch, received: &mpsc::Receiver<WriteBatch>) -> Sync {
        let WriteBatch { mut writes, mut sync } = batch;
        while writes.len() < WRITES_PER_TRANSACTION_MAX
            && let Ok(more) = received.try_recv()
        {
            writes.extend(more.writes);
            if more.sync == Sync::Now {
                sync = Sync::Now;
            }
        }
        match self.write(&writes, sync) {
            Ok(known) => {
                self.writes_since_sweep += writes.len();
                for (write, known) in writes.into_iter().zip(known) {
                    // Whoever waited for it may be gone.
                    write.done.send(Ok(known)).unwrap_or_default();
                }
            }
            Err(error) => {
                let error: Arc<redb::Error> = Arc::new(error);
                for write in writes {
                    write.done.send(Err(unreachable(Arc::clone(&error)))).unwrap_or_default();
                }
            }
        }
        if self.writes_since_sweep >= SWEEP_EVERY {
            self.writes_since_sweep = 0;
            if let Err(error) = self.sweep() {
                tracing::warn!(%error, "what has expired could not be removed from the store");
            }
        }
        sync
    }

    /// Stores texts in one transaction, in their order. Returns what was there for each.
    fn write(&self, writes: &[Write], sync: Sync) -> Result<Vec<Option<String>>, redb::Error> {
        let now = now_ms();
        let expires_at = now.saturating_add(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        let mut transaction = self.database.begin_write()?;
        if sync == Sync::Soon {
            transaction.set_durability(Durability::None)?;
        }
        let known = {
            let mut texts = transaction.open_table(TEXTS)?;
            let mut is_previous_stored = false;
            let write = |write: &Write| {
                let known = unexpired(texts.get(write.key.as_str())?, now).map(|(_, text)| text);
                let text = match &write.put {
                    Put::Text(text) => Some(text),
                    Put::IfNew(text) => known.is_none().then_some(text),
                    Put::Instead { of, text } => (known.as_ref() == Some(of)).then_some(text),
                    Put::IfPreviousStored(text) => is_previous_stored.then_some(text),
                    Put::Renewal => known.as_ref(),
                };
                is_previous_stored = text.is_some();
                if let Some(text) = text {
                    texts.insert(write.key.as_str(), (expires_at, text.as_str()))?;
                }
                Ok(known)
            };
            writes.iter().map(write).collect::<Result<_, redb::Error>>()?
        };
        transaction.commit()?;
        Ok(known)
    }

    /// Brings all that is stored to the disk.
    fn sync(&self) -> Result<(), redb::Error> {
        Ok(self.database.begin_write()?.commit()?)
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
}

impl JournalStore for FileStore {
    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let put = (key.as_str().to_owned(), Put::Text(text.to_owned()));
        Box::pin(async move { self.write([put], Sync::Now).await.map(drop) })
    }

    fn put_soon<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let put = (key.as_str().to_owned(), Put::Text(text.to_owned()));
        Box::pin(async move { self.write([put], Sync::Soon).await.map(drop) })
    }

    fn put_new_with<'a>(
        &'a self,
        key: &'a StoreKey,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let first = (key.as_str().to_owned(), Put::IfNew(text.to_owned()));
        Box::pin(self.write(with_others(first, others), Sync::Now))
    }

    fn replace_with<'a>(
        &'a self,
        key: &'a StoreKey,
        known: &'a str,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let first = (key.as_str().to_owned(), Put::Instead { of: known.to_owned(), text: text.to_owned() });
        let replaced = self.write(with_others(first, others), Sync::Now);
        Box::pin(async move { Ok(replaced.await?.as_deref() == Some(known)) })
    }

    fn put_new_all<'a>(
        &'a self,
        texts: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Vec<Result<Option<String>, StoreError>>> {
        let put = |(key, text): &(StoreKey, String)| (key.as_str().to_owned(), Put::IfNew(text.clone()));
        Box::pin(self.write_all(texts.iter().map(put), Sync::Now))
    }

    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>> {
        Box::pin(self.read(keys.iter().map(|key| key.as_str().to_owned()).collect()))
    }

    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        Box::pin(self.has_expired(keys.iter().map(|key| key.as_str().to_owned()).collect()))
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::try_join_all;

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

    #[tokio::test]
    async fn of_writes_at_the_same_time_all_are_kept_and_one_is_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let store = FileStore::open(&path, Duration::from_mins(1)).expect("it opens");
        let numbers = || (0..3_000).map(|number: u32| number.to_string());
        let (contested, own) = (StoreKey::new("a tenant", "contested"), |name: &str| StoreKey::new("a tenant", name));
        let write = async |number: String| {
            store.put(&own(&number), &number).await?;
            store.put_new(&contested, &number).await
        };
        let known = try_join_all(numbers().map(write)).await.expect("all are stored");
        drop(store);

        let store = FileStore::open(&path, Duration::from_mins(1)).expect("it opens at once");
        let keys: Vec<StoreKey> = numbers().map(|number| own(&number)).collect();
        assert!(store.get(&keys).await.expect("they are read").into_iter().eq(numbers().map(Some)));
        let first = store
            .get(std::slice::from_ref(&contested))
            .await
            .expect("it is read")
            .pop()
            .flatten()
            .expect("one was the first");
        for (number, known) in numbers().zip(known) {
            assert_eq!(known, (number != first).then(|| first.clone()), "{number}");
        }
        let together = [(contested, "late".to_owned()), (own("new"), "early".to_owned())];
        let known = store.put_new_all(&together).await.into_iter().collect::<Result<Vec<_>, _>>();
        assert_eq!(known.expect("both are looked at"), [Some(first), None]);
    }
}
