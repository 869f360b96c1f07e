//! Servers over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dacapo_mcp::{Fleet, ServerPhase, ServersFile, TransportKind};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::{LONG, call, environment, ok, options};

#[tokio::test]
async fn a_server_that_drops_connections_costs_the_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let down = Arc::new(AtomicBool::new(false));
    let is_down = down.clone();
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, is_down.clone()));
        }
    });
    let mut environment = environment();
    environment.insert("TOKEN".to_owned(), "abc-123-xyz".to_owned());
    let text =
        json!({"mcpServers": {"web": {"url": url, "headers": {"Authorization": "Bearer ${TOKEN}"}}}}).to_string();
    let fleet = Fleet::start(ServersFile::parse(&text, &environment).unwrap(), options());
    fleet.settled(LONG).await;
    let state = fleet.states().remove(0);
    assert_eq!((state.phase, state.transport, state.tools), (ServerPhase::Ready, Some(TransportKind::Http), 1));

    // The header arrived, and does not come back.
    assert_eq!(call(&fleet, "web", "header", json!({})).await, ok(&json!("***")));
    let refusal = call(&fleet, "web", "drop", json!({})).await.unwrap_err().0;
    assert!(refusal.starts_with("`web.drop` failed on the way: "), "{refusal}");
    assert!(refusal.ends_with("; it is unknown whether the call was executed"), "{refusal}");
    assert_eq!(call(&fleet, "web", "header", json!({})).await, ok(&json!("***")));
    let refusal = call(&fleet, "web", "big", json!({})).await.unwrap_err().0;
    assert!(refusal.contains("at most 8388608 bytes are taken and it has 500000"), "{refusal}");
    let refusal = call(&fleet, "web", "endless", json!({})).await.unwrap_err().0;
    assert!(refusal.contains("at most 8388608 bytes are taken and it is longer than that"), "{refusal}");
    assert_eq!(call(&fleet, "web", "header", json!({})).await, ok(&json!("***")));

    down.store(true, Ordering::SeqCst);
    let refusal = call(&fleet, "web", "header", json!({})).await.unwrap_err().0;
    assert!(refusal.starts_with("`web.header` failed on the way: "), "{refusal}");
    down.store(false, Ordering::SeqCst);
    assert_eq!(call(&fleet, "web", "header", json!({})).await, ok(&json!("***")));
    fleet.shutdown().await;
    serving.abort();
}

/// Answers the requests of one connection until it drops it.
async fn serve(stream: TcpStream, down: Arc<AtomicBool>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut authorization, mut line) = (0, String::new(), String::new());
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 || down.load(Ordering::SeqCst) {
                return;
            }
            let Some((name, value)) = line.split_once(':') else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "authorization" => authorization = value.trim().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match (message["method"].as_str(), message["params"]["name"].as_str()) {
            (Some("server/discover"), _) => {
                json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "supportedVersions": ["2026-07-28"],
                       "capabilities": {"tools": {}}})
            }
            (Some("tools/list"), _) => {
                json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                       "tools": [{"name": "header", "inputSchema": {"type": "object"}}]})
            }
            (Some("tools/call"), Some("header")) => json!({"content": [], "structuredContent": authorization}),
            (Some("tools/call"), Some("big")) => json!({"content": [], "structuredContent": "x".repeat(50_000_000)}),
            (Some("tools/call"), Some("endless")) => {
                let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {";
                let mut sent = stream.write_all(head).await;
                while sent.is_ok() {
                    sent = stream.write_all(&[b' '; 4096]).await;
                }
                return;
            }
            _ => {
                drop(
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
                        .await,
                );
                return;
            }
        };
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all(head.as_bytes()).await.is_err() || stream.write_all(body.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn an_endless_greeting_is_not_listened_to() {
    for kind in ["application/json", "text/event-stream"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 64];
                    stream.read_exact(&mut request).await.unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\ndata: ");
                    let mut sent = stream.write_all(head.as_bytes()).await;
                    while sent.is_ok() {
                        sent = stream.write_all(&[b' '; 1 << 14]).await;
                    }
                });
            }
        });
        let text = json!({"mcpServers": {"web": {"url": url}}}).to_string();
        let fleet = Fleet::start(ServersFile::parse(&text, &environment()).unwrap(), options());
        fleet.settled(LONG).await;
        let ServerPhase::Failed { reason, .. } = fleet.states().remove(0).phase else { panic!("it never ends") };
        assert!(reason.contains("its answer is too long"), "{reason}");
        fleet.shutdown().await;
        serving.abort();
    }
}
