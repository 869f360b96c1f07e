//! A model that answers at once, and gateways in front of it, each on a port of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use dacapo_gateway::{Gateway, Options, UpstreamOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub(crate) const PROGRAM: &str = include_str!("../../programs/five_rounds.ts");
/// A client's header that says what the model shall answer, so that it need not read the request.
pub(crate) const ANSWER_HEADER: &str = "x-answer";
pub(crate) const SAID: &str = "The best customer is Ada.";

pub(crate) struct Servers {
    pub model: SocketAddr,
    pub gateway: SocketAddr,
    /// The same without warm programs.
    pub cold: SocketAddr,
    /// They run until it is dropped.
    _runtimes: [Runtime; 2],
}

impl Servers {
    pub(crate) fn start() -> anyhow::Result<Servers> {
        let models = Builder::new_multi_thread().worker_threads(1).thread_name("model").enable_all().build()?;
        let gateways = Builder::new_multi_thread().thread_name("gateway").enable_all().build()?;
        let listener = models.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let model = listener.local_addr()?;
        models.spawn(async move { axum::serve(listener, model_routes()).await });
        let gateway = start_gateway(&gateways, model, None)?;
        let cold = start_gateway(&gateways, model, Some(0))?;
        Ok(Servers { model, gateway, cold, _runtimes: [models, gateways] })
    }
}

fn start_gateway(runtime: &Runtime, model: SocketAddr, programs_max: Option<u32>) -> anyhow::Result<SocketAddr> {
    let mut options = Options { secret: Some("a secret for this run only".to_owned()), ..Options::default() };
    options.warm.programs_max = programs_max;
    options.upstreams.push(UpstreamOptions {
        name: "bench".to_owned(),
        models: vec!["*".to_owned()],
        base_url: Some(format!("http://{model}/v1")),
        ..UpstreamOptions::default()
    });
    let gateway = Gateway::new(options.resolve(&BTreeMap::new())?)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(dacapo_gateway::serve(gateway, listener, std::future::pending()));
    Ok(address)
}

fn model_routes() -> Router {
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    let arguments = json!({"code": PROGRAM}).to_string();
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "execute", "arguments": arguments}});
    let program = after_id(&json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls");
    let text = after_id(&json!({"role": "assistant", "content": SAID}), "stop");
    let answer = move |headers: HeaderMap, body: Bytes| async move {
        // A new id each time: it is where programs have their chance from.
        let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
        let rest = match headers.get(ANSWER_HEADER).map(axum::http::HeaderValue::as_bytes) {
            Some(b"program") => program,
            Some(b"echo") => last_content(&body),
            _ => text,
        };
        ([("content-type", "application/json")], format!(r#"{{"id":"chatcmpl-{number:024}",{rest}"#))
    };
    Router::new().route("/v1/chat/completions", post(answer))
}

/// An answer but for its id.
fn after_id(message: &Value, finish_reason: &str) -> String {
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason});
    let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 200, "total_tokens": 1_200});
    let body = json!({"object": "chat.completion", "created": 1_767_225_600, "model": "bench", "choices": [choice], "usage": usage});
    body.to_string()[1..].to_owned()
}

fn last_content(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    after_id(&json!({"role": "assistant", "content": last.map(|message| &message["content"])}), "stop")
}
