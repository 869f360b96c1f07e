//! Requests as OpenTelemetry traces: the request, the calls of models in it, the runs of programs, and their calls.
//!
//! Spans are made of events, and hold what events hold: names, figures and outcomes, and nothing of the conversation.

mod exporter;
mod grpc;
mod otlp;
mod settings;
mod trace_context;

pub(crate) use exporter::TraceExporter;
pub(crate) use settings::TraceSettings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use dacapo_wire::{AppliedMode, Wire};

use self::otlp::{AnyValue, KeyValue, Span, SpanStatus, any_value};
use self::settings::Sampler;
use self::trace_context::{SpanId, TraceContext, new_ids, new_span_id};
use super::{CallOutcome, Event, EventConsumer, RequestInfo, RequestOutcome};

pub(crate) use self::trace_context::{TRACEPARENT, TRACESTATE};

/// Makes spans of events, and hands them to the exporter when their request has ended.
#[derive(Debug)]
pub(crate) struct Traces(pub Arc<TraceExporter>);

/// The trace of one request, as far as it has come.
#[derive(Debug)]
pub(crate) struct RequestTrace(Mutex<OpenTrace>);

#[derive(Debug)]
struct OpenTrace {
    context: TraceContext,
    /// Of the request itself.
    root: SpanId,
    started: u64,
    /// The call of a model that is being waited for.
    model_call: Option<Span>,
    /// The run of a program, which ends with the request if it waits for calls.
    program: Option<Span>,
    /// Spans that have ended, and calls that end with the request.
    spans: Vec<Span>,
}

impl RequestTrace {
    /// Goes on with the trace that the client's headers name, or begins one.
    fn start(headers: &HeaderMap, sampler: Sampler) -> RequestTrace {
        let given = TraceContext::of(headers);
        let (new, root) = new_ids();
        let id = given.as_ref().map_or(new, |given| given.trace);
        let is_sampled = sampler.samples(id, given.as_ref().map(|given| given.is_sampled));
        let context = TraceContext {
            trace: id,
            parent: given.as_ref().and_then(|given| given.parent),
            state: given.map(|given| given.state).unwrap_or_default(),
            is_sampled,
        };
        let started = now();
        RequestTrace(Mutex::new(OpenTrace {
            context,
            root,
            started,
            model_call: None,
            program: None,
            spans: Vec::new(),
        }))
    }

    /// The headers for an upstream request: its spans are children of the open span.
    pub(crate) fn headers(&self) -> Vec<(&'static str, HeaderValue)> {
        let trace = self.lock();
        let open = trace.model_call.as_ref().or(trace.program.as_ref());
        let span = open.and_then(|span| SpanId::try_from(span.span_id.as_slice()).ok()).unwrap_or(trace.root);
        trace.context.headers(span)
    }

    fn lock(&self) -> MutexGuard<'_, OpenTrace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenTrace {
    fn span(&self, name: String, kind: otlp::SpanKind, parent: Option<SpanId>) -> Span {
        Span {
            trace_id: self.context.trace.to_vec(),
            span_id: new_span_id().to_vec(),
            trace_state: self.context.state.clone(),
            parent_span_id: parent.map(|parent| parent.to_vec()).unwrap_or_default(),
            name,
            kind: kind as i32,
            start_time_unix_nano: now(),
            ..Span::default()
        }
    }

    /// The span of the program that runs now.
    fn program(&mut self) -> &mut Span {
        if self.program.is_none() {
            self.program = Some(self.span("run_program".to_owned(), otlp::SpanKind::Internal, Some(self.root)));
        }
        self.program.as_mut().expect("it was made just now")
    }

    fn end_program(&mut self, outcome: &'static str) {
        let Some(mut span) = self.program.take() else { return };
        span.attributes.push(attribute("dacapo.program.outcome", outcome));
        if !matches!(outcome, "success" | "paused") {
            span.fail(outcome);
        }
        self.end(span);
    }

    fn end_model_call(&mut self, tokens: Option<(u64, u64)>, failure: Option<String>) {
        let Some(mut span) = self.model_call.take() else { return };
        if let Some((input, output)) = tokens {
            span.attributes.push(attribute("gen_ai.usage.input_tokens", input));
            span.attributes.push(attribute("gen_ai.usage.output_tokens", output));
        }
        if let Some(failure) = failure {
            span.fail(&failure);
        }
        self.end(span);
    }

    fn end(&mut self, span: Span) {
        self.spans.push(Span { end_time_unix_nano: now(), ..span });
    }

