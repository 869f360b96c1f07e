//! Why a call has no answer, told to the program.

use rmcp::ServiceError;
use rmcp::model::{ElicitRequestParams, InputRequest, InputRequiredResult};

use super::fault::{said, was_sent};
use crate::ask::{Ask, Refusal};

const UNKNOWN: &str = "it is unknown whether the call was executed";

pub(super) fn cancelled(ask: &Ask) -> Refusal {
    Refusal(format!("{} was cancelled", name(ask)))
}

pub(super) fn unavailable(ask: &Ask, reason: &str) -> Refusal {
    Refusal(format!("{} was not executed: the server `{}` is not available: {reason}", name(ask), ask.server))
}

pub(super) fn changed(ask: &Ask) -> Refusal {
    let why = "what the server says of it has changed since its tools were kept; call it again";
    Refusal(format!("{} was not executed: {why}", name(ask)))
}

pub(super) fn not_taken(ask: &Ask, reason: &str) -> Refusal {
    Refusal(format!("{} was executed, but its answer was not taken: {reason}", name(ask)))
}

/// A person's answer may be passed on one day; until then the call is given up.
pub(super) fn asks(ask: &Ask, asks: &InputRequiredResult) -> Refusal {
    let wanted = asks.input_requests.iter().flatten().map(|(_, request)| match request {
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
    Refusal(format!("{} wants {wanted} before it goes on; nobody can be asked here, so it was given up", name(ask)))
}

pub(super) fn odd(ask: &Ask, answer: &str) -> Refusal {
    let shown = &answer[..answer.floor_char_boundary(200)];
    Refusal(format!("{} was answered with something that is no result of a tool: {shown}", name(ask)))
}

/// For errors that are not the server's answer. `end` says how the server ended, if it did.
pub(super) fn lost(ask: &Ask, error: &ServiceError, end: Option<&str>) -> Refusal {
    let name = name(ask);
    Refusal(match error {
        ServiceError::Timeout { timeout } => {
            format!("{name} was not answered within {} s and was cancelled; {UNKNOWN}", timeout.as_secs_f64())
        }
        ServiceError::TransportSend(_) if end.is_none() => {
            let executed = if was_sent(error) { UNKNOWN } else { "the call was not executed" };
            format!("{name} failed on the way: {}; {executed}", said(error))
        }
        other => {
            let end = end.map_or_else(|| said(other), str::to_owned);
            format!("{name} was lost: {end}; {UNKNOWN}. The next call connects again")
        }
    })
}

fn name(ask: &Ask) -> String {
    format!("`{}.{}`", ask.server, ask.tool)
}
