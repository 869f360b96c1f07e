//! A store in a server that speaks the protocol of Redis, for several processes.

use std::sync::Arc;
use std::time::Duration;

use dacapo_runner::{BoxFuture, JournalStore, StoreError, StoreKey};
use redis::AsyncCommands;

use super::unreachable;
use crate::redis_connection::RedisConnection;

/// A store that speaks the protocol of Redis.
#[derive(Debug)]
pub(super) struct RedisStore {
    connection: RedisConnection,
    ttl: Duration,
}

/// Stores the text of the first key unless it has one, which is returned, and then those of the others. The first argument is
/// the time to live.
const PUT_NEW_WITH: &str = "local known = redis.call('GET', KEYS[1])
if known then return known end
for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[i + 1], 'EX', ARGV[1]) end
return false";

/// Stores the texts of all keys if the first key has the text of the last argument. Returns whether it had. The first argument
/// is the time to live.
const REPLACE_WITH: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[#ARGV] then return 0 end
for i, key in ipairs(KEYS) do redis.call('SET', key, ARGV[i + 1], 'EX', ARGV[1]) end
return 1";

/// Stores the text of each key unless it has one. Returns those that were there.
const PUT_NEW_ALL: &str = "local known = {}
for i, key in ipairs(KEYS) do
  known[i] = redis.call('GET', key)
  if not known[i] then redis.call('SET', key, ARGV[i + 1], 'EX', ARGV[1]) end
end
return known";

/// What a text leaves behind is kept so many times as long as the text, counted from when it was stored.
const REMEMBERED_TTLS: u64 = 4;

/// The key of what a text leaves behind.
fn remembered(key: &StoreKey) -> String {
    format!("{}:was", key.as_str())
}

/// A text, and others that are stored with it.
fn with_others<'a>(
    key: &'a StoreKey,
    text: &'a str,
    others: &'a [(StoreKey, String)],
) -> impl Iterator<Item = (&'a StoreKey, &'a str)> + Clone {
    std::iter::once((key, text)).chain(others.iter().map(|(key, text)| (key, text.as_str())))
}

impl RedisStore {
    /// It is connected to when it is first used.
    pub(super) fn new(client: redis::Client, ttl: Duration) -> RedisStore {
        RedisStore { connection: RedisConnection::new(client), ttl }
    }

    /// A script that is run as a whole, for these keys with their texts.
    fn script<'a>(&self, script: &str, texts: impl Iterator<Item = (&'a StoreKey, &'a str)> + Clone) -> redis::Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(texts.clone().count());
        for (key, _) in texts.clone() {
            command.arg(key.as_str());
        }
        command.arg(self.ttl.as_secs());
        for (_, text) in texts {
            command.arg(text);
        }
        command
    }

    async fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, redis::RedisError> {
        command.query_async(&mut self.connection.get().await?).await
    }
}

impl JournalStore for RedisStore {
    fn put_remembered<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let ttl = self.ttl.as_secs();
            let mut both = redis::pipe();
            both.set_ex(key.as_str(), text, ttl).ignore();
            both.set_ex(remembered(key), "", ttl.saturating_mul(REMEMBERED_TTLS)).ignore();
            let mut connection = self.connection.get().await.map_err(unreachable)?;
            both.query_async(&mut connection).await.map_err(unreachable)
        })
    }

    fn expired<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<bool>, StoreError>> {
        Box::pin(async move {
            let mut all = redis::pipe();
            for key in keys {
                all.exists(remembered(key));
            }
            let mut connection = self.connection.get().await.map_err(unreachable)?;
            all.query_async(&mut connection).await.map_err(unreachable)
        })
    }

    fn put<'a>(&'a self, key: &'a StoreKey, text: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let mut connection = self.connection.get().await.map_err(unreachable)?;
            connection.set_ex::<_, _, ()>(key.as_str(), text, self.ttl.as_secs()).await.map_err(unreachable)
        })
    }

    fn put_new_with<'a>(
        &'a self,
        key: &'a StoreKey,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        let put = self.script(PUT_NEW_WITH, with_others(key, text, others));
        Box::pin(async move { self.run(&put).await.map_err(unreachable) })
    }

    fn replace_with<'a>(
        &'a self,
        key: &'a StoreKey,
        known: &'a str,
        text: &'a str,
        others: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let mut replace = self.script(REPLACE_WITH, with_others(key, text, others));
        replace.arg(known);
        Box::pin(async move { self.run(&replace).await.map_err(unreachable) })
    }

    fn put_new_all<'a>(
        &'a self,
        texts: &'a [(StoreKey, String)],
    ) -> BoxFuture<'a, Vec<Result<Option<String>, StoreError>>> {
        let put = self.script(PUT_NEW_ALL, texts.iter().map(|(key, text)| (key, text.as_str())));
        Box::pin(async move {
            match self.run::<Vec<Option<String>>>(&put).await {
                Ok(known) if known.len() == texts.len() => known.into_iter().map(Ok).collect(),
                Ok(_) => {
                    texts.iter().map(|_| Err(StoreError::Unreachable("it answers for other keys".into()))).collect()
                }
                Err(error) => {
                    let error = Arc::new(error);
                    texts.iter().map(|_| Err(unreachable(Arc::clone(&error)))).collect()
                }
            }
        })
    }

    fn get<'a>(&'a self, keys: &'a [StoreKey]) -> BoxFuture<'a, Result<Vec<Option<String>>, StoreError>> {
        Box::pin(async move {
            if keys.is_empty() {
                return Ok(Vec::new());
            }
            let mut all = redis::pipe();
            for key in keys {
                all.get_ex(key.as_str(), redis::Expiry::EX(self.ttl.as_secs()));
            }
            let mut connection = self.connection.get().await.map_err(unreachable)?;
            all.query_async(&mut connection).await.map_err(unreachable)
        })
    }
}
