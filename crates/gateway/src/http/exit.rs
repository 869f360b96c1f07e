//! The end of every request: one place makes the HTTP response and reports the outcome.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::ClientSide;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::sync::mpsc;

use super::connection_work::ConnectionWork;
use super::deadline::TurnDeadline;
use super::errors::{TurnError, UPSTREAM};
use super::turn_task::TurnTask;
use crate::observe::{Event, Observer, OpenRequest, REQUEST_ID_HEADER, RequestOutcome};
use crate::quota::QuotaShare;
use crate::store::turn_records::RecordedResponse;
use crate::turn::{TurnDone, TurnEnd};
use crate::upstream::UpstreamResponse;

/// After this time without an event, because a program runs, a comment keeps proxies from closing the connection.
const SILENCE_MAX: Duration = Duration::from_secs(15);

const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// An upstream's body of this size, if it is no stream, is passed on when it is complete.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Pieces of an upstream's body that wait for a slow client.
const PASSED_QUEUE_PIECES: usize = 8;
/// How long the last piece of a response that failed waits for a slow client.
const LAST_PIECE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a request ends with, unless it fails.
pub(super) enum Exit {
    /// A small JSON document of a route that asks no model.
    Json(serde_json::Result<Vec<u8>>),
    Turn(Box<TurnDone>),
    Stream(StreamingTurn),
    /// The response of an earlier turn of the same request.
    Recorded(RecordedResponse),
    /// The upstream's response, which is complete.
    PassThroughWhole {
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
    },
    /// The upstream's response, as it comes.
    PassThrough {
        response: UpstreamResponse,
        permit: QuotaShare,
        deadline: TurnDeadline,
        connection: Option<ConnectionWork>,
    },
}

/// A turn whose first events are there.
pub(super) struct StreamingTurn {
    /// All that have come so far.
    pub first: Bytes,
    pub receiver: mpsc::Receiver<Bytes>,
    pub task: TurnTask,
    pub headers: HeaderMap,
}

impl Exit {
    pub(super) fn json(document: &impl Serialize) -> Exit {
        Exit::Json(serde_json::to_vec(document))
    }

    /// Passes on what an upstream responded: small responses when they are complete, which takes no task and no queue,
    /// and the others as they come.
    pub(super) async fn pass_through(
        mut response: UpstreamResponse,
        permit: QuotaShare,
        deadline: TurnDeadline,
        connection: Option<ConnectionWork>,
    ) -> Result<Exit, TurnError> {
        let is_small = response.bytes.is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX);
        if response.is_stream() || !is_small {
            return Ok(Exit::PassThrough { response, permit, deadline, connection });
        }
        let (status, headers) = (response.status, std::mem::take(&mut response.headers));
        let broken_off = |reason| TurnError::upstream(format!("the upstream broke off: {reason}"));
        let body = deadline.limit(async { response.whole(usize::MAX).await.map_err(broken_off) }).await?;
        Ok(Exit::PassThroughWhole { status, headers, body })
    }
}

/// The id that an upstream gave to the request, for questions to its provider.
const UPSTREAM_REQUEST_ID_HEADER: &str = "x-dacapo-upstream-request-id";

/// Makes the response, and ends the request: now, or when its stream does.
pub(super) fn respond(open: OpenRequest, client: ClientSide, exit: Result<Exit, TurnError>) -> Response<Body> {
    let id = HeaderValue::from_str(open.observer().request_id().as_str()).ok();
    let mut response = respond_to(open, client, exit);
    if let Some(id) = id {
        let headers = response.headers_mut();
        if let Some(of_upstream) = headers.insert(REQUEST_ID_HEADER, id)
            && headers.get(REQUEST_ID_HEADER) != Some(&of_upstream)
        {
            headers.insert(UPSTREAM_REQUEST_ID_HEADER, of_upstream);
        }
    }
    response
}

fn respond_to(open: OpenRequest, client: ClientSide, exit: Result<Exit, TurnError>) -> Response<Body> {
    match exit {
        Ok(Exit::Json(Ok(bytes))) => {
            open.end(RequestOutcome::Answer { status: StatusCode::OK });
            json_response(bytes)
        }
        Ok(Exit::Json(Err(error))) => fail(open, client, TurnError::Internal(error.to_string())),
        Ok(Exit::Turn(mut done)) => {
            let mut response = json_response(done.body.take().unwrap_or_default().into_bytes());
            response.headers_mut().extend(std::mem::take(&mut done.headers));
            open.end(outcome(Ok(*done)));
            response
        }
        Ok(Exit::Stream(turn)) => stream_turn(open, turn),
        Ok(Exit::Recorded(recorded)) => {
            let status = StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::OK);
            open.end(passed_outcome(status));
            let mut response = json_response(recorded.body.into_bytes());
            *response.status_mut() = status;
            if recorded.is_stream {
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
            }
            response
        }
        Ok(Exit::PassThroughWhole { status, headers, body }) => {
            let observer = open.observer();
            observer.emit(&Event::ModelBegan { status });
            observer.emit(&Event::ModelFinished { status, tokens: None });
            open.end(passed_outcome(status));
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
        Ok(Exit::PassThrough { response, permit, deadline, connection }) => {
            pass_through(open, client, response, permit, deadline, connection.as_ref())
        }
        Err(error) => fail(open, client, error),
    }
}

fn fail(open: OpenRequest, client: ClientSide, error: TurnError) -> Response<Body> {
    let observer = open.observer();
    report(&error, &observer);
    open.end(RequestOutcome::Error { status: error.status(), failure: error.kind() });
    error.response(client, observer.request_id())
}

