//! A model that answers at once, and gateways in front of it, each on a port of its own.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::{MethodRouter, post};
use axum::serve::ListenerExt;
use dacapo_gateway::{Environment, Gateway, GatewayOptions, UpstreamOptions};
use dacapo_wire::{Delivery, ProviderSide, Wire};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::sample::memory_kb_of;
use crate::work;

/// A client's header that says what the model shall answer, so that it need not read the request.
pub(crate) const ANSWER_HEADER: &str = "x-answer";
/// A client's header that makes the model stream its answer, on Chat Completions.
pub(crate) const STREAM_HEADER: &str = "x-stream";
/// Name of the threads that gateways run on.
pub(crate) const GATEWAY_THREADS: &str = "gateway";
/// Name of the threads that the empty proxy runs on.
pub(crate) const PROXY_THREADS: &str = "empty-proxy";
/// What every token of a paced stream begins with.
pub(crate) const FIRST_TOKEN: &str = "token-";
pub(crate) const SAID: &str = "The best customer is Ada.";

/// The model alone. It runs until it is dropped.
pub(crate) struct Model {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Model {
    pub(crate) fn start() -> anyhow::Result<Model> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("model").enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        // Like providers: otherwise every stream waits for a delayed acknowledgement.
        let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap_or_default());
        runtime.spawn(async move { axum::serve(listener, model_routes()).await });
        Ok(Model { address, _runtime: runtime })
    }
}

pub(crate) struct Servers {
    pub model: SocketAddr,
    pub gateway: SocketAddr,
    /// The same without warm programs.
    pub cold: SocketAddr,
    /// The same, with all observing on.
    pub observing: SocketAddr,
    /// The same, asking the model on this wire.
    pub by_wire: Vec<(Wire, SocketAddr)>,
    /// Made of the HTTP libraries that the gateway is made of, and forwards everything, for comparison.
    pub empty_proxy: SocketAddr,
    /// They run until it is dropped.
    _model: Model,
    _runtimes: [Runtime; 2],
}

impl Servers {
    pub(crate) fn start() -> anyhow::Result<Servers> {
        let gateways = Builder::new_multi_thread().thread_name(GATEWAY_THREADS).enable_all().build()?;
        let server = Model::start()?;
        let model = server.address;
        let gateway = start_gateway(&gateways, model, Wire::Chat, None, Observing::Off)?;
        let cold = start_gateway(&gateways, model, Wire::Chat, Some(0), Observing::Off)?;
        let observing = start_gateway(&gateways, model, Wire::Chat, None, Observing::On)?;
        let start = |wire| anyhow::Ok((wire, start_gateway(&gateways, model, wire, None, Observing::Off)?));
        let by_wire = Wire::ALL.into_iter().map(start).collect::<Result<_, _>>()?;
        let proxies = Builder::new_multi_thread().thread_name(PROXY_THREADS).enable_all().build()?;
        let empty_proxy = start_empty_proxy(&proxies, model)?;
        let runtimes = [gateways, proxies];
        Ok(Servers { model, gateway, cold, observing, by_wire, empty_proxy, _model: server, _runtimes: runtimes })
    }
}

/// A gateway in a process of its own, where nothing else takes memory. It runs until it is dropped.
pub(crate) struct LoneGateway {
    pub address: SocketAddr,
    process: Child,
}

impl LoneGateway {
    pub(crate) fn start(model: SocketAddr) -> anyhow::Result<LoneGateway> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", &model.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("it has a stdout")?).read_line(&mut line)?;
        Ok(LoneGateway { address: line.trim().parse()?, process })
    }

    pub(crate) fn memory_kb(&self) -> u64 {
        memory_kb_of(self.process.id())
    }
}

impl Drop for LoneGateway {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().unwrap_or_default();
        drop(self.process.wait());
    }
}

/// What the process of a [`LoneGateway`] does: says where it listens, and serves until nobody waits for it.
pub(crate) fn serve_alone(model: &str) -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread().thread_name(GATEWAY_THREADS).enable_all().build()?;
    println!("{}", start_gateway(&runtime, model.parse()?, Wire::Chat, None, Observing::Off)?);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Whether a gateway records conversations and exports traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Observing {
    On,
    Off,
}

