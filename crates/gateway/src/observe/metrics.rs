//! Figures about all requests, in the text format of Prometheus. Labels come from closed sets.

use std::time::Duration;

use dacapo_replay::{StepStart, Stepper};
use dacapo_wire::{AppliedMode, UnopenedReason, UnsealError, Wire};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use super::{CallOutcome, Event, EventConsumer, RequestInfo, RequestOutcome};
use crate::tool_servers::ServerCounts;
use crate::turn::ReplayTrace;

/// Counts what happens to requests.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    upstream_requests: IntCounterVec,
    upstream_seconds: HistogramVec,
    upstream_first_token_seconds: HistogramVec,
    programs: IntCounterVec,
    calls: IntCounterVec,
    call_seconds: HistogramVec,
    mcp_servers: IntGaugeVec,
    steps: IntCounterVec,
    step_seconds: HistogramVec,
    step_fuel: HistogramVec,
    tokens: IntCounterVec,
    tokens_kept_out: IntCounter,
    states: IntCounterVec,
    store_operations: IntCounterVec,
    store_seconds: HistogramVec,
    paused_programs: IntGauge,
    paused_bytes: IntGauge,
    turns_running: IntGauge,
    turns_refused: IntCounter,
}

/// Of requests and models: they take from milliseconds to minutes.
const REQUEST_BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Of steps and stores: they take from microseconds to seconds.
const STEP_BUCKETS: [f64; 12] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0];
/// From an empty program to the limit.
const FUEL_BUCKETS: [f64; 9] = [1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 1e9, 2e9];

/// A call to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOperation {
    Get,
    Put,
}

impl Metrics {
    pub(crate) fn new() -> prometheus::Result<Metrics> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, labels: &[&str]| {
            add(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let counter = |name: &str, help: &str| add(&registry, IntCounter::new(name, help)?);
        let gauge = |name: &str, help: &str| add(&registry, IntGauge::new(name, help)?);
        let histograms = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            add(&registry, HistogramVec::new(opts, labels)?)
        };
        let of_request = ["wire", "mode", "outcome"];
        let of_upstream = ["upstream", "status"];
        let of_store = ["operation", "outcome"];
        let (requests, steps) = (&REQUEST_BUCKETS, &STEP_BUCKETS);
        let metrics = Metrics {
            requests: counters("dacapo_requests_total", "Requests of clients, by how they ended.", &of_request)?,
            request_seconds: histograms("dacapo_request_seconds", "How long they took.", &of_request, requests)?,
            upstream_requests: counters(
                "dacapo_upstream_requests_total",
                "Requests to upstreams, by status; `unreachable` if none came.",
                &of_upstream,
            )?,
            upstream_seconds: histograms(
                "dacapo_upstream_seconds",
                "How long they took, to the end of the response.",
                &of_upstream,
                requests,
            )?,
            upstream_first_token_seconds: histograms(
                "dacapo_upstream_first_token_seconds",
                "How long they took to the first piece of the response.",
                &of_upstream,
                requests,
            )?,
            programs: counters("dacapo_programs_total", "Programs, by how they ended.", &["outcome"])?,
            calls: counters(
                "dacapo_calls_total",
                "Calls of programs that were answered, or refused.",
                &["owner", "outcome"],
            )?,
            call_seconds: histograms(
                "dacapo_call_seconds",
                "How long calls took that the gateway executed itself.",
                &["owner", "outcome"],
                requests,
            )?,
            mcp_servers: add(
                &registry,
                IntGaugeVec::new(Opts::new("dacapo_mcp_servers", "MCP servers behind the gateway."), &["state"])?,
            )?,
            steps: counters("dacapo_steps_total", "Steps, by what they started from.", &["start"])?,
            step_seconds: histograms("dacapo_step_seconds", "How long they took.", &["start"], steps)?,
            step_fuel: histograms(
                "dacapo_step_fuel",
                "Instructions since the program's start.",
                &["start"],
                &FUEL_BUCKETS,
            )?,
            tokens: counters("dacapo_tokens_total", "Tokens of models, as providers report them.", &["direction"])?,
            tokens_kept_out: counter(
                "dacapo_tokens_kept_out_total",
                "Tokens of answers that models did not have to read, estimated.",
            )?,
            states: counters("dacapo_states_total", "States of programs in requests.", &["result"])?,
            store_operations: counters("dacapo_store_operations_total", "Calls to the store.", &of_store)?,
            store_seconds: histograms("dacapo_store_seconds", "How long they took.", &of_store, steps)?,
            paused_programs: gauge("dacapo_paused_programs", "Paused programs in memory.")?,
            paused_bytes: gauge("dacapo_paused_bytes", "Memory of paused programs.")?,
            turns_running: gauge("dacapo_turns_running", "Turns that run at this moment.")?,
            turns_refused: counter("dacapo_turns_refused_total", "Turns that were refused, for want of room.")?,
            registry,
        };
        metrics.start_at_zero();
        Ok(metrics)
    }

    /// What is rare is there from the start: a rate needs a value before.
    fn start_at_zero(&self) {
        for outcome in ["success", "exception", "syntax", "limit", "deadlock", "diverged", "abandoned", "internal"] {
            self.programs.with_label_values(&[outcome]);
        }
        for result in ["opened", "clipped", "foreign", "expired", "missing"] {
            self.states.with_label_values(&[result]);
        }
        for outcome in [CallOutcome::Ok, CallOutcome::Error] {
            self.calls.with_label_values(&["client", outcome.name()]);
        }
        for outcome in CallOutcome::ALL {
            self.calls.with_label_values(&["mcp", outcome.name()]);
        }
    }