/// Reports the cause of an error that the client is not shown.
fn report(error: &TurnError, observer: &Observer) {
    match error {
        TurnError::Internal(message) => observer.emit(&Event::Fault { message }),
        TurnError::Store(error) => observer.emit(&Event::StoreFailed { error }),
        _ => {}
    }
}

fn outcome(done: Result<TurnDone, TurnError>) -> RequestOutcome {
    match done {
        Ok(TurnDone { end: TurnEnd::Answer, .. }) => RequestOutcome::Answer { status: StatusCode::OK },
        Ok(TurnDone { end: TurnEnd::Calls, .. }) => RequestOutcome::Calls,
        Err(TurnError::ClientLeft) => RequestOutcome::Left,
        Err(error) => RequestOutcome::Error { status: error.status(), failure: error.kind() },
    }
}

fn json_response(bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Waits for a piece, and joins to it the ones that have arrived with it: each that is sent by itself costs the client and the
/// gateway a little.
pub(super) async fn pieces_at_hand(receiver: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
    let first = receiver.recv().await?;
    // No more than that: a turn that streams on another thread may go on.
    let more = receiver.len();
    if more == 0 {
        return Some(first);
    }
    let mut joined = Vec::from(first);
    for piece in (0..more).map_while(|_| receiver.try_recv().ok()) {
        joined.extend_from_slice(&piece);
    }
    Some(Bytes::from(joined))
}

/// Streams events until the turn has ended, with comments in between where it is silent.
fn stream_turn(open: OpenRequest, turn: StreamingTurn) -> Response<Body> {
    let StreamingTurn { first, receiver, task, headers } = turn;
    let state = (Some(first), receiver, task, open);
    let pieces = stream::unfold(state, |(first, mut receiver, mut task, open)| async move {
        let piece = match first {
            Some(first) => first,
            None => match tokio::time::timeout(SILENCE_MAX, pieces_at_hand(&mut receiver)).await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    let done = task.outcome().await;
                    if let Err(error) = &done {
                        report(error, &open.observer());
                    }
                    open.end(outcome(done));
                    return None;
                }
                Err(_) => Bytes::from_static(b": keepalive\n\n"),
            },
        };
        Some((Ok::<_, Infallible>(piece), (None, receiver, task, open)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.headers_mut() = headers;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn passed_outcome(status: StatusCode) -> RequestOutcome {
    if status.is_client_error() || status.is_server_error() {
        RequestOutcome::Error { status, failure: UPSTREAM }
    } else {
        RequestOutcome::Answer { status }
    }
}

/// Passes the upstream's body on. It is read whatever the client reads, so that the turn ends at its deadline.
fn pass_through(
    open: OpenRequest,
    client: ClientSide,
    response: UpstreamResponse,
    permit: QuotaShare,
    deadline: TurnDeadline,
    connection: Option<&ConnectionWork>,
) -> Response<Body> {
    let is_stream = response.is_stream();
    let UpstreamResponse { status, headers, mut body, .. } = response;
    let (pieces, receiver) = mpsc::channel(PASSED_QUEUE_PIECES);
    let observer = open.observer();
    let passing = async move {
        let mut has_begun = false;
        let passed = deadline.limit(async {
            while let Some(piece) = body.next().await {
                if !std::mem::replace(&mut has_begun, true) {
                    observer.emit(&Event::ModelBegan { status });
                }
                let piece = piece.map_err(|reason| TurnError::upstream(format!("the upstream broke off: {reason}")))?;
                pieces.send(Ok(piece)).await.map_err(|_closed| TurnError::ClientLeft)?;
            }
            Ok(())
        });
        let passed = passed.await;
        observer.emit(&Event::ModelFinished { status, tokens: None });
        drop((body, permit));
        if let Err(error) = &passed {
            let text = error.body(client, observer.request_id());
            let last = match error.status() {
                // The event may follow a half of another one, which the empty lines end.
                StatusCode::GATEWAY_TIMEOUT if is_stream => {
                    Ok(Bytes::from(format!("\n\n{}", client.error_event(&text).encoded())))
                }
                _ => Err(std::io::Error::other(text.to_string())),
            };
            // A client that has stopped reading does not get it.
            let sent = tokio::time::timeout(LAST_PIECE_TIMEOUT, pieces.send(last)).await;
            drop(sent);
        }
        passed
    };
    let state = (receiver, TurnTask::start(connection, None, passing), open);
    let body = stream::unfold(state, move |(mut receiver, mut task, open)| async move {
        if let Some(piece) = receiver.recv().await {
            return Some((piece, (receiver, task, open)));
        }
        open.end(match task.outcome().await {
            Err(TurnError::ClientLeft) => RequestOutcome::Left,
            Err(error) => RequestOutcome::Error { status: error.status(), failure: error.kind() },
            Ok(()) => passed_outcome(status),
        });
        None
    });
    let mut response = Response::new(Body::from_stream(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_that_are_at_hand_are_sent_together() {
        let (sender, mut receiver) = mpsc::channel(4);
        for piece in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
            sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        assert_eq!(pieces_at_hand(&mut receiver).await.unwrap(), "data: 1\n\ndata: 2\n\ndata: 3\n\n");
        sender.send(Bytes::from_static(b"data: 4\n\n")).await.unwrap();
        assert_eq!(pieces_at_hand(&mut receiver).await.unwrap(), "data: 4\n\n");
        drop(sender);
        assert_eq!(pieces_at_hand(&mut receiver).await, None);
    }
}
