//! Our MCP server over Streamable HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use dacapo_runner::CancellationToken;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::McpServer;

/// How clients authenticate.
#[derive(Clone)]
pub enum HttpAuth {
    /// Not at all: everybody who can reach the server may use it.
    None,
    /// With this token: `Authorization: Bearer …`.
    BearerToken(String),
}

impl std::fmt::Debug for HttpAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HttpAuth::None => "None",
            HttpAuth::BearerToken(_) => "BearerToken(…)",
        })
    }
}

/// Sessions (of clients before MCP 2026-07-28) are closed after this long without a request. Longer than a person may take
/// to approve a call.
const SESSION_IDLE_MAX: Duration = Duration::from_hours(1);

/// After `stop`, open requests may take this long to end. A client that never sends the rest of a request is not waited for.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// The path of the MCP endpoint.
pub const HTTP_PATH: &str = "/mcp";

/// Serves until `stop`, and then gives open requests a short time to end.
pub async fn serve_http(
    server: McpServer,
    listener: TcpListener,
    auth: HttpAuth,
    stop: CancellationToken,
) -> io::Result<()> {
    server.warm_up();
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_IDLE_MAX);
    let config = config(listener.local_addr()?, &stop);
    let service = StreamableHttpService::new(move || Ok(server.for_new_session()), Arc::new(sessions), config);
    let mut routes = Router::new().nest_service(HTTP_PATH, service);
    if let HttpAuth::BearerToken(token) = auth {
        routes = routes.layer(middleware::from_fn_with_state(digest(token.as_bytes()), authenticate));
    }
    // Small messages in both directions: waiting to fill a packet costs 40 ms each.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    let stopped = stop.clone().cancelled_owned();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stopped);
    let grace_over = async {
        stop.cancelled().await;
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        outcome = serving => outcome,
        () = grace_over => Ok(()),
    }
}

/// Guards against web pages that send requests to a local server: a browser's `Origin` must be our own address, and on
/// loopback the `Host` must be ours too, which a DNS name of others that points to it is not.
fn config(address: SocketAddr, stop: &CancellationToken) -> StreamableHttpServerConfig {
    let port = address.port();
    let origins = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}"));
    let config = StreamableHttpServerConfig::default()
        .with_cancellation_token(stop.child_token())
        .with_allowed_origins(origins)
        .enforce_origin_validation();
    if address.ip().is_loopback() { config } else { config.disable_allowed_hosts() }
}

async fn authenticate(State(expected): State<[u8; 32]>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    // Digests are compared, so that the time of the comparison tells nothing about the token.
    if token.is_some_and(|(_, token)| digest(token.trim().as_bytes()) == expected) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "this server needs its token: `Authorization: Bearer …`\n").into_response()
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
