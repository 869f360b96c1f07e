//! One call of gRPC: a message goes out over HTTP/2, and a status comes back after the response.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::HttpBody;
use axum::http::{HeaderMap, Response};
use prost::Message;

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrpcStatus(pub u32);

impl GrpcStatus {
    pub(super) const OK: GrpcStatus = GrpcStatus(0);
    const UNKNOWN: GrpcStatus = GrpcStatus(2);

    /// Whether it may work the next time, as the protocol of OpenTelemetry has it: cancelled, deadline exceeded, aborted,
    /// out of range, unavailable, data loss.
    pub(super) fn is_passing(self) -> bool {
        matches!(self.0, 1 | 4 | 10 | 11 | 14 | 15)
    }

    fn of(headers: &HeaderMap) -> Option<GrpcStatus> {
        headers.get("grpc-status")?.to_str().ok()?.parse().ok().map(GrpcStatus)
    }
}

/// A message in a frame: it is not compressed, and so long.
pub(super) fn message(message: &impl Message) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).expect("a batch has less than 4 GiB");
    let mut framed = vec![0];
    framed.extend(length.to_be_bytes());
    message.encode(&mut framed).expect("a vector grows");
    framed
}

/// The status is in the trailers, or in the headers if there is nothing else.
pub(super) async fn status(response: reqwest::Response) -> Result<GrpcStatus, reqwest::Error> {
    let response: Response<reqwest::Body> = response.into();
    let mut status = GrpcStatus::of(response.headers());
    let mut body = response.into_body();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(trailers) = frame?.into_trailers() {
            status = GrpcStatus::of(&trailers).or(status);
        }
    }
    Ok(status.unwrap_or(GrpcStatus::UNKNOWN))
}
