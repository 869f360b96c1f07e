//! Requests as traces, decoded by the messages that are generated from OpenTelemetry's specification.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use dacapo_gateway::{Environment, Gateway, GatewayOptions, StopRequest, serve};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::common::{Model, options, post_with, tool};

const SCRIPT: &str = r#"
[[turn]]
when = { user = "refuse" }
error = { status = 400, message = "no MARK-answer" }

[[turn]]
when = { user = "weather", after = "user" }
program = "const skies = await Promise.all(['MARK-Oslo', 'MARK-Rome'].map((city) => get_sky({ city }))); return skies.join();"

[[turn]]
when = { after = "tool" }
text = "MARK-answer {{result/data}}"
"#;

/// A collector that keeps what it gets.
#[derive(Clone, Default)]
struct Collector {
    bodies: Arc<Mutex<Vec<Bytes>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    async fn start(&self) -> String {
        let collector = self.clone();
        let take = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let mut bodies = collector.bodies.lock().unwrap();
            collector.keys.lock().unwrap().push(headers["x-key"].to_str().unwrap().to_owned());
            bodies.push(body);
            // It is busy at first.
            if bodies.len() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    /// The same over gRPC, whose statuses follow the response.
    async fn start_grpc(&self) -> String {
        let collector = self.clone();
        let take = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(
                (&headers["content-type"], &headers["te"]),
                (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
            );
            let (head, message) = body.split_at(5);
            assert_eq!((head[0], u32::from_be_bytes(head[1..].try_into().unwrap()) as usize), (0, message.len()));
            let mut bodies = collector.bodies.lock().unwrap();
            collector.keys.lock().unwrap().push(headers["x-key"].to_str().unwrap().to_owned());
            bodies.push(body.slice(5..));
            // It is not available at first.
            let status = if bodies.len() == 1 { "14" } else { "0" };
            Body::new(Trailers(Some(HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]))))
        };
        let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let service = TowerToHyperService::new(Router::new().route(method, post(take)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(connection), service.clone()));
            }
        });
        url
    }

    /// What was sent by a batch that was taken, with the resource's attributes in each span's place.
    fn spans(&self) -> Vec<Span> {
        let bodies = self.bodies.lock().unwrap();
        let requests = bodies.iter().skip(1).map(|body| ExportTraceServiceRequest::decode(body.clone()).unwrap());
        let resources: Vec<_> = requests.flat_map(|request| request.resource_spans).collect();
        for resource in &resources {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let named = attributes.iter().map(|it| (it.key.as_str(), text(it.value.as_ref().unwrap().value.as_ref())));
            let named: BTreeMap<_, _> = named.collect();
            assert_eq!((named["service.name"].as_str(), named["team"].as_str()), ("gate", "blue sky"));
        }
        resources.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans).collect()
    }
}

/// The end of a response, and nothing before it.
struct Trailers(Option<HeaderMap>);

impl HttpBody for Trailers {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}

