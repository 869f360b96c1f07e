//! What goes wrong in a turn, and how the client is told.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_replay::StepError;
use dacapo_wire::chat::BadRequest;
use serde_json::{Value, json};

/// Why a turn has no answer.
#[derive(Debug)]
pub(crate) enum TurnError {
    /// The request is wrong.
    Bad(BadRequest),
    /// The upstream answered with an error: it goes on as it came.
    Upstream(Box<UpstreamError>),
    /// Something of ours, or on the way to the upstream.
    Ours { status: StatusCode, kind: &'static str, message: String, retry_after_s: Option<u64> },
}

/// An error as the upstream told it.
#[derive(Debug)]
pub(crate) struct UpstreamError {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl TurnError {
    pub(crate) fn passed(status: StatusCode, headers: HeaderMap, body: Bytes) -> TurnError {
        TurnError::Upstream(Box::new(UpstreamError { status, headers, body }))
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

    /// For a stream that has begun: there is no status any more.
    pub(crate) fn event(&self) -> Value {
        match self {
            TurnError::Upstream(error) => match serde_json::from_slice::<Value>(&error.body) {
                Ok(body) if body.get("error").is_some() => body,
                _ => {
                    json!({"error": {"message": format!("the upstream answered {}", error.status), "type": "upstream_error", "param": null, "code": null}})
                }
            },
            TurnError::Bad(bad) => error_json(&bad.to_string(), "invalid_request_error", Some(&bad.param)),
            TurnError::Ours { kind, message, .. } => error_json(message, kind, None),
        }
    }

    pub(crate) fn response(self) -> Response<Body> {
        let body = Body::from(self.event().to_string());
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            TurnError::Upstream(error) => {
                *response.body_mut() = Body::from(error.body);
                *response.status_mut() = error.status;
                *response.headers_mut() = error.headers;
            }
            TurnError::Bad(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
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

fn error_json(message: &str, kind: &str, param: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": null}})
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
