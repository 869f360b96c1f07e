//! Connections of clients.

use std::net::SocketAddr;

use axum::serve::{Listener, ListenerExt};
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections on which small writes leave at once. Otherwise the kernel holds the last piece of a stream back
/// until the client has acknowledged the one before, which clients delay by 40 ms.
pub(super) fn without_delay(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
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
