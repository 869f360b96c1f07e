//! A model that answers at once, and gateways in front of it, each on a port of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::{MethodRouter, post};
use dacapo_gateway::{Environment, Gateway, GatewayOptions, UpstreamOptions};
use dacapo_wire::{Delivery, ProviderSide, Wire};
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
    /// The same, asking the model on this wire.
    pub by_wire: Vec<(Wire, SocketAddr)>,
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
        let gateway = start_gateway(&gateways, model, Wire::Chat, None)?;
        let cold = start_gateway(&gateways, model, Wire::Chat, Some(0))?;
        let start = |wire| anyhow::Ok((wire, start_gateway(&gateways, model, wire, None)?));
        let by_wire = Wire::ALL.into_iter().map(start).collect::<Result<_, _>>()?;
        Ok(Servers { model, gateway, cold, by_wire, _runtimes: [models, gateways] })
    }
}

fn start_gateway(
    runtime: &Runtime,
    model: SocketAddr,
    wire: Wire,
    programs_max: Option<u32>,
) -> anyhow::Result<SocketAddr> {
    let mut options =
        GatewayOptions { secret: Some("a secret for this run only".to_owned()), ..GatewayOptions::default() };
    options.warm.programs_max = programs_max;
    options.upstreams.push(UpstreamOptions {
        name: "bench".to_owned(),
        models: vec!["*".to_owned()],
        wires: Some(vec![wire.name().to_owned()]),
        base_url: Some(format!("http://{model}/v1")),
        ..UpstreamOptions::default()
    });
    let gateway = Gateway::new(options.resolve(&Environment::default())?)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(dacapo_gateway::serve(gateway, listener, std::future::pending()));
    Ok(address)
}

fn model_routes() -> Router {
    ProviderSide::ALL.into_iter().fold(Router::new(), |routes, provider| {
        let path = format!("/v1{}", provider.endpoint("", Delivery::Whole));
        routes.route(&path, model(provider.wire()))
    })
}

fn model(wire: Wire) -> MethodRouter {
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    let program = after_id(wire, &program(wire), "tool_calls");
    let text = after_id(wire, &text(wire, &json!(SAID)), "stop");
    let answer = move |headers: HeaderMap, body: Bytes| async move {
        // A new id each time: it is where programs have their chance from.
        let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
        let rest = match headers.get(ANSWER_HEADER).map(axum::http::HeaderValue::as_bytes) {
            Some(b"program") => program,
            Some(b"echo") => after_id(wire, &text_of(&body), "stop"),
            _ => text,
        };
        ([("content-type", "application/json")], format!(r#"{{"id":"answer-{number:024}",{rest}"#))
    };
    post(answer)
}

/// The program as each wire has it: a message, or its content, or output.
fn program(wire: Wire) -> Value {
    let input = json!({"code": PROGRAM});
    let arguments = input.to_string();
    match wire {
        Wire::Chat => {
            let function = json!({"name": "execute", "arguments": arguments});
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]})
        }
        Wire::Responses => {
            json!([{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "execute", "arguments": arguments, "status": "completed"}])
        }
        Wire::Messages => json!([{"type": "tool_use", "id": "toolu_1", "name": "execute", "input": input}]),
    }
}

fn text(wire: Wire, text: &Value) -> Value {
    match wire {
        Wire::Chat => json!({"role": "assistant", "content": text}),
        Wire::Responses => {
            let part = json!({"type": "output_text", "text": text, "annotations": []});
            json!([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}])
        }
        Wire::Messages => json!([{"type": "text", "text": text}]),
    }
}

/// An answer but for its id.
fn after_id(wire: Wire, said: &Value, finish_reason: &str) -> String {
    let body = match wire {
        Wire::Chat => {
            let choice = json!({"index": 0, "message": said, "finish_reason": finish_reason});
            let usage = json!({"prompt_tokens": 1_000, "completion_tokens": 200, "total_tokens": 1_200});
            json!({"object": "chat.completion", "created": 1_767_225_600, "model": "bench", "choices": [choice], "usage": usage})
        }
        Wire::Responses => {
            let usage = json!({"input_tokens": 1_000, "output_tokens": 200, "total_tokens": 1_200});
            json!({"object": "response", "created_at": 1_767_225_600, "model": "bench", "status": "completed", "output": said, "usage": usage})
        }
        Wire::Messages => {
            let reason = if finish_reason == "stop" { "end_turn" } else { "tool_use" };
            let usage = json!({"input_tokens": 1_000, "output_tokens": 200});
            json!({"type": "message", "role": "assistant", "model": "bench", "content": said, "stop_reason": reason, "stop_sequence": null, "usage": usage})
        }
    };
    body.to_string()[1..].to_owned()
}

fn text_of(body: &[u8]) -> Value {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let last = body["messages"].as_array().and_then(|messages| messages.last());
    text(Wire::Chat, last.map_or(&Value::Null, |message| &message["content"]))
}
