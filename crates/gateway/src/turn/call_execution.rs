//! Calls on their way to the servers that own their tools.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dacapo_replay::{Answer, Call, CallIndex, Tool, Toolbox};
use dacapo_runner::{Approval, BoxFuture, StoreError, ToolOutput, with_trace};
use dacapo_wire::{ServerCall, ServerCallApproval};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::gateway::Gateway;
use crate::observe::CallOutcome;
use crate::store::call_records::{self, CallRecord, Claim};
use crate::store::{Store, StoreFailure, attachments};
use crate::tool_servers::{OfferedTools, is_write, without_attachments};

/// A call that the gateway executes.
pub(super) struct OwnedCall {
    pub call: Call,
    pub tool: OwnedTool,
    /// What a person decided about it.
    pub approval: Approval,
}

/// A tool whose calls the gateway executes, in the toolbox that has it.
pub(super) struct OwnedTool {
    toolbox: Arc<Toolbox>,
    index: usize,
}

/// A call that was executed.
pub(super) struct ExecutedCall {
    pub index: CallIndex,
    pub output: ToolOutput,
    pub took: Duration,
}

impl ExecutedCall {
    /// Of a call that is not sent.
    pub(super) fn not_recorded(call: &Call) -> BoxFuture<'static, ExecutedCall> {
        let executed = ExecutedCall { index: call.call, output: not_recorded(call), took: Duration::ZERO };
        Box::pin(std::future::ready(executed))
    }
}

impl OwnedTool {
    /// The tool with this number in the toolbox's catalog.
    pub(super) fn new(toolbox: &Arc<Toolbox>, index: usize) -> Option<OwnedTool> {
        (index < toolbox.catalog().tools().len()).then(|| OwnedTool { toolbox: Arc::clone(toolbox), index })
    }
}

impl std::ops::Deref for OwnedTool {
    type Target = Tool;

    fn deref(&self) -> &Tool {
        &self.toolbox.catalog().tools()[self.index]
    }
}

impl OwnedCall {
    pub(super) fn is_write(&self) -> bool {
        is_write(&self.tool)
    }

    pub(super) fn shown(&self) -> ServerCall<'_> {
        let server = self.tool.server.as_deref().unwrap_or_default();
        let approval = match self.approval {
            Approval::Unavailable => ServerCallApproval::NotAsked,
            _ => ServerCallApproval::Asked,
        };
        ServerCall { server, tool: &self.tool.name, call: &self.call, approval }
    }
}

/// Executes the calls of one turn.
pub(super) struct CallExecutor {
    pub gateway: Arc<Gateway>,
    pub store: Arc<Store>,
    pub tenant: Arc<str>,
    pub offered: Arc<OfferedTools>,
    /// The trace that they belong to, as `_meta` has it.
    pub trace: Map<String, Value>,
    /// Whether an earlier turn may have sent the same calls.
    pub is_resumed: bool,
}

/// A call with effects that is being executed.
struct RecordedCall {
    owned: Arc<OwnedCall>,
    record: CallRecord,
    /// Is sent its output, once that is recorded.
    done: oneshot::Sender<ToolOutput>,
}

const NOT_RECORDED: &str = "it was not sent, because it could not be recorded before: the store cannot be reached";

