//! Whether a server is connected now, and why not.

use std::sync::Arc;

use dacapo_catalog::shorten;
use tokio::time::Instant;

use super::connection::ServerConnection;

/// Reasons are shown in lists of servers and to models.
const REASON_CHARS_MAX: usize = 200;

#[derive(Debug, Clone)]
pub(super) enum LinkState {
    /// `first` is false when it was connected or has failed before. Those who wait for the tools of all servers do not wait
    /// for such a server.
    Connecting {
        first: bool,
    },
    Up(Arc<ServerConnection>),
    Down(Outage),
    Disabled,
}

#[derive(Debug, Clone)]
pub(super) struct Outage {
    pub(super) reason: String,
    pub(super) since: Instant,
    pub(super) retry_at: Option<Instant>,
    /// The server was connected until then, so that a retry is worthwhile at once.
    pub(super) was_up: bool,
}

/// The first line of a reason, cut to a length that fits into a list.
pub(super) fn first_line(reason: &str) -> String {
    shorten(reason.trim_start().lines().next().unwrap_or_default(), REASON_CHARS_MAX)
}
