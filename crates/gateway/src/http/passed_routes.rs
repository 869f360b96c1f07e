//! Routes that the gateway does not have, such as embeddings, files and audio: they pass to an upstream as they came.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use dacapo_replay::matches_pattern;
use dacapo_wire::{AppliedMode, ClientSide, OffReason};

use super::connection_work::ConnectionWork;
use super::exit::{self, Exit};
use super::model_name::ModelName;
use super::request::bad_request;
use super::{GatewayServer, TurnError, failure};
use crate::model_routes::Route;
use crate::observe::{Event, Observer};
use crate::upstream::{Endpoint, RequestContext, Upstream, UpstreamResponse};

/// Text completions, which came before Chat Completions.
const TEXT_COMPLETIONS: &str = "/v1/completions";
/// Names the upstream of a request that names no model.
const UPSTREAM_HEADER: &str = "x-dacapo-upstream";

pub(super) async fn pass_on(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let client = client_of(request.uri(), request.headers());
    let open = server.open_request(request.headers());
    let exit = server.pass_on(client, request, open.observer()).await;
    exit::respond(open, client, exit)
}

/// The wire whose errors a client expects at an address.
pub(super) fn client_of(uri: &Uri, headers: &HeaderMap) -> ClientSide {
    let is_messages = uri.path().starts_with("/v1/messages") || headers.contains_key("anthropic-version");
    if is_messages { ClientSide::MESSAGES } else { ClientSide::CHAT }
}

impl GatewayServer {
    async fn pass_on(&self, client: ClientSide, request: Request<Body>, observer: Observer) -> Result<Exit, TurnError> {
        let connection = request.extensions().get::<ConnectionWork>().cloned();
        let (parts, body) = request.into_parts();
        let path = self.passed_path(&parts)?;
        let tenant = self.admit_observed(&parts, &observer).await?;
        let body = self.body(&tenant, &parts.headers, body).await?;
        let permit = self.take_turn(&tenant)?;
        let model = ModelName::find(&body);
        let name = model.as_ref().map(|model| model.name.as_str());
        self.gateway.config.clients.rules(&tenant).check_model(name)?;
        let mode = AppliedMode::Off(OffReason::NoTools);
        observer.emit(&Event::RequestRead { client: &tenant, model: name.unwrap_or_default(), mode });
        let route = match name {
            Some(name) => self.gateway.upstreams.route(name)?,
            None => self.route_without_model(client, &parts.headers)?,
        };
        let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        let context = RequestContext { headers: parts.headers, query, client };
        let deadline = self.turn_deadline();
        let passed = PassedRequest { method: parts.method, path, body, model, context };
        let response = deadline.limit(self.send_on(passed, route, &observer)).await?;
        Exit::pass_through(response, permit, deadline, connection).await
    }

    /// The path below `/v1`, if requests to it pass.
    fn passed_path(&self, parts: &Parts) -> Result<String, TurnError> {
        let path = parts.uri.path();
        let config = &self.gateway.config;
        // An address must not lead out of what the upstream's base URL stands for.
        let is_plain = |segment: &str| !matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
        let is_safe = !path.contains('\\') && path.split('/').all(is_plain);
        let is_passed = is_safe
            && parts.method != Method::OPTIONS
            && (path == TEXT_COMPLETIONS || config.other_routes.iter().any(|pattern| matches_pattern(pattern, path)));
        let Some(below) = path.strip_prefix("/v1").filter(|below| is_passed && below.len() > 1) else {
            let message =
                format!("there is nothing at {path}; see POST /v1/chat/completions, /v1/responses and /v1/messages");
            return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
        };
        if parts.headers.contains_key(header::UPGRADE) {
            let message = format!("{path} is passed on over HTTP only; websockets are not");
            return Err(TurnError::refused(StatusCode::NOT_IMPLEMENTED, "invalid_request_error", message));
        }
        Ok(below.to_owned())
    }

    /// The upstream that the client names, or the first that speaks its wire.
    fn route_without_model(&self, client: ClientSide, headers: &HeaderMap) -> Result<Route, TurnError> {
        let upstreams = self.gateway.upstreams.list();
        if let Some(name) = headers.get(UPSTREAM_HEADER) {
            let named = upstreams.iter().find(|upstream| upstream.name.as_bytes() == name.as_bytes());
            let named = named.ok_or_else(|| bad_request(UPSTREAM_HEADER, "there is no such upstream".to_owned()))?;
            return Ok(Route::to(Arc::clone(named)));
        }
        let speaks = |upstream: &&Arc<Upstream>| upstream.provider_for(client).wire() == client.wire();
        let others = || upstreams.iter().filter(|upstream| !upstream.is_scripted());
        let found = others().find(speaks).or_else(|| others().next());
        found.map(|upstream| Route::to(Arc::clone(upstream))).ok_or_else(|| {
            let message = "no upstream is configured that this could be passed to; name a model that one has";
            TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message)
        })
    }

    async fn send_on(
        &self,
        mut passed: PassedRequest,
        mut route: Route,
        observer: &Observer,
    ) -> Result<UpstreamResponse, TurnError> {
        let client = passed.context.client;
        loop {
            let upstream = route.upstream();
            if passed.is_text_completion() && !upstream.has_text_completions() {
                let model = &route.target().model;
                let message =
                    format!("the upstream of `{model}` has no text completions; send POST /v1/chat/completions");
                return Err(TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message));
            }
            let provider = upstream.provider_for(client);
            // Whatever it speaks, the request leaves as it came.
            passed.context.client = ClientSide::of(provider.wire()).unwrap_or(client);
            let endpoint = Endpoint::other(provider, &passed.method, &passed.path);
            let body = passed.body_for(&route);
            let responded = self.gateway.upstreams.send(&route, &endpoint, &passed.context, &body, observer).await;
            let from = route.position();
            let Some(failure) = failure(&responded).filter(|_| route.advance()) else { return responded };
            failure.note(route.asked_at(from), route.upstream(), observer);
        }
    }
}

/// A request that passes as it came, but for the name of its model.
struct PassedRequest {
    method: Method,
    path: String,
    body: Bytes,
    model: Option<ModelName>,
    context: RequestContext,
}

impl PassedRequest {
    fn is_text_completion(&self) -> bool {
        TEXT_COMPLETIONS.strip_prefix("/v1") == Some(self.path.as_str())
    }

    fn body_for(&self, route: &Route) -> Cow<'_, Bytes> {
        let model = &route.target().model;
        let other = self.model.as_ref().filter(|named| named.name != *model);
        other.map_or(Cow::Borrowed(&self.body), |named| Cow::Owned(named.replaced(&self.body, model)))
    }
}
