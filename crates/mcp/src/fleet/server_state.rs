//! The state of a server, as users see it.

use std::time::Duration;

/// A server as it is now. Secrets are masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// Its name in the configuration.
    pub name: String,
    /// `None` if its configuration is invalid.
    pub transport: Option<TransportKind>,
    /// The negotiated version of the protocol, while it is connected.
    pub protocol_version: Option<String>,
    /// The number of its tools.
    pub tools: usize,
    /// The names of the functions for its resources, if it declares resources.
    pub resource_functions: Vec<&'static str>,
    /// Whether its tools come from the cache and not yet from the server.
    pub cached: bool,
    /// Whether it is connected.
    pub phase: ServerPhase,
    /// The last lines of its stderr.
    pub stderr: Vec<String>,
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// A process of ours, by its stdin and stdout.
    Stdio,
    /// Streamable HTTP.
    Http,
}

/// Whether a server is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerPhase {
    /// It is being started or reached.
    Connecting,
    /// It is connected, and its tools are known.
    Ready,
    /// It could not be reached, or its connection ended. A call tries again at once.
    Failed {
        /// Why, in one line.
        reason: String,
        /// When it is tried again without a call. `None`: never.
        retry_in: Option<Duration>,
    },
    /// It is switched off in the configuration.
    Disabled,
}
