//! What goes wrong in a turn, and how the client is told.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_replay::StepError;
use dacapo_wire::{BadRequest, Trouble, Wire};
use serde_json::Value;

/// Why a turn has no answer.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// The request is wrong.
    Bad(BadRequest),
    /// The upstream answered with an error: it goes on as it came.
    Upstream(Box<UpstreamError>),
    /// Something that clients know by its code.
    Coded { status: StatusCode, kind: &'static str, code: &'static str, message: String },
    /// Something of ours, or on the way to the upstream.
    Ours { status: StatusCode, kind: &'static str, message: String, retry_after_s: Option<u64> },
}

/// An error as the upstream told it.
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

    pub(crate) fn ours(status: StatusCode, kind: &'static str, message: impl Into<String>) -> TurnError {
        TurnError::Ours { status, kind, message: message.into(), retry_after_s: None }
    }

    /// What must not happen.
    pub(crate) fn bug(message: &'static str) -> TurnError {
        debug_assert!(false, "{message}");
        TurnError::ours(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// The upstream could not be understood, or broke off.
    pub(crate) fn upstream(message: impl Into<String>) -> TurnError {
        TurnError::ours(StatusCode::BAD_GATEWAY, "upstream_error", message)
    }

    /// How a client on this wire is told.
    pub(crate) fn body(&self, wire: Wire) -> Value {
        let trouble = match self {
            TurnError::Upstream(error) => return error.body(wire),
            TurnError::Bad(bad) => {
                let message = bad.to_string();
                let param = Some(bad.param.as_str());
                return wire.error(&Trouble { status: 400, kind: INVALID, message: &message, param, code: None });
            }
            TurnError::Coded { status, kind, code, message } => {
                Trouble { status: status.as_u16(), kind, message, param: None, code: Some(code) }
            }
            TurnError::Ours { status, kind, message, .. } => {
                Trouble { status: status.as_u16(), kind, message, param: None, code: None }
            }
        };
        wire.error(&trouble)
    }

    pub(crate) fn response(self, wire: Wire) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body(wire).to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            TurnError::Upstream(error) => {
                *response.status_mut() = error.status;
                let is_same_wire = error.wire == wire;
                if is_same_wire {
                    *response.body_mut() = Body::from(error.body);
                    *response.headers_mut() = error.headers;
                } else {
                    let told = error.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
                    let told = told.filter(|(name, _)| *name == header::RETRY_AFTER || name.as_str().starts_with("x-"));
                    response.headers_mut().extend(told);
                }
            }
            TurnError::Bad(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
            TurnError::Coded { status, .. } => *response.status_mut() = status,
            TurnError::Ours { status, retry_after_s, .. } => {
                *response.status_mut() = status;
                if let Some(seconds) = retry_after_s {
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
            }
        }
        response
    }
}

const INVALID: &str = "invalid_request_error";

impl UpstreamError {
    /// Its own words, if the client's wire is the same.
    fn body(&self, wire: Wire) -> Value {
        let body = serde_json::from_slice::<Value>(&self.body).ok();
        let error = body.as_ref().and_then(|body| body.get("error"));
        if let (true, Some(body), Some(_)) = (wire == self.wire, &body, error) {
            return body.clone();
        }
        let text = |key: &str| error.and_then(|error| error.get(key)).and_then(Value::as_str);
        let plain = error.and_then(Value::as_str);
        let message =
            text("message").or(plain).map_or_else(|| format!("the upstream answered {}", self.status), str::to_owned);
        let kind = text("type").unwrap_or("upstream_error");
        wire.error(&Trouble {
            status: self.status.as_u16(),
            kind,
            message: &message,
            param: text("param"),
            code: text("code"),
        })
    }
}

impl From<BadRequest> for TurnError {
    fn from(bad: BadRequest) -> TurnError {
        TurnError::Bad(bad)
    }
}

impl From<StepError> for TurnError {
    fn from(error: StepError) -> TurnError {
        TurnError::Ours {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            message: error.to_string(),
            retry_after_s: Some(1),
        }
    }
}
