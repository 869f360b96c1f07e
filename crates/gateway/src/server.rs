//! The gateway over HTTP.

use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use axum::routing::{get, post};
use bytes::Bytes;
use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::{Step, StepRequest};
use dacapo_wire::{Reading, Turn, Wire};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use crate::error::TurnError;
use crate::gateway::{Gateway, StartError};
use crate::headers;
use crate::outlet::Stream;
use crate::request::{Asked, bad};
use crate::turn::{Done, Running, Tenant};
use crate::upstream::{Answer, Asking, Target};

/// A silence that proxies might take for a dead connection.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// No count of tokens is larger.
const COUNT_BYTES_MAX: usize = 1 << 20;
/// Pieces that wait for a slow client.
const QUEUE: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub gateway: Arc<Gateway>,
    is_stopping: Arc<AtomicBool>,
}

/// Serves until `stop`, then lets running turns finish.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), StartError> {
    let deadline = gateway.config.shutdown;
    let is_stopping = Arc::new(AtomicBool::new(false));
    let server = Server { gateway: Arc::new(gateway), is_stopping: Arc::clone(&is_stopping) };
    let (stopped, mut was_stopped) = tokio::sync::watch::channel(());
    let stop = async move {
        stop.await;
        tracing::info!("stopping: turns that run may finish");
        is_stopping.store(true, Ordering::Relaxed);
        drop(stopped);
    };
    let serving = axum::serve(listener, routes(server)).with_graceful_shutdown(stop);
    let overdue = async {
        // Ends when the sender is dropped.
        while was_stopped.changed().await.is_ok() {}
        tokio::time::sleep(deadline).await;
    };
    tokio::select! {
        ended = serving => ended?,
        () = overdue => tracing::warn!(seconds = deadline.as_secs(), "turns that still run are cut off"),
    }
    Ok(())
}

fn routes(server: Server) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(|state, request| answer(Wire::Chat, state, request)))
        .route("/v1/responses", post(|state, request| answer(Wire::Responses, state, request)))
        .route("/v1/messages", post(|state, request| answer(Wire::Messages, state, request)))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(models))
        .route("/v1/step", post(step))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .with_state(server)
}

async fn not_found(uri: Uri) -> Response<Body> {
    let message =
        format!("there is nothing at {}; see POST /v1/chat/completions, /v1/responses and /v1/messages", uri.path());
    TurnError::ours(StatusCode::NOT_FOUND, "not_found_error", message).response(wire_of(&uri))
}

async fn not_allowed(uri: Uri) -> Response<Body> {
    let message = format!("{} does not take this method", uri.path());
    TurnError::ours(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message).response(wire_of(&uri))
}

async fn readyz(State(server): State<Server>) -> Response<Body> {
    if server.is_stopping.load(Ordering::Relaxed) {
        return TurnError::ours(StatusCode::SERVICE_UNAVAILABLE, "server_error", "stopping").response(Wire::Chat);
    }
    Response::new(Body::from("ready\n"))
}

async fn models(State(server): State<Server>, headers: HeaderMap) -> Response<Body> {
    match server.admit(&headers) {
        Ok(_) => json_response(&server.gateway.upstreams.models(&headers).await),
        Err(error) => error.response(Wire::Chat),
    }
}

async fn step(State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    match server.step(request).await {
        Ok(step) => json_response(&step),
        Err(error) => error.response(Wire::Chat),
    }
}

async fn answer(wire: Wire, State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    let began = Instant::now();
    let turn = server.answer(wire, request).await;
    let response = turn.unwrap_or_else(|error| error.response(wire));
    tracing::debug!(%wire, status = response.status().as_u16(), ms = began.elapsed().as_millis() as u64, "answered");
    response
}

async fn count_tokens(State(server): State<Server>, request: Request<Body>) -> Response<Body> {
    match server.count_tokens(request).await {
        Ok(count) => json_response(&count),
        Err(error) => error.response(Wire::Messages),
    }
}

/// Whose errors a client expects at an address.
fn wire_of(uri: &Uri) -> Wire {
    if uri.path().starts_with("/v1/messages") { Wire::Messages } else { Wire::Chat }
}

impl Server {
    async fn answer(&self, wire: Wire, request: Request<Body>) -> Result<Response<Body>, TurnError> {
        let Asked { reading, body, model, asking, tenant, permit } = self.read(wire, request).await?;
        match reading {
            Reading::PassThrough(changed) => {
                let body = changed.map_or(body, |body| Bytes::from(body.to_string()));
                self.pass_through(Target::Answer(wire), &asking, &model, body, permit).await
            }
            Reading::Turn(turn) if turn.wanted.is_stream => self.stream(*turn, asking, tenant, permit).await,
            Reading::Turn(turn) => {
                let dropped = notice(&turn);
                let done = Running::new(Arc::clone(&self.gateway), *turn, asking, tenant, None).run().await?;
                tell(&model, &done);
                let mut response = json_response(&done.body.unwrap_or(Value::Null));
                response.headers_mut().extend(headers::about(&done.headers));
                response.headers_mut().extend(dropped);
                drop(permit);
                Ok(response)
            }
        }
    }

