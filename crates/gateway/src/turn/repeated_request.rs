//! A request that a client sends again, because its connection broke: it gets the response of the first turn, or goes on
//! where that was cut off.

use std::borrow::Cow;
use std::collections::VecDeque;

use axum::http::{HeaderMap, StatusCode};
use dacapo_runner::StoreError;
use dacapo_wire::{ClientSide, ModelResponse};

use super::owned_calls::ProgramOrigin;
use super::{TurnDone, TurnEnd, TurnRunner};
use crate::http::TurnError;
use crate::observe::{Event, RequestId};
use crate::store::turn_records::{Begun, EarlierTurn, RecordedResponse, TurnRecord, TurnResponses};

/// The model's responses in this turn, if they may have to be known when the turn is cut off.
#[derive(Default)]
pub(super) struct ResponsesSoFar {
    received: Vec<ModelResponse>,
    /// How many of them are recorded. Those that are still to be repeated are, too.
    recorded: usize,
    /// How many of the turn's programs that have ended have their answers in the store.
    pub answers_kept: usize,
    /// Responses in a turn that was cut off. They are used again instead of asking the model.
    pub to_repeat: VecDeque<ModelResponse>,
    pub state: ResponsesState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ResponsesState {
    /// All of them are of this turn.
    #[default]
    New,
    /// Some are of a turn that was cut off, whose programs may have answers in the store.
    Resumed,
    /// An earlier turn was cut off, and the responses in it are not known.
    Lost,
}

const INTERRUPTED: &str = "an earlier attempt of this same request was cut off after it had called functions with effects, and it is not \
known which of them took effect; look before you ask for the same again, in other words";

impl TurnRunner {
    /// Goes on where an earlier turn of the same request was cut off: with the responses of the model then.
    pub(super) fn go_on_after(&mut self, earlier: EarlierTurn) {
        match earlier {
            EarlierTurn::Interrupted(Some(earlier)) if earlier.wire == self.turn.provider.wire() => {
                (self.progress.seed, self.progress.started_at_ms) = (earlier.seed.into_owned(), earlier.started_at_ms);
                let to_repeat: VecDeque<ModelResponse> = earlier.responses.into_owned().into();
                let (recorded, state) = (to_repeat.len(), ResponsesState::Resumed);
                self.responses = ResponsesSoFar { recorded, to_repeat, state, ..ResponsesSoFar::default() };
            }
            EarlierTurn::Interrupted(_) => self.responses.state = ResponsesState::Lost,
            EarlierTurn::None | EarlierTurn::Ended(_) => {}
        }
    }

    /// Waits for an earlier turn of the same request, and keeps the stream alive meanwhile. Returns the end of this turn if
    /// the client gets the response of the other.
    pub(crate) async fn attach(&mut self) -> Result<Option<TurnDone>, TurnError> {
        let Some(record) = &self.tenant.record else { return Ok(None) };
        let deadline = self.deadline;
        match deadline.limit(self.sink.while_waiting(record.earlier())).await? {
            Ok(EarlierTurn::Ended(response)) => {
                self.sink.recorded_response(response).await?;
                Ok(Some(TurnDone { body: None, headers: HeaderMap::new(), end: TurnEnd::Answer }))
            }
            Ok(earlier) => {
                self.go_on_after(earlier);
                Ok(None)
            }
            Err(error) => {
                self.observer.emit(&Event::StoreFailed { error: &error });
                Ok(None)
            }
        }
    }

    /// Notes a response of the model, if it may have to be recorded.
    pub(super) fn note_response(&mut self, response: &ModelResponse) {
        if self.tenant.record.is_some() {
            self.responses.received.push(response.clone());
        }
    }

    /// Records the model's responses so far, before a call with effects is sent, and with the first one that the turn sends
    /// such calls.
    pub(super) async fn record_responses(&mut self, origin: ProgramOrigin<'_>) -> Result<Begun, StoreError> {
        let Some(record) = &self.tenant.record else { return Ok(Begun::Yes) };
        let so_far = &mut self.responses;
        let in_turn = TurnResponses {
            seed: Cow::Borrowed(&self.progress.seed),
            started_at_ms: self.progress.started_at_ms,
            wire: self.turn.provider.wire(),
            responses: Cow::Borrowed(&so_far.received),
        };
        if matches!(origin, ProgramOrigin::ThisTurn(_)) && !record.has_begun() {
            if record.begin(&in_turn).await? == Begun::ByAnother {
                return Ok(Begun::ByAnother);
            }
        } else if so_far.recorded < so_far.received.len() {
            record.keep_responses(&in_turn).await?;
        }
        so_far.recorded = so_far.recorded.max(so_far.received.len());
        Ok(Begun::Yes)
    }
}

impl ResponsesSoFar {
    /// Records the end of a turn for a client that asks again: its response, of which `streamed` was sent if it is a stream.
    /// An error is no response that a client could use, so that a turn which has failed may be gone on with, unless nobody
    /// knows where it was.
    pub(super) async fn record_end(
        &self,
        record: &TurnRecord,
        done: &Result<TurnDone, TurnError>,
        streamed: Option<String>,
        client: ClientSide,
        request_id: &RequestId,
    ) {
        let (status, is_stream, body) = match (streamed, done) {
            (_, Err(_)) if self.state != ResponsesState::Lost => {
                if let Err(error) = record.fail().await {
                    tracing::warn!(%error, "the failure could not be recorded; whoever asks again waits until it is noticed");
                }
                return;
            }
            (Some(streamed), _) => (StatusCode::OK, true, streamed),
            (None, Ok(done)) => (StatusCode::OK, false, done.body.as_deref().unwrap_or("null").to_owned()),
            (None, Err(error)) => (error.status(), false, error.body(client, request_id).to_string()),
        };
        let response = RecordedResponse { status: status.as_u16(), is_stream, body };
        if let Err(error) = record.end(response).await {
            tracing::warn!(%error, "the response could not be recorded for a client that asks again");
        }
    }
}

/// The error if it is not known how far an earlier turn came.
pub(super) fn interrupted() -> TurnError {
    TurnError::refused(StatusCode::FAILED_DEPENDENCY, "interrupted_error", INTERRUPTED)
}
