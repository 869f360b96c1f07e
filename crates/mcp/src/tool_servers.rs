//! The servers behind ours, as our own server needs them.

use std::time::Duration;

use dacapo_runner::{BoxFuture, ToolHost};
use futures_util::FutureExt;

use crate::fleet::{Fleet, ServerPhase};

/// A tool host that consists of servers, some of which may be starting or not available.
pub trait ToolServers: ToolHost {
    /// The names of the servers, in the order of the configuration.
    fn names(&self) -> Vec<String>;

    /// Waits until the tools of every server are known, or for a limited time.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// The servers whose tools cannot be called now, with the reason.
    fn unavailable(&self) -> Vec<String>;
}

/// How long a search or a program waits for servers to start. The tools of a server that takes longer are missing from it.
const READY_MAX: Duration = Duration::from_secs(15);

impl ToolServers for Fleet {
    fn names(&self) -> Vec<String> {
        let states = self.states().into_iter().filter(|state| state.phase != ServerPhase::Disabled);
        states.map(|state| state.name).collect()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.listed(READY_MAX).boxed()
    }

    fn unavailable(&self) -> Vec<String> {
        let reason = |phase| match phase {
            ServerPhase::Failed { reason, .. } => Some(reason),
            ServerPhase::Connecting => Some("still starting".to_owned()),
            ServerPhase::Ready | ServerPhase::Disabled => None,
        };
        let states = self.states().into_iter();
        // Tools that are known from an earlier run can be called; the call waits for the server.
        let states = states.filter(|state| !(state.phase == ServerPhase::Connecting && state.cached));
        states.filter_map(|state| reason(state.phase).map(|reason| format!("{} ({reason})", state.name))).collect()
    }
}
