//! Streams while a model is silent: nobody between the client and the gateway may take the connection for dead.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Response;
use dacapo_gateway::{GatewayOptions, UpstreamOptions};
use dacapo_scripted::ScriptedModel;
use dacapo_wire::Wire;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::client_conversation::ClientConversation;
use crate::common::{RunningGateway, SECRET};

const SCRIPT: &str = r#"
[[turn]]
when = { user = "refused" }
error = { status = 429, message = "Slow down.", type = "rate_limit_error" }

[[turn]]
program = "return await web_search({ query: 'a long program, of which the client sees nothing while it is written' });"
chunk_chars = 5
"#;

/// A model that goes on only when it is let.
struct HeldModel {
    url: String,
    gate: Arc<Semaphore>,
}

/// When it stops to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// Before it says whether it will answer.
    BeforeHeaders,
    /// While it writes the program.
    InTheMiddle,
}

impl HeldModel {
    async fn start(held: Held) -> HeldModel {
        let gate = Arc::new(Semaphore::new(0));
        let script = ScriptedModel::parse(SCRIPT).unwrap();
        let router = Router::new().fallback(answer).with_state((script, Arc::clone(&gate), held));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        HeldModel { url, gate }
    }

    fn options(&self, wire: Wire) -> GatewayOptions {
        let mut options = GatewayOptions { secret: Some(SECRET.to_owned()), ..GatewayOptions::default() };
        options.timeouts.keep_alive_seconds = Some(1);
        options.upstreams.push(UpstreamOptions {
            name: "held".to_owned(),
            models: vec!["*".to_owned()],
            wires: Some(vec![wire.name().to_owned()]),
            base_url: Some(self.url.clone()),
            ..UpstreamOptions::default()
        });
        options
    }
}

async fn answer(
    State((script, gate, held)): State<(ScriptedModel, Arc<Semaphore>, Held)>,
    request: Request<Body>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let wire = Wire::ALL.into_iter().find(|wire| path.ends_with(crate::client_conversation::path(*wire))).unwrap();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let reply = script.reply(wire, &serde_json::from_slice::<Value>(&body).unwrap());
    let middle = reply.chunks.len() / 2;
    if held == Held::BeforeHeaders {
        gate.acquire().await.unwrap().forget();
    }
    let chunks = stream::iter(reply.chunks.into_iter().enumerate()).then(move |(at, piece)| {
        let gate = Arc::clone(&gate);
        async move {
            if held == Held::InTheMiddle && at == middle {
                gate.acquire().await.unwrap().forget();
            }
            Ok::<Bytes, std::io::Error>(piece.bytes)
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    *response.status_mut() = reply.status.try_into().unwrap();
    for (name, value) in reply.headers {
        response.headers_mut().insert(axum::http::HeaderName::try_from(name).unwrap(), value.try_into().unwrap());
    }
    response
}

/// A response of which nothing but its headers may be there.
async fn send(url: &str, conversation: &ClientConversation) -> reqwest::Response {
    let (path, body) = conversation.request();
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    client.post(format!("{url}{path}")).body(body.to_string()).send().await.unwrap()
}

/// Reads on until a line starts so, and returns all that has come.
async fn read_until(response: &mut reqwest::Response, start: &str) -> String {
    let mut text = String::new();
    while !text.lines().any(|line| line.starts_with(start)) {
        let piece = response.chunk().await.unwrap().unwrap_or_else(|| panic!("no `{start}` in {text}"));
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    text
}

fn asking(wire: Wire, user: &str) -> ClientConversation {
    let mut conversation = ClientConversation::new(wire, &[("web_search", &["query"])]);
    conversation.extra = json!({"stream": true});
    conversation.user(user);
    conversation
}

const COMMENT: &str = ": keep-alive";

/// How a stream of the wire begins, and what it says in a silence after that.
fn signs_of_life(wire: Wire) -> (&'static str, &'static str) {
    match wire {
        Wire::Chat => ("data: ", COMMENT),
        Wire::Responses => ("event: response.created", "event: response.in_progress"),
        Wire::Messages => ("event: message_start", "event: ping"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_model_writes_a_program_its_client_gets_signs_of_life() {
    let model = HeldModel::start(Held::InTheMiddle).await;
    for upstream in Wire::ALL {
        let gateway = RunningGateway::start(model.options(upstream)).await;
        for wire in Wire::ALL {
            let pair = format!("{wire} client, {upstream} model");
            let mut conversation = asking(wire, "Go on.");
            let mut response = send(&gateway.url, &conversation).await;
            assert_eq!(response.status(), 200, "{pair}");
            let (opening, sign) = signs_of_life(wire);
            let mut text = read_until(&mut response, opening).await;
            assert!(text.starts_with(opening), "{pair}: {text}");
            // Twice: every few seconds.
            for _ in 0..2 {
                text.push_str(&read_until(&mut response, sign).await);
            }
            assert!(
                !text.contains("arguments") && !text.contains("tool_use"),
                "{pair}: the program is not written: {text}"
            );
            model.gate.add_permits(1);
            while let Some(piece) = response.chunk().await.unwrap() {
                text.push_str(std::str::from_utf8(&piece).unwrap());
            }
            let answered = conversation.read_response(&text);
            assert_eq!(answered.calls.len(), 1, "{pair}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_thinks_before_it_says_anything_keeps_no_client_waiting_for_headers() {
    let model = HeldModel::start(Held::BeforeHeaders).await;
    for wire in Wire::ALL {
        let gateway = RunningGateway::start(model.options(Wire::Chat)).await;
        let mut conversation = asking(wire, "Go on.");
        let mut response = send(&gateway.url, &conversation).await;
        // Clients expect their stream to begin with another event, so it is a comment on every wire.
        let mut text = read_until(&mut response, COMMENT).await;
        assert_eq!(text, format!("{COMMENT}\n\n"), "{wire}");
        model.gate.add_permits(1);
        text = response.text().await.unwrap();
        let answered = conversation.read_response(&text);
        assert_eq!(answered.calls.len(), 1, "{wire}: {text}");

        let mut refused = send(&gateway.url, &asking(wire, "refused")).await;
        assert_eq!(refused.status(), 200, "{wire}: it was not known");
        read_until(&mut refused, COMMENT).await;
        model.gate.add_permits(1);
        let text = refused.text().await.unwrap();
        assert!(text.contains("Slow down.") && text.contains("rate_limit"), "{wire}: {text}");
    }
}
