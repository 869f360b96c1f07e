//! The gateway over HTTP: routes, and what each does with a request.

mod auth;
mod body;
mod connection_work;
mod connections;
mod content_encoding;
mod deadline;
mod errors;
mod exit;
pub(crate) mod headers;
mod inspector;
mod metrics;
mod model_name;
mod other_routes;
mod passed_routes;
mod recordings;
mod request;
mod running;
mod self_waking;
mod threads;
mod turn_task;
mod web_pages;

pub(crate) use auth::{ApiClient, ApiClients, ClientRules, hex};
pub use auth::{key_sha256, random_hex};
pub(crate) use body::json_values;
pub(crate) use deadline::TurnDeadline;
pub(crate) use errors::{TurnError, UPSTREAM};
pub(crate) use headers::{forwarded, returned};
pub(crate) use web_pages::AllowedOrigins;

use std::future::Future;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use axum::routing::{MethodRouter, get, post};
use bytes::Bytes;
use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::{ServiceRules, Step, StepRequest, json_text};
use dacapo_runner::BoxFuture;
use dacapo_wire::{ClientSide, Delivery, ParsedRequest, Turn, Wire};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use self::connection_work::ConnectionWork;
use self::exit::{Exit, StreamingTurn};
use self::model_name::with_model;
use self::request::{ClientRequest, RequestSource, bad_request};
use self::running::RunningGateway;
use self::turn_task::TurnTask;
use crate::config::{Config, StepEndpoint};
use crate::gateway::{Gateway, StartError};
use crate::memory;
use crate::model_routes::{Route, RouteTarget, is_failure};
use crate::observe::{Event, Observer, OpenRequest};
use crate::quota::QuotaShare;
use crate::store::turn_records::EarlierTurn;
use crate::turn::{EventStream, Tenant, TurnParts, TurnRunner};
use crate::upstream::{Endpoint, RequestContext, Upstream, UpstreamResponse};

/// The largest response to a request that counts tokens.
const TOKEN_COUNT_BYTES_MAX: usize = 1 << 20;
/// Pieces of a stream that wait for a slow client.
const STREAM_QUEUE_PIECES: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct GatewayServer {
    /// As it was when the request came.
    pub gateway: Arc<Gateway>,
    running: RunningGateway,
}

/// What is known of earlier turns of the same request, when a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlierTurns {
    Known,
    /// One may still run. Its outcome is awaited in the stream.
    Awaited,
}

/// How a gateway is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopRequest {
    /// `/readyz` reports it first, and requests are taken for `drain_seconds` more, until those who balance the load
    /// have noticed.
    AfterDrain,
    /// No more requests are taken.
    Now,
}

/// Serves until `stop`, then lets running requests finish. `examples/embed_gateway.rs` has a conversation with a client.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use dacapo_gateway::{Environment, Gateway, GatewayOptions, StopRequest, serve};
/// let config = GatewayOptions::default().resolve(&Environment::default())?;
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// serve(Gateway::new(config)?, listener, async { StopRequest::Now }).await?;
/// # Ok(())
/// # }
/// ```
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    stop: impl Future<Output = StopRequest> + Send + 'static,
) -> Result<(), StartError> {
    let (_, no_configs) = mpsc::channel(1);
    serve_with_reloads(gateway, listener, stop, no_configs).await
}

/// The same, with configurations that replace the gateway's as they come. Requests that run keep what they began with.
pub async fn serve_with_reloads(
    gateway: Gateway,
    listener: TcpListener,
    stop: impl Future<Output = StopRequest> + Send + 'static,
    configs: mpsc::Receiver<Config>,
) -> Result<(), StartError> {
    serve_until(gateway, listener, Box::pin(stop), configs).await
}

/// What a caller polls is compiled with the caller, once for each type. Behind pointers, the server is compiled here, once.
fn serve_until(
    gateway: Gateway,
    listener: TcpListener,
    stop: BoxFuture<'static, StopRequest>,
    configs: mpsc::Receiver<Config>,
) -> BoxFuture<'static, Result<(), StartError>> {
    Box::pin(run_server(gateway, listener, stop, configs))
}

