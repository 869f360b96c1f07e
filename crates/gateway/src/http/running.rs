//! The gateway that serves now. Another configuration makes another gateway; requests keep the one that they began with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::FromRef;
use tokio::sync::mpsc;

use super::GatewayServer;
use crate::config::Config;
use crate::gateway::Gateway;

/// Shared by all connections.
#[derive(Debug, Clone)]
pub(super) struct RunningGateway {
    current: Arc<RwLock<Arc<Gateway>>>,
    is_stopping: Arc<AtomicBool>,
}

impl RunningGateway {
    pub(super) fn new(gateway: Arc<Gateway>) -> RunningGateway {
        RunningGateway { current: Arc::new(RwLock::new(gateway)), is_stopping: Arc::default() }
    }

    pub(super) fn current(&self) -> Arc<Gateway> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Takes over configurations as they come.
    pub(super) async fn follow(&self, mut configs: mpsc::Receiver<Config>) {
        while let Some(config) = configs.recv().await {
            match self.current().with_config(config) {
                Ok((gateway, unchanged)) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gateway);
                    if !unchanged.is_empty() {
                        let settings = unchanged.join(", ");
                        tracing::warn!(settings, "these settings have changed, and hold after a restart only");
                    }
                    tracing::info!("the configuration was read again; it holds for requests from now on");
                }
                Err(error) => tracing::error!(%error, "the configuration stays as it was"),
            }
        }
        // Nobody will send another one.
        std::future::pending::<()>().await;
    }
}

impl FromRef<RunningGateway> for GatewayServer {
    fn from_ref(running: &RunningGateway) -> GatewayServer {
        GatewayServer { gateway: running.current(), running: running.clone() }
    }
}