    /// All figures as text. Gauges are read now.
    pub(crate) fn text(
        &self,
        stepper: &Stepper,
        turns_running: usize,
        servers: Option<ServerCounts>,
    ) -> Result<String, prometheus::Error> {
        let paused = stepper.paused();
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.paused_programs.set(whole(paused.count));
        self.paused_bytes.set(whole(paused.bytes));
        self.turns_running.set(whole(turns_running));
        if let Some(ServerCounts { ready, starting, failed }) = servers {
            for (state, count) in [("ready", ready), ("starting", starting), ("failed", failed)] {
                self.mcp_servers.with_label_values(&[state]).set(whole(count));
            }
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    pub(crate) fn step(&self, start: StepStart, took: Duration, fuel: u64) {
        let start = match start {
            StepStart::Cold => "cold",
            StepStart::Warm => "warm",
            StepStart::Finished => "finished",
        };
        self.steps.with_label_values(&[start]).inc();
        self.step_seconds.with_label_values(&[start]).observe(took.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "fuel has a limit far below 2^52")]
        self.step_fuel.with_label_values(&[start]).observe(fuel as f64);
    }

    pub(crate) fn store(&self, operation: StoreOperation, is_ok: bool, took: Duration) {
        let operation = match operation {
            StoreOperation::Get => "get",
            StoreOperation::Put => "put",
        };
        let labels = [operation, if is_ok { "ok" } else { "error" }];
        self.store_operations.with_label_values(&labels).inc();
        self.store_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn turn_refused(&self) {
        self.turns_refused.inc();
    }

    fn request_ended(&self, request: &RequestInfo, outcome: &RequestOutcome) {
        // Pages, health and figures are no requests of clients.
        let Some(wire) = request.wire.map(Wire::name) else { return };
        let summary = request.summary();
        let outcome = match outcome {
            RequestOutcome::Answer { status } if status.is_client_error() || status.is_server_error() => "error",
            RequestOutcome::Answer { .. } => "answer",
            RequestOutcome::Calls => "calls",
            RequestOutcome::Error { .. } => "error",
            RequestOutcome::Left => "left",
        };
        let labels = [wire, summary.mode.map_or("off", AppliedMode::name), outcome];
        self.requests.with_label_values(&labels).inc();
        self.request_seconds.with_label_values(&labels).observe(request.elapsed().as_secs_f64());
        self.tokens.with_label_values(&["in"]).inc_by(summary.tokens_in);
        self.tokens.with_label_values(&["out"]).inc_by(summary.tokens_out);
        self.tokens_kept_out.inc_by(summary.usage.tokens_kept_out);
    }
}

impl ReplayTrace for Metrics {
    fn step(&self, start: StepStart, took: Duration, fuel: u64) {
        Metrics::step(self, start, took, fuel);
    }
}

fn add<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Feeds the figures with events.
#[derive(Debug)]
pub(crate) struct MetricsEvents(pub std::sync::Arc<Metrics>);

impl EventConsumer for MetricsEvents {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        let metrics = &*self.0;
        // Of the upstream that was asked last.
        let observe = |histogram: &HistogramVec, status: &str| {
            let summary = request.summary();
            let histogram: Histogram = histogram.with_label_values(&[summary.upstream.as_str(), status]);
            histogram.observe(summary.since_model_asked().as_secs_f64());
        };
        match event {
            Event::ModelResponded { upstream, status } => {
                metrics.upstream_requests.with_label_values(&[*upstream, status.as_str()]).inc();
            }
            Event::ModelUnreachable { upstream } => {
                metrics.upstream_requests.with_label_values(&[*upstream, "unreachable"]).inc();
                observe(&metrics.upstream_seconds, "unreachable");
            }
            Event::ModelBegan { status } => observe(&metrics.upstream_first_token_seconds, status.as_str()),
            Event::ModelFinished { status, .. } => observe(&metrics.upstream_seconds, status.as_str()),
            Event::ProgramFinished { outcome } => {
                metrics.programs.with_label_values(&[outcome.name()]).inc();
            }
            Event::CallsAnswered { count, failed } => {
                let calls = |outcome| metrics.calls.with_label_values(&["client", outcome]);
                calls("ok").inc_by((count - failed) as u64);
                calls("error").inc_by(*failed as u64);
            }
            Event::CallExecuted { outcome, took, .. } => {
                let labels = ["mcp", outcome.name()];
                metrics.calls.with_label_values(&labels).inc();
                metrics.call_seconds.with_label_values(&labels).observe(took.as_secs_f64());
            }
            Event::StatesOpened { count } => {
                metrics.states.with_label_values(&["opened"]).inc_by(*count as u64);
            }
            Event::StatesUnopened { states } => {
                let reasons = [
                    ("clipped", UnopenedReason::Sealed(UnsealError::Damaged)),
                    ("foreign", UnopenedReason::Sealed(UnsealError::Foreign)),
                    ("expired", UnopenedReason::Expired),
                    ("missing", UnopenedReason::Missing),
                ];
                for (result, reason) in reasons {
                    metrics.states.with_label_values(&[result]).inc_by(states.count(reason) as u64);
                }
            }
            Event::RequestEnded { outcome } => metrics.request_ended(request, outcome),
            _ => {}
        }
    }
}
