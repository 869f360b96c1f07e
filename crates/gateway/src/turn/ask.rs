//! Asking the model, and decoding its response.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::{
    ContextTokens, DeltaKind, ModelResponse, ResponseMeta, SseReader, StreamError, StreamedDeltas, ToolChoiceOverride,
    TurnUsage,
};
use futures_util::StreamExt;
use serde_json::Value;

use super::TurnRunner;
use crate::http::{TurnError, headers};
use crate::key_mask::KeyMask;
use crate::model_routes::RouteTarget;
use crate::observe::Event;
use crate::upstream::{Endpoint, UpstreamResponse};

/// Where the content of a response is, on one wire or another.
const CONTENT_KEYS: [&str; 3] = ["choices", "output", "content"];
/// The largest response that is read.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

impl TurnRunner {
    /// Asks the model with the history as it is now. Where an upstream cannot answer, the next is asked, as long as the
    /// client has got nothing of the response.
    pub(super) async fn ask(&mut self, choice_override: ToolChoiceOverride) -> Result<ModelResponse, TurnError> {
        if let Some(response) = self.responses.to_repeat.pop_front() {
            let headers = self.response_headers(&HeaderMap::new());
            self.sink.response_started(|| headers);
            return Ok(response);
        }
        loop {
            let before = self.sink.progress();
            match self.ask_target(choice_override).await {
                Err(error) if error.may_fall_back() && self.sink.progress() == before => {
                    if !self.take_next_target().await? {
                        return Err(error);
                    }
                }
                asked => return asked,
            }
        }
    }

    async fn ask_target(&mut self, choice_override: ToolChoiceOverride) -> Result<ModelResponse, TurnError> {
        let RouteTarget { model, .. } = self.route.target();
        let body = {
            let mut request = self.turn.model_request(&self.history, choice_override);
            if model != self.turn.model() {
                request.set_model(model);
            }
            Bytes::from(request.to_bytes())
        };
        self.request_tokens = super::estimated_tokens(body.len());
        let endpoint = Endpoint::completion(self.turn.provider, model, self.turn.prefs.delivery);
        let sent = self.gateway.upstreams.send(&self.route, &endpoint, &self.context, &body, &self.observer);
        let response = self.sink.while_waiting(sent).await??;
        let status = response.status;
        let decoded = self.decode(response, choice_override).await;
        let tokens = decoded.as_ref().ok().and_then(|response| response.usage.as_ref()).map(|usage| {
            let mut used = TurnUsage::default();
            used.add(Some(usage));
            used.tokens(self.turn.provider)
        });
        self.observer.emit(&Event::ModelFinished { status, tokens });
        decoded
    }

    /// Goes on to the next upstream that can be asked for the same. `false` if there is none.
    async fn take_next_target(&mut self) -> Result<bool, TurnError> {
        let from = self.route.position();
        while self.route.advance() {
            let upstream = self.route.upstream();
            let (provider, execute_input) = (upstream.provider_for(self.turn.client), upstream.execute_input);
            let is_same_wire = provider.wire() == self.turn.provider.wire();
            if self.usage.model_calls == 0 {
                let turn = Arc::get_mut(&mut self.turn).ok_or_else(|| TurnError::bug("the turn is in use"))?;
                if turn.ask_on(provider, execute_input).is_err() {
                    continue;
                }
                if !is_same_wire {
                    self.dropped = headers::dropped_params(turn, &self.observer);
                    self.sink.provider_changed(provider);
                    self.replay_history().await?;
                }
            } else if !is_same_wire {
                // What models have written in this request is in the history, the response and the usage of their wire.
                continue;
            }
            let (from, to) = (&self.route.asked_at(from).name, &self.route.upstream().name);
            self.observer.emit(&Event::FellBack { from, to });
            return Ok(true);
        }
        Ok(false)
    }

    /// The headers of the client's response that a model's response leads to.
    fn response_headers(&self, upstream: &HeaderMap) -> HeaderMap {
        let mut kept = headers::about_request(upstream);
        kept.extend(self.dropped.clone());
        kept
    }

    /// The headers of the client's response.
    pub(super) fn last_headers(&self) -> HeaderMap {
        self.response_headers(&self.returned)
    }

    async fn decode(
        &mut self,
        mut response: UpstreamResponse,
        choice_override: ToolChoiceOverride,
    ) -> Result<ModelResponse, TurnError> {
        self.returned.clone_from(&response.headers);
        self.responded_at = date(&response.headers);
        let headers = self.response_headers(&response.headers);
        self.sink.response_started(|| headers);
        if !response.status.is_success() {
            return Err(response.into_error().await);
        }
        let mut response = if response.is_stream() {
            self.decode_stream(response, choice_override).await?
        } else {
            let mask = std::mem::take(&mut response.mask);
            let body = self.sink.while_waiting(response.whole(RESPONSE_BYTES_MAX)).await?;
            self.decode_whole(&body.map_err(TurnError::upstream)?, &mask)?
        };
        response.meta = self.own_meta(response.meta);
        Ok(response)
    }

