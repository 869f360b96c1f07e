//! What is kept on our side for clients that do not bring it back: states, for those that clip ids, and responses, for
//! those that refer to them. States are sealed, so the store need not be trusted with them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use dacapo_replay::LruCache;
use dacapo_wire::RunId;
use redis::AsyncCommands;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::error::TurnError;

/// Where texts are kept, by tenant and name.
pub(crate) enum Store {
    /// In this process: for a single replica.
    Memory { kept: Mutex<LruCache<(Instant, String)>>, ttl: Duration },
    /// In anything that speaks Redis' protocol: for several.
    Redis { client: redis::Client, connection: OnceCell<ConnectionManager>, ttl: Duration },
}

/// What a configuration says of a store.
#[derive(Debug, Clone)]
pub(crate) enum StoreConfig {
    Memory { bytes_max: usize, ttl: Duration },
    Redis { client: redis::Client, ttl: Duration },
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Store::Memory { .. } => "Memory",
            Store::Redis { .. } => "Redis",
        })
    }
}

/// A store that does not answer must not hold up a turn for long.
const PATIENCE: Duration = Duration::from_secs(5);

impl Store {
    pub(crate) fn new(config: &StoreConfig) -> Store {
        match config {
            StoreConfig::Memory { bytes_max, ttl } => {
                Store::Memory { kept: Mutex::new(LruCache::new(usize::MAX, *bytes_max)), ttl: *ttl }
            }
            StoreConfig::Redis { client, ttl } => {
                Store::Redis { client: client.clone(), connection: OnceCell::new(), ttl: *ttl }
            }
        }
    }

    /// Keeps a state.
    pub(crate) async fn put(&self, tenant: &str, run: RunId, round: u32, sealed: &str) -> Result<(), TurnError> {
        self.put_text(tenant, &format!("{run}:{round}"), sealed).await
    }

    /// What is kept of each state, which then is kept for as long again.
    pub(crate) async fn get(&self, tenant: &str, wanted: &[(RunId, u32)]) -> Result<Vec<Option<String>>, TurnError> {
        let names: Vec<String> = wanted.iter().map(|(run, round)| format!("{run}:{round}")).collect();
        self.get_texts(tenant, &names).await
    }

    pub(crate) async fn put_text(&self, tenant: &str, name: &str, text: &str) -> Result<(), TurnError> {
        let key = key(tenant, name);
        match self {
            Store::Memory { kept, ttl } => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                drop(kept.put(digest(&key), (Instant::now() + *ttl, text.to_owned()), text.len()));
                Ok(())
            }
            Store::Redis { ttl, .. } => {
                let mut connection = self.connection().await?;
                connection.set_ex::<_, _, ()>(&key, text, ttl.as_secs()).await.map_err(|error| unreachable(&error))
            }
        }
    }

    /// What is kept under each name, which then is kept for as long again.
    pub(crate) async fn get_texts(&self, tenant: &str, names: &[String]) -> Result<Vec<Option<String>>, TurnError> {
        let keys = names.iter().map(|name| key(tenant, name));
        match self {
            Store::Memory { kept, ttl } => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                let mut get = |key: String| {
                    let key = digest(&key);
                    let (until, text) = kept.take(&key)?;
                    let is_fresh = now < until;
                    if is_fresh {
                        drop(kept.put(key, (now + *ttl, text.clone()), text.len()));
                    }
                    is_fresh.then_some(text)
                };
                Ok(keys.map(&mut get).collect())
            }
            Store::Redis { .. } if names.is_empty() => Ok(Vec::new()),
            Store::Redis { ttl, .. } => {
                let mut all = redis::pipe();
                for key in keys {
                    all.get_ex(key, redis::Expiry::EX(ttl.as_secs()));
                }
                let mut connection = self.connection().await?;
                all.query_async(&mut connection).await.map_err(|error| unreachable(&error))
            }
        }
    }

    async fn connection(&self) -> Result<ConnectionManager, TurnError> {
        let Store::Redis { client, connection, .. } = self else { return Err(TurnError::upstream("no store")) };
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_number_of_retries(1);
        let connected = connection.get_or_try_init(|| client.get_connection_manager_with_config(config)).await;
        connected.cloned().map_err(|error| unreachable(&error))
    }
}

fn key(tenant: &str, name: &str) -> String {
    // The tenant may be called anything; its name stays ours.
    let tenant = Sha256::digest(tenant.as_bytes());
    let tenant = crate::auth::hex(&tenant[..8]);
    format!("dacapo:1:{tenant}:{name}")
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn unreachable(error: &redis::RedisError) -> TurnError {
    tracing::error!(kind = ?error.kind(), "the store cannot be reached");
    TurnError::Ours {
        status: StatusCode::SERVICE_UNAVAILABLE,
        kind: "server_error",
        message: "the store of running programs and responses cannot be reached; try again".to_owned(),
        retry_after_s: Some(1),
    }
}
