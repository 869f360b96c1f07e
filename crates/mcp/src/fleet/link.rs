//! Whether a server can be reached now, and why not.

use std::sync::Arc;

use tokio::time::Instant;

use super::connection::Connection;

/// A reason stands in lists of servers and in front of models.
const REASON_CHARS_MAX: usize = 200;

#[derive(Debug, Clone)]
pub(super) enum Link {
    /// For the first time, or again: whoever waits for the tools of all does not wait for those that failed before.
    Connecting {
        first: bool,
    },
    Up(Arc<Connection>),
    Down(Down),
    Disabled,
}

#[derive(Debug, Clone)]
pub(super) struct Down {
    pub(super) reason: String,
    pub(super) since: Instant,
    pub(super) retry_at: Option<Instant>,
    /// It worked until then, so trying again is no repetition.
    pub(super) was_up: bool,
}

/// Its first line, or what of it is enough to recognise it.
pub(super) fn shortened(reason: &str) -> String {
    let line = reason.trim_start().lines().next().unwrap_or_default();
    match line.char_indices().nth(REASON_CHARS_MAX - 1) {
        Some((at, last)) if at + last.len_utf8() < line.len() => format!("{}…", &line[..at]),
        _ => line.to_owned(),
    }
}
