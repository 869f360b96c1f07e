//! The end of every request: one place makes the HTTP response and reports the outcome.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use dacapo_wire::ClientSide;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use super::errors::TurnError;
use super::headers;
use crate::observe::{Event, Observer, OpenRequest, RequestOutcome};
use crate::turn::{TurnDone, TurnEnd};
use crate::upstream::UpstreamResponse;

/// A silence that proxies might take for a dead connection.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What a request ends with, unless it fails.
pub(super) enum Exit {
    /// A small JSON document of a route that asks no model.
    Json(serde_json::Result<Vec<u8>>),
    Turn {
        done: Box<TurnDone>,
        headers: HeaderMap,
    },
    Stream(StreamingTurn),
    /// The upstream's response, as it comes.
    PassThrough {
        response: UpstreamResponse,
        permit: OwnedSemaphorePermit,
    },
}

/// A turn whose first events are there.
pub(super) struct StreamingTurn {
    pub first: Bytes,
    pub receiver: mpsc::Receiver<Bytes>,
    pub task: TurnTask,
    pub headers: HeaderMap,
}

/// A turn that runs in the background. It is cancelled if the client disconnects.
pub(super) struct TurnTask(pub JoinHandle<Result<TurnDone, TurnError>>);

impl Drop for TurnTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Exit {
    pub(super) fn json(document: &impl Serialize) -> Exit {
        Exit::Json(serde_json::to_vec(document))
    }
}

/// Makes the response, and ends the request: now, or when its stream does.
pub(super) fn respond(open: OpenRequest, client: ClientSide, exit: Result<Exit, TurnError>) -> Response<Body> {
    match exit {
        Ok(Exit::Json(Ok(bytes))) => {
            open.end(RequestOutcome::Answer { status: StatusCode::OK, usage: None });
            json_response(bytes)
        }
        Ok(Exit::Json(Err(error))) => fail(open, client, TurnError::Internal(error.to_string())),
        Ok(Exit::Turn { done, headers: dropped }) => {
            let mut response = json_response(done.body.as_ref().map(ToString::to_string).unwrap_or_default().into());
            response.headers_mut().extend(headers::about_request(&done.headers));
            response.headers_mut().extend(dropped);
            open.end(outcome(Ok(*done)));
            response
        }
        Ok(Exit::Stream(turn)) => stream_turn(open, turn),
        Ok(Exit::PassThrough { response, permit }) => pass_through(open, response, permit),
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
        Ok(TurnDone { end: TurnEnd::Answer, usage, .. }) => {
            RequestOutcome::Answer { status: StatusCode::OK, usage: Some(Box::new(usage)) }
        }
        Ok(TurnDone { end: TurnEnd::Calls, usage, .. }) => RequestOutcome::Calls { usage: Box::new(usage) },
        Err(TurnError::ClientLeft) => RequestOutcome::Left,
        Err(error) => RequestOutcome::Error { status: error.status(), failure: error.kind() },
    }
}

fn json_response(bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Streams events until the turn has ended, with comments in between where it is silent.
fn stream_turn(open: OpenRequest, turn: StreamingTurn) -> Response<Body> {
    let StreamingTurn { first, receiver, task, headers } = turn;
    let state = (Some(first), receiver, task, open);
    let pieces = stream::unfold(state, |(first, mut receiver, mut task, open)| async move {
        let piece = match first {
            Some(first) => first,
            None => match tokio::time::timeout(SILENCE_MAX, receiver.recv()).await {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    let done = (&mut task.0).await.unwrap_or_else(|error| Err(TurnError::Internal(error.to_string())));
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
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn pass_through(open: OpenRequest, response: UpstreamResponse, permit: OwnedSemaphorePermit) -> Response<Body> {
    let UpstreamResponse { status, headers, body, .. } = response;
    let state = (body, permit, Some(open));
    let body = stream::unfold(state, move |(mut body, permit, open)| async move {
        // `None` after an error: the request has ended with it.
        let open = open?;
        match body.next().await {
            Some(Ok(piece)) => Some((Ok(piece), (body, permit, Some(open)))),
            Some(Err(error)) => {
                open.end(RequestOutcome::Error { status: StatusCode::BAD_GATEWAY, failure: "upstream_error" });
                Some((Err(std::io::Error::other(error)), (body, permit, None)))
            }
            None => {
                let is_error = status.is_client_error() || status.is_server_error();
                open.end(if is_error {
                    RequestOutcome::Error { status, failure: "upstream_error" }
                } else {
                    RequestOutcome::Answer { status, usage: None }
                });
                None
            }
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
