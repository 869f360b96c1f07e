//! What servers log, for whoever wants to read it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// How serious a log message is, as in RFC 5424, the least serious first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are the words of the RFC")]
pub enum LogSeverity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// A log message of a server. Secrets are masked.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerLog {
    /// The server.
    pub server: String,
    /// How serious it is.
    pub severity: LogSeverity,
    /// The part of the server that logs, if it says so.
    pub logger: Option<String>,
    /// A text or any other value.
    pub data: Value,
}

/// Log messages of servers, from when this was made. Servers are asked for them as long as it exists.
pub struct ServerLogs {
    messages: broadcast::Receiver<Arc<ServerLog>>,
    severity_min: LogSeverity,
    /// Dropped with this.
    _interest: Box<dyn Any + Send + Sync>,
}

impl ServerLogs {
    /// The messages of a channel that are serious enough. `interest` is dropped when nobody reads them any more.
    pub fn new(
        messages: broadcast::Receiver<Arc<ServerLog>>,
        severity_min: LogSeverity,
        interest: impl Any + Send + Sync,
    ) -> ServerLogs {
        ServerLogs { messages, severity_min, _interest: Box::new(interest) }
    }

    /// The next message. `None` when there will be no more. If messages were lost because nobody read them in time, a
    /// message says how many.
    pub async fn next(&mut self) -> Option<Arc<ServerLog>> {
        loop {
            match self.messages.recv().await {
                Ok(message) if message.severity >= self.severity_min => return Some(message),
                Ok(_) => {}
                Err(RecvError::Lagged(lost)) => {
                    let data = format!("{lost} log messages of servers came too fast and are lost").into();
                    let server = "dacapo".to_owned();
                    return Some(Arc::new(ServerLog { server, severity: LogSeverity::Warning, logger: None, data }));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl fmt::Debug for ServerLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLogs").field("severity_min", &self.severity_min).finish_non_exhaustive()
    }
}
