//! `GET /metrics`: on the main listener if only this machine reaches it, else on a listener of its own.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::routing::get;
use dacapo_wire::ClientSide;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::errors::TurnError;
use super::running::RunningGateway;
use super::{AllowedOrigins, GatewayServer, exit, headers};
use crate::gateway::StartError;
use crate::tool_servers::DeployedServers;

/// Serves the metrics until it is dropped.
pub(super) struct MetricsListener(JoinHandle<()>);

impl Drop for MetricsListener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves metrics, and nothing else, on an address of their own.
pub(super) async fn listen(running: RunningGateway, address: SocketAddr) -> Result<MetricsListener, StartError> {
    let listener = TcpListener::bind(address).await?;
    let routes = Router::new().route("/metrics", get(text)).with_state(running);
    tracing::info!(address = %listener.local_addr()?, "metrics are served");
    Ok(MetricsListener(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "metrics are served no more");
        }
    })))
}

/// On the main listener.
pub(super) async fn metrics(State(server): State<GatewayServer>, request: Request<Body>) -> Response<Body> {
    let config = &server.gateway.config;
    let (parts, _) = request.into_parts();
    if config.listen.ip().is_loopback()
        && config.metrics_listen.is_none()
        && !headers::is_foreign(&parts, &AllowedOrigins::default())
    {
        return text(State(server)).await;
    }
    let message = "metrics are not served here; metrics_listen of the gateway says where";
    let error = TurnError::refused(StatusCode::NOT_FOUND, "not_found_error", message);
    exit::respond(server.open_request(&parts.headers), ClientSide::CHAT, Err(error))
}

async fn text(State(server): State<GatewayServer>) -> Response<Body> {
    let gateway = &server.gateway;
    match gateway.process.metrics.text(
        &gateway.process.stepper,
        gateway.process.turns.taken(),
        gateway.servers.as_deref().map(DeployedServers::counts),
    ) {
        Ok(text) => {
            let mut response = Response::new(Body::from(text));
            let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, format);
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}
