//! The operator's key and account: clients neither see nor choose them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use dacapo_gateway::{Environment, Gateway, GatewayOptions, UpstreamOptions, serve};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{send_to, tool};

const KEY: &str = "sk-the-operators-own-key";

type Seen = Arc<Mutex<Vec<HeaderMap>>>;

/// An upstream that remembers headers, and repeats the key that it got in errors.
async fn start(key: Option<&str>) -> (String, Seen) {
    let seen = Seen::default();
    let headers_seen = Arc::clone(&seen);
    let answer = async move |headers: HeaderMap, body: Bytes| {
        let request: Value = serde_json::from_slice(&body).unwrap();
        let key = headers["authorization"].to_str().unwrap().trim_start_matches("Bearer ").to_owned();
        headers_seen.lock().unwrap().push(headers);
        let error = json!({"error": {"message": format!("the key {key} is not valid"), "type": "server_error"}});
        let response = Response::builder()
            .header("x-key", &key)
            .header("openai-organization", "org-of-operator")
            .header("connection", "x-hop")
            .header("x-hop", "1");
        match request["model"].as_str().unwrap() {
            "refused" => {
                // The key comes in two pieces.
                let text = error.to_string();
                let (before, after) = text.split_at(text.find(&key).unwrap() + 5);
                let pieces = [before.to_owned(), after.to_owned()].map(Ok::<_, std::io::Error>);
                response
                    .status(401)
                    .header("content-type", "application/json")
                    .body(Body::from_stream(stream::iter(pieces)))
            }
            "broken" if request["stream"] == true => {
                let event = format!("data: {error}\n\n");
                response.header("content-type", "text/event-stream").body(Body::from(event))
            }
            _ => response.header("content-type", "application/json").body(Body::from(error.to_string())),
        }
        .unwrap()
    };
    let router = Router::new().fallback(answer);
    let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = GatewayOptions::default();
    options.upstreams.push(UpstreamOptions {
        name: "upstream".to_owned(),
        models: vec!["*".to_owned()],
        base_url: Some(format!("http://{}/v1", upstream.local_addr().unwrap())),
        api_key_env: key.map(|_| "KEY".to_owned()),
        ..UpstreamOptions::default()
    });
    let environment = Environment::new(key.map(|key| ("KEY".into(), key.into())));
    let gateway = Gateway::new(options.resolve(&environment).unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(upstream, router).await.unwrap() });
    tokio::spawn(serve(gateway, listener, std::future::pending()));
    (url, seen)
}

fn ask(model: &str, stream: bool) -> Value {
    json!({"model": model, "stream": stream, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}],
        "tools": [tool("web_search", &["query"])]})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_key_that_an_upstream_repeats_is_masked() {
    let (url, _) = start(Some(KEY)).await;
    for (path, mode) in [("chat/completions", "plain"), ("chat/completions", "off"), ("messages", "plain")] {
        for (model, stream) in [("refused", false), ("refused", true), ("broken", false), ("broken", true)] {
            let answered = send_to(&format!("{url}/{path}"), &ask(model, stream), &[("x-dacapo-mode", mode)]).await;
            let what = format!("{path} {mode} {model} {stream}: {} {:?}", answered.text, answered.headers);
            assert!(answered.text.contains("the key (hidden) is not valid"), "{what}");
            assert!(!what.contains(KEY) && !what.contains("org-of-operator") && !what.contains("x-hop"), "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_an_account_go_only_with_the_clients_own_key() {
    let sent = [
        ("authorization", "Bearer sk-of-the-client"),
        ("openai-organization", "org-1"),
        ("openai-project", "proj-1"),
        ("connection", "keep-alive, X-Hop"),
        ("x-hop", "1"),
        ("x-kept", "1"),
    ];
    for key in [None, Some(KEY)] {
        let (url, seen) = start(key).await;
        for mode in ["plain", "off"] {
            let mut sent = sent.to_vec();
            sent.push(("x-dacapo-mode", mode));
            send_to(&format!("{url}/chat/completions"), &ask("refused", false), &sent).await;
            let headers = seen.lock().unwrap().pop().unwrap();
            for name in ["openai-organization", "openai-project"] {
                assert_eq!(headers.contains_key(name), key.is_none(), "{name}");
            }
            assert!(headers.contains_key("x-kept") && !headers.contains_key("x-hop"), "{headers:?}");
        }
    }
}