fn start_gateway(
    runtime: &Runtime,
    model: SocketAddr,
    wire: Wire,
    programs_max: Option<u32>,
    observing: Observing,
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
    options.inspector.enabled = Some(observing == Observing::On);
    let collector = format!("http://{model}");
    let traces = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.01"),
    ];
    let environment = match observing {
        Observing::On => Environment::from(traces),
        Observing::Off => Environment::default(),
    };
    let gateway = Gateway::new(options.resolve(&environment)?)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(dacapo_gateway::serve(gateway, listener, std::future::pending()));
    Ok(address)
}

fn start_empty_proxy(runtime: &Runtime, model: SocketAddr) -> anyhow::Result<SocketAddr> {
    let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
    let forward = move |uri: Uri, headers: HeaderMap, body: Bytes| async move {
        let sent = client.post(format!("http://{model}{uri}")).headers(headers).body(body).send();
        let response = sent.await.map_err(|_error| StatusCode::BAD_GATEWAY)?;
        let returned = [CONTENT_TYPE, CONTENT_LENGTH].into_iter();
        let returned = returned.filter_map(|name| Some((name.clone(), response.headers().get(name)?.clone())));
        let (status, headers): (_, HeaderMap) = (response.status(), returned.collect());
        Ok::<_, StatusCode>((status, headers, Body::from_stream(response.bytes_stream())))
    };
    let routes = Router::new().fallback(post(forward)).layer(DefaultBodyLimit::disable());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap_or_default());
    runtime.spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

fn model_routes() -> Router {
    // It takes traces too.
    let routes = Router::new().route("/v1/traces", post(|| async {}));
    ProviderSide::ALL.into_iter().fold(routes, |routes, provider| {
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
        let header = |name| headers.get(name).map_or(&b""[..], axum::http::HeaderValue::as_bytes);
        let answer = header(ANSWER_HEADER);
        let pace = match header(STREAM_HEADER) {
            b"" => None,
            b"paced" => Some(Duration::from_millis(2)),
            _ => Some(Duration::ZERO),
        };
        if let Some(pace) = pace {
            let events = stream_events(number, answer == b"program", pace);
            return ([("content-type", "text/event-stream")], Body::from_stream(events));
        }
        let rest = match answer {
            b"program" => program.replace(NO_NUMBER, &format!("{number:024}")),
            b"echo" => after_id(wire, &text_of(&body), "stop"),
            _ => text,
        };
        let body = format!(r#"{{"id":"answer-{number:024}",{rest}"#);
        ([("content-type", "application/json")], Body::from(body))
    };
    post(answer)
}

/// The events of an answer on Chat Completions: a program, or a text, token by token.
fn stream_events(
    number: u64,
    is_program: bool,
    pace: Duration,
) -> impl Stream<Item = Result<String, Infallible>> + Send {
    let chunk = move |delta: Value, finish_reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        json!({"id": format!("answer-{number:024}"), "object": "chat.completion.chunk", "created": 1_767_225_600, "model": "bench", "choices": [choice]})
    };
    let deltas: Vec<Value> = if is_program {
        let code = code(&format!("{number:024}"));
        let function = json!({"name": "execute", "arguments": json!({"code": code}).to_string()});
        vec![json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})]
    } else if pace.is_zero() {
        vec![json!({"content": SAID})]
    } else {
        (0..40).map(|number| json!({"content": format!("{FIRST_TOKEN}{number} and so on. ")})).collect()
    };
    let finish_reason = if is_program { "tool_calls" } else { "stop" };
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": null}), Value::Null)];
    chunks.extend(deltas.into_iter().map(|delta| chunk(delta, Value::Null)));
    chunks.push(chunk(json!({}), json!(finish_reason)));
    let mut events: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    events.push("data: [DONE]\n\n".to_owned());
    if pace.is_zero() {
        events = vec![events.concat()];
    }
    stream::iter(events).then(move |event| async move {
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        Ok(event)
    })
}

/// Stands for the number of the answer.
const NO_NUMBER: &str = "(the number of the answer)";

/// A program that nobody has written before, as from a real model.
fn code(number: &str) -> String {
    format!("{}// {number}\n", work::FIVE_ROUNDS)
}

/// The program as each wire has it: a message, or its content, or output.
fn program(wire: Wire) -> Value {
    let input = json!({"code": code(NO_NUMBER)});
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
