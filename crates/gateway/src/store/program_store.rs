//! The stores of the gateway, for programs that are not run by it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dacapo_runner::{BoxFuture, JournalStore, StoreError, StoreKey};
use dacapo_wire::SealingSecrets;

use super::file_store::{FileStore, FileStoreError};
use super::redis_store::RedisStore;

/// A store in a file, for one process.
pub fn open_file_store(path: &Path, ttl: Duration) -> Result<Arc<dyn JournalStore>, FileStoreError> {
    Ok(Arc::new(FileStore::open(path, ttl)?))
}

/// A store in a server that speaks the protocol of Redis. It is connected to when it is first used. `None` if the address is
/// not one of such a server.
pub fn open_redis_store(url: &str, ttl: Duration) -> Option<Arc<dyn JournalStore>> {
    let client = redis::Client::open(url).ok()?;
    Some(Arc::new(RedisStore::new(client, ttl)))
}

/// A store whose texts nobody can read or change without the secret.
pub fn sealed_store(store: Arc<dyn JournalStore>, secret: &str) -> Arc<dyn JournalStore> {
    Arc::new(SealedStore { store, secrets: SealingSecrets::new(secret, []) })
}

/// Seals texts before they are stored. A text that cannot be opened counts as absent.
#[derive(Debug)]
struct SealedStore {
    store: Arc<dyn JournalStore>,
    secrets: SealingSecrets,
}

/// Keys have their tenants in them already.
const TENANT: &str = "dacapo mcp";

impl SealedStore {
    fn seal(&self, key: &StoreKey, text: &str) -> String {
        self.secrets.sealer(TENANT).seal_text(key.as_str(), text)
    }

    fn seal_all(&self, texts: &[(StoreKey, String)]) -> Vec<(StoreKey, String)> {
        texts.iter().map(|(key, text)| (key.clone(), self.seal(key, text))).collect()
    }

    fn open(&self, key: &StoreKey, sealed: &str) -> Option<String> {
        let opened = self.secrets.sealer(TENANT).unseal_text(key.as_str(), sealed);
        opened.inspect_err(|error| tracing::warn!(%error, "what is stored was sealed with another secret")).ok()
    }
}

impl JournalStore for SealedStore {
    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.store.put(key, &self.seal(key, text)).await })
    }

    fn put_new_with<'a>(
        &'a self,
        key: &'a StoreKey,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(async move {
            let known = self.store.put_new_with(key, &self.seal(key, text), &self.seal_all(others)).await?;
            // Whatever it is, somebody has put it there.
            Ok(known.map(|known| self.open(key, &known).unwrap_or_default()))
        })
    }

    fn replace_with<'a>(
        &'a self,
        key: &'a StoreKey,
        known: &'a str,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let [known, text] = [known, text].map(|text| self.seal(key, text));
            self.store.replace_with(key, &known, &text, &self.seal_all(others)).await
        })
    }

    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>> {
        Box::pin(async move {
            let found = self.store.get(keys).await?;
            Ok(keys.iter().zip(found).map(|(key, sealed)| self.open(key, &sealed?)).collect())
        })
    }

    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        self.store.expired(keys)
    }
}