fn text(value: Option<&Attribute>) -> String {
    match value {
        Some(Attribute::StringValue(text)) => text.clone(),
        Some(Attribute::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    span.attributes.iter().map(|it| (it.key.as_str(), text(it.value.as_ref().unwrap().value.as_ref()))).collect()
}

struct TracedGateway {
    url: String,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl TracedGateway {
    async fn start(options: GatewayOptions, variables: &[(&str, &str)]) -> TracedGateway {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let config = options.resolve(&Environment::new(variables)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            stopped.await.unwrap();
            StopRequest::Now
        };
        let gateway = Gateway::new(config).unwrap();
        let task = tokio::spawn(async move { serve(gateway, listener, stopped).await.unwrap() });
        TracedGateway { url, stop, task }
    }

    /// What is left is exported before the gateway ends.
    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap();
    }
}

fn question(user: &str) -> Value {
    json!({"model": "m-1", "messages": [{"role": "user", "content": user}], "tools": [tool("get_sky", &["city"])]})
}

/// A gateway that exports every trace to this collector.
async fn start_exporting(model: &Model, endpoint: &str, more: &[(&str, &str)]) -> TracedGateway {
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret%20key"),
        ("OTEL_SERVICE_NAME", "gate"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=blue%20sky"),
        ("OTEL_BSP_SCHEDULE_DELAY", "10"),
    ];
    variables.extend_from_slice(more);
    TracedGateway::start(options(model), &variables).await
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_trace_with_its_model_calls_programs_and_tool_calls() {
    let model = Model::start(SCRIPT).await;
    let collector = Collector::default();
    let gateway = start_exporting(&model, &collector.start().await, &[]).await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [("traceparent", parent.as_str()), ("tracestate", "other=1"), ("authorization", "Bearer MARK-key")];

    // A program starts and pauses.
    let mut request = question("weather");
    let first = post_with(&gateway.url, &request, &headers).await;
    let message = first.json()["choices"][0]["message"].clone();
    let passed = model.traces();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    for call in message["tool_calls"].as_array().unwrap() {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "MARK-cloudy"}));
    }
    // It goes on, in a trace of its own, because this request does not name one.
    post_with(&gateway.url, &request, &[("x-request-id", "second")]).await;
    // An upstream refuses.
    post_with(&gateway.url, &question("refuse"), &[]).await;
    // A caller that does not want to be traced is not, but its trace goes on.
    let unsampled = format!("00-{TRACE}-00f067aa0ba902b7-00");
    post_with(&gateway.url, &question("weather"), &[("traceparent", &unsampled)]).await;
    let unsampled = model.traces().pop().unwrap();
    gateway.stop().await;

    let spans = collector.spans();
    let of_trace = |id: &[u8]| spans.iter().filter(|span| span.trace_id == id).collect::<Vec<_>>();
    let find = |spans: &[&Span], name: &str| {
        let found: Vec<Span> = spans.iter().filter(|span| span.name == name).map(|span| (*span).clone()).collect();
        found
    };
    let id: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&TRACE[2 * at..2 * at + 2], 16).unwrap()).collect();
    let first = of_trace(&id);
    let mut names: Vec<&str> = first.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    let expected =
        ["POST /v1/chat/completions", "chat m-1", "execute_tool get_sky", "execute_tool get_sky", "run_program"];
    assert_eq!(names, expected);
    let root = &find(&first, "POST /v1/chat/completions")[0];
    let (chat, program) = (&find(&first, "chat m-1")[0], &find(&first, "run_program")[0]);
    assert_eq!(root.parent_span_id, [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
    assert_eq!((&chat.parent_span_id, &program.parent_span_id), (&root.span_id, &root.span_id));
    for call in find(&first, "execute_tool get_sky") {
        assert_eq!(call.parent_span_id, program.span_id);
        assert_eq!(attributes(&call)["gen_ai.tool.name"], "get_sky");
    }
    for span in &first {
        assert_eq!(span.trace_state, "other=1");
        assert!(root.start_time_unix_nano <= span.start_time_unix_nano, "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{}", span.name);
        assert!(span.end_time_unix_nano <= root.end_time_unix_nano, "{}", span.name);
    }
    let of_chat = attributes(chat);
    assert_eq!(
        (of_chat["gen_ai.operation.name"].as_str(), of_chat["gen_ai.provider.name"].as_str()),
        ("chat", "model")
    );
    assert!(of_chat["gen_ai.usage.input_tokens"].parse::<u64>().unwrap() > 100, "{of_chat:?}");
    assert!(of_chat["gen_ai.usage.output_tokens"].parse::<u64>().unwrap() > 10, "{of_chat:?}");
    assert_eq!(attributes(program)["dacapo.program.outcome"], "paused");
    assert_eq!((root.kind, chat.kind), (2, 3));
    let of_root = attributes(root);
    assert_eq!((of_root["http.response.status_code"].as_str(), of_root["dacapo.outcome"].as_str()), ("200", "calls"));
    // The model got the trace, as a child of its own span.
    let id = u64::from_be_bytes(chat.span_id.as_slice().try_into().unwrap());
    assert_eq!(passed, [format!("00-{TRACE}-{id:016x}-01 other=1")]);

    // The second request runs the program again, and repeats no call of it.
    let second = spans.iter().find(|span| attributes(span).get("dacapo.request_id").is_some_and(|id| id == "second"));
    let second = of_trace(&second.unwrap().trace_id);
    let mut names: Vec<&str> = second.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["POST /v1/chat/completions", "chat m-1", "run_program"]);
    assert_eq!(attributes(&find(&second, "run_program")[0])["dacapo.program.outcome"], "success");

    let refused = spans.iter().find(|span| attributes(span).get("error.type").is_some_and(|kind| kind == "400"));
    assert_eq!((refused.unwrap().name.as_str(), refused.unwrap().status.as_ref().unwrap().code), ("chat m-1", 2));

    assert_eq!(spans.iter().filter(|span| span.kind == 2).count(), 3, "one trace was not wanted");
    assert!(unsampled.starts_with(&format!("00-{TRACE}-")) && unsampled.ends_with("-00"), "{unsampled}");
    assert!(collector.keys.lock().unwrap().iter().all(|key| key == "secret key"));
    let bodies = collector.bodies.lock().unwrap();
    assert!(bodies.iter().all(|body| !body.windows(4).any(|part| part == b"MARK")), "spans hold nothing that was said");
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_reach_a_collector_that_speaks_grpc() {
    let model = Model::start(SCRIPT).await;
    let collector = Collector::default();
    let gateway =
        start_exporting(&model, &collector.start_grpc().await, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).await;
    post_with(&gateway.url, &question("weather"), &[]).await;
    // It tries again while the gateway runs on.
    while collector.bodies.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.stop().await;
    let mut names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
    names.sort_unstable();
    let calls = ["execute_tool get_sky", "execute_tool get_sky"];
    assert_eq!(names, [&["POST /v1/chat/completions", "chat m-1"], &calls[..], &["run_program"]].concat());
    assert_eq!(*collector.keys.lock().unwrap(), ["secret key", "secret key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tracing_a_trace_passes_through() {
    let model = Model::start(SCRIPT).await;
    let gateway = TracedGateway::start(options(&model), &[]).await;
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    post_with(&gateway.url, &question("weather"), &[("traceparent", &parent), ("tracestate", "other=1")]).await;
    assert_eq!(model.traces(), [format!("{parent} other=1")]);
    gateway.stop().await;
}
