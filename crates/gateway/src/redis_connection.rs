//! The connection to a server that speaks the protocol of Redis.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError};
use tokio::sync::OnceCell;

/// Made when it is first needed, and again when it breaks.
pub(crate) struct RedisConnection {
    client: Client,
    manager: OnceCell<ConnectionManager>,
}

/// A server that does not answer must not delay a request for longer.
const TIMEOUT: Duration = Duration::from_secs(5);

impl RedisConnection {
    pub(crate) fn new(client: Client) -> RedisConnection {
        RedisConnection { client, manager: OnceCell::new() }
    }

    pub(crate) async fn get(&self) -> Result<ConnectionManager, RedisError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_number_of_retries(1);
        let connect = || self.client.get_connection_manager_with_config(config);
        self.manager.get_or_try_init(connect).await.cloned()
    }
}

impl std::fmt::Debug for RedisConnection {
    /// The client's address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConnection").finish_non_exhaustive()
    }
}
