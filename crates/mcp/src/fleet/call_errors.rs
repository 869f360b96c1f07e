//! Why a call has no answer, as the program sees it.

use dacapo_catalog::shorten;
use dacapo_runner::{CallError, ToolCall};
use rmcp::ServiceError;
use rmcp::model::{ElicitRequestParams, InputRequest, InputRequiredResult};

use super::connection_error::{describe, is_session_expired, was_sent};

/// Of a result that cannot be understood.
const SHOWN_CHARS_MAX: usize = 200;

const UNKNOWN: &str = "it is unknown whether the call was executed";

pub(super) fn cancelled(call: &ToolCall) -> CallError {
    CallError(format!("{} was cancelled", name(call)))
}

pub(super) fn unavailable(call: &ToolCall, reason: &str) -> CallError {
    CallError(format!("{} was not executed: the server `{}` is not available: {reason}", name(call), call.server))
}

pub(super) fn tool_changed(call: &ToolCall) -> CallError {
    let why = "what the server says of it has changed since the call was allowed; call it again";
    CallError(format!("{} was not executed: {why}", name(call)))
}

pub(super) fn response_rejected(call: &ToolCall, reason: &str) -> CallError {
    CallError(format!("{} was executed, but its answer was not taken: {reason}", name(call)))
}

/// The server wants input from a person before it goes on, which is not supported, so the call is given up.
pub(super) fn input_required(call: &ToolCall, result: &InputRequiredResult) -> CallError {
    let wanted = result.input_requests.iter().flatten().map(|(_, request)| match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams { message, .. } => format!("an answer to \"{message}\""),
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                format!("an answer to \"{message}\" at {url}")
            }
            _ => "input".to_owned(),
        },
        InputRequest::CreateMessage(_) => "a message by a model".to_owned(),
        InputRequest::ListRoots(_) => "the client's directories".to_owned(),
        _ => "input".to_owned(),
    });
    let wanted: Vec<String> = wanted.collect();
    let wanted = if wanted.is_empty() { "to be asked again".to_owned() } else { wanted.join(", and ") };
    CallError(format!("{} wants {wanted} before it goes on; nobody can be asked here, so it was given up", name(call)))
}

pub(super) fn unexpected_result(call: &ToolCall, result: &str) -> CallError {
    let shown = shorten(result, SHOWN_CHARS_MAX);
    CallError(format!("{} was answered with something that is no result of a tool: {shown}", name(call)))
}

/// The connection or the server failed while the call was in flight. `end` is how the server's process ended, if it did.
pub(super) fn connection_lost(call: &ToolCall, error: &ServiceError, end: Option<&str>) -> CallError {
    let name = name(call);
    CallError(match error {
        ServiceError::Timeout { timeout } => {
            format!("{name} was not answered within {} s and was cancelled; {UNKNOWN}", timeout.as_secs_f64())
        }
        error if is_session_expired(error) => {
            let why = "the server does not know our session any more (HTTP 404)";
            format!("{name} was lost: {why}; {UNKNOWN}. The next call opens a new session")
        }
        ServiceError::TransportSend(_) if end.is_none() => {
            let executed = if was_sent(error) { UNKNOWN } else { "the call was not executed" };
            format!("{name} failed on the way: {}; {executed}", describe(error))
        }
        other => {
            let end = end.map_or_else(|| describe(other), str::to_owned);
            format!("{name} was lost: {end}; {UNKNOWN}. The next call connects again")
        }
    })
}

fn name(call: &ToolCall) -> String {
    format!("`{}.{}`", call.server, call.tool)
}