    fn decode_whole(&mut self, body: &[u8], mask: &KeyMask) -> Result<ModelResponse, TurnError> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| TurnError::upstream(format!("the upstream's answer is not JSON: {error}")))?;
        let is_error = |body: &Value| body.get("error").is_some_and(|error| !error.is_null());
        if is_error(&body) && CONTENT_KEYS.iter().all(|key| body.get(key).is_none()) {
            let (wire, status) = (self.turn.provider.wire(), status_of(&body));
            let headers = std::mem::take(&mut self.returned);
            return Err(TurnError::passed(wire, status, headers, mask.text(&body.to_string())));
        }
        let mut response = self.turn.provider.decode_response(body).map_err(TurnError::upstream)?;
        self.turn.understand(&mut response.message);
        Ok(response)
    }

    /// The meta fields with what not every wire has: a time, and, for stored responses, an id of our own.
    pub(super) fn own_meta(&self, mut meta: ResponseMeta) -> ResponseMeta {
        if let Some(stored) = &self.tenant.stored_turn {
            meta.id = stored.response_id(&meta.id);
        }
        meta.created = meta.created.or(self.responded_at);
        if meta.model.is_empty() {
            self.turn.model().clone_into(&mut meta.model);
            if !meta.fields.is_empty() {
                meta.fields.insert("model".to_owned(), Value::from(self.turn.model()));
            }
        }
        // Messages has the figure in the first event of a stream, where other wires have it in the last. Until then it is
        // an estimate.
        meta.context.get_or_insert(ContextTokens { input: self.request_tokens, ..ContextTokens::default() });
        meta
    }

    /// Decodes a stream and passes on what is for the client as it arrives. The first `hold_text_chars` characters of
    /// text are held back until it is known whether a program follows.
    async fn decode_stream(
        &mut self,
        mut response: UpstreamResponse,
        choice_override: ToolChoiceOverride,
    ) -> Result<ModelResponse, TurnError> {
        let provider = self.turn.provider;
        let no_calls = choice_override == ToolChoiceOverride::NoCalls;
        let hold_chars = if no_calls { 0 } else { self.turn.prefs.hold_text_chars };
        let mut reader = SseReader::default();
        let mut decoder = provider.decoder();
        let mut held = Vec::new();
        let mut chars = 0;
        let mut has_begun = false;
        let mut is_over = false;
        while !is_over {
            let piece = self.sink.while_waiting(response.body.next()).await?;
            if !std::mem::replace(&mut has_begun, true) {
                self.observer.emit(&Event::ModelBegan { status: response.status });
            }
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
                let delta = decoder.decode_event(&event).map_err(|error| match error {
                    StreamError::NotJson(error) => {
                        TurnError::upstream(format!("the upstream's stream is not JSON: {error}"))
                    }
                    StreamError::Provider(body) => {
                        let status = status_of(&body);
                        let body = response.mask.text(&body.to_string());
                        TurnError::passed(
                            provider.wire(),
                            status,
                            json_headers(std::mem::take(&mut self.returned)),
                            body,
                        )
                    }
                })?;
                if let Some(meta) = decoder.meta().filter(|_| self.sink.needs_meta()) {
                    let meta = self.own_meta(meta.clone());
                    self.sink.meta(&meta);
                    self.sink.open().await?;
                }
                is_over |= decoder.is_complete();
                chars += delta.text_chars();
                if delta.is_empty() || !self.sink.is_stream() {
                    continue;
                }
                let is_text = delta.kind == DeltaKind::Text;
                // Text before a server tool of the provider is not the text before a program.
                let ends_text = provider.capabilities().deltas == StreamedDeltas::Separate && !is_text
                    || !delta.reasoning_text.is_empty();
                // Deltas after held text wait as well, to keep their order.
                if chars <= hold_chars && !ends_text && (is_text || !held.is_empty()) {
                    held.push(delta);
                    continue;
                }
                for delta in held.drain(..) {
                    self.sink.delta(delta).await?;
                }
                self.sink.delta(delta).await?;
            }
        }
        let mut response =
            decoder.finish().ok_or_else(|| TurnError::upstream("the upstream's stream ended before the answer did"))?;
        self.turn.understand(&mut response.message);
        let is_for_client = no_calls || response.is_cut() || response.message.is_for_client(&self.turn.model_tools);
        if is_for_client {
            for delta in held {
                self.sink.delta(delta).await?;
            }
        }
        Ok(response)
    }
}

/// The status of an error that came without one: in a stream, or with a success.
fn status_of(body: &Value) -> StatusCode {
    let code = body.pointer("/error/code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = match body.pointer("/error/type").and_then(Value::as_str).unwrap_or_default() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "rate_limit_error" | "tokens" | "requests" => 429,
        "overloaded_error" => 529,
        // Some servers have the status as a code.
        _ => code.filter(|code| (400..600).contains(code)).unwrap_or(502),
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// When the upstream answered, by its own clock.
fn date(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    let since = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// The headers of a stream, for an error before anything else.
fn json_headers(mut headers: HeaderMap) -> HeaderMap {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
