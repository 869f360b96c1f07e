//! Message threads of Anthropic's runners: nothing is stored here, so that they have to send their history.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use crate::error::TurnError;

const BETA: &str = "anthropic-beta";

/// Takes what is said about threads out of a request; false if there was nothing.
pub(crate) fn without(body: &mut Value, headers: &mut HeaderMap) -> Result<bool, TurnError> {
    let kept: Vec<String> = headers
        .get_all(BETA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|beta| beta.trim().to_owned())
        .filter(|beta| !beta.starts_with("message-threads"))
        .collect();
    headers.remove(BETA);
    if let Ok(value) = HeaderValue::try_from(kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(BETA, value);
    }
    let Some(thread) = body.as_object_mut().and_then(|body| body.shift_remove("thread")) else { return Ok(false) };
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
