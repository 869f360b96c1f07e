//! What a client hears of a turn: at once, or piece by piece.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use dacapo_wire::{Announced, CallDeltas, Ended, Event, Handing, Head, Heard, Passed, Said, Searched, Speaker, Usage};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::error::TurnError;

/// A response on its way to the client.
#[derive(Debug)]
pub(crate) struct Stream {
    pub pieces: mpsc::Sender<Bytes>,
    /// Of the first upstream that was asked; set before the first piece.
    pub headers: Arc<OnceLock<HeaderMap>>,
}

/// Where a turn's answer goes.
#[derive(Debug)]
pub(crate) struct Outlet {
    stream: Option<Stream>,
    speaker: Box<dyn Speaker>,
    /// Something was sent: an error has to go the same way.
    has_begun: bool,
}

/// How this client wants calls streamed.
pub(crate) fn call_deltas(headers: &HeaderMap) -> CallDeltas {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_openai = agent.contains("OpenAI/");
    if is_openai { CallDeltas::Opened } else { CallDeltas::Whole }
}

impl Outlet {
    pub(crate) fn new(stream: Option<Stream>, speaker: Box<dyn Speaker>) -> Outlet {
        Outlet { stream, speaker, has_begun: false }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// An upstream begins to answer.
    pub(crate) fn begins(&mut self, headers: &HeaderMap) {
        self.speaker.begins();
        if let Some(stream) = &self.stream {
            stream.headers.get_or_init(|| headers.clone());
        }
    }

    pub(crate) fn head(&mut self, head: &Head) {
        self.speaker.head(head);
    }

    pub(crate) async fn pass(&mut self, heard: Heard) -> Result<(), TurnError> {
        let events = self.speaker.pass(heard);
        self.send(events).await
    }

    pub(crate) async fn program(&mut self, program: &Announced<'_>) -> Result<(), TurnError> {
        let events = self.speaker.program(program);
        self.send(events).await
    }

    pub(crate) async fn result(&mut self, ended: &Ended<'_>) -> Result<(), TurnError> {
        let events = self.speaker.result(ended);
        self.send(events).await
    }

    pub(crate) async fn aside(&mut self, said: &Said) -> Result<(), TurnError> {
        let events = self.speaker.aside(said);
        self.send(events).await
    }

    pub(crate) async fn searched(&mut self, searched: &Searched<'_>) -> Result<(), TurnError> {
        let events = self.speaker.searched(searched);
        self.send(events).await
    }

    pub(crate) async fn calls(&mut self, handing: &Handing<'_>) -> Result<(), TurnError> {
        let events = self.speaker.calls(handing);
        self.send(events).await
    }

    pub(crate) async fn answer(&mut self, said: &Said, passed: Passed) -> Result<(), TurnError> {
        let events = self.speaker.answer(said, passed);
        self.send(events).await
    }

    /// The end of the answer, in pieces and as a whole.
    pub(crate) fn end(&mut self, usage: &Usage) -> (Vec<Event>, Option<Value>) {
        (self.speaker.finish(usage), self.speaker.body(usage))
    }

    /// Ends the turn. The body, if it was not streamed.
    pub(crate) async fn finish(mut self, events: Vec<Event>, body: Option<Value>) -> Result<Option<Value>, TurnError> {
        if self.is_stream() {
            self.send(events).await?;
            return Ok(None);
        }
        body.map(Some).ok_or_else(|| TurnError::upstream("nobody answered"))
    }

    /// Tells of an error where there is no status any more.
    pub(crate) async fn fail(&mut self, body: Value) {
        let events = self.speaker.fail(body);
        // If nobody listens, nobody has to be told.
        self.send(events).await.unwrap_or_default();
    }

    /// What belongs together goes together.
    async fn send(&mut self, events: Vec<Event>) -> Result<(), TurnError> {
        let Some(stream) = &self.stream else { return Ok(()) };
        if events.is_empty() {
            return Ok(());
        }
        self.has_begun = true;
        let bytes: String = events.iter().map(Event::encoded).collect();
        stream.pieces.send(Bytes::from(bytes)).await.map_err(|_gone| TurnError::upstream("the client is gone"))
    }
}
