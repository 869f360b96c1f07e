//! Message threads of Anthropic's runners. Nothing is stored here, so they are made to send their whole history.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use memchr::memmem;
use serde_json::Value;

use super::errors::TurnError;

const BETA: &str = "anthropic-beta";
const THREADS: &str = "message-threads";
const FIELD: &str = "thread";

/// Whether a request may have something about threads.
pub(crate) fn are_named(headers: &HeaderMap) -> bool {
    headers.get_all(BETA).iter().any(|value| memmem::find(value.as_bytes(), THREADS.as_bytes()).is_some())
}

/// Whether a body has fields about threads.
pub(crate) fn has_fields(body: &Value) -> bool {
    body.get(FIELD).is_some()
}

/// Removes the fields about threads from a request of the Messages wire; false if there were none.
pub(crate) fn remove(body: &mut Value, headers: &mut HeaderMap) -> Result<bool, TurnError> {
    let kept: Vec<String> = headers
        .get_all(BETA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|beta| beta.trim().to_owned())
        .filter(|beta| !beta.starts_with(THREADS))
        .collect();
    headers.remove(BETA);
    if let Ok(value) = HeaderValue::try_from(kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(BETA, value);
    }
    let Some(thread) = body.as_object_mut().and_then(|body| body.shift_remove(FIELD)) else { return Ok(false) };
    if thread.get("type").and_then(Value::as_str) == Some("continue") {
        return Err(TurnError::Coded {
            status: StatusCode::NOT_FOUND,
            kind: "not_found_error",
            code: "thread_not_found",
            message: "no threads are stored here; send the whole history in `messages`".to_owned(),
        });
    }
    Ok(true)
}
