//! The time that a turn may take.

use std::future::Future;
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;

use super::errors::TurnError;

/// When a turn has to be over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnDeadline {
    at: Instant,
    allowed: Duration,
}

impl TurnDeadline {
    /// A turn that starts now.
    pub(crate) fn after(allowed: Duration) -> TurnDeadline {
        TurnDeadline { at: Instant::now() + allowed, allowed }
    }

    /// Gives the work up at the deadline.
    pub(crate) async fn limit<T>(self, work: impl Future<Output = Result<T, TurnError>>) -> Result<T, TurnError> {
        tokio::time::timeout_at(self.at, work).await.unwrap_or_else(|_elapsed| Err(self.exceeded()))
    }

    fn exceeded(self) -> TurnError {
        let seconds = self.allowed.as_secs();
        let message = format!(
            "the turn took longer than {seconds} s (timeouts.turn_seconds of the gateway); ask for less in one turn"
        );
        TurnError::refused(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message)
    }
}
