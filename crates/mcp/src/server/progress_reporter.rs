//! Progress notifications: how many calls a program has completed.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use super::program_task::ProgressReport;

/// Sends progress notifications to a client that asked for them.
pub(super) struct ProgressReporter<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Calls done in the last notification. The protocol wants progress to increase.
    last_done: Option<usize>,
}

impl<'a> ProgressReporter<'a> {
    pub(super) fn new(context: &'a RequestContext<RoleServer>) -> ProgressReporter<'a> {
        ProgressReporter { peer: &context.peer, token: context.meta.get_progress_token(), last_done: None }
    }

    pub(super) async fn report(&mut self, report: &ProgressReport) {
        if self.last_done >= Some(report.done) {
            return;
        }
        let Some(token) = self.token.clone() else { return };
        self.last_done = Some(report.done);
        #[expect(clippy::cast_precision_loss, reason = "nobody makes so many calls")]
        let progress = ProgressNotificationParam::new(token, report.done as f64).with_message(&*report.message);
        // A client that has disconnected does not need it.
        drop(self.peer.notify_progress(progress).await);
    }
}
