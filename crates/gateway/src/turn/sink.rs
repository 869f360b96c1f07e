//! The response of a turn on its way to the client: as a stream of events, or as a whole.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use dacapo_replay::json_text;
use dacapo_wire::{
    AnswerParts, CallDeltas, CallsIssued, ModelResponse, ProgramFinished, ProgramStarted, ProviderSide, ResponseDelta,
    ResponseEncoder, ResponseMeta, ServerCall, ServerCallEnd, ServerToolList, SseEvent, ToolsSearched, TurnUsage,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::http::TurnError;
use crate::store::turn_records::{RecordedResponse, TurnRecord};

/// Where the events of a streamed response go.
#[derive(Debug)]
pub(crate) struct EventStream {
    pub pieces: mpsc::Sender<Bytes>,
    /// Headers of the response; set when the first model responds.
    pub headers: Arc<OnceLock<HeaderMap>>,
}

/// Encodes the response of a turn and sends it.
#[derive(Debug)]
pub(crate) struct ResponseSink {
    stream: Option<EventStream>,
    encoder: Box<dyn ResponseEncoder>,
    /// Whether something was sent. After that, an error has to be an event.
    has_sent: bool,
    /// Pieces that were sent, without those that only keep the connection alive.
    pieces_sent: usize,
    has_meta: bool,
    keep_alive: Duration,
    /// When something has to be sent, so that clients and proxies do not close the connection.
    silent_until: Instant,
    /// Set if the turn may have to go on without its client. Then all that is streamed is kept.
    record: Option<Arc<TurnRecord>>,
    streamed: String,
}

/// What every stream may hold at any place, and all clients skip.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// How this client reads streamed tool calls.
pub(crate) fn call_deltas(headers: &HeaderMap) -> CallDeltas {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if agent.contains("OpenAI/") { CallDeltas::Opened } else { CallDeltas::Whole }
}

impl ResponseSink {
    pub(crate) fn new(
        stream: Option<EventStream>,
        encoder: Box<dyn ResponseEncoder>,
        keep_alive: Duration,
        record: Option<Arc<TurnRecord>>,
    ) -> ResponseSink {
        let silent_until = Instant::now() + keep_alive;
        let (has_sent, pieces_sent, has_meta, streamed) = (false, 0, false, String::new());
        ResponseSink { stream, encoder, has_sent, pieces_sent, has_meta, keep_alive, silent_until, record, streamed }
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.has_sent
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// What the client has got so far: as long as it stays the same, a response that failed can be replaced by another.
    pub(crate) fn progress(&self) -> (usize, bool) {
        (self.pieces_sent, self.has_meta)
    }

    pub(crate) fn provider_changed(&mut self, provider: ProviderSide) {
        self.encoder.provider_changed(provider);
    }

    /// An upstream starts to respond; the client's response has these headers, if it has not begun.
    pub(crate) fn response_started(&mut self, headers: impl FnOnce() -> HeaderMap) {
        self.encoder.response_started();
        if let Some(stream) = &self.stream {
            stream.headers.get_or_init(headers);
        }
    }

    /// Opens a stream, once the fields around the content are known.
    pub(crate) async fn open(&mut self) -> Result<(), TurnError> {
        let events = self.encoder.open();
        self.send(events).await
    }

    /// Waits, and keeps the client's connection alive meanwhile.
    pub(crate) async fn while_waiting<T>(&mut self, work: impl Future<Output = T>) -> Result<T, TurnError> {
        let mut work = pin!(work);
        loop {
            // Work that is always at hand, such as the pieces of a long program, is silent as well.
            let is_silent = self.is_stream() && self.silent_until <= Instant::now();
            if is_silent {
                let event = self.encoder.keep_alive();
                let piece = event.map_or(Bytes::from_static(COMMENT), |event| Bytes::from(event.encoded()));
                self.send_piece(piece).await?;
            }
            let next = self.silent_until;
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep_until(next), if self.is_stream() => {}
            }
        }
    }

    /// Sets the fields around the content.
    pub(crate) fn meta(&mut self, meta: &ResponseMeta) {
        self.has_meta = true;
        self.encoder.meta(meta);
    }

    /// Whether a stream still lacks the fields around the content: it keeps the first that it gets.
    pub(crate) fn needs_meta(&self) -> bool {
        self.is_stream() && !self.has_meta
    }

    pub(crate) async fn delta(&mut self, delta: ResponseDelta) -> Result<(), TurnError> {
        let events = self.encoder.delta(delta);
        self.send(events).await
    }

    pub(crate) async fn program_started(&mut self, program: &ProgramStarted<'_>) -> Result<(), TurnError> {
        let events = self.encoder.program_started(program);
        self.send(events).await
    }

    pub(crate) async fn tools_listed(&mut self, list: &ServerToolList<'_>) -> Result<(), TurnError> {
        let events = self.encoder.tools_listed(list);
        self.send(events).await
    }

    pub(crate) async fn server_call_started(&mut self, call: &ServerCall<'_>) -> Result<(), TurnError> {
        let events = self.encoder.server_call_started(call);
        self.send(events).await
    }

    pub(crate) async fn approval_requested(&mut self, call: &ServerCall<'_>) -> Result<(), TurnError> {
        let events = self.encoder.approval_requested(call);
        self.send(events).await
    }

    pub(crate) async fn server_call_ended(
        &mut self,
        call: &ServerCall<'_>,
        end: ServerCallEnd<'_>,
    ) -> Result<(), TurnError> {
        let events = self.encoder.server_call_ended(call, end);
        self.send(events).await
    }

    pub(crate) async fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Result<(), TurnError> {
        let events = self.encoder.program_finished(finished);
        self.send(events).await
    }

    pub(crate) async fn preamble(&mut self, response: &ModelResponse) -> Result<(), TurnError> {
        let events = self.encoder.preamble(response);
        self.send(events).await
    }

    pub(crate) async fn tools_searched(&mut self, searched: &ToolsSearched<'_>) -> Result<(), TurnError> {
        let events = self.encoder.tools_searched(searched);
        self.send(events).await
    }

    pub(crate) async fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Result<(), TurnError> {
        let events = self.encoder.calls_issued(issued);
        self.send(events).await
    }

    pub(crate) async fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Result<(), TurnError> {
        let events = self.encoder.answer(response, parts);
        self.send(events).await
    }

    /// The last events of a stream, and the whole response, if it is stored.
    pub(crate) fn end(&mut self, usage: &TurnUsage, is_stored: bool) -> (Vec<SseEvent>, Option<Value>) {
        let events = if self.is_stream() { self.encoder.finish(usage) } else { Vec::new() };
        let body = if is_stored { self.encoder.body(usage) } else { None };
        (events, body)
    }

    /// Sends the last events. Returns the body as JSON if the response is not streamed.
    pub(crate) async fn finish(
        &mut self,
        usage: &TurnUsage,
        events: Vec<SseEvent>,
        stored: Option<Value>,
    ) -> Result<Option<String>, TurnError> {
        if self.is_stream() {
            self.send(events).await?;
            return Ok(None);
        }
        let body = stored.map(|body| json_text(&body)).or_else(|| self.encoder.body_text(usage));
        body.map(Some).ok_or_else(|| TurnError::bug("a turn ended without a response"))
    }

    /// Sends an error after the response has begun.
    pub(crate) async fn error(&mut self, body: Value) {
        let events = self.encoder.error(body);
        // If the client has left as well, nobody reads it.
        self.send(events).await.unwrap_or_default();
    }

    /// Events that belong together are sent in one piece.
    async fn send(&mut self, events: Vec<SseEvent>) -> Result<(), TurnError> {
        if !self.is_stream() || events.is_empty() {
            return Ok(());
        }
        self.pieces_sent += 1;
        let bytes: String = events.iter().map(SseEvent::encoded).collect();
        self.send_piece(Bytes::from(bytes)).await
    }

    async fn send_piece(&mut self, piece: Bytes) -> Result<(), TurnError> {
        let Some(stream) = &self.stream else { return Ok(()) };
        self.has_sent = true;
        self.silent_until = Instant::now() + self.keep_alive;
        if self.record.is_some() {
            self.streamed.push_str(&String::from_utf8_lossy(&piece));
        }
        let sent = stream.pieces.send(piece).await;
        // What was done with effects is to be known when the client asks again.
        if sent.is_err() && !self.record.as_ref().is_some_and(|record| record.has_begun()) {
            return Err(TurnError::ClientLeft);
        }
        Ok(())
    }

    /// Sends the response of an earlier turn of the same request.
    pub(crate) async fn recorded_response(&mut self, response: RecordedResponse) -> Result<(), TurnError> {
        if response.is_stream {
            return self.send_piece(Bytes::from(response.body)).await;
        }
        self.error(serde_json::from_str(&response.body).unwrap_or_default()).await;
        Ok(())
    }

    /// All that was streamed, if it was kept.
    pub(crate) fn recorded(&mut self) -> Option<String> {
        (self.record.is_some() && self.has_sent).then(|| std::mem::take(&mut self.streamed))
    }
}
