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
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::serve::Server;

/// Who may talk to the server.
#[derive(Clone)]
pub enum Admission {
    /// Whoever reaches it.
    Everyone,
    /// Whoever has this token: `Authorization: Bearer …`.
    Token(String),
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Admission::Everyone => "Everyone",
            Admission::Token(_) => "Token(…)",
        })
    }
}

/// A session of an old client that is silent for so long is forgotten. Longer than people take to approve a call.
const SILENCE_MAX: Duration = Duration::from_hours(1);

/// Requests may take this long to end. A peer that never sends the rest of one is not waited for.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where the server is found below its address.
pub const HTTP_PATH: &str = "/mcp";

/// Serves until `stop`, and a moment longer what is being answered then.
pub async fn serve_http(
    server: Server,
    listener: TcpListener,
    admission: Admission,
    stop: CancellationToken,
) -> io::Result<()> {
    server.warm_up();
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SILENCE_MAX);
    let config = config(listener.local_addr()?, &stop);
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(sessions), config);
    let mut routes = Router::new().nest_service(HTTP_PATH, service);
    if let Admission::Token(token) = admission {
        routes = routes.layer(middleware::from_fn_with_state(digest(token.as_bytes()), admit));
    }
    // Small messages in both directions: waiting to fill a packet costs 40 ms each.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    let stopping = stop.clone();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async move { stopping.cancelled().await });
    let leaving = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        outcome = serving => outcome,
        () = leaving => Ok(()),
    }
}

/// A page in a browser may reach us only if it came from us, and under no name that somebody else gave to our address.
fn config(address: SocketAddr, stop: &CancellationToken) -> StreamableHttpServerConfig {
    let port = address.port();
    let origins = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("http://{host}:{port}"));
    let config = StreamableHttpServerConfig::default()
        .with_cancellation_token(stop.child_token())
        .with_allowed_origins(origins)
        .enforce_origin_validation();
    if address.ip().is_loopback() { config } else { config.disable_allowed_hosts() }
}

async fn admit(State(expected): State<[u8; 32]>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    // Digests are compared, so that the time it takes says nothing of the token.
    if token.is_some_and(|(_, token)| digest(token.trim().as_bytes()) == expected) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "this server needs its token: `Authorization: Bearer …`\n").into_response()
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