impl CallExecutor {
    /// Executes a call without effects. It is cancelled when what this returns is dropped.
    pub(super) fn read(self: &Arc<Self>, owned: Arc<OwnedCall>) -> BoxFuture<'static, ExecutedCall> {
        let (executor, started) = (Arc::clone(self), Instant::now());
        Box::pin(async move {
            let output = executor.send(&owned).await;
            ExecutedCall { index: owned.call.call, output, took: started.elapsed() }
        })
    }

    /// Executes calls with effects, each at most once: all are recorded before the first is sent. They go on, and their
    /// answers are recorded, when what this returns is dropped because the client leaves.
    pub(super) fn writes(self: &Arc<Self>, calls: Vec<Arc<OwnedCall>>) -> Vec<BoxFuture<'static, ExecutedCall>> {
        let started = Instant::now();
        let (executed, calls) = calls.into_iter().map(|owned| self.recorded_call(owned, started)).unzip();
        let executor = Arc::clone(self);
        tokio::spawn(async move {
            let calls: Vec<RecordedCall> = calls;
            let records = calls.iter().map(|call| &call.record);
            let claims = CallRecord::claim_all(&executor.store, &executor.tenant, records).await;
            let calls = calls.into_iter().zip(claims).map(|(call, claim)| executor.once(call, claim));
            calls.collect::<FuturesUnordered<_>>().collect::<()>().await;
        });
        executed
    }

    /// A call with effects, and what waits for it.
    fn recorded_call(
        &self,
        owned: Arc<OwnedCall>,
        started: Instant,
    ) -> (BoxFuture<'static, ExecutedCall>, RecordedCall) {
        let (done, output) = oneshot::channel();
        let record = CallRecord::new(&self.store, &self.tenant, &owned.call);
        let call = RecordedCall { owned: Arc::clone(&owned), record, done };
        let executed = async move {
            // Without an output the task that executes it has failed.
            let unknown = |_| without_attachments(call_records::unknown(&owned.call.tool));
            let output = output.await.unwrap_or_else(unknown);
            ExecutedCall { index: owned.call.call, output, took: started.elapsed() }
        };
        (Box::pin(executed), call)
    }

    /// Sends a call. What it brings beside text is stored, because no id could carry it.
    async fn send(&self, owned: &OwnedCall) -> ToolOutput {
        let deployed = self.gateway.servers.as_deref();
        let call = self.offered.call(deployed, &owned.tool, &owned.call, owned.approval);
        let output = with_trace(&self.trace, call).await;
        if !output.attachments.is_empty()
            && let Err(error) = attachments::keep(&self.store, &self.tenant, &output.attachments).await
        {
            tracing::warn!(%error, "images or files of a call could not be stored");
        }
        output
    }

    /// Sends a call with effects if nobody has sent it, and records its answer. `known` is what was recorded of it.
    async fn once(&self, call: RecordedCall, known: Result<Option<String>, StoreError>) {
        let RecordedCall { owned, record, done } = call;
        let output = self.output(&owned, &record, known).await;
        // The client may have left.
        drop(done.send(output));
    }

    async fn output(
        &self,
        owned: &OwnedCall,
        record: &CallRecord,
        known: Result<Option<String>, StoreError>,
    ) -> ToolOutput {
        let claim = match known {
            Ok(known) => match record.decide(known).await {
                Ok(claim) => Ok(claim),
                Err(error) => {
                    tracing::warn!(%error, "it could not be read what came of a call that was sent");
                    return without_attachments(call_records::unknown(&owned.call.tool));
                }
            },
            Err(error) => Err(error),
        };
        let output = match claim {
            Err(error) if self.gateway.config.store_failure == StoreFailure::Continue => {
                tracing::warn!(%error, "a call with effects is sent although it could not be recorded");
                self.send(owned).await
            }
            Err(error) => {
                tracing::warn!(%error, "a call was not sent, because it could not be recorded");
                if self.is_resumed {
                    return without_attachments(call_records::unknown(&owned.call.tool));
                }
                return not_recorded(&owned.call);
            }
            Ok(Claim::Answered(answer)) => return without_attachments(answer),
            Ok(Claim::Unknown) => without_attachments(call_records::unknown(&owned.call.tool)),
            Ok(Claim::Send) => tokio::select! {
                output = self.send(owned) => output,
                () = record.keep_alive() => without_attachments(Answer::error("the call was given up")),
            },
        };
        if let Err(error) = record.answered(&owned.call, &output.answer).await {
            tracing::warn!(%error, "the answer to a call could not be recorded");
        }
        output
    }
}

fn not_recorded(call: &Call) -> ToolOutput {
    without_attachments(CallOutcome::Refused.error(format!("`{}`: {NOT_RECORDED}", call.tool)))
}
