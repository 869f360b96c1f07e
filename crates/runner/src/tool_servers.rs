//! Tool hosts that consist of servers, which start, fail and come back.

use futures_util::future::BoxFuture;

use crate::server_log::{LogSeverity, ServerLogs};
use crate::tool_host::ToolHost;

/// A tool host that consists of servers, some of which may be starting or not available.
pub trait ToolServers: ToolHost {
    /// The servers as they are now, in the order of the configuration.
    fn statuses(&self) -> Vec<ServerStatus>;

    /// Waits until the tools of every server are known, or for a limited time.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// Like [`ready`](Self::ready), but waits only for servers that this program may need: a server that hangs while it
    /// starts delays no other program.
    fn ready_for<'a>(&'a self, program: &'a str) -> BoxFuture<'a, ()> {
        _ = program;
        self.ready()
    }

    /// What the servers log from now on, from this severity on. `None` if they log nothing that can be read here.
    fn logs(&self, _severity_min: LogSeverity) -> Option<ServerLogs> {
        None
    }

    /// The names of the servers.
    fn names(&self) -> Vec<String> {
        self.statuses().into_iter().map(|server| server.name).collect()
    }

    /// The servers whose tools cannot be called now, with the reason.
    fn unavailable(&self) -> Vec<String> {
        let described = |server: ServerStatus| {
            let reason = match server.availability {
                Availability::Ready | Availability::StartingKnown => return None,
                Availability::Starting => "still starting".to_owned(),
                Availability::Failed(reason) => reason,
            };
            Some(format!("{} ({reason})", server.name))
        };
        self.statuses().into_iter().filter_map(described).collect()
    }
}

/// A server of a tool host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name, which is also the namespace of its tools.
    pub name: String,
    /// Whether its tools can be called.
    pub availability: Availability,
}

/// Whether the tools of a server can be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// They can.
    Ready,
    /// It starts, and its tools are known from an earlier run. A call waits for it.
    StartingKnown,
    /// It starts, and it is not known what tools it has.
    Starting,
    /// It did not start, or has ended. It is tried again.
    Failed(String),
}
