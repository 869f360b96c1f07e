//! What the gateway stores for clients that do not send it back: states of programs, for clients that shorten tool-call
//! ids, and responses, for clients that refer to them by id. All of it is sealed: who has the store can neither read nor
//! change it, nor move it to another name or tenant, but can only make it disappear.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dacapo_runner::{JournalStore, MemoryStore, StoreError, StoreKey};
use dacapo_wire::{RunId, SealingSecrets, UnopenedReason, UnopenedStates};

use self::file_store::FileStore;
use self::redis_store::RedisStore;
use crate::observe::{Metrics, StoreOperation};
use crate::redis_connection::RedisConnection;

pub(crate) mod attachments;
pub(crate) mod call_records;
mod file_store;
mod live_record;
pub(crate) mod owned_answers;
mod program_store;
mod redis_store;
pub(crate) mod stored_answers;
pub(crate) mod stored_responses;
pub(crate) mod turn_records;

pub use file_store::FileStoreError;
pub use program_store::{open_file_store, open_redis_store, sealed_store};

/// A store of texts, by tenant and name.
#[derive(Debug)]
pub(crate) struct Store {
    sealed: Arc<dyn JournalStore>,
    secrets: SealingSecrets,
    metrics: Arc<Metrics>,
}

/// Which store is configured.
#[derive(Debug, Clone)]
pub(crate) enum StoreConfig {
    /// In this process: for a single replica.
    Memory { bytes_max: usize, ttl: Duration },
    /// In a file: for a single replica, and after a restart.
    File { path: PathBuf, ttl: Duration },
    /// In a server that speaks the protocol of Redis: for several replicas.
    Redis { client: redis::Client, ttl: Duration },
}

/// What becomes of calls with effects that cannot be recorded, because the store cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StoreFailure {
    /// They are not sent.
    #[default]
    Refuse,
    /// They are sent all the same. A request that is repeated may send them twice.
    Continue,
}

impl StoreFailure {
    /// By its name in the configuration.
    pub(crate) fn parse(text: &str) -> Option<StoreFailure> {
        [StoreFailure::Refuse, StoreFailure::Continue].into_iter().find(|failure| failure.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            StoreFailure::Refuse => "refuse",
            StoreFailure::Continue => "continue",
        }
    }
}

impl StoreConfig {
    /// A connection of its own to the store, if all replicas have it.
    pub(crate) fn redis(&self) -> Option<RedisConnection> {
        match self {
            StoreConfig::Memory { .. } | StoreConfig::File { .. } => None,
            StoreConfig::Redis { client, .. } => Some(RedisConnection::new(client.clone())),
        }
    }

    /// Conversations rest for a night in the middle of a program, not for a week.
    pub(crate) const TTL: Duration = Duration::from_hours(24);
    pub(crate) const BYTES_MAX: usize = 256 << 20;

    /// In this process, as large as it is by default.
    pub(crate) fn memory() -> StoreConfig {
        StoreConfig::Memory { bytes_max: StoreConfig::BYTES_MAX, ttl: StoreConfig::TTL }
    }
}

impl Store {
    pub(crate) fn new(
        config: &StoreConfig,
        secrets: SealingSecrets,
        metrics: Arc<Metrics>,
    ) -> Result<Store, FileStoreError> {
        let sealed: Arc<dyn JournalStore> = match config {
            StoreConfig::Memory { bytes_max, ttl } => Arc::new(MemoryStore::new(*bytes_max, *ttl)),
            StoreConfig::File { path, ttl } => Arc::new(FileStore::open(path, *ttl)?),
            StoreConfig::Redis { client, ttl } => Arc::new(RedisStore::new(client.clone(), *ttl)),
        };
        Ok(Store { sealed, secrets, metrics })
    }

    /// The same store, for a gateway with other secrets.
    pub(crate) fn with_secrets(&self, secrets: SealingSecrets) -> Store {
        Store { sealed: Arc::clone(&self.sealed), secrets, metrics: Arc::clone(&self.metrics) }
    }

