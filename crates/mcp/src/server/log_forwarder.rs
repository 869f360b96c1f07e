//! Passes log messages of the servers behind ours on to a client that wants them.

use dacapo_runner::{LogSeverity, ToolServers};
#[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Sends a client what the servers log, until it is dropped.
#[derive(Debug)]
pub(super) struct LogForwarder(Option<JoinHandle<()>>);

impl LogForwarder {
    /// From this level on. If the servers log nothing, nothing is sent.
    #[expect(deprecated, reason = "clients set levels until the protocol has removed it")]
    pub(super) fn start(servers: &dyn ToolServers, level: LoggingLevel, peer: Peer<RoleServer>) -> LogForwarder {
        let severity: LogSeverity = same_word(json!(level)).unwrap_or(LogSeverity::Debug);
        let Some(mut logs) = servers.logs(severity) else { return LogForwarder(None) };
        let forwarding = tokio::spawn(async move {
            while let Some(log) = logs.next().await {
                let Some(level) = same_word(json!(log.severity)) else { continue };
                let logger = match &log.logger {
                    Some(logger) => format!("{}/{logger}", log.server),
                    None => log.server.clone(),
                };
                let message = LoggingMessageNotificationParam::new(level, log.data.clone()).with_logger(logger);
                if peer.notify_logging_message(message).await.is_err() {
                    return;
                }
            }
        });
        LogForwarder(Some(forwarding))
    }
}

impl Drop for LogForwarder {
    fn drop(&mut self) {
        if let Some(forwarding) = &self.0 {
            forwarding.abort();
        }
    }
}

/// Both sides have the same words for levels.
fn same_word<T: serde::de::DeserializeOwned>(word: Value) -> Option<T> {
    serde_json::from_value(word).ok()
}
