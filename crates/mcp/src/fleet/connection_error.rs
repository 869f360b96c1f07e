//! Errors of connections, as text for people and models.

use std::error::Error;

use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};

/// Why a connection could not be opened.
pub(super) struct ConnectError {
    pub(super) reason: String,
    /// The server failed at the first request instead of refusing it, so it may need `initialize` first.
    pub(super) needs_initialize: bool,
    /// The server refused `initialize` after it had not answered `server/discover` in time, so it may need that and longer.
    pub(super) needs_discover: bool,
}

impl From<String> for ConnectError {
    fn from(reason: String) -> ConnectError {
        ConnectError { reason, needs_initialize: false, needs_discover: false }
    }
}

impl ConnectError {
    pub(super) fn new(error: &ClientInitializeError, end: Option<&String>) -> ConnectError {
        let needs_initialize = matches!(
            error,
            ClientInitializeError::ExpectedInitResponse(_)
                | ClientInitializeError::ExpectedInitResult(_)
                | ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::TransportError { .. }
        );
        // If it had refused `server/discover`, that would be a failed fallback.
        let needs_discover = matches!(error, ClientInitializeError::JsonRpcError(_));
        let error = match error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => fallback.as_ref(),
            other => other,
        };
        if let ClientInitializeError::TransportError { error, .. } = error
            && let Some(reason) = authorization_required(error.error.as_ref())
        {
            return reason.to_owned().into();
        }
        let reason = match (error, end) {
            (_, Some(end)) => end.clone(),
            (ClientInitializeError::JsonRpcError(error), None) => format!("it refused to connect: {}", error.message),
            (ClientInitializeError::TransportError { error, .. }, None) => chain(error.error.as_ref()),
            (other, None) => chain(other),
        };
        ConnectError { reason, needs_initialize, needs_discover }
    }
}

/// The text of an error of a request.
pub(super) fn describe(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::TransportSend(error) => {
            let error = error.error.as_ref();
            authorization_required(error).map_or_else(|| chain(error), str::to_owned)
        }
        ServiceError::Timeout { timeout } => format!("no answer within {} s", timeout.as_secs_f64()),
        other => other.to_string(),
    }
}

/// `false` if the request was certainly not sent.
pub(super) fn was_sent(error: &ServiceError) -> bool {
    match error {
        ServiceError::TransportSend(error) if authorization_required(error.error.as_ref()).is_some() => false,
        ServiceError::TransportSend(error) => {
            http_error(error.error.as_ref()).is_none_or(|error| !error.is_connect() && !error.is_builder())
        }
        _ => true,
    }
}

/// The server answered that it does not know the session that the request was sent in.
pub(super) fn is_session_expired(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    let error: Option<&StreamableHttpError<reqwest::Error>> = error.error.downcast_ref();
    matches!(error, Some(StreamableHttpError::SessionExpired))
}

/// What a person has to do so that the server accepts our requests, if that is what is wrong.
fn authorization_required<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(required) = error.downcast_ref::<AuthRequiredError>() {
            return Some(&required.www_authenticate_header);
        }
        cause = error.source();
    }
    None
}

/// rmcp's error does not have it as its `source`.
fn http_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a reqwest::Error> {
    match error.downcast_ref()? {
        StreamableHttpError::Client(error) => Some(error),
        _ => None,
    }
}

/// An error and its causes, without repetitions.
fn chain(error: &(dyn Error + 'static)) -> String {
    let error = http_error(error).map_or(error, |error| error);
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}