    /// Stores the state of a program: the id that would carry it. That is sealed already, and names its run and round.
    pub(crate) async fn put(&self, tenant: &str, run: RunId, round: u32, sealed: &str) -> Result<(), StoreError> {
        let (key, started) = (state_key(tenant, run, round), Instant::now());
        let put = self.sealed.put_remembered(&key, sealed).await;
        self.metrics.store(StoreOperation::Put, put.is_ok(), started.elapsed());
        put
    }

    /// The sealed states that are stored. Reading a state renews its time to live.
    pub(crate) async fn get(&self, tenant: &str, states: &[(RunId, u32)]) -> Result<Vec<Option<String>>, StoreError> {
        let keys: Vec<StoreKey> = states.iter().map(|(run, round)| state_key(tenant, *run, *round)).collect();
        self.get_sealed(&keys).await
    }

    /// Which of these states, that are not stored, were stored and have expired.
    pub(crate) async fn expired(&self, tenant: &str, states: &[(RunId, u32)]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<StoreKey> = states.iter().map(|(run, round)| state_key(tenant, *run, *round)).collect();
        self.sealed.expired(&keys).await
    }

    async fn put_sealed(&self, key: &StoreKey, sealed: &str) -> Result<(), StoreError> {
        let started = Instant::now();
        let put = self.sealed.put(key, sealed).await;
        self.metrics.store(StoreOperation::Put, put.is_ok(), started.elapsed());
        put
    }

