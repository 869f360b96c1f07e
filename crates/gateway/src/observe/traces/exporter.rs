//! Sends spans to a collector, in batches and in the background.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::{StatusCode, header};
use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;

use super::attribute;
use super::grpc::{self, GrpcStatus};
use super::otlp::{ExportTraceServiceRequest, InstrumentationScope, Resource, ResourceSpans, ScopeSpans, Span};
use super::settings::{Protocol, TraceSettings};

/// The queue of spans, and who empties it.
#[derive(Debug)]
pub(crate) struct TraceExporter {
    pub(super) settings: TraceSettings,
    client: reqwest::Client,
    queue: mpsc::Sender<Span>,
    /// Taken by the task that exports.
    receiver: Mutex<Option<mpsc::Receiver<Span>>>,
    /// Spans that had no room in the queue, since the last warning about it.
    dropped: AtomicU64,
}

/// How often a batch is sent if the collector is busy or away.
const ATTEMPTS_MAX: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long the last batch may take when the gateway stops.
const LAST_BATCH_TIMEOUT: Duration = Duration::from_secs(3);

impl TraceExporter {
    pub(crate) fn new(settings: TraceSettings) -> reqwest::Result<TraceExporter> {
        let builder = reqwest::Client::builder().timeout(settings.timeout);
        let has_tls = settings.url.starts_with("https:");
        let builder = if has_tls { builder } else { builder.tls_certs_only([]) };
        let client = match settings.protocol {
            Protocol::Http => builder.build(),
            // gRPC is HTTP/2, also without TLS.
            Protocol::Grpc => builder.http2_prior_knowledge().build(),
        }?;
        let (queue, receiver) = mpsc::channel(settings.queue_spans_max);
        Ok(TraceExporter { settings, client, queue, receiver: Mutex::new(Some(receiver)), dropped: AtomicU64::new(0) })
    }

    /// Never waits: spans that have no room are dropped, counted, and logged.
    pub(super) fn send(&self, spans: Vec<Span>) {
        for span in spans {
            if self.queue.try_send(span).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Exports until `stopped`, and then what is left.
    pub(crate) async fn run(&self, stopped: impl Future<Output = ()>) {
        let taken = self.receiver.lock().ok().and_then(|mut receiver| receiver.take());
        let Some(mut receiver) = taken else { return };
        let mut stopped = std::pin::pin!(stopped);
        let mut batch = Vec::new();
        loop {
            let mut is_stopped = false;
            let room = self.settings.batch_spans_max - batch.len();
            tokio::select! {
                () = &mut stopped => is_stopped = true,
                () = self.fill(&mut receiver, &mut batch, room) => {}
            }
            if is_stopped {
                while let Ok(span) = receiver.try_recv() {
                    batch.push(span);
                }
                let last = self.export(std::mem::take(&mut batch));
                if tokio::time::timeout(LAST_BATCH_TIMEOUT, last).await.is_err() {
                    tracing::warn!("the last traces were not exported: the collector took too long");
                }
                return;
            }
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    /// Waits for a span, and then for more, until the batch is full or old enough.
    async fn fill(&self, receiver: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>, room: usize) {
        receiver.recv_many(batch, room).await;
        let more = async {
            while batch.len() < self.settings.batch_spans_max {
                let room = self.settings.batch_spans_max - batch.len();
                receiver.recv_many(batch, room).await;
            }
        };
        // A batch that is not full goes as well.
        tokio::time::timeout(self.settings.batch_delay, more).await.unwrap_or_default();
    }

    async fn export(&self, spans: Vec<Span>) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(spans = dropped, "traces were dropped: the queue is full (OTEL_BSP_MAX_QUEUE_SIZE)");
        }
        if spans.is_empty() {
            return;
        }
        let count = spans.len();
        let body = match self.settings.protocol {
            Protocol::Http => self.request(spans).encode_to_vec(),
            Protocol::Grpc => grpc::message(&self.request(spans)),
        };
        let body = Bytes::from(body);
        for attempt in 1..=ATTEMPTS_MAX {
            let Err(failure) = self.post(body.clone()).await else { return };
            if attempt == ATTEMPTS_MAX || !failure.is_passing {
                tracing::warn!(spans = count, reason = failure.reason, "traces could not be exported");
                return;
            }
            tokio::time::sleep(RETRY_AFTER * attempt).await;
        }
    }

    async fn post(&self, body: Bytes) -> Result<(), ExportFailure> {
        let request = self.client.post(&self.settings.url).headers(self.settings.headers.clone());
        let request = match self.settings.protocol {
            Protocol::Http => request.header(header::CONTENT_TYPE, "application/x-protobuf"),
            Protocol::Grpc => request.header(header::CONTENT_TYPE, "application/grpc").header(header::TE, "trailers"),
        };
        // The address may hold a key.
        let away = |error: reqwest::Error| ExportFailure { reason: error.without_url().to_string(), is_passing: true };
        let response = request.body(body).send().await.map_err(away)?;
        if !response.status().is_success() {
            return Err(ExportFailure::of_status(response.status()));
        }
        match self.settings.protocol {
            Protocol::Http => Ok(()),
            Protocol::Grpc => match grpc::status(response).await.map_err(away)? {
                GrpcStatus::OK => Ok(()),
                status => Err(ExportFailure {
                    reason: format!("the collector answered with gRPC status {}", status.0),
                    is_passing: status.is_passing(),
                }),
            },
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let resource = self.settings.resource.iter().map(|(key, value)| attribute(key, value.as_str())).collect();
        let scope = InstrumentationScope { name: "dacapo".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource = Some(Resource { attributes: resource });
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }
}

struct ExportFailure {
    reason: String,
    /// Whether it may work the next time.
    is_passing: bool,
}

impl ExportFailure {
    fn of_status(status: StatusCode) -> ExportFailure {
        let is_passing = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        ExportFailure { reason: format!("the collector answered {status}"), is_passing }
    }
}
