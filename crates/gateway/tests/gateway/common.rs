//! Real gateways on loopback, a scripted model behind them that remembers what it was asked, and a plain client.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use dacapo_gateway::{Config, Environment, Gateway, GatewayOptions, UpstreamOptions, serve_with_reloads};
use dacapo_scripted::{ReplyEnding, ScriptedModel};
use dacapo_wire::Wire;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "a secret of at least 16 characters";

/// A provider played from a script, over real HTTP.
pub(crate) struct Model {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Value>>>,
    /// Path with query, and key, of every request.
    pub(crate) addressed: Arc<Mutex<Vec<(String, String)>>>,
    /// `anthropic-beta` of every request that has it.
    pub(crate) betas: Arc<Mutex<Vec<String>>>,
    /// `traceparent` and `tracestate` of every request that has them.
    traces: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Model {
    pub(crate) async fn start(script: &str) -> Model {
        let script = ScriptedModel::parse(script).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let addressed: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let address = Arc::clone(&addressed);
        let betas: Arc<Mutex<Vec<String>>> = Arc::default();
        let beta = Arc::clone(&betas);
        let traces: Arc<Mutex<Vec<String>>> = Arc::default();
        let trace = Arc::clone(&traces);
        let router = Router::new()
            .route("/v1/chat/completions", post(async |state, body: Bytes| answer(Wire::Chat, state, &body)))
            .route("/v1/responses", post(async |state, body: Bytes| answer(Wire::Responses, state, &body)))
            .route("/v1/messages", post(async |state, body: Bytes| answer(Wire::Messages, state, &body)))
            .route("/v1/messages/count_tokens", post(count_tokens))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .layer(axum::middleware::map_request(move |request: Request<Body>| {
                let headers = request.headers();
                let key = headers.get("authorization").or_else(|| headers.get("x-api-key"));
                let key = key.map_or("", |key| key.to_str().unwrap());
                address.lock().unwrap().push((request.uri().to_string(), key.to_owned()));
                let said = request.headers().get("anthropic-beta");
                beta.lock().unwrap().extend(said.map(|value| value.to_str().unwrap().to_owned()));
                let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
                let said = [header("traceparent"), header("tracestate")];
                let said: Vec<&str> = said.into_iter().flatten().collect();
                trace.lock().unwrap().extend((!said.is_empty()).then(|| said.join(" ")));
                std::future::ready(request)
            }))
            .with_state((script, Arc::clone(&seen)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Model { url, seen, addressed, betas, traces, task }
    }

    /// The traces of the requests since the last time.
    pub(crate) fn traces(&self) -> Vec<String> {
        std::mem::take(&mut self.traces.lock().unwrap())
    }

    /// What it was asked since the last time.
    pub(crate) fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Played = (ScriptedModel, Arc<Mutex<Vec<Value>>>);

async fn count_tokens(State((script, _)): State<Played>, body: Bytes) -> axum::Json<Value> {
    axum::Json(script.count_tokens(&serde_json::from_slice(&body).unwrap()))
}

fn answer(wire: Wire, State((script, seen)): State<Played>, body: &[u8]) -> Response<Body> {
    let request: Value = serde_json::from_slice(body).unwrap();
    let reply = script.reply(wire, &request);
    seen.lock().unwrap().push(request);
    let cut = (reply.ending == ReplyEnding::Cut).then(|| Err(std::io::Error::other("cut")));
    let chunks = stream::iter(reply.chunks).then(|piece| async move {
        tokio::time::sleep(piece.delay).await;
        Ok(piece.bytes)
    });
    let mut response = Response::new(Body::from_stream(chunks.chain(stream::iter(cut))));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap();
    for (name, value) in reply.headers {
        response.headers_mut().insert(axum::http::HeaderName::try_from(name).unwrap(), value.try_into().unwrap());
    }
    response
}

/// A gateway that can be stopped at any moment.
pub(crate) struct RunningGateway {
    pub(crate) url: String,
    /// Replaces its configuration.
    pub(crate) configs: mpsc::Sender<Config>,
    task: JoinHandle<()>,
}

impl RunningGateway {
    pub(crate) async fn start(options: GatewayOptions) -> RunningGateway {
        let config = options.resolve(&Environment::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let gateway = Gateway::new(config).unwrap();
        let (configs, new_configs) = mpsc::channel(1);
        let serving = serve_with_reloads(gateway, listener, std::future::pending(), new_configs);
        let task = tokio::spawn(async move { serving.await.unwrap() });
        RunningGateway { url, configs, task }
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Redis on a port of its own, killed when it is dropped.
pub(crate) struct Redis(std::process::Child, pub(crate) String);

impl Redis {
    pub(crate) async fn start() -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let child = std::process::Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("run scripts/test-tools first: redis-server is missing");
        let redis = Redis(child, format!("redis://127.0.0.1:{port}/0"));
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Everything goes to this model.
pub(crate) fn options(model: &Model) -> GatewayOptions {
    let mut options = GatewayOptions { secret: Some(SECRET.to_owned()), ..GatewayOptions::default() };
    options.warm.programs_max = Some(100);
    options.upstreams.push(UpstreamOptions {
        name: "model".to_owned(),
        models: vec!["*".to_owned()],
        wires: Some(Wire::ALL.iter().map(|wire| wire.name().to_owned()).collect()),
        base_url: Some(model.url.clone()),
        ..UpstreamOptions::default()
    });
    options
}

/// Status, headers and body of an answer.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The chunks of a stream, put together as a client would.
    pub(crate) fn streamed(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": null});
        let mut whole = json!({});
        let (mut calls, mut text, mut finish_reason) = (Vec::new(), String::new(), Value::Null);
        let mut messages = Vec::new();
        for line in self.text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]") {
            let chunk: Value = serde_json::from_str(line).unwrap();
            if chunk.get("error").is_some() {
                return chunk;
            }
            if let Some(usage) = chunk.get("usage") {
                whole["usage"] = usage.clone();
            }
            let delta = &chunk["choices"][0]["delta"];
            text.push_str(delta["content"].as_str().unwrap_or_default());
            calls.extend(delta["tool_calls"].as_array().cloned().unwrap_or_default());
            messages.extend(delta.get("message").cloned());
            if let Some(reasoning) = delta["reasoning_content"].as_str() {
                let so_far = message["reasoning_content"].as_str().unwrap_or_default();
                message["reasoning_content"] = json!(format!("{so_far}{reasoning}"));
            }
            if let reason @ Value::String(_) = &chunk["choices"][0]["finish_reason"] {
                finish_reason = reason.clone();
            }
        }
        if !text.is_empty() {
            message["content"] = json!(text);
        }
        if !calls.is_empty() {
            for call in &mut calls {
                call.as_object_mut().unwrap().shift_remove("index");
            }
            message["tool_calls"] = json!(calls);
        }
        whole["choices"] = json!([{"message": message, "finish_reason": finish_reason}]);
        if !messages.is_empty() {
            whole["choices"][0]["messages"] = json!(messages);
        }
        whole
    }
}

pub(crate) async fn post_json(url: &str, body: &Value) -> HttpResponse {
    post_with(url, body, &[]).await
}

pub(crate) async fn post_with(url: &str, body: &Value, headers: &[(&str, &str)]) -> HttpResponse {
    send_to(&format!("{url}/chat/completions"), body, headers).await
}

/// To any address.
pub(crate) async fn post_to(url: &str, body: &Value) -> HttpResponse {
    send_to(url, body, &[]).await
}

pub(crate) async fn send_to(url: &str, body: &Value, headers: &[(&str, &str)]) -> HttpResponse {
    // Loading the system's certificates takes longer than all the rest.
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let mut request = client.post(url).body(body.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    HttpResponse { status, headers, text: response.text().await.unwrap_or_else(|error| format!("broken: {error}")) }
}

/// A request of a Chat Completions client that can search the web.
pub(crate) fn ask(user: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": user}], "tools": [tool("web_search", &["query"])]})
}

/// A function tool with string parameters.
pub(crate) fn tool(name: &str, parameters: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "function", "function": {
        "name": name,
        "description": format!("Does {name}."),
        "parameters": {"type": "object", "properties": properties, "required": parameters},
    }})
}