    async fn get_sealed(&self, keys: &[StoreKey]) -> Result<Vec<Option<String>>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let started = Instant::now();
        let found = self.sealed.get(keys).await;
        self.metrics.store(StoreOperation::Get, found.is_ok(), started.elapsed());
        found
    }

    /// Seals a text and stores it.
    pub(crate) async fn put_text(&self, tenant: &str, name: &str, text: &str) -> Result<(), StoreError> {
        let key = StoreKey::new(tenant, name);
        let sealed = self.secrets.sealer(tenant).seal_text(key.as_str(), text);
        self.put_sealed(&key, &sealed).await
    }

    /// Seals a text that can be done without after a crash, and stores it.
    pub(crate) async fn put_text_soon(&self, tenant: &str, name: &str, text: &str) -> Result<(), StoreError> {
        let (key, started) = (StoreKey::new(tenant, name), Instant::now());
        let sealed = self.secrets.sealer(tenant).seal_text(key.as_str(), text);
        let put = self.sealed.put_soon(&key, &sealed).await;
        self.metrics.store(StoreOperation::Put, put.is_ok(), started.elapsed());
        put
    }

    /// Seals a text and stores it under its name, and with it another under its own, unless there is one under the first
    /// name, which is returned. One that cannot be opened is returned as an empty text. One that `is_replaced` is not
    /// returned: the texts are stored in its place.
    pub(crate) async fn put_new_text_with(
        &self,
        tenant: &str,
        text: (&str, &str),
        other: Option<(&str, &str)>,
        is_replaced: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, StoreError> {
        let sealer = self.secrets.sealer(tenant);
        let seal = |(name, text): (&str, &str)| {
            let key = StoreKey::new(tenant, name);
            let text = sealer.seal_text(key.as_str(), text);
            (key, text)
        };
        let ((key, text), others) = (seal(text), Vec::from_iter(other.map(seal)));
        let started = Instant::now();
        let put = self.sealed.put_new_with(&key, &text, &others).await;
        self.metrics.store(StoreOperation::Put, put.is_ok(), started.elapsed());
        let Some(stored) = put? else { return Ok(None) };
        let known = sealer.unseal_text(key.as_str(), &stored).unwrap_or_default();
        if !is_replaced(&known) {
            return Ok(Some(known));
        }
        let started = Instant::now();
        let replaced = self.sealed.replace_with(&key, &stored, &text, &others).await;
        self.metrics.store(StoreOperation::Put, replaced.is_ok(), started.elapsed());
        // If another was faster, the caller only has to know that it was not the first.
        Ok((!replaced?).then_some(known))
    }

    /// Seals a text and stores it in place of the one that is there, if that is as it should be, and still is then.
    pub(crate) async fn replace_text(
        &self,
        tenant: &str,
        name: &str,
        text: &str,
        is_expected: impl Fn(&str) -> bool,
    ) -> Result<(), StoreError> {
        let (key, sealer) = (StoreKey::new(tenant, name), self.secrets.sealer(tenant));
        let Some(stored) = self.get_sealed(std::slice::from_ref(&key)).await?.pop().flatten() else { return Ok(()) };
        if !is_expected(&sealer.unseal_text(key.as_str(), &stored).unwrap_or_default()) {
            return Ok(());
        }
        let (text, started) = (sealer.seal_text(key.as_str(), text), Instant::now());
        let replaced = self.sealed.replace_with(&key, &stored, &text, &[]).await;
        self.metrics.store(StoreOperation::Put, replaced.is_ok(), started.elapsed());
        replaced.map(drop)
    }

    /// Seals texts and stores each under its name, unless there is one, which is returned. One that cannot be opened is
    /// returned as an empty text.
    pub(crate) async fn put_new_texts(
        &self,
        tenant: &str,
        texts: impl IntoIterator<Item = (&str, String)>,
    ) -> Vec<Result<Option<String>, StoreError>> {
        let sealer = self.secrets.sealer(tenant);
        let seal = |(name, text): (&str, String)| {
            let key = StoreKey::new(tenant, name);
            let text = sealer.seal_text(key.as_str(), &text);
            (key, text)
        };
        let texts: Vec<(StoreKey, String)> = texts.into_iter().map(seal).collect();
        let started = Instant::now();
        let put = self.sealed.put_new_all(&texts).await;
        self.metrics.store(StoreOperation::Put, put.iter().all(Result::is_ok), started.elapsed());
        let open = |((key, _), put): (&(StoreKey, String), Result<Option<String>, StoreError>)| {
            Ok(put?.map(|known| sealer.unseal_text(key.as_str(), &known).unwrap_or_default()))
        };
        texts.iter().zip(put).map(open).collect()
    }

    /// The texts that are stored under these names. Reading a text renews its time to live. One that cannot be opened is
    /// noted, and counts as absent.
    pub(crate) async fn get_texts(
        &self,
        tenant: &str,
        names: &[String],
        unopened: &UnopenedStates,
    ) -> Result<Vec<Option<String>>, StoreError> {
        let keys: Vec<StoreKey> = names.iter().map(|name| StoreKey::new(tenant, name)).collect();
        let found = self.get_sealed(&keys).await?;
        let sealer = self.secrets.sealer(tenant);
        let open = |(key, text): (&StoreKey, Option<String>)| match sealer.unseal_text(key.as_str(), &text?) {
            Ok(text) => Some(text),
            Err(error) => {
                unopened.add(key.as_str(), UnopenedReason::Sealed(error));
                None
            }
        };
        Ok(keys.iter().zip(found).map(open).collect())
    }
}

/// The store of a gateway, as others read it.
#[derive(Debug)]
pub struct StateStore(Store);

impl StateStore {
    /// `None` if nobody but the gateway's process can read it: if it is in its memory, or in its file.
    pub(crate) fn new(config: &StoreConfig, secrets: SealingSecrets) -> Option<StateStore> {
        let metrics = Arc::new(Metrics::new().ok()?);
        let is_shared = matches!(config, StoreConfig::Redis { .. });
        is_shared.then(|| Store::new(config, secrets, metrics).ok()).flatten().map(StateStore)
    }

    /// The sealed states of a client's programs, by run and round; `None` for those that are not there. Reading a state
    /// renews its time to live.
    pub async fn get(&self, client: &str, states: &[(RunId, u32)]) -> Result<Vec<Option<String>>, StoreError> {
        self.0.get(client, states).await
    }
}

fn state_key(tenant: &str, run: RunId, round: u32) -> StoreKey {
    StoreKey::new(tenant, &format!("{run}:{round}"))
}

/// The error for a store whose own is `error`.
fn unreachable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unreachable(Box::new(error))
}