    /// How many tokens the model would read.
    async fn count_tokens(&self, request: Request<Body>) -> Result<Value, TurnError> {
        let Asked { reading, body, model, asking, tenant, permit } = self.read(Wire::Messages, request).await?;
        let upstreams = &self.gateway.upstreams;
        let upstream = upstreams.of(&model)?;
        let asked = match reading {
            Reading::PassThrough(changed) => changed.map_or(body, |body| Bytes::from(body.to_string())),
            Reading::Turn(turn) => {
                let running = Running::new(Arc::clone(&self.gateway), *turn, asking.clone(), tenant, None);
                Bytes::from(running.would_ask().await?.to_string())
            }
        };
        let counted = if upstream.wire_for(Wire::Messages) == Wire::Messages {
            let answer = upstreams.post(upstream, Target::TokenCount, &asking, asked).await?;
            if !answer.status.is_success() {
                return Err(answer.into_error().await);
            }
            let body = answer.whole(COUNT_BYTES_MAX).await.map_err(TurnError::upstream)?;
            serde_json::from_slice(&body).map_err(|error| TurnError::upstream(error.to_string()))?
        } else {
            // Nobody on another wire can be asked.
            json!({"input_tokens": asked.len().div_ceil(BYTES_PER_TOKEN)})
        };
        drop(permit);
        Ok(counted)
    }

    /// The first piece decides: before it there is a status to be told, after it there is not.
    async fn stream(
        &self,
        turn: Turn,
        asking: Asking,
        tenant: Tenant,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, TurnError> {
        let (pieces, mut receiver) = mpsc::channel(QUEUE);
        let headers = Arc::new(OnceLock::new());
        let stream = Stream { pieces, headers: Arc::clone(&headers) };
        let model = turn.model().to_owned();
        let dropped = notice(&turn);
        let running = Running::new(Arc::clone(&self.gateway), turn, asking, tenant, Some(stream));
        let mut task = Task(tokio::spawn(async move {
            let done = running.run().await;
            if let Ok(done) = &done {
                tell(&model, done);
            }
            drop(permit);
            done
        }));
        let Some(first) = receiver.recv().await else {
            let done = (&mut task.0).await;
            return Err(match done {
                Ok(Err(error)) => error,
                Ok(Ok(_)) | Err(_) => TurnError::ours(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "server_error",
                    "the turn ended without an answer",
                ),
            });
        };
        let pieces = stream::unfold((Some(first), receiver, task), |(first, mut receiver, task)| async move {
            let piece = match first {
                Some(first) => first,
                None => match tokio::time::timeout(SILENCE_MAX, receiver.recv()).await {
                    Ok(piece) => piece?,
                    Err(_) => Bytes::from_static(b": keepalive\n\n"),
                },
            };
            Some((Ok::<_, Infallible>(piece), (None, receiver, task)))
        });
        let mut response = Response::new(Body::from_stream(pieces));
        *response.headers_mut() = headers.get().map(headers::about).unwrap_or_default();
        response.headers_mut().extend(dropped);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }

    async fn pass_through(
        &self,
        target: Target,
        asking: &Asking,
        model: &str,
        body: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, TurnError> {
        let upstreams = &self.gateway.upstreams;
        let upstream = upstreams.of(model)?;
        let Answer { status, headers, body, .. } = upstreams.post(upstream, target, asking, body).await?;
        tracing::info!(model, mode = "off", status = status.as_u16(), "turn");
        let body = stream::unfold((body, permit), |(mut body, permit)| async move {
            let piece = futures_util::StreamExt::next(&mut body).await?;
            Some((piece.map_err(std::io::Error::other), (body, permit)))
        });
        let mut response = Response::new(Body::from_stream(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    async fn step(&self, request: Request<Body>) -> Result<Step, TurnError> {
        let (parts, body) = request.into_parts();
        self.admit(&parts.headers)?;
        let _permit = self.permit()?;
        let body = self.body(body).await?;
        let gateway = Arc::clone(&self.gateway);
        let slot = Arc::clone(&gateway.steps).acquire_owned().await;
        let slot = slot.map_err(|closed| TurnError::upstream(closed.to_string()))?;
        let stepped = tokio::task::spawn_blocking(move || {
            let text = std::str::from_utf8(&body).map_err(|error| bad("body", format!("is not UTF-8: {error}")))?;
            let request =
                StepRequest::parse_with(text, &gateway.toolboxes).map_err(|error| bad(&error.path, error.message))?;
            let deadline = Instant::now() + gateway.config.step_timeout;
            let step = gateway.stepper.step(&request, &|| Instant::now() < deadline);
            drop(slot);
            step.map_err(TurnError::from)
        });
        stepped.await.map_err(|error| TurnError::upstream(error.to_string()))?
    }
}

/// Stops when nobody holds it any more: the client is gone.
struct Task(JoinHandle<Result<Done, TurnError>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn json_response(body: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => TurnError::upstream(error.to_string()).response(Wire::Chat),
    }
}

/// What the model's wire cannot carry, for the client to know.
fn notice(turn: &Turn) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !turn.dropped.is_empty() {
        tracing::warn!(client = %turn.wire, upstream = %turn.upstream, dropped = ?turn.dropped, "the model is not told");
        let value = HeaderValue::try_from(turn.dropped.join(", "));
        headers.extend(value.ok().map(|value| (HeaderName::from_static("x-dacapo-dropped"), value)));
    }
    headers
}

/// One line per turn, of which nothing is secret.
fn tell(model: &str, done: &Done) {
    let usage = &done.usage;
    tracing::info!(model, model_calls = usage.model_calls, programs = usage.programs, calls = usage.calls, "turn");
}
