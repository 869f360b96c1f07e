//! What happens to requests, as a stream of events. Whatever shows it to people consumes the stream: the log, the
//! metrics, the recorder of the inspector.

mod events;
mod log;
mod metrics;
mod recorder;
mod running;
mod traces;

pub(crate) use events::{CallOutcome, Event, ProgramEnd, ProgramOutcome, RequestOutcome};
pub(crate) use log::Log;
pub(crate) use metrics::{Metrics, MetricsEvents, StoreOperation};
pub(crate) use recorder::{RecordedConversation, Recorder, RecorderEvents, RecorderLimits};
pub use running::{RequestStage, RunningRequest, RunningRequests};
pub(crate) use traces::{RequestTrace, TRACEPARENT, TRACESTATE, TraceExporter, TraceSettings, Traces};

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue};
use dacapo_wire::{AppliedMode, TurnUsage, Wire};

/// Takes the events of all requests, in the order in which they happen within each.
pub(crate) trait EventConsumer: Debug + Send + Sync {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>);
}

/// What identifies a request in all its events.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    /// In the order of arrival. Clients may choose the same id twice.
    pub number: u64,
    pub id: RequestId,
    /// `None` for routes that no wire has.
    pub wire: Option<Wire>,
    /// The path that it was sent to, as the router has it.
    pub route: &'static str,
    started: Instant,
    /// Set if requests are traced.
    pub trace: OnceLock<RequestTrace>,
    summary: Mutex<RequestSummary>,
}

/// What is known of a request so far.
#[derive(Debug, Default)]
pub(crate) struct RequestSummary {
    pub client: String,
    pub model: String,
    pub mode: Option<AppliedMode>,
    /// The last upstream that was asked.
    pub upstream: String,
    /// When it was asked.
    asked: Option<Instant>,
    /// How long upstreams took, all together.
    pub upstream_time: Duration,
    pub usage: TurnUsage,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

impl RequestSummary {
    /// Since an upstream was asked last.
    pub(crate) fn since_model_asked(&self) -> Duration {
        self.asked.map(|asked| asked.elapsed()).unwrap_or_default()
    }
}

impl RequestInfo {
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What is known so far. Nobody else can add to it while it is looked at.
    pub(crate) fn summary(&self) -> MutexGuard<'_, RequestSummary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever ends a call of the model, or the request before it, adds to the time that models took.
    fn note_end_of_model_call(&self, event: &Event<'_>) {
        if matches!(event, Event::ModelUnreachable { .. } | Event::ModelFinished { .. } | Event::ModelRetried { .. }) {
            let mut summary = self.summary();
            let took = summary.asked.take().map(|asked| asked.elapsed()).unwrap_or_default();
            summary.upstream_time += took;
        }
    }

    /// Keeps of an event what later ones need.
    fn note(&self, event: &Event<'_>) {
        match event {
            Event::ClientKnown { client } => (*client).clone_into(&mut self.summary().client),
            Event::RequestRead { client, model, mode } => {
                let mut summary = self.summary();
                (*client).clone_into(&mut summary.client);
                (*model).clone_into(&mut summary.model);
                summary.mode = Some(*mode);
            }
            Event::ModelAsked { upstream } => {
                let mut summary = self.summary();
                (*upstream).clone_into(&mut summary.upstream);
                summary.asked = Some(Instant::now());
            }
            Event::TurnUsed { usage, tokens } => {
                let mut summary = self.summary();
                summary.usage = (*usage).clone();
                (summary.tokens_in, summary.tokens_out) = *tokens;
            }
            _ => {}
        }
    }
}

/// Names a request in logs and in errors that are our fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(String);

pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";
const REQUEST_ID_CHARS_MAX: usize = 128;

impl RequestId {
    /// The client's own id, if it sent one that can be logged, or a new one.
    pub(crate) fn of(headers: &HeaderMap) -> RequestId {
        let is_usable = |id: &&str| {
            !id.is_empty() && id.len() <= REQUEST_ID_CHARS_MAX && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let given = headers.get(REQUEST_ID_HEADER).and_then(|value| value.to_str().ok()).filter(is_usable);
        RequestId(given.map_or_else(|| format!("req_{}", &crate::http::random_hex()[..24]), str::to_owned))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Emits the events of one request. Clones belong to the same request.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    request: Arc<RequestInfo>,
    consumers: Arc<[Box<dyn EventConsumer>]>,
}

impl Observer {
    pub(crate) fn emit(&self, event: &Event<'_>) {
        self.request.note(event);
        for consumer in self.consumers.iter() {
            consumer.consume(&self.request, event);
        }
        self.request.note_end_of_model_call(event);
    }

    pub(crate) fn request(&self) -> &RequestInfo {
        &self.request
    }

    pub(crate) fn request_id(&self) -> &RequestId {
        &self.request.id
    }

    /// Headers for a request to an upstream: which trace it belongs to. Empty if requests are not traced.
    pub(crate) fn trace_headers(&self) -> Vec<(&'static str, HeaderValue)> {
        self.request.trace.get().map(RequestTrace::headers).unwrap_or_default()
    }

    /// How code mode applies, once the request has been read.
    pub(crate) fn mode(&self) -> Option<AppliedMode> {
        self.request.summary().mode
    }
}

/// A request that has not ended yet. It ends once: with an outcome, or, if it is dropped, because the client
/// disconnected.
#[derive(Debug)]
pub(crate) struct OpenRequest(Option<Observer>);

impl OpenRequest {
    pub(crate) fn start(
        consumers: &Arc<[Box<dyn EventConsumer>]>,
        wire: Option<Wire>,
        route: &'static str,
        headers: &HeaderMap,
    ) -> OpenRequest {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        let request = Arc::new(RequestInfo {
            number: REQUESTS.fetch_add(1, Ordering::Relaxed),
            id: RequestId::of(headers),
            wire,
            route,
            started: Instant::now(),
            trace: OnceLock::new(),
            summary: Mutex::default(),
        });
        let observer = Observer { request, consumers: Arc::clone(consumers) };
        observer.emit(&Event::RequestStarted { headers });
        OpenRequest(Some(observer))
    }

    /// An observer, to emit events of the request.
    pub(crate) fn observer(&self) -> Observer {
        self.0.clone().expect("only `end` takes it, and consumes the request")
    }

    pub(crate) fn end(mut self, outcome: RequestOutcome) {
        if let Some(observer) = self.0.take() {
            observer.emit(&Event::RequestEnded { outcome });
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(observer) = self.0.take() {
            observer.emit(&Event::RequestEnded { outcome: RequestOutcome::Left });
        }
    }
}