async fn run_server(
    gateway: Gateway,
    listener: TcpListener,
    stop: BoxFuture<'static, StopRequest>,
    configs: mpsc::Receiver<Config>,
) -> Result<(), StartError> {
    let (drain, deadline, metrics_listen) =
        (gateway.config.drain, gateway.config.shutdown, gateway.config.metrics_listen);
    let gateway = Arc::new(gateway);
    let running = RunningGateway::new(Arc::clone(&gateway));
    let (stopped, mut was_stopped) = tokio::sync::watch::channel(());
    let stopping = running.clone();
    let stop = async move {
        let request = stop.await;
        stopping.stop();
        if request == StopRequest::AfterDrain {
            tracing::info!(seconds = drain.as_secs(), "stopping: /readyz says so, and requests are still taken");
            tokio::time::sleep(drain).await;
        }
        tracing::info!("stopping: requests that run may finish");
        drop(stopped);
    };
    let _metrics = match metrics_listen {
        Some(address) => Some(metrics::listen(running.clone(), address).await?),
        None => None,
    };
    let serving = connections::serve_connections(listener, routes(&running), &running, stop);
    let overdue = async {
        // Ends when the sender is dropped.
        while was_stopped.changed().await.is_ok() {}
        tokio::time::sleep(deadline).await;
    };
    let (ended, mut has_ended) = tokio::sync::watch::channel(());
    let exporting = gateway.process.traces.clone().map(|exporter| {
        tokio::spawn(async move {
            exporter.run(async move { while has_ended.changed().await.is_ok() {} }).await;
        })
    });
    tokio::select! {
        () = serving => {}
        () = gateway.release_unused_programs() => {}
        () = tick() => {}
        () = running.follow(configs) => {}
        () = overdue => tracing::warn!(seconds = deadline.as_secs(), "requests that still run are cut off"),
    }
    drop(ended);
    if let Some(exporting) = exporting {
        // The last batch has its own deadline.
        exporting.await.unwrap_or_default();
    }
    Ok(())
}

/// Gives back freed memory every second, and keeps a timer running by that. The runtime is woken for every timer that is due
/// before all others, and the timeouts of a request are due later than this one: each of them would take a system call and
/// an empty turn.
async fn tick() {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        memory::give_back_freed();
    }
}

const CHAT_ROUTE: &str = "/v1/chat/completions";
const RESPONSES_ROUTE: &str = "/v1/responses";
const MESSAGES_ROUTE: &str = "/v1/messages";

fn routes(running: &RunningGateway) -> Router {
    Router::new()
        .route(CHAT_ROUTE, completions(ClientSide::CHAT, CHAT_ROUTE))
        .route(RESPONSES_ROUTE, completions(ClientSide::RESPONSES, RESPONSES_ROUTE).get(other_routes::no_websockets))
        .route("/v1/responses/{id}", get(other_routes::stored_response).delete(other_routes::delete_response))
        .route("/v1/responses/{id}/cancel", post(other_routes::cancel_response))
        .route(MESSAGES_ROUTE, completions(ClientSide::MESSAGES, MESSAGES_ROUTE))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(other_routes::models))
        .route("/v1/models/{*id}", get(other_routes::model))
        .route("/v1/step", post(step))
        .route("/", get(inspector::page))
        .route("/inspect/explain", post(inspector::explain))
        .route("/inspect/what-if", post(inspector::what_if))
        .route("/inspect/session", get(recordings::session).post(recordings::open_session))
        .route("/inspect/tokens", post(recordings::new_token))
        .route("/inspect/conversations", get(recordings::watch).delete(recordings::forget_all))
        .route("/inspect/conversations/{number}", get(recordings::conversation))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .fallback(passed_routes::pass_on)
        .method_not_allowed_fallback(not_allowed)
        .layer(axum::middleware::map_response_with_state(running.clone(), close_while_stopping))
        .layer(axum::middleware::from_fn_with_state(running.clone(), web_pages::cors))
        .with_state(running.clone())
}

/// The route on which clients of a wire ask models.
fn completions(client: ClientSide, route: &'static str) -> MethodRouter<RunningGateway> {
    post(move |state, request| complete(client, route, state, request))
}

async fn complete(
    client: ClientSide,
    route: &'static str,
    State(server): State<GatewayServer>,
    request: Request<Body>,
) -> Response<Body> {
    let consumers = &server.gateway.process.consumers;
    let open = OpenRequest::start(consumers, Some(client.wire()), route, request.headers());
    let observer = open.observer();
    let exit = server.complete(client, request, observer.clone()).await;
    let mut response = exit::respond(open, client, exit);
    // Whatever became of the request: who wonders why there are no programs reads it here.
    let mode = observer.mode().and_then(|mode| HeaderValue::try_from(mode.to_string()).ok());
    response.headers_mut().extend(mode.map(|mode| (HeaderName::from_static(headers::MODE), mode)));
    response
}

