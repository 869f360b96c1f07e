//! A turn that runs while its response is sent.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::connection_work::{CancelWork, ConnectionWork};
use super::errors::TurnError;
use crate::store::turn_records::TurnRecord;
use crate::turn::TurnDone;

/// A turn that runs while its response is sent. It is cancelled if the client disconnects, unless it has sent calls with
/// effects.
pub(super) struct TurnTask<T = TurnDone> {
    outcome: oneshot::Receiver<Result<T, TurnError>>,
    _place: TurnPlace,
}

/// Where it runs. It is cancelled when this is dropped.
enum TurnPlace {
    Connection { _work: CancelWork },
    OwnTask { _task: OwnTask },
}

/// Of a turn that may outlive its connection.
struct OwnTask {
    task: AbortHandle,
    record: Option<Arc<TurnRecord>>,
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        if !self.record.as_ref().is_some_and(|record| record.has_begun()) {
            self.task.abort();
        }
    }
}

impl<T: Send + 'static> TurnTask<T> {
    /// `record` is set if it may have to go on without its client.
    pub(super) fn start(
        connection: Option<&ConnectionWork>,
        record: Option<Arc<TurnRecord>>,
        turn: impl Future<Output = Result<T, TurnError>> + Send + 'static,
    ) -> TurnTask<T> {
        let (sender, outcome) = oneshot::channel();
        let work = async move {
            // A defect of ours ends this response, and not the connection. What it was is on standard error.
            if let Ok(done) = AssertUnwindSafe(turn).catch_unwind().await {
                // Whoever awaits it may have left.
                drop(sender.send(done));
            }
        };
        let place = match (connection, record) {
            (Some(connection), None) => TurnPlace::Connection { _work: connection.start(work) },
            (_, record) => {
                let task = tokio::spawn(work).abort_handle();
                TurnPlace::OwnTask { _task: OwnTask { task, record } }
            }
        };
        TurnTask { outcome, _place: place }
    }

    /// Waits for its end.
    pub(super) async fn outcome(&mut self) -> Result<T, TurnError> {
        (&mut self.outcome).await.unwrap_or_else(|_dropped| Err(TurnError::Internal("the turn did not end".to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_that_panics_ends_its_response_alone() {
        let work = ConnectionWork::default();
        let mut task = TurnTask::<()>::start(Some(&work), None, async { panic!("a defect") });
        let outcome = work.with(task.outcome()).await;
        assert!(matches!(outcome, Err(TurnError::Internal(message)) if message == "the turn did not end"));
    }
}
