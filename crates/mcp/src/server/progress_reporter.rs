//! Progress notifications: how many calls a program has completed, and what it writes meanwhile.

use dacapo_replay::LogLine;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::json;

use super::program_task::ProgressReport;

/// Sends progress notifications to a client that asked for them.
pub(super) struct ProgressReporter<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Calls that are done, and lines that the program has written.
    done: usize,
    lines: usize,
    /// The progress of the last notification. The protocol wants it to increase with every one, so lines count too.
    last: Option<usize>,
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(context: &'a RequestContext<RoleServer>) -> ProgressReporter<'a> {
        ProgressReporter {
            peer: &context.peer,
            token: context.meta.get_progress_token(),
            done: 0,
            lines: 0,
            last: None,
        }
    }

    pub(super) async fn report(&mut self, report: &ProgressReport) {
        self.done = report.done;
        self.notify(&report.message).await;
    }

    /// Sends a line that the program has written.
    pub(super) async fn log(&mut self, line: &LogLine) {
        self.lines += 1;
        let shown = json!(line);
        match shown["level"].as_str() {
            None | Some("log") => self.notify(&line.text).await,
            Some(level) => self.notify(&format!("[{level}] {}", line.text)).await,
        }
    }

    async fn notify(&mut self, message: &str) {
        let progress = self.done + self.lines;
        let Some(token) = self.token.clone().filter(|_| self.last < Some(progress)) else { return };
        self.last = Some(progress);
        #[expect(clippy::cast_precision_loss, reason = "nobody makes so many calls")]
        let progress = ProgressNotificationParam::new(token, progress as f64).with_message(message);
        // A client that has disconnected does not need it.
        drop(self.peer.notify_progress(progress).await);
    }
}
