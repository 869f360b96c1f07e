//! Clients and upstreams that would stop the gateway for everybody else.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use axum::routing::post;
use bytes::Bytes;
use dacapo_gateway::{ClientOptions, Gateway, GatewayOptions, StopRequest, UpstreamOptions, key_sha256, serve};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{HttpResponse, Model, RunningGateway, ask, options, post_json, post_with, send_to, tool};

const SCRIPT: &str = r#"
[[turn]]
when = { user = "stuck" }
text = "never"
delay_ms = 3600000

[[turn]]
text = "hi"
"#;

fn clients() -> Vec<ClientOptions> {
    let client = |name: &str| ClientOptions {
        name: name.to_owned(),
        key_sha256: vec![key_sha256(name)],
        ..ClientOptions::default()
    };
    vec![client("ann"), client("bob")]
}

/// A connection on which these bytes are sent.
async fn connect(gateway: &RunningGateway, bytes: &str) -> TcpStream {
    let address = gateway.url.trim_start_matches("http://").trim_end_matches("/v1");
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(bytes.as_bytes()).await.unwrap();
    connection
}

async fn read_to_end(mut connection: TcpStream) -> String {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn is_ready(gateway: &RunningGateway) -> bool {
    let url = format!("{}/readyz", gateway.url.trim_end_matches("/v1"));
    let response = reqwest::Client::builder().tls_certs_only([]).build().unwrap().get(url).send().await.unwrap();
    assert_eq!(response.headers().contains_key("retry-after"), !response.status().is_success());
    response.status() == 200
}

const UNFINISHED: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{";

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_send_slowly_keep_nobody_from_a_turn() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.turns_max = Some(2);
    let gateway = RunningGateway::start(options).await;
    let mut slow = Vec::new();
    for _ in 0..12 {
        slow.push(connect(&gateway, UNFINISHED).await);
    }
    for _ in 0..5 {
        assert_eq!(post_json(&gateway.url, &ask("hi")).await.status, 200);
        assert!(is_ready(&gateway).await);
    }
    // Bodies on their way are bounded as well: the next ones are refused without being read.
    let mut more = Vec::new();
    for _ in 0..5 {
        more.push(Box::pin(read_to_end(connect(&gateway, UNFINISHED).await)));
    }
    let (refused, ..) = futures_util::future::select_all(more).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_have_to_arrive_in_time() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.timeouts.header_seconds = Some(1);
    options.timeouts.body_seconds = Some(1);
    let gateway = RunningGateway::start(options).await;
    let late = read_to_end(connect(&gateway, UNFINISHED).await).await;
    assert!(late.starts_with("HTTP/1.1 408 ") && late.contains("timeouts.body_seconds"), "{late}");
    let unfinished = connect(&gateway, "POST /v1/chat/completions HTTP/1.1\r\nhost: loc").await;
    let closed = read_to_end(unfinished).await;
    assert!(!closed.starts_with("HTTP/1.1 2"), "{closed}");
    let idle = read_to_end(connect(&gateway, "").await).await;
    assert_eq!(idle, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_arrive_together_take_no_more_than_they_may() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.body_bytes_max = Some(1_000);
    options.bodies_bytes_max = Some(1_500);
    let gateway = RunningGateway::start(options).await;
    let large = UNFINISHED.replace('{', &"{".repeat(800));
    let (first, second) = (connect(&gateway, &large).await, connect(&gateway, &large).await);
    // One of them was refused, whichever it was.
    let refused = tokio::select! {
        refused = read_to_end(first) => refused,
        refused = read_to_end(second) => refused,
    };
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("bodies_bytes_max"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_refused_at_once() {
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(options(&model)).await;
    // The preface of HTTP/2, and empty settings.
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let mut answer = Vec::new();
    let ended = connect(&gateway, preface).await.read_to_end(&mut answer).await;
    // The server's own settings would be an answer of at least nine bytes that is not text.
    assert!(ended.is_err() || answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_leaves_turns_for_the_others() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.turns_max = Some(2);
    options.clients = clients();
    let gateway = RunningGateway::start(options).await;
    let (ann, bob) = ([("authorization", "Bearer ann")], [("authorization", "Bearer bob")]);
    let url = gateway.url.clone();
    let stuck = |key: &'static str| {
        let url = url.clone();
        tokio::spawn(async move { post_with(&url, &ask("stuck"), &[("authorization", key)]).await.status })
    };
    let first = stuck("Bearer ann");
    while model.seen.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let refused = post_with(&gateway.url, &ask("hi"), &ann).await;
    assert_eq!((refused.status, refused.headers["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(refused.text.contains("turns_max_per_client"), "{}", refused.text);
    assert!(is_ready(&gateway).await);
    assert_eq!(post_with(&gateway.url, &ask("hi"), &bob).await.status, 200);

    let second = stuck("Bearer bob");
    while model.seen.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert!(!is_ready(&gateway).await, "no turn is left");
    first.abort();
    while !is_ready(&gateway).await {}
    assert_eq!(post_with(&gateway.url, &ask("hi"), &ann).await.status, 200);
    second.abort();
}

/// An upstream whose streams never end. Answers that are not streamed never begin.
async fn dripping() -> (GatewayOptions, tokio::task::JoinHandle<()>) {
    const CHUNK: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1800000000,"model":"m","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}"#;
    let answer = async |body: Bytes| {
        let request: Value = serde_json::from_slice(&body).unwrap();
        if request["stream"] != true {
            std::future::pending::<()>().await;
        }
        let text = Bytes::from(format!("data: {}\n\n", CHUNK.replace("TEXT", &"x".repeat(500))));
        let pieces = stream::unfold(text, |text| async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Some((Ok::<_, Infallible>(text.clone()), text))
        });
        Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(pieces)).unwrap()
    };
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .route("/v1/responses", post(answer))
        .route("/v1/messages", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = GatewayOptions::default();
    options.upstreams.push(UpstreamOptions {
        name: "dripping".to_owned(),
        models: vec!["*".to_owned()],
        wires: Some(["chat", "responses", "messages"].map(str::to_owned).to_vec()),
        base_url: Some(format!("http://{}/v1", listener.local_addr().unwrap())),
        ..UpstreamOptions::default()
    });
    options.timeouts.turn_seconds = Some(1);
    (options, tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_drips_for_ever_meets_the_deadline_of_the_turn() {
    let (options, upstream) = dripping().await;
    let gateway = RunningGateway::start(options).await;
    let body = |key: &str| {
        json!({"model": "m", "stream": true, "max_tokens": 9, key: [{"role": "user", "content": "hi"}],
            "tools": [tool("web_search", &["query"])]})
    };
    let streams = [
        ("plain", "chat/completions", body("messages")),
        ("off", "chat/completions", body("messages")),
        ("off", "responses", body("input")),
        ("off", "messages", body("messages")),
    ]
    .map(|(mode, path, body)| {
        let url = format!("{}/{path}", gateway.url);
        async move { send_to(&url, &body, &[("x-dacapo-mode", mode)]).await }
    });
    for answered in futures_util::future::join_all(streams).await {
        assert_eq!(answered.status, 200);
        let last = answered.text.trim_end().rsplit("\n\n").next().unwrap().rsplit("data: ").next().unwrap();
        let error: Value = serde_json::from_str(last).unwrap();
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("timeouts.turn_seconds"), "{last}");
    }
    for mode in ["plain", "off"] {
        let late = post_with(&gateway.url, &ask("hi"), &[("x-dacapo-mode", mode)]).await;
        assert_eq!(late.status, 504, "{mode}: {}", late.text);
        assert!(late.text.contains("timeouts.turn_seconds"), "{}", late.text);
    }
    upstream.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_keeps_its_turn_until_the_deadline_at_most() {
    let (mut options, upstream) = dripping().await;
    options.turns_max = Some(2);
    let gateway = RunningGateway::start(options).await;
    let mut connections = Vec::new();
    for mode in ["plain", "off"] {
        let mut body = ask("hi");
        body["stream"] = json!(true);
        let body = body.to_string();
        let length = body.len();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-dacapo-mode: {mode}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        connections.push(connect(&gateway, &request).await);
    }
    while is_ready(&gateway).await {}
    while !is_ready(&gateway).await {}
    drop(connections);
    upstream.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_drains_says_so_and_still_takes_requests() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.drain_seconds = Some(4);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let gateway = Gateway::new(options.resolve(&dacapo_gateway::Environment::default()).unwrap()).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<StopRequest>();
    let served = tokio::spawn(async move { serve(gateway, listener, async { stopped.await.unwrap() }).await });
    let ready = format!("{}/readyz", url.trim_end_matches("/v1"));
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    assert_eq!(client.get(&ready).send().await.unwrap().status(), 200);
    stop.send(StopRequest::AfterDrain).unwrap();
    let stopping = loop {
        let response = client.get(&ready).send().await.unwrap();
        if response.status() != 200 {
            break response;
        }
    };
    assert_eq!((stopping.status().as_u16(), stopping.headers()["retry-after"].to_str().unwrap()), (503, "4"));
    let taken = post_json(&url, &ask("hi")).await;
    assert_eq!((taken.status, taken.headers["connection"].to_str().unwrap()), (200, "close"));
    served.await.unwrap().unwrap();
    assert!(client.get(&ready).send().await.is_err());
}

/// To the step function, as this client.
async fn step(gateway: &RunningGateway, client: &str, request: Value) -> HttpResponse {
    let key = format!("Bearer {client}");
    send_to(&format!("{}/step", gateway.url), &request, &[("authorization", &key)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn long_programs_of_one_client_do_not_keep_another_waiting() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.clients = clients();
    options.step_seconds_max = Some(20);
    options.limits.insert("fuel".to_owned(), 1_000_000_000_000);
    let gateway = RunningGateway::start(options).await;
    // More than there are places for running programs on any machine that runs this in reasonable time.
    let heavy = (0..40).map(|number| {
        let code = format!("let i = {number}; while (true) i++;");
        Box::pin(step(&gateway, "ann", json!({"program": {"code": code}})))
    });
    let mut heavy = futures_util::future::select_all(heavy);
    let light = async {
        for number in 0..20 {
            let code = format!("return {number}");
            let answered = step(&gateway, "bob", json!({"program": {"code": code}})).await;
            assert_eq!(answered.json()["result"]["data"], number);
        }
    };
    tokio::select! {
        (ended, ..) = &mut heavy => panic!("bob waits for ann's programs: one has ended with {}", ended.status),
        () = light => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_step_function_holds_to_the_operators_limits() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.clients = clients();
    options.limits.insert("calls".to_owned(), 2);
    let gateway = RunningGateway::start(options.clone()).await;
    let request = |limits: Value| json!({"program": {"code": "await Promise.all([f({}), f({}), f({})])"}, "tools": [{"name": "f"}], "limits": limits});
    for limits in [json!({}), json!({"calls": 2}), json!({"calls": 1})] {
        let answered = step(&gateway, "ann", request(limits)).await;
        assert_eq!(answered.json()["result"]["error"]["limit"], "calls", "{}", answered.text);
    }
    for limits in [json!({"calls": 3}), json!({"fuel": 1_000_000_000_000_u64})] {
        let answered = step(&gateway, "ann", request(limits)).await;
        assert_eq!(answered.status, 400);
        assert!(answered.text.contains("is more than is allowed here; ask for at most"), "{}", answered.text);
    }

    options.step.enabled = Some(false);
    options.demo_model = Some(false);
    let gateway = RunningGateway::start(options).await;
    let off = step(&gateway, "ann", request(json!({}))).await;
    assert_eq!(off.status, 404);
    assert!(off.text.contains("step.enabled"), "{}", off.text);
    let mut request = ask("hi");
    request["model"] = json!("demo");
    post_with(&gateway.url, &request, &[("authorization", "Bearer ann")]).await;
    assert_eq!(model.asked()[0]["model"], "demo", "the name is free for an upstream");
}