async fn count_tokens(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let route = "/v1/messages/count_tokens";
    let open = OpenRequest::start(&server.gateway.process.consumers, Some(Wire::Messages), route, request.headers());
    let counted = server.count_tokens(request, open.observer()).await;
    exit::respond(open, ClientSide::MESSAGES, counted.map(|count| Exit::json(&count)))
}

async fn step(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let open = server.open_request(request.headers());
    let step = server.step(request).await;
    exit::respond(open, ClientSide::CHAT, step.map(|step| Exit::json(&step)))
}

async fn readyz(State(server): State<GatewayServer>, headers: HeaderMap) -> Response<Body> {
    let not_ready = if server.running.is_stopping() {
        TurnError::Refused {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            message: "this gateway is stopping; use another one, or try again when it has been started again"
                .to_owned(),
            retry_after_s: Some(server.gateway.config.drain.as_secs().max(1)),
        }
    } else if server.gateway.process.turns.is_spent() {
        server.too_many_turns()
    } else if let Err(short) = server.gateway.check_memory() {
        short
    } else {
        return Response::new(Body::from("ready\n"));
    };
    exit::respond(server.open_request(&headers), ClientSide::CHAT, Err(not_ready))
}

/// Makes clients open another connection, which goes to a gateway that is not stopping.
async fn close_while_stopping(State(server): State<GatewayServer>, mut response: Response<Body>) -> Response<Body> {
    if server.running.is_stopping() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The router says in `allow` which methods there are.
async fn not_allowed(
    State(server): State<GatewayServer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    if method == Method::OPTIONS {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    }
    let message = format!("{} does not take this method", uri.path());
    let error = TurnError::refused(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message);
    exit::respond(server.open_request(&headers), passed_routes::client_of(&uri, &headers), Err(error))
}

impl GatewayServer {
    /// For a route on which no model is asked.
    fn open_request(&self, headers: &HeaderMap) -> OpenRequest {
        OpenRequest::start(&self.gateway.process.consumers, None, "", headers)
    }

    async fn complete(
        &self,
        client: ClientSide,
        request: Request<Body>,
        observer: Observer,
    ) -> Result<Exit, TurnError> {
        let connection = request.extensions().get::<ConnectionWork>().cloned();
        let ClientRequest { parsed, body, source, mut route, context, tenant, permit } =
            self.read(client, request, &observer).await?;
        if let Some(recorder) = &self.gateway.process.recorder {
            recorder.request(observer.request(), &tenant.name, client.wire(), &body);
        }
        let deadline = self.turn_deadline();
        let turn = match parsed {
            ParsedRequest::Turn(turn) => turn,
            ParsedRequest::PassThrough(changed) => {
                let changed = changed.map(|body| Bytes::from(json_text(&body)));
                let passed = changed.as_ref().unwrap_or(&body);
                let passing = self.pass_through(passed, &source, &mut route, &context, &observer);
                let response = deadline.limit(passing).await;
                let turn = match failure(&response) {
                    Some(failure) => self.turn_of_other_wire(&failure, &body, &source, &mut route, &observer).await,
                    None => None,
                };
                match turn {
                    Some(turn) => turn,
                    None => return Exit::pass_through(response?, permit, deadline, connection).await,
                }
            }
        };
        let may_wait = turn.prefs.delivery == Delivery::Streamed && earlier_may_run(&tenant).await;
        let (waits, earlier) = if may_wait {
            (EarlierTurns::Awaited, EarlierTurn::None)
        } else {
            (EarlierTurns::Known, self.earlier_turn(&tenant, deadline, &observer).await?)
        };
        let earlier = match earlier {
            EarlierTurn::Ended(response) => return Ok(Exit::Recorded(response)),
            earlier => earlier,
        };
        let parts = TurnParts { turn: *turn, route, context, tenant, earlier };
        if parts.turn.prefs.delivery == Delivery::Streamed {
            let connection = connection.as_ref();
            return Box::pin(self.stream(parts, waits, permit, deadline, observer, connection)).await;
        }
        Box::pin(self.turn(parts, permit, deadline, observer)).await
    }

    /// Asks the upstreams on the client's own wire that come next on the route, until one can answer. The last response is
    /// returned, whatever it is.
    async fn pass_through(
        &self,
        body: &Bytes,
        source: &RequestSource,
        route: &mut Route,
        context: &RequestContext,
        observer: &Observer,
    ) -> Result<UpstreamResponse, TurnError> {
        loop {
            let RouteTarget { model, .. } = route.target();
            let endpoint = Endpoint::same_wire(source.client, model)?;
            let body = with_model(body, &source.model, model);
            let responded = self.gateway.upstreams.send(route, &endpoint, context, &body, observer).await;
            let next = route.next().map(|next| next.upstream.provider_for(source.client));
            let next = next.filter(|next| next.wire() == source.client.wire());
            let (Some(failure), Some(_)) = (failure(&responded), next) else { return responded };
            let from = route.position();
            route.advance();
            failure.note(route.asked_at(from), route.upstream(), observer);
        }
    }

    /// If no upstream on the client's own wire could answer, and one on another wire comes next: the request for that one.
    async fn turn_of_other_wire(
        &self,
        failure: &UpstreamFailure,
        body: &Bytes,
        source: &Arc<RequestSource>,
        route: &mut Route,
        observer: &Observer,
    ) -> Option<Box<Turn>> {
        let from = route.position();
        while route.advance() {
            // One that cannot be asked for the same is left out.
            if let Ok(ParsedRequest::Turn(turn)) = source.read_again(route, body).await {
                failure.note(route.asked_at(from), route.upstream(), observer);
                return Some(turn);
            }
        }
        None
    }

    /// The outcome of an earlier turn of the same request that has sent calls with effects.
    async fn earlier_turn(
        &self,
        tenant: &Tenant,
        deadline: TurnDeadline,
        observer: &Observer,
    ) -> Result<EarlierTurn, TurnError> {
        let Some(record) = &tenant.record else { return Ok(EarlierTurn::None) };
        let earlier = deadline.limit(async { Ok(record.earlier().await) }).await?;
        Ok(earlier.unwrap_or_else(|error| {
            // Without a store nothing with effects is sent.
            observer.emit(&Event::StoreFailed { error: &error });
            EarlierTurn::None
        }))
    }

    async fn turn(
        &self,
        parts: TurnParts,
        permit: QuotaShare,
        deadline: TurnDeadline,
        observer: Observer,
    ) -> Result<Exit, TurnError> {
        let record = parts.tenant.record.clone();
        let runner = TurnRunner::new(Arc::clone(&self.gateway), parts, None, deadline, observer);
        let run = async move {
            let done = runner.run().await;
            drop(permit);
            done
        };
        let done = match record {
            None => run.await?,
            record => TurnTask::start(None, record, run).outcome().await?,
        };
        Ok(Exit::Turn(Box::new(done)))
    }

    /// How many tokens the model would read.
    async fn count_tokens(&self, request: Request<Body>, observer: Observer) -> Result<Value, TurnError> {
        let read = self.read(ClientSide::MESSAGES, request, &observer).await?;
        let deadline = self.turn_deadline();
        deadline.limit(self.count_tokens_of(read, deadline, observer)).await
    }

    async fn count_tokens_of(
        &self,
        read: ClientRequest,
        deadline: TurnDeadline,
        observer: Observer,
    ) -> Result<Value, TurnError> {
        let client = ClientSide::MESSAGES;
        let ClientRequest { parsed, body, source, route, context, tenant, permit } = read;
        let upstreams = &self.gateway.upstreams;
        let request = match parsed {
            ParsedRequest::PassThrough(changed) => changed.map_or(body, |body| Bytes::from(json_text(&body))),
            ParsedRequest::Turn(turn) => {
                let (gateway, observer) = (Arc::clone(&self.gateway), observer.clone());
                let (route, context) = (route.clone(), context.clone());
                let parts = TurnParts { turn: *turn, route, context, tenant, earlier: EarlierTurn::None };
                let runner = TurnRunner::new(gateway, parts, None, deadline, observer);
                Bytes::from(runner.model_request().await?)
            }
        };
        let RouteTarget { upstream, model } = route.target();
        let request = with_model(&request, &source.model, model);
        let counted = match Endpoint::token_count(upstream.provider_for(client)) {
            Some(endpoint) => {
                let response = upstreams.send(&route, &endpoint, &context, &request, &observer).await?;
                if !response.status.is_success() {
                    return Err(response.into_error().await);
                }
                let body = response.whole(TOKEN_COUNT_BYTES_MAX).await.map_err(TurnError::upstream)?;
                serde_json::from_slice(&body).map_err(|error| TurnError::upstream(error.to_string()))?
            }
            // The model's provider does not count tokens, so this is an estimate.
            None => json!({"input_tokens": request.len().div_ceil(BYTES_PER_TOKEN)}),
        };
        drop(permit);
        Ok(counted)
    }

    /// The status is known with the first piece: before it, an error is an HTTP error; after it, an event.
    async fn stream(
        &self,
        parts: TurnParts,
        earlier: EarlierTurns,
        permit: QuotaShare,
        deadline: TurnDeadline,
        observer: Observer,
        connection: Option<&ConnectionWork>,
    ) -> Result<Exit, TurnError> {
        let (pieces, mut receiver) = mpsc::channel(STREAM_QUEUE_PIECES);
        let headers = Arc::new(OnceLock::new());
        let stream = EventStream { pieces, headers: Arc::clone(&headers) };
        let record = parts.tenant.record.clone();
        let mut runner = TurnRunner::new(Arc::clone(&self.gateway), parts, Some(stream), deadline, observer);
        let first_headers = runner.first_headers();
        let run = async move {
            let attached = match earlier {
                EarlierTurns::Awaited => runner.attach().await,
                EarlierTurns::Known => Ok(None),
            };
            let done = match attached {
                Ok(None) => runner.run().await,
                Ok(Some(done)) => Ok(done),
                Err(error) => Err(error),
            };
            drop(permit);
            done
        };
        let mut task = TurnTask::start(connection, record, run);
        let Some(first) = exit::pieces_at_hand(&mut receiver).await else {
            let ended = task.outcome().await;
            return Err(ended.err().unwrap_or_else(|| TurnError::bug("a stream ended without an event")));
        };
        let headers = headers.get().cloned().unwrap_or(first_headers);
        Ok(Exit::Stream(StreamingTurn { first, receiver, task, headers }))
    }

    async fn step(&self, request: Request<Body>) -> Result<Step, TurnError> {
        let (parts, body) = request.into_parts();
        let client = self.admit(&parts).await?;
        if self.gateway.config.step_endpoint == StepEndpoint::Off {
            let message = "the step function is switched off here (step.enabled of the gateway); `dacapo step` runs it";
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        }
        let body = self.body(&client, &parts.headers, body).await?;
        let _turn = self.take_turn(&client)?;
        let tenant = Arc::clone(&client);
        let stepped = self.gateway.run_programs(&client, move |gateway, should_continue| {
            body::check_json_values(&body, gateway.config.body_values_max)?;
            let text =
                std::str::from_utf8(&body).map_err(|error| bad_request("body", format!("is not UTF-8: {error}")))?;
            let rules =
                ServiceRules { toolboxes: &gateway.toolboxes, tenant: &tenant, limits: gateway.limits(&tenant) };
            let request =
                StepRequest::parse_for(text, rules).map_err(|error| bad_request(&error.path, error.message))?;
            let started = Instant::now();
            let (step, start) = gateway.process.stepper.step_from(&request, should_continue)?;
            gateway.process.metrics.step(start, started.elapsed(), step.usage.fuel);
            Ok(step)
        });
        self.turn_deadline().limit(async { stepped.await? }).await
    }

    fn turn_deadline(&self) -> TurnDeadline {
        TurnDeadline::after(self.gateway.config.turn_timeout)
    }
}

/// Whether an earlier turn of the same request may run. Somebody who streams waits for it in the stream, which is kept alive.
async fn earlier_may_run(tenant: &Tenant) -> bool {
    match &tenant.record {
        // A failure is reported when the record is read for the outcome.
        Some(record) => record.may_run().await.unwrap_or(false),
        None => false,
    }
}

/// An upstream that could not answer, where another one may be able to.
struct UpstreamFailure {
    /// `None` if it did not respond.
    status: Option<StatusCode>,
}

impl UpstreamFailure {
    /// Reports that another upstream is asked.
    fn note(&self, from: &Upstream, to: &Upstream, observer: &Observer) {
        if let Some(status) = self.status {
            observer.emit(&Event::ModelFinished { status, tokens: None });
        }
        observer.emit(&Event::FellBack { from: &from.name, to: &to.name });
    }
}

fn failure(responded: &Result<UpstreamResponse, TurnError>) -> Option<UpstreamFailure> {
    match responded {
        Ok(response) => is_failure(response.status).then_some(UpstreamFailure { status: Some(response.status) }),
        Err(error) => error.may_fall_back().then_some(UpstreamFailure { status: None }),
    }
}
