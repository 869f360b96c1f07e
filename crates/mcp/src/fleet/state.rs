//! What can be said of a server.

use std::time::Duration;

/// A server as it is now. Secrets are masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    pub name: String,
    /// `None` if the file does not say.
    pub transport: Option<TransportKind>,
    /// As agreed with the server, while it is connected.
    pub protocol_version: Option<String>,
    /// How many tools it offers now.
    pub tools: usize,
    /// The tools are those of an earlier run.
    pub cached: bool,
    pub phase: Phase,
    /// The last lines of its stderr.
    pub stderr: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    Stdio,
    Http,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    Connecting,
    Ready,
    /// A call tries again at once; otherwise it is tried in `retry_in`, or never if that is `None`.
    Failed {
        reason: String,
        retry_in: Option<Duration>,
    },
    Disabled,
}
