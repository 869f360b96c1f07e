//! Our MCP server over HTTP: who is let in, and that it works there as it does elsewhere.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Desk, Room};
use dacapo_mcp::{HTTP_PATH, HttpAuth, McpServer, serve_http};
use dacapo_runner::{CancellationToken, Policy, RunLimits, Runner};
use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that listens on a port of its own, until it is dropped.
struct Listening {
    address: String,
    _stop: tokio_util::sync::DropGuard,
}

impl Listening {
    async fn new(auth: HttpAuth) -> Listening {
        let runner = Runner::new(Policy::default(), RunLimits::default()).expect("the sandbox starts");
        let server = McpServer::new(runner, Arc::new(Room(Arc::new(Desk::new()))), 25_000);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it has an address").to_string();
        let stop = CancellationToken::new();
        tokio::spawn(serve_http(server, listener, auth, stop.clone()));
        Listening { address, _stop: stop.drop_guard() }
    }

    /// The status of a request with these headers.
    async fn knock(&self, headers: &[(&str, &str)]) -> u16 {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } },
        })
        .to_string();
        let mut request = format!("POST {HTTP_PATH} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        let own = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let host = [("host", self.address.as_str())];
        let named = headers.iter().any(|(name, _)| *name == "host");
        for (name, value) in own.iter().chain(headers).chain(host.iter().filter(|_| !named)) {
            request.push_str(&[name, ": ", value, "\r\n"].concat());
        }
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        stream.write_all(format!("{request}connection: close\r\n\r\n{body}").as_bytes()).await.expect("it reads");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("it answers");
        String::from_utf8_lossy(&start[9..]).parse().expect("there is a status")
    }
}

#[tokio::test]
async fn clients_of_both_eras_run_programs() {
    let listening = Listening::new(HttpAuth::None).await;
    for lifecycle in [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    ] {
        let url = format!("http://{}{HTTP_PATH}", listening.address);
        let transport = StreamableHttpClientTransport::from_uri(url);
        let client = ().serve_with_lifecycle(transport, lifecycle).await.expect("the server answers");
        let code = "return await Promise.all([1, 2].map(value => desk.echo({value, after_ms: 20})))";
        let Value::Object(args) = json!({ "code": code }) else { panic!("it is an object") };
        let result = client.call_tool(CallToolRequestParams::new("execute").with_arguments(args)).await;
        let structured = result.expect("it is answered").structured_content.expect("it is structured");
        assert_eq!(structured["data"], json!([1, 2]));
        client.cancel().await.expect("it ends");
    }
}

#[tokio::test]
async fn values_are_kept_in_the_session_that_stored_them_and_where_there_is_none_that_is_said() {
    let listening = Listening::new(HttpAuth::None).await;
    let url = format!("http://{}{HTTP_PATH}", listening.address);
    for (lifecycle, kept) in [
        (ClientLifecycleMode::Initialize, json!(7)),
        (ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }, json!(null)),
    ] {
        let connect = async || {
            let transport = StreamableHttpClientTransport::from_uri(url.clone());
            ().serve_with_lifecycle(transport, lifecycle.clone()).await.expect("the server answers")
        };
        let (client, other) = (connect().await, connect().await);
        let execute = async |client: &rmcp::service::RunningService<rmcp::RoleClient, ()>, code: &str| {
            let Value::Object(args) = json!({ "code": code }) else { panic!("it is an object") };
            let result = client.call_tool(CallToolRequestParams::new("execute").with_arguments(args)).await;
            result.expect("it is answered").structured_content.expect("it is structured")
        };
        let stored = execute(&client, "store('n', 7); return 1").await;
        assert_eq!(stored.get("logs").is_some(), kept.is_null(), "{stored}");
        assert_eq!(execute(&client, "return load('n')").await["data"], kept);
        assert_eq!(execute(&other, "return load('n')").await["data"], json!(null));
    }
}

#[tokio::test]
async fn pages_from_elsewhere_are_turned_away() {
    let listening = Listening::new(HttpAuth::None).await;
    let port = listening.address.rsplit(':').next().expect("there is a port");
    assert_eq!(listening.knock(&[]).await, 200);
    assert_eq!(listening.knock(&[("origin", &format!("http://localhost:{port}"))]).await, 200);
    assert_eq!(listening.knock(&[("origin", "http://evil.example")]).await, 403);
    assert_eq!(listening.knock(&[("origin", "http://localhost:1")]).await, 403);
    assert_eq!(listening.knock(&[("host", "evil.example")]).await, 403);
}

#[tokio::test]
async fn a_request_that_never_comes_to_its_end_does_not_keep_the_server_from_stopping() {
    let runner = Runner::new(Policy::default(), RunLimits::default()).expect("the sandbox starts");
    let server = McpServer::new(runner, Arc::new(Room(Arc::new(Desk::new()))), 25_000);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("it has an address");
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve_http(server, listener, HttpAuth::None, stop.clone()));
    let mut half = TcpStream::connect(address).await.expect("it listens");
    half.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n").await.expect("it reads");
    tokio::time::sleep(Duration::from_millis(50)).await;
    stop.cancel();
    let outcome = tokio::time::timeout(Duration::from_secs(10), serving).await.expect("it stops");
    outcome.expect("it does not panic").expect("it ends well");
}

#[tokio::test]
async fn with_a_token_only_those_who_have_it_are_let_in() {
    let listening = Listening::new(HttpAuth::BearerToken("open sesame".to_owned())).await;
    assert_eq!(listening.knock(&[]).await, 401);
    assert_eq!(listening.knock(&[("authorization", "Bearer close sesame")]).await, 401);
    assert_eq!(listening.knock(&[("authorization", "Basic open sesame")]).await, 401);
    assert_eq!(listening.knock(&[("authorization", "bearer open sesame")]).await, 200);
}
