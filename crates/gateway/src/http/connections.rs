//! Connections of clients: accepted, served over HTTP/1.1, and closed.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use axum::serve::{Listener, ListenerExt};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use super::connection_work::ConnectionWork;
use super::running::RunningGateway;
use super::self_waking::SelfWaking;

/// Clients have no reason to be slow with it, and a gateway that stops waits for them.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves connections until `stop`, then lets their requests finish. A connection on which the headers of a request do
/// not arrive within `timeouts.header_seconds` is closed, an idle one as well, and one that does not become encrypted in
/// that time where it has to. HTTP/2 is not spoken: its streams would not be
/// bounded by the number of connections, and it names hosts in another way.
pub(super) async fn serve_connections(
    listener: TcpListener,
    router: Router,
    running: &RunningGateway,
    stop: impl Future<Output = ()>,
) {
    let mut listener = without_delay(listener);
    let header_timeout = running.current().config.header_timeout;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(header_timeout);
    let connections = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let (connection, _) = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let work = ConnectionWork::default();
        let service = request_service(router.clone(), work.clone());
        // The certificate may have been replaced since the last connection.
        let Some(acceptor) = running.current().config.tls.as_ref().map(|tls| tls.acceptor.clone()) else {
            let connection = connections.watch(http.serve_connection(TokioIo::new(connection), service));
            tokio::spawn(async move { log_end(SelfWaking::new(work.with(connection)).await) });
            continue;
        };
        let (http, watcher) = (http.clone(), connections.watcher());
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT.min(header_timeout), acceptor.accept(connection)).await {
                Ok(Ok(encrypted)) => {
                    let connection = watcher.watch(http.serve_connection(TokioIo::new(encrypted), service));
                    log_end(SelfWaking::new(work.with(connection)).await);
                }
                Ok(Err(error)) => tracing::debug!(%error, "a connection could not be encrypted"),
                Err(_elapsed) => tracing::debug!("a connection was not encrypted in time"),
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves the requests of a connection, which can start work in its task.
fn request_service(
    router: Router,
    work: ConnectionWork,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: Send> + Send {
    let router = TowerToHyperService::new(router);
    service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(work.clone());
        router.call(request)
    })
}

fn log_end(end: Result<(), hyper::Error>) {
    if let Err(error) = end {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// Accepts connections on which small writes leave at once. Otherwise the kernel holds the last piece of a stream back
/// until the client has acknowledged the one before, which clients delay by 40 ms.
fn without_delay(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set on a connection, so small writes may be late");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_writes_leave_accepted_connections_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = without_delay(listener);
        let (client, (accepted, _)) = tokio::join!(TcpStream::connect(address), listener.accept());
        assert!(!client.unwrap().nodelay().unwrap(), "this system sets it by itself, so the test shows nothing");
        assert!(accepted.nodelay().unwrap());
    }
}
