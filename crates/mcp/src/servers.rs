//! The servers behind ours, as a client may hear of them.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::ask::Owners;
use crate::fleet::{Fleet, Phase};

/// Owners that are servers, some of which may be starting or gone.
pub trait Servers: Owners {
    /// As they are configured, in a fixed order.
    fn names(&self) -> Vec<String>;

    /// Ends when the tools of every server are known, or it is clear that they will not be soon.
    fn ready(&self) -> BoxFuture<'_, ()>;

    /// The servers whose tools cannot be called now, with the reason.
    fn unavailable(&self) -> Vec<String>;
}

/// A server that takes longer costs only its own tools.
const READY_MAX: Duration = Duration::from_secs(15);

impl Servers for Fleet {
    fn names(&self) -> Vec<String> {
        let states = self.states().into_iter().filter(|state| state.phase != Phase::Disabled);
        states.map(|state| state.name).collect()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.listed(READY_MAX).boxed()
    }

    fn unavailable(&self) -> Vec<String> {
        let reason = |phase| match phase {
            Phase::Failed { reason, .. } => Some(reason),
            Phase::Connecting => Some("still starting".to_owned()),
            Phase::Ready | Phase::Disabled => None,
        };
        let states = self.states().into_iter();
        // What is known from an earlier run can be called: the call waits for the server.
        let states = states.filter(|state| !(state.phase == Phase::Connecting && state.cached));
        states.filter_map(|state| reason(state.phase).map(|reason| format!("{} ({reason})", state.name))).collect()
    }
}
