//! Timeouts and limits of a fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dacapo_replay::EffectRules;
use dacapo_runner::AddressReach;

/// Timeouts and limits of a [`Fleet`](super::Fleet), and where it caches lists of tools.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Where lists of tools are cached for the next start. `None`: nowhere.
    pub cache_dir: Option<PathBuf>,
    /// Which machines servers over HTTP may be on. Where these are public ones only, redirects are not followed.
    pub reach: AddressReach,
    /// Where the tokens of logins are. `None`: nobody is logged in.
    pub tokens_dir: Option<PathBuf>,
    /// For starting or reaching a server and listing its tools.
    pub connect_timeout: Duration,
    /// For the response to a call, from when it is sent.
    pub call_timeout: Duration,
    /// Calls that one server executes at the same time. Further ones wait.
    pub calls_per_server_max: usize,
    /// What the operator says of tools, by `server.tool`.
    pub effects: Arc<EffectRules>,
    /// Bytes of a result with its attachments.
    pub answer_bytes_max: usize,
    /// Before a failed server is tried again. Doubled after each further failure.
    pub retry_min: Duration,
    /// The most that `retry_min` is doubled to.
    pub retry_max: Duration,
    /// Between a server's announcement that its list changed and the request for the new list, so that a burst of
    /// announcements causes one request.
    pub relist_wait: Duration,
    /// Before a server is started whose tools are known from the cache, if nobody waits for it.
    pub known_start_wait: Duration,
    /// For a server to end by itself after its stdin is closed.
    pub shutdown_grace: Duration,
}

impl Default for FleetOptions {
    fn default() -> FleetOptions {
        FleetOptions {
            cache_dir: None,
            reach: AddressReach::Any,
            tokens_dir: None,
            connect_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_mins(1),
            calls_per_server_max: 100,
            effects: Arc::default(),
            answer_bytes_max: 8 << 20,
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_mins(1),
            relist_wait: Duration::from_millis(100),
            known_start_wait: Duration::from_millis(500),
            shutdown_grace: Duration::from_secs(1),
        }
    }
}

impl FleetOptions {
    /// How long to wait before the next attempt after this many failures in a row.
    pub(super) fn retry_wait(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.retry_min.saturating_mul(doubled).min(self.retry_max)
    }
}
