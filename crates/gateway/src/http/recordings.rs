//! Recorded conversations, for browsers that were let in with a token.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::ClientSide;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::errors::TurnError;
use super::exit::{self, Exit};
use super::request::bad_request;
use super::{AllowedOrigins, GatewayServer, headers};
use crate::inspect::Explanation;
use crate::observe::{RecordedConversation, Recorder};

const COOKIE: &str = "dacapo_inspector";
/// Of a request for a session.
const SESSION_BYTES_MAX: usize = 4 << 10;

#[derive(Deserialize)]
struct SessionRequest {
    token: String,
}

/// A conversation as the page shows it.
#[derive(Serialize)]
struct ExplainedConversation {
    #[serde(flatten)]
    explanation: Explanation,
    requests: Value,
}

/// Whether conversations are recorded, and whether this browser may see them.
pub(super) async fn session(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let (parts, _) = request.into_parts();
    let recorder = server.gateway.process.recorder.as_ref();
    let is_open = server.recorder(&parts).is_ok();
    let limits = recorder.map(|recorder| recorder.limits);
    let state = json!({
        "recording": recorder.is_some(),
        "open": is_open,
        "conversations_max": limits.map(|limits| limits.conversations_max),
        "bytes_max": limits.map(|limits| limits.bytes_max),
    });
    exit::respond(open, ClientSide::CHAT, Ok(Exit::json(&state)))
}

/// Exchanges a token for a session.
pub(super) async fn open_session(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let opened = server.open_session(request).await;
    let session = opened.as_ref().ok().cloned();
    let mut response = exit::respond(open, ClientSide::CHAT, opened.map(|_| Exit::json(&json!({"open": true}))));
    if let Some(session) = session {
        let cookie = format!("{COOKIE}={session}; HttpOnly; SameSite=Strict; Path=/inspect");
        response.headers_mut().extend(HeaderValue::from_str(&cookie).ok().map(|cookie| (header::SET_COOKIE, cookie)));
    }
    response
}

/// A token for another browser.
pub(super) async fn new_token(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let (parts, _) = request.into_parts();
    let token = server.recorder(&parts).map(|recorder| json!({"token": recorder.new_token()}));
    exit::respond(open, ClientSide::CHAT, token.map(|token| Exit::json(&token)))
}

pub(super) async fn forget_all(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let (parts, _) = request.into_parts();
    let forgotten = server.recorder(&parts).map(|recorder| {
        recorder.forget_all();
        Exit::json(&json!({"forgotten": true}))
    });
    exit::respond(open, ClientSide::CHAT, forgotten)
}

/// All recorded conversations, then every change, as events.
pub(super) async fn watch(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let recorder = match server.recorder(&parts) {
        Ok(recorder) => Arc::clone(recorder),
        Err(error) => return exit::respond(server.open_request(&parts.headers), ClientSide::CHAT, Err(error)),
    };
    let (list, changes) = recorder.watch();
    let first = Some(event(&list.to_string()));
    let events = stream::unfold((first, changes, recorder), |(first, mut changes, recorder)| async move {
        let event = match first {
            Some(first) => first,
            None => match changes.recv().await {
                Ok(change) => event(&change),
                Err(RecvError::Lagged(_)) => event(&recorder.list().to_string()),
                Err(RecvError::Closed) => return None,
            },
        };
        Some((Ok::<_, Infallible>(event), (None, changes, recorder)))
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn event(json: &str) -> Bytes {
    Bytes::from(format!("data: {json}\n\n"))
}

/// One conversation, explained.
pub(super) async fn conversation(
    State(server): State<GatewayServer>,
    Path(number): Path<u64>,
    request: Request<Body>,
) -> Response<Body> {
    let open = server.open_request(request.headers());
    let (parts, _) = request.into_parts();
    let explained = server.recorded(&parts, number).await;
    exit::respond(open, ClientSide::CHAT, explained.map(|explained| Exit::json(&explained)))
}

impl GatewayServer {
    /// The recorder, for a browser that has a session.
    fn recorder(&self, parts: &Parts) -> Result<&Arc<Recorder>, TurnError> {
        let Some(recorder) = &self.gateway.process.recorder else {
            let message = "conversations are not recorded here; `dacapo serve --inspect` does";
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        };
        let is_let_in = cookie(&parts.headers).is_some_and(|session| recorder.has_session(session));
        if self.is_foreign(parts) || !is_let_in {
            let message = "open the address that `dacapo serve --inspect` printed; it lets one browser in";
            return Err(TurnError::refused(StatusCode::FORBIDDEN, "permission_error", message));
        }
        Ok(recorder)
    }

    /// Where the gateway is reached from elsewhere, only the cookie tells pages of other hosts apart.
    fn is_foreign(&self, parts: &Parts) -> bool {
        self.gateway.config.listen.ip().is_loopback() && headers::is_foreign(parts, &AllowedOrigins::default())
    }

    async fn open_session(&self, request: Request<Body>) -> Result<String, TurnError> {
        let (parts, body) = request.into_parts();
        let forbidden = |message: &str| TurnError::refused(StatusCode::FORBIDDEN, "permission_error", message);
        if self.is_foreign(&parts) {
            return Err(forbidden("a web page of another host may not use this"));
        }
        let body = axum::body::to_bytes(body, SESSION_BYTES_MAX).await;
        let body = body.map_err(|error| bad_request("body", error.to_string()))?;
        let request: SessionRequest =
            serde_json::from_slice(&body).map_err(|error| bad_request("body", error.to_string()))?;
        let recorder = self.gateway.process.recorder.as_ref();
        let session = recorder.and_then(|recorder| recorder.open_session(&request.token));
        session.ok_or_else(|| {
            forbidden(
                "this address was used before; a browser that is open can make another one, or start the gateway again",
            )
        })
    }

    async fn recorded(&self, parts: &Parts, number: u64) -> Result<ExplainedConversation, TurnError> {
        let found = self.recorder(parts)?.conversation(number);
        let Some(RecordedConversation { client, request, response, requests, .. }) = found else {
            let message =
                format!("conversation {number} is not kept any more (inspector.conversations_max, bytes_max)");
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        };
        let request: Value = serde_json::from_slice(&request).unwrap_or_default();
        let text = json!({"request": request, "response": response}).to_string();
        let explanation =
            self.inspect_text(&client, Bytes::from(text), |inspection, text, _| Ok(inspection.explain(text))).await?;
        Ok(ExplainedConversation { explanation, requests: json!(requests) })
    }
}

/// The session of a browser.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, session)| session)
}
