//! Asking the model, and listening to it.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::chat::{Listener, Said};
use dacapo_wire::{Intent, SseReader};
use futures_util::StreamExt;
use serde_json::Value;

use crate::error::TurnError;
use crate::turn::Running;
use crate::upstream::Answer;

/// No provider answers with more.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl Running {
    /// Asks the model with the history as it is now.
    pub(super) async fn ask(&mut self, no_calls: bool) -> Result<Said, TurnError> {
        let body = Bytes::from(self.turn.ask(&self.transcript, no_calls).to_string());
        let upstreams = &self.gateway.upstreams;
        let upstream = upstreams.of(self.turn.model())?;
        let answer = upstreams.post(upstream, &self.path, &self.headers, body).await?;
        self.returned.clone_from(&answer.headers);
        self.outlet.begins(&answer.headers);
        if !answer.status.is_success() {
            return Err(answer.into_error().await);
        }
        if answer.is_stream() {
            return self.listen(answer, no_calls).await;
        }
        let body = answer.whole(ANSWER_BYTES_MAX).await.map_err(TurnError::upstream)?;
        let body: Value = serde_json::from_slice(&body)
            .map_err(|error| TurnError::upstream(format!("the upstream's answer is not JSON: {error}")))?;
        if body.get("error").is_some_and(|error| !error.is_null()) && body.get("choices").is_none() {
            let body = Bytes::from(body.to_string());
            return Err(TurnError::passed(StatusCode::BAD_GATEWAY, self.returned.clone(), body));
        }
        Said::read(body).map_err(TurnError::upstream)
    }

    /// Passes on what is surely part of the answer, as it arrives.
    async fn listen(&mut self, mut answer: Answer, no_calls: bool) -> Result<Said, TurnError> {
        let headers = answer.headers.clone();
        let hold_chars = if no_calls { 0 } else { self.gateway.config.code_mode.hold_text_chars };
        let mut reader = SseReader::default();
        let mut listener = Listener::default();
        let mut held = Vec::new();
        let mut chars = 0;
        let (mut is_over, mut was_told) = (false, false);
        while !is_over {
            let piece = answer.body.next().await;
            is_over = piece.is_none();
            let events = match piece {
                Some(piece) => {
                    let piece =
                        piece.map_err(|reason| TurnError::upstream(format!("the upstream broke off: {reason}")))?;
                    reader.read(&piece).map_err(|error| TurnError::upstream(error.to_string()))?
                }
                None => reader.finish().into_iter().collect(),
            };
            for event in events {
                if event.data.trim() == "[DONE]" {
                    (is_over, was_told) = (true, true);
                    break;
                }
                let chunk: Value = serde_json::from_str(&event.data)
                    .map_err(|error| TurnError::upstream(format!("the upstream's stream is not JSON: {error}")))?;
                if chunk.get("error").is_some_and(|error| !error.is_null()) {
                    let body = Bytes::from(chunk.to_string());
                    return Err(TurnError::passed(StatusCode::BAD_GATEWAY, json_headers(&headers), body));
                }
                let heard = listener.hear(chunk);
                if let Some(head) = listener.head() {
                    self.outlet.head(head.clone());
                }
                chars += heard.text_chars;
                let Some(chunk) = heard.chunk.filter(|_| self.outlet.is_stream()) else { continue };
                // Whatever comes after text stays after it.
                if chars <= hold_chars && (heard.text_chars > 0 || !held.is_empty()) {
                    held.push(chunk);
                    continue;
                }
                for chunk in held.drain(..) {
                    self.outlet.pass(chunk).await?;
                }
                self.outlet.pass(chunk).await?;
            }
        }
        let said = listener
            .finish(was_told)
            .ok_or_else(|| TurnError::upstream("the upstream's stream ended before the answer did"))?;
        let is_for_client = no_calls
            || said.is_cut()
            || matches!(said.saying.intent(&self.turn.offer), Intent::Answer | Intent::Direct);
        if is_for_client {
            for chunk in held {
                self.outlet.pass(chunk).await?;
            }
        }
        Ok(said)
    }
}

/// The headers of a stream, for an error that is told before anything else.
fn json_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
