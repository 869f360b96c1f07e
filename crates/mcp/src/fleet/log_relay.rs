//! Passes log messages of servers on: to our own log, and to clients that want them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dacapo_catalog::shorten;
use dacapo_runner::{LogSeverity, ServerLog, ServerLogs};
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tracing::level_filters::LevelFilter;

use crate::lock::lock;

/// Messages that wait for a client that reads slowly.
const WAITING_MAX: usize = 256;
/// Of a message in our log.
const LOGGED_CHARS_MAX: usize = 2_000;
/// A server that logs more than this many messages in a period costs our log one line for the rest of it.
const LOGGED_MAX: usize = 100;
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct LogRelay {
    messages: broadcast::Sender<Arc<ServerLog>>,
    /// What our own log wants.
    own: Option<LogSeverity>,
    /// How many clients want messages from this severity on.
    interests: Mutex<BTreeMap<LogSeverity, usize>>,
    /// The least that anybody wants. `None`: nothing.
    wanted: watch::Sender<Option<LogSeverity>>,
}

impl LogRelay {
    pub(super) fn new() -> LogRelay {
        let level = LevelFilter::current();
        let own = match level {
            LevelFilter::OFF => None,
            LevelFilter::ERROR | LevelFilter::WARN | LevelFilter::INFO => Some(LogSeverity::Warning),
            _ => Some(LogSeverity::Debug),
        };
        let messages = broadcast::Sender::new(WAITING_MAX);
        LogRelay { messages, own, interests: Mutex::default(), wanted: watch::Sender::new(own) }
    }

    /// The least severity that anybody wants, now and whenever it changes.
    pub(super) fn wanted(&self) -> watch::Receiver<Option<LogSeverity>> {
        self.wanted.subscribe()
    }

    /// Messages from this severity on.
    pub(super) fn subscribe(self: &Arc<LogRelay>, severity: LogSeverity) -> ServerLogs {
        *lock(&self.interests).entry(severity).or_default() += 1;
        self.interests_changed();
        ServerLogs::new(self.messages.subscribe(), severity, Interest { relay: Arc::clone(self), severity })
    }

    fn interests_changed(&self) {
        let least = lock(&self.interests).keys().next().copied();
        let wanted = self.own.into_iter().chain(least).min();
        self.wanted.send_if_modified(|before| std::mem::replace(before, wanted) != wanted);
    }

    fn pass_to_clients(&self, message: ServerLog) {
        // Without clients that want it, nobody gets it.
        drop(self.messages.send(Arc::new(message)));
    }
}

/// A client that wants messages, until it is dropped.
struct Interest {
    relay: Arc<LogRelay>,
    severity: LogSeverity,
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut interests = lock(&self.relay.interests);
        if let Some(count) = interests.get_mut(&self.severity) {
            *count -= 1;
            if *count == 0 {
                interests.remove(&self.severity);
            }
        }
        drop(interests);
        self.relay.interests_changed();
    }
}

/// Where the messages of one server go.
#[derive(Debug)]
pub(super) struct ServerLogSink {
    relay: Arc<LogRelay>,
    period: Mutex<Period>,
}

#[derive(Debug)]
struct Period {
    since: Instant,
    logged: usize,
}

impl ServerLogSink {
    pub(super) fn new(relay: Arc<LogRelay>) -> ServerLogSink {
        ServerLogSink { relay, period: Mutex::new(Period { since: Instant::now(), logged: 0 }) }
    }

    /// Passes a message on. Its secrets are masked.
    pub(super) fn take(&self, message: ServerLog) {
        if self.relay.own.is_some_and(|own| message.severity >= own) {
            self.log(&message);
        }
        self.relay.pass_to_clients(message);
    }

    /// What a server calls an error may be none of ours, so nothing is more than a warning.
    fn log(&self, message: &ServerLog) {
        let count = {
            let mut period = lock(&self.period);
            if period.since.elapsed() > PERIOD {
                *period = Period { since: Instant::now(), logged: 0 };
            }
            period.logged += 1;
            period.logged
        };
        let ServerLog { server, severity, logger, data } = message;
        if count > LOGGED_MAX {
            if count == LOGGED_MAX + 1 {
                let seconds = PERIOD.as_secs();
                tracing::warn!(
                    server,
                    "an MCP server logs more than {LOGGED_MAX} messages in {seconds} s; the rest is left out"
                );
            }
            return;
        }
        let text = match data {
            Value::String(text) => shorten(text, LOGGED_CHARS_MAX),
            other => shorten(&other.to_string(), LOGGED_CHARS_MAX),
        };
        let logger = logger.as_deref();
        if *severity >= LogSeverity::Warning {
            tracing::warn!(server, ?severity, logger, text, "an MCP server logs");
        } else {
            tracing::debug!(server, ?severity, logger, text, "an MCP server logs");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn servers_are_asked_for_what_somebody_wants_and_no_longer() {
        let relay = Arc::new(LogRelay { own: Some(LogSeverity::Warning), ..LogRelay::new() });
        relay.interests_changed();
        let wanted = relay.wanted();
        assert_eq!(*wanted.borrow(), Some(LogSeverity::Warning));
        let mut errors = relay.subscribe(LogSeverity::Error);
        assert_eq!(*wanted.borrow(), Some(LogSeverity::Warning), "our own log wants more");
        let chatty = relay.subscribe(LogSeverity::Info);
        assert_eq!(*wanted.borrow(), Some(LogSeverity::Info));
        drop(chatty);
        assert_eq!(*wanted.borrow(), Some(LogSeverity::Warning));

        let message = |severity, text: &str| ServerLog {
            server: "a".to_owned(),
            severity,
            logger: None,
            data: Value::from(text),
        };
        relay.pass_to_clients(message(LogSeverity::Warning, "not for it"));
        relay.pass_to_clients(message(LogSeverity::Critical, "for it"));
        assert_eq!(errors.next().await.as_deref(), Some(&message(LogSeverity::Critical, "for it")));
        for _ in 0..=WAITING_MAX {
            relay.pass_to_clients(message(LogSeverity::Critical, "too many"));
        }
        let lost = errors.next().await.expect("a message");
        assert_eq!(lost.data, "1 log messages of servers came too fast and are lost");
    }
}
