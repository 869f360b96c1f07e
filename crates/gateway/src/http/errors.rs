//! Errors of a request, and the response for each.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_catalog::shorten;
use dacapo_replay::StepError;
use dacapo_runner::StoreError;
use dacapo_wire::{ApiError, BadRequest, ClientSide, Wire, error_message};
use serde_json::Value;

use crate::model_routes::is_failure;
use crate::observe::{REQUEST_ID_HEADER, RequestId};

/// Why a request fails.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// The request is wrong.
    BadRequest(BadRequest),
    /// The upstream responded with an error: it is passed on as it came.
    Upstream(Box<UpstreamError>),
    /// Clients react to the code.
    Coded {
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: String,
    },
    /// The gateway refuses the request, or cannot reach what it needs.
    Refused {
        status: StatusCode,
        kind: &'static str,
        message: String,
        retry_after_s: Option<u64>,
    },
    Store(StoreError),
    /// A fault of the gateway. The message is for the log; the client gets the request's id.
    Internal(String),
    /// The client disconnected, so nobody reads the response.
    ClientLeft,
}

/// An error response of an upstream.
#[derive(Debug)]
pub(crate) struct UpstreamError {
    pub wire: Wire,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl TurnError {
    pub(crate) fn passed(wire: Wire, status: StatusCode, headers: HeaderMap, body: Bytes) -> TurnError {
        TurnError::Upstream(Box::new(UpstreamError { wire, status, headers, body }))
    }

    pub(crate) fn refused(status: StatusCode, kind: &'static str, message: impl Into<String>) -> TurnError {
        TurnError::Refused { status, kind, message: message.into(), retry_after_s: None }
    }

    /// A state that the code rules out. Debug builds stop here.
    pub(crate) fn bug(message: &'static str) -> TurnError {
        debug_assert!(false, "{message}");
        TurnError::Internal(message.to_owned())
    }

    /// The upstream's response cannot be decoded, or its connection broke.
    pub(crate) fn upstream(message: impl Into<String>) -> TurnError {
        TurnError::refused(StatusCode::BAD_GATEWAY, UPSTREAM, message)
    }

    /// Whether another upstream may be able to answer.
    pub(crate) fn may_fall_back(&self) -> bool {
        match self {
            TurnError::Upstream(error) => is_failure(error.status),
            TurnError::Refused { kind, .. } => *kind == UPSTREAM,
            TurnError::BadRequest(_)
            | TurnError::Coded { .. }
            | TurnError::Store(_)
            | TurnError::Internal(_)
            | TurnError::ClientLeft => false,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            TurnError::BadRequest(_) => StatusCode::BAD_REQUEST,
            TurnError::Upstream(error) => error.status,
            TurnError::Coded { status, .. } | TurnError::Refused { status, .. } => *status,
            TurnError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            TurnError::Internal(_) | TurnError::ClientLeft => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The kind of error, for logs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            TurnError::BadRequest(_) => INVALID,
            TurnError::Upstream(_) => UPSTREAM,
            TurnError::Coded { kind, .. } | TurnError::Refused { kind, .. } => kind,
            TurnError::Store(_) | TurnError::Internal(_) | TurnError::ClientLeft => INTERNAL,
        }
    }

    /// The error as a client on this wire expects it.
    pub(crate) fn body(&self, client: ClientSide, request_id: &RequestId) -> Value {
        let status = self.status().as_u16();
        let simple = |message: &str, kind: &str, param: Option<&str>, code: Option<&str>| {
            client.error_body(&ApiError { status, kind, message, param, code })
        };
        match self {
            TurnError::Upstream(error) => error.body(client),
            TurnError::BadRequest(bad) => simple(&bad.to_string(), INVALID, Some(&bad.param), None),
            TurnError::Coded { kind, code, message, .. } => simple(message, kind, None, Some(code)),
            TurnError::Refused { kind, message, .. } => simple(message, kind, None, None),
            TurnError::Store(_) => simple(STORE_UNREACHABLE, INTERNAL, None, None),
            TurnError::Internal(_) | TurnError::ClientLeft => {
                let id = request_id.as_str();
                simple(&format!("internal error; its cause is in the gateway's log under {id}"), INTERNAL, None, None)
            }
        }
    }

    pub(crate) fn response(self, client: ClientSide, request_id: &RequestId) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body(client, request_id).to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            TurnError::Upstream(error) if error.wire == client.wire() => {
                *response.body_mut() = Body::from(error.body);
                *response.headers_mut() = error.headers;
            }
            TurnError::Upstream(error) => {
                let kept = error.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
                headers
                    .extend(kept.filter(|(name, _)| *name == header::RETRY_AFTER || name.as_str().starts_with("x-")));
            }
            TurnError::Refused { retry_after_s: Some(seconds), .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            TurnError::Store(_) => _ = headers.insert(header::RETRY_AFTER, HeaderValue::from(1)),
            TurnError::Internal(_) => {
                let id = HeaderValue::try_from(request_id.as_str()).ok();
                headers.extend(id.map(|id| (HeaderName::from_static(REQUEST_ID_HEADER), id)));
            }
            TurnError::BadRequest(_) | TurnError::Coded { .. } | TurnError::Refused { .. } | TurnError::ClientLeft => {}
        }
        response
    }
}

const INTERNAL: &str = "server_error";
/// The upstream could not be reached, or its response is no use.
pub(crate) const UPSTREAM: &str = "upstream_error";
/// Of an upstream's error that is no JSON.
const PLAIN_TEXT_CHARS_MAX: usize = 300;
const STORE_UNREACHABLE: &str = "the store of running programs and responses cannot be reached; try again";
const INVALID: &str = "invalid_request_error";

impl UpstreamError {
    /// The upstream's own body, if the client's wire is the same.
    fn body(&self, client: ClientSide) -> Value {
        let body = match serde_json::from_slice::<Value>(&self.body) {
            Ok(body) if client.wire() == self.wire && body.get("error").is_some() => return body,
            other => other.ok(),
        };
        let error = body.as_ref().and_then(|body| body.get("error"));
        let text = |key: &str| error.and_then(|error| error.get(key)).and_then(Value::as_str);
        let message = body.as_ref().and_then(error_message).or_else(|| self.plain_text());
        let message = message.unwrap_or_else(|| format!("the upstream answered {}", self.status));
        let kind = text("type").unwrap_or(UPSTREAM);
        client.error_body(&ApiError {
            status: self.status.as_u16(),
            kind,
            message: &message,
            param: text("param"),
            code: text("code"),
        })
    }
}

impl UpstreamError {
    /// The start of a body that is a sentence for people, not a page.
    fn plain_text(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?.trim();
        let is_sentence = !text.is_empty() && !text.starts_with(['<', '{', '[']);
        is_sentence.then(|| format!("the upstream answered {}: {}", self.status, shorten(text, PLAIN_TEXT_CHARS_MAX)))
    }
}

impl From<BadRequest> for TurnError {
    fn from(bad: BadRequest) -> TurnError {
        TurnError::BadRequest(bad)
    }
}

impl From<StepError> for TurnError {
    fn from(error: StepError) -> TurnError {
        TurnError::Refused {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: INTERNAL,
            message: error.to_string(),
            retry_after_s: Some(1),
        }
    }
}

impl From<StoreError> for TurnError {
    fn from(error: StoreError) -> TurnError {
        TurnError::Store(error)
    }
}
