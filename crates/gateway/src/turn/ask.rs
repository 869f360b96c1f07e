//! Asking the model, and listening to it.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::{Head, Intent, Said, SseReader, Unheard, Urge, Wire};
use futures_util::StreamExt;
use serde_json::Value;

use crate::error::TurnError;
use crate::turn::Running;
use crate::upstream::{Answer, Target};

/// Where answers are, on one wire or another.
const ANSWERS: [&str; 3] = ["choices", "output", "content"];
/// No provider answers with more.
const ANSWER_BYTES_MAX: usize = 64 << 20;

impl Running {
    /// Asks the model with the history as it is now.
    pub(super) async fn ask(&mut self, urge: Urge) -> Result<Said, TurnError> {
        let no_calls = urge == Urge::ToEnd;
        let body = Bytes::from(self.turn.ask(&self.transcript, urge).to_string());
        let upstreams = &self.gateway.upstreams;
        let upstream = upstreams.of(self.turn.model())?;
        let answer = upstreams.post(upstream, Target::Answer(self.turn.upstream), &self.asking, body).await?;
        self.returned.clone_from(&answer.headers);
        self.answered_at = date(&answer.headers);
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
        let is_error = |body: &Value| body.get("error").is_some_and(|error| !error.is_null());
        if is_error(&body) && ANSWERS.iter().all(|key| body.get(key).is_none()) {
            let status = status_of(&body);
            let body = Bytes::from(body.to_string());
            return Err(TurnError::passed(self.turn.upstream, status, self.returned.clone(), body));
        }
        let mut said = self.turn.upstream.said(body).map_err(TurnError::upstream)?;
        self.turn.adopt(&mut said.saying);
        said.head = self.own_head(&said.head);
        Ok(said)
    }

    /// What stands around an answer: not every wire says when it came, and a kept one has a name of its own.
    pub(super) fn own_head(&self, head: &Head) -> Head {
        let id = self.tenant.recall.as_ref().map_or_else(|| head.id.clone(), |recall| recall.response_id(&head.id));
        Head { id, created: head.created.or(self.answered_at), ..head.clone() }
    }

    /// Passes on what is surely part of the answer, as it arrives.
    async fn listen(&mut self, mut answer: Answer, no_calls: bool) -> Result<Said, TurnError> {
        let (headers, wire) = (answer.headers.clone(), self.turn.upstream);
        let hold_chars = if no_calls { 0 } else { self.gateway.config.code_mode.hold_text_chars };
        let mut reader = SseReader::default();
        let mut listener = self.turn.upstream.listener();
        let mut held = Vec::new();
        let mut chars = 0;
        let mut is_over = false;
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
                let heard = listener.hear(&event).map_err(|unheard| match unheard {
                    Unheard::NotJson(error) => {
                        TurnError::upstream(format!("the upstream's stream is not JSON: {error}"))
                    }
                    Unheard::Error(body) => {
                        let status = status_of(&body);
                        TurnError::passed(wire, status, json_headers(&headers), Bytes::from(body.to_string()))
                    }
                })?;
                if let Some(head) = listener.head() {
                    let around = self.own_head(head);
                    self.outlet.head(&around);
                }
                if listener.is_over() {
                    is_over = true;
                }
                chars += heard.text_chars();
                if heard.is_empty() || !self.outlet.is_stream() {
                    continue;
                }
                // Text that is followed by what a provider does itself is no beginning of a program.
                let is_more = wire != Wire::Chat && !heard.is_text || !heard.reasoning.is_empty();
                // Whatever comes after text stays after it.
                if chars <= hold_chars && !is_more && (heard.is_text || !held.is_empty()) {
                    held.push(heard);
                    continue;
                }
                for heard in held.drain(..) {
                    self.outlet.pass(heard).await?;
                }
                self.outlet.pass(heard).await?;
            }
        }
        let mut said = listener
            .finish()
            .ok_or_else(|| TurnError::upstream("the upstream's stream ended before the answer did"))?;
        self.turn.adopt(&mut said.saying);
        said.head = self.own_head(&said.head);
        let is_for_client = no_calls
            || said.is_cut()
            || matches!(said.saying.intent(&self.turn.offer), Intent::Answer | Intent::Direct);
        if is_for_client {
            for heard in held {
                self.outlet.pass(heard).await?;
            }
        }
        Ok(said)
    }
}

/// The status of an error that came without one: in a stream, or with a success.
fn status_of(body: &Value) -> StatusCode {
    let status = match body.pointer("/error/type").and_then(Value::as_str).unwrap_or_default() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "rate_limit_error" | "tokens" | "requests" => 429,
        "overloaded_error" => 529,
        _ => 502,
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// When the upstream answered, by its own clock.
fn date(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    let since = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// The headers of a stream, for an error that is told before anything else.
fn json_headers(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
