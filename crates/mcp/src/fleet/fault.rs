//! What is wrong with a connection, in words.

use std::error::Error;
use std::sync::OnceLock;

use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Why there is no connection.
pub(super) struct NotOpened {
    pub(super) reason: String,
    /// Did the server fail at the first question, without refusing it in so many words?
    pub(super) was_puzzled: bool,
}

impl From<String> for NotOpened {
    fn from(reason: String) -> NotOpened {
        NotOpened { reason, was_puzzled: false }
    }
}

impl NotOpened {
    pub(super) fn new(error: &ClientInitializeError, end: &OnceLock<String>) -> NotOpened {
        let was_puzzled = matches!(
            error,
            ClientInitializeError::ExpectedInitResponse(_)
                | ClientInitializeError::ExpectedInitResult(_)
                | ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::TransportError { .. }
        );
        let error = match error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => fallback.as_ref(),
            other => other,
        };
        if error.is_authorization_required() {
            return "it wants authorization; put its token into `headers` as `Authorization`".to_owned().into();
        }
        let reason = match (error, end.get()) {
            (_, Some(end)) => end.clone(),
            (ClientInitializeError::JsonRpcError(error), None) => format!("it refused to connect: {}", error.message),
            (ClientInitializeError::TransportError { error, .. }, None) => chain(error.error.as_ref()),
            (other, None) => chain(other),
        };
        NotOpened { reason, was_puzzled }
    }
}

/// What an error of a request says.
pub(super) fn said(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.to_string(),
        ServiceError::TransportSend(error) => chain(error.error.as_ref()),
        ServiceError::Timeout { timeout } => format!("no answer within {} s", timeout.as_secs_f64()),
        other => other.to_string(),
    }
}

/// `false` if the request certainly never left.
pub(super) fn was_sent(error: &ServiceError) -> bool {
    match error {
        ServiceError::TransportSend(error) => {
            http_error(error.error.as_ref()).is_none_or(|error| !error.is_connect() && !error.is_builder())
        }
        _ => true,
    }
}

/// rmcp does not name it as the source of its own error.
fn http_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a reqwest::Error> {
    match error.downcast_ref()? {
        StreamableHttpError::Client(error) => Some(error),
        _ => None,
    }
}

/// An error and its causes, as far as they say something new.
fn chain(error: &(dyn Error + 'static)) -> String {
    let error = http_error(error).map_or(error, |error| error);
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
