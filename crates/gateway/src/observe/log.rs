//! Events as log lines: one at `info` for the end of every request, faults at `error`, the others at `debug`.

use dacapo_wire::{AppliedMode, UnopenedReason, UnsealError, Wire};

use super::{Event, EventConsumer, RequestInfo, RequestOutcome};

/// Writes events to the log.
#[derive(Debug)]
pub(crate) struct Log;

impl EventConsumer for Log {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        let request_id = request.id.as_str();
        match event {
            Event::RequestRead { client, model, mode } => {
                tracing::debug!(
                    request_id,
                    client,
                    model,
                    mode = mode.name(),
                    mode_reason = mode.reason(),
                    "request read"
                );
            }
            Event::ParamsDropped { client, provider, dropped } => {
                tracing::warn!(request_id, %client, %provider, ?dropped, "the model's wire cannot carry these");
            }
            Event::ModelAsked { upstream } => tracing::debug!(request_id, upstream, "model asked"),
            Event::ModelRetried { upstream, status, wait } => {
                tracing::debug!(request_id, upstream, status = status.as_u16(), ?wait, "model asked again later");
            }
            Event::ModelResponded { upstream, status } => {
                tracing::debug!(request_id, upstream, status = status.as_u16(), "model responded");
            }
            Event::FellBack { from, to } => {
                tracing::warn!(request_id, from, to, "an upstream cannot answer, so another one is asked");
            }
            Event::ProgramStarted => tracing::debug!(request_id, "program started"),
            Event::ProgramPaused { calls } => tracing::debug!(request_id, calls, "program paused"),
            Event::CallSent { tool } => tracing::debug!(request_id, tool, "call sent"),
            Event::CallExecuted { tool, outcome, took } => {
                tracing::debug!(request_id, tool, outcome = outcome.name(), ms = took.as_millis(), "call executed");
            }
            Event::ModelUnreachable { upstream } => tracing::debug!(request_id, upstream, "model not reached"),
            Event::ModelBegan { .. } => tracing::debug!(request_id, "model begins"),
            Event::ModelFinished { .. } => tracing::debug!(request_id, "model finished"),
            Event::CallsAnswered { count, failed } => tracing::debug!(request_id, count, failed, "calls answered"),
            Event::ProgramFinished { outcome } => {
                tracing::debug!(request_id, outcome = outcome.name(), "program finished");
            }
            // The line of the request has them.
            Event::RequestStarted { .. }
            | Event::ClientKnown { .. }
            | Event::TurnUsed { .. }
            | Event::StatesOpened { .. } => {}
            Event::Fault { message } => tracing::error!(request_id, message, "internal fault"),
            Event::StoreFailed { error } => tracing::error!(request_id, %error, "the store failed"),
            Event::StatesUnopened { states } => tracing::warn!(
                request_id,
                foreign = states.count(UnopenedReason::Sealed(UnsealError::Foreign)),
                damaged = states.count(UnopenedReason::Sealed(UnsealError::Damaged)),
                expired = states.count(UnopenedReason::Expired),
                missing = states.count(UnopenedReason::Missing),
                "states of programs or stored responses cannot be opened: another secret or client sealed the foreign \
                 ones (do all replicas have the same DACAPO_SECRET?), the damaged ones were cut or changed, the expired \
                 ones were not used for `ttl_seconds` of [store], the missing ones are not in the store",
            ),
            Event::RequestEnded { outcome } => log_end(request, outcome),
        }
    }
}

fn log_end(request: &RequestInfo, outcome: &RequestOutcome) {
    let (name, status, failure) = outcome.parts();
    let summary = request.summary();
    let usage = &summary.usage;
    tracing::info!(
        request_id = request.id.as_str(),
        client = summary.client.as_str(),
        wire = request.wire.map(Wire::name),
        model = summary.model.as_str(),
        mode = summary.mode.map(AppliedMode::name),
        mode_reason = summary.mode.and_then(AppliedMode::reason),
        upstream = summary.upstream.as_str(),
        status = status.map(|status| status.as_u16()),
        outcome = name,
        failure,
        ms = request.elapsed().as_millis() as u64,
        upstream_ms = summary.upstream_time.as_millis() as u64,
        model_calls = usage.model_calls,
        programs = usage.programs,
        rounds = usage.rounds,
        calls = usage.calls,
        tokens_in = summary.tokens_in,
        tokens_out = summary.tokens_out,
        tokens_kept_out = usage.tokens_kept_out,
        "request",
    );
}