    /// The spans of the request, with its own as the last.
    fn finish(&mut self, request: &RequestInfo, wire: Wire, outcome: &RequestOutcome) -> Vec<Span> {
        self.end_model_call(None, Some("left".to_owned()));
        self.end_program(if matches!(outcome, RequestOutcome::Calls) { "paused" } else { "unfinished" });
        let ended = now();
        for span in self.spans.iter_mut().filter(|span| span.end_time_unix_nano == 0) {
            span.end_time_unix_nano = ended;
        }
        let summary = request.summary();
        let mut root = self.span(format!("POST {}", request.route), otlp::SpanKind::Server, self.context.parent);
        root.span_id = self.root.to_vec();
        root.start_time_unix_nano = self.started;
        let (name, status, failure) = outcome.parts();
        root.attributes = vec![
            attribute("http.request.method", "POST"),
            attribute("http.route", request.route),
            attribute("dacapo.request_id", request.id.as_str()),
            attribute("dacapo.wire", wire.name()),
            attribute("dacapo.mode", summary.mode.map_or("off", AppliedMode::name)),
            attribute("dacapo.outcome", name),
        ];
        if !summary.client.is_empty() {
            root.attributes.push(attribute("dacapo.client", summary.client.as_str()));
        }
        if !summary.model.is_empty() {
            root.attributes.push(attribute("gen_ai.request.model", summary.model.as_str()));
        }
        if let Some(status) = status {
            root.attributes.push(attribute("http.response.status_code", u64::from(status.as_u16())));
        }
        let is_fault = status.is_some_and(|status| status.is_server_error());
        if let Some(failure) = failure.filter(|_| is_fault) {
            root.fail(failure);
        } else if let Some(failure) = failure {
            root.attributes.push(attribute("error.type", failure));
        }
        self.end(root);
        std::mem::take(&mut self.spans)
    }
}

impl Span {
    fn fail(&mut self, kind: &str) {
        self.attributes.push(attribute("error.type", kind));
        self.status = Some(SpanStatus { code: otlp::STATUS_ERROR, ..SpanStatus::default() });
    }
}

impl EventConsumer for Traces {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        // Pages, health and figures are no requests of clients.
        let Some(wire) = request.wire else { return };
        if let Event::RequestStarted { headers } = event {
            drop(request.trace.set(RequestTrace::start(headers, self.0.settings.sampler)));
            return;
        }
        let Some(mut trace) = request.trace.get().map(RequestTrace::lock).filter(|trace| trace.context.is_sampled)
        else {
            return;
        };
        match event {
            Event::ModelAsked { upstream } => {
                let summary = request.summary();
                let model = summary.model.as_str();
                let name = if model.is_empty() { "chat".to_owned() } else { format!("chat {model}") };
                let mut span = trace.span(name, otlp::SpanKind::Client, Some(trace.root));
                span.attributes = vec![
                    attribute("gen_ai.operation.name", "chat"),
                    attribute("gen_ai.provider.name", *upstream),
                    attribute("gen_ai.request.model", model),
                ];
                trace.model_call = Some(span);
            }
            Event::ModelResponded { status, .. } => {
                let status = attribute("http.response.status_code", u64::from(status.as_u16()));
                if let Some(span) = &mut trace.model_call {
                    span.attributes.push(status);
                }
            }
            Event::ModelUnreachable { .. } => trace.end_model_call(None, Some("unreachable".to_owned())),
            Event::ModelRetried { status, .. } => trace.end_model_call(None, failure(*status)),
            Event::ModelFinished { status, tokens } => trace.end_model_call(*tokens, failure(*status)),
            Event::ProgramStarted => _ = trace.program(),
            Event::CallsAnswered { count, .. } => {
                trace.program().attributes.push(attribute("dacapo.answers", *count as u64));
            }
            Event::ProgramPaused { calls } => {
                trace.program().attributes.push(attribute("dacapo.calls", *calls as u64));
            }
            Event::CallSent { tool } => {
                let parent = SpanId::try_from(trace.program().span_id.as_slice()).ok();
                let mut span = trace.span(format!("execute_tool {tool}"), otlp::SpanKind::Internal, parent);
                span.attributes = tool_attributes(tool, "client");
                trace.spans.push(span);
            }
            Event::CallExecuted { tool, outcome, took } => {
                let parent = SpanId::try_from(trace.program().span_id.as_slice()).ok();
                let mut span = trace.span(format!("execute_tool {tool}"), otlp::SpanKind::Client, parent);
                span.start_time_unix_nano = now().saturating_sub(took.as_nanos() as u64);
                span.attributes = tool_attributes(tool, "mcp");
                match outcome {
                    CallOutcome::Ok => {}
                    CallOutcome::Error => span.fail("tool_error"),
                    CallOutcome::Refused | CallOutcome::Unknown => span.fail(outcome.name()),
                }
                trace.end(span);
            }
            Event::ProgramFinished { outcome } => trace.end_program(outcome.name()),
            Event::RequestEnded { outcome } => {
                let spans = trace.finish(request, wire, outcome);
                drop(trace);
                self.0.send(spans);
            }
            _ => {}
        }
    }
}

fn tool_attributes(tool: &str, owner: &str) -> Vec<KeyValue> {
    vec![
        attribute("gen_ai.operation.name", "execute_tool"),
        attribute("gen_ai.tool.name", tool),
        attribute("dacapo.owner", owner),
    ]
}

fn failure(status: StatusCode) -> Option<String> {
    (status.is_client_error() || status.is_server_error()).then(|| status.as_str().to_owned())
}

fn attribute(key: &str, value: impl Into<any_value::Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
