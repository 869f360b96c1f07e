//! Reading the body of a request: within a time, and within what all bodies may take, as text and as a tree of values.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::GatewayServer;
use super::content_encoding::ContentCoding;
use super::errors::TurnError;
use crate::quota::{QuotaShare, SpentBy};

/// Room that is made for a body of this length before it has arrived, so that it is copied once. What a client announces is
/// not what it sends.
const RESERVED_BYTES_MAX: usize = 4 << 20;

impl GatewayServer {
    /// The body of a client's request. No turn is taken before it is complete, so that clients who send slowly keep
    /// nobody else from a turn.
    pub(crate) async fn body(&self, client: &Arc<str>, headers: &HeaderMap, body: Body) -> Result<Bytes, TurnError> {
        let gateway = &self.gateway;
        let codings = ContentCoding::of(headers)?;
        gateway.check_memory()?;
        if gateway.process.turns.is_spent() {
            return Err(self.too_many_turns());
        }
        let _counted = gateway.quotas.bodies.take(client, 1).map_err(too_many_bodies)?;
        let bytes = gateway.quotas.body_bytes.take(client, 0).map_err(too_many_bodies)?;
        let timeout = gateway.config.body_timeout;
        let expected = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let expected = expected.unwrap_or(0).min(RESERVED_BYTES_MAX);
        tokio::time::timeout(timeout, self.read_body(body, expected, codings, bytes)).await.unwrap_or_else(|_elapsed| {
            let message = format!(
                "the body did not arrive within {} s (timeouts.body_seconds of the gateway); send it faster, or less",
                timeout.as_secs()
            );
            Err(TurnError::refused(StatusCode::REQUEST_TIMEOUT, "timeout_error", message))
        })
    }

    async fn read_body(
        &self,
        body: Body,
        expected_bytes: usize,
        codings: Vec<ContentCoding>,
        mut bytes: QuotaShare,
    ) -> Result<Bytes, TurnError> {
        let bytes_max = self.gateway.config.body_bytes_max;
        let mut pieces = body.into_data_stream();
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| {
                let message = format!("the body broke off: {error}; send it again");
                TurnError::refused(StatusCode::BAD_REQUEST, "invalid_request_error", message)
            })?;
            if first.len() + whole.len() + piece.len() > bytes_max {
                let message = format!("the body has more than {bytes_max} bytes (body_bytes_max of the gateway)");
                return Err(TurnError::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message));
            }
            bytes.grow(piece.len()).map_err(too_many_bodies)?;
            if first.is_empty() && whole.is_empty() {
                first = piece;
                continue;
            }
            if whole.is_empty() {
                whole.reserve(expected_bytes);
            }
            // Only bodies of several pieces are copied.
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&piece);
        }
        let mut body = if whole.is_empty() { first } else { whole.freeze() };
        if codings.is_empty() {
            return Ok(body);
        }
        let decoded = tokio::task::spawn_blocking(move || {
            for coding in codings.into_iter().rev() {
                body = coding.decode(&body, bytes_max, &mut bytes)?;
            }
            Ok(body)
        });
        decoded.await.map_err(|error| TurnError::Internal(error.to_string()))?
    }

    /// A turn, if there is one left.
    pub(crate) fn take_turn(&self, client: &Arc<str>) -> Result<QuotaShare, TurnError> {
        let config = &self.gateway.config;
        let turns_max = config.clients.rules(client).turns_max.unwrap_or(config.turns_max_per_client);
        self.gateway.process.turns.take_within(turns_max, client, 1).map_err(|spent| {
            self.gateway.process.metrics.turn_refused();
            match spent {
                SpentBy::AllClients => self.too_many_turns(),
                SpentBy::ThisClient => too_much_at_once(format!(
                    "{turns_max} turns of yours run at this moment, and no more may (turns_max_per_client of the \
                     gateway); wait for one of them, or try again in a second"
                )),
            }
        })
    }

    /// Of all clients together.
    pub(crate) fn too_many_turns(&self) -> TurnError {
        overloaded(format!(
            "{} turns run at this moment, and no more may (turns_max of the gateway); try again in a second",
            self.gateway.config.turns_max
        ))
    }
}

pub(super) fn too_many_bodies(spent: SpentBy) -> TurnError {
    match spent {
        SpentBy::AllClients => overloaded(
            "too many requests are being sent at this moment (bodies_bytes_max of the gateway); try again in a second"
                .to_owned(),
        ),
        SpentBy::ThisClient => too_much_at_once(
            "you send too many requests at the same moment; let some of them arrive first, or try again in a second"
                .to_owned(),
        ),
    }
}

/// The gateway as a whole has too much to do.
fn overloaded(message: String) -> TurnError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    TurnError::Refused { status, kind: "server_error", message, retry_after_s: Some(1) }
}

/// One client asks for more than its share.
fn too_much_at_once(message: String) -> TurnError {
    let status = StatusCode::TOO_MANY_REQUESTS;
    TurnError::Refused { status, kind: "rate_limit_error", message, retry_after_s: Some(1) }
}

/// Refuses a text that holds more values than a body may, names of properties included. A value takes at least 32 bytes in
/// memory and two in a text: 8 MiB of `[0,0,…]` would take hundreds of MiB.
pub(crate) fn check_json_values(json: &[u8], values_max: usize) -> Result<(), TurnError> {
    if json.len() < values_max {
        // A value takes at least a byte, so there cannot be too many.
        return Ok(());
    }
    // Most bodies have too few of the characters between values, even if those in texts are counted as well.
    let chunks = json.chunks(usize::from(u8::MAX));
    if chunks
        .map(|chunk| usize::from(chunk.iter().map(|byte| u8::from(is_structural(*byte))).sum::<u8>()))
        .sum::<usize>()
        < values_max
    {
        return Ok(());
    }
    let values = json_values(json);
    if values <= values_max {
        return Ok(());
    }
    let message = format!(
        "the body has {values} JSON values, and no more than {values_max} are read (body_values_max); send lists of \
         many small values as text"
    );
    Err(TurnError::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message))
}

/// How many values a text holds. Exact for JSON; whatever is not JSON is refused by the parser.
pub(crate) fn json_values(json: &[u8]) -> usize {
    let mut count = 1;
    let mut rest = json;
    while let Some(start) = memchr::memchr(b'"', rest) {
        count += structural(&rest[..start]);
        rest = after_text(&rest[start + 1..]);
    }
    count + structural(rest)
}

fn is_structural(byte: u8) -> bool {
    matches!(byte, b',' | b':' | b'[' | b'{')
}

/// Characters outside of texts after which a value or a name follows.
fn structural(json: &[u8]) -> usize {
    json.iter().filter(|byte| is_structural(**byte)).count()
}

/// What follows the quotation mark that ends a text.
fn after_text(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        if text[at] == b'"' {
            return &text[at + 1..];
        }
        text = text.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_are_not_looked_into() {
        for (json, count) in [("0", 1), ("[0,0]", 3), (r#"{"a":"[,\",:"}"#, 3), (r#"["\\",{}]"#, 4)] {
            assert_eq!(json_values(json.as_bytes()), count, "{json}");
        }
        for cut in ["\"", "[\"\\", "[\"a"] {
            assert!(json_values(cut.as_bytes()) <= 2, "{cut}");
        }
    }
}
