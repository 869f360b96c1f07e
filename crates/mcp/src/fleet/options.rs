//! What a fleet may take its time for.

use std::path::PathBuf;
use std::time::Duration;

/// Limits of a [`Fleet`](super::Fleet), and where it keeps its lists.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Where tool lists are kept for the next start; nowhere if `None`.
    pub cache_dir: Option<PathBuf>,
    /// To start or reach a server and get its list.
    pub connect_timeout: Duration,
    /// For the answer to a call, from when it is sent.
    pub call_timeout: Duration,
    /// Calls that one server works on at a time; further ones wait.
    pub calls_per_server_max: usize,
    /// Of an answer with its attachments.
    pub answer_bytes_max: usize,
    /// After the first failure; doubled after each further one.
    pub retry_min: Duration,
    pub retry_max: Duration,
    /// Between a server's word that its list changed and our asking for it. Further words until then cost nothing.
    pub relist_wait: Duration,
    /// Before a server starts whose tools are known from an earlier run, if nobody waits for it.
    pub known_start_wait: Duration,
    /// For a server to end by itself when its stdin is closed.
    pub shutdown_patience: Duration,
}

impl Default for FleetOptions {
    fn default() -> FleetOptions {
        FleetOptions {
            cache_dir: None,
            connect_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_mins(1),
            calls_per_server_max: 100,
            answer_bytes_max: 8 << 20,
            retry_min: Duration::from_secs(1),
            retry_max: Duration::from_mins(1),
            relist_wait: Duration::from_millis(100),
            known_start_wait: Duration::from_millis(500),
            shutdown_patience: Duration::from_secs(1),
        }
    }
}

impl FleetOptions {
    /// How long to wait after so many failures in a row.
    pub(super) fn retry_wait(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.retry_min.saturating_mul(doubled).min(self.retry_max)
    }
}
