//! A program that runs for a client, as a task of its own: it goes on while the client asks a person between two requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use dacapo_replay::{CompletedCall, LogLine, StoredValues};
use dacapo_runner::{
    Approval, ApprovalQuestion, ApprovalVerdict, Approver, BoxFuture, CallPhase, CallProgress, CancellationToken,
    Execution, ProgramStart, RunProgress, Runner, StandingApprovals, ToolHost, with_trace,
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use crate::lock::lock;

/// A program that runs. Dropping it cancels the program.
#[derive(Debug)]
pub(super) struct ProgramTask {
    pub(super) execution: JoinHandle<Execution>,
    pub(super) progress: watch::Receiver<ProgressReport>,
    /// What the program writes. The limit on its logs bounds how much waits here.
    pub(super) logs: mpsc::UnboundedReceiver<LogLine>,
    pub(super) requests: mpsc::UnboundedReceiver<ApprovalRequest>,
    /// Requests that nobody has answered yet.
    pub(super) open: VecDeque<ApprovalRequest>,
    /// What the person has decided for the rest of the program.
    standing: StandingApprovals,
    pub(super) digest: ProgramDigest,
    /// What the program began with.
    pub(super) stored: StoredValues,
    pub(super) ledger: Arc<CallLedger>,
    /// Cancels the program when it is dropped.
    cancel: DropGuard,
}

/// Identifies a program by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramDigest([u8; 32]);

impl ProgramDigest {
    pub(super) fn of(code: &str) -> ProgramDigest {
        ProgramDigest(Sha256::digest(code.as_bytes()).into())
    }
}

/// Counts the calls of a program. Outlives the program, so that a client that comes back too late learns what was done.
#[derive(Debug, Default)]
pub(super) struct CallLedger(Mutex<CallSummary>);

/// What a program's calls came to so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CallSummary {
    /// How often each tool was called and answered.
    pub(super) calls: BTreeMap<String, u64>,
    /// Calls that have not been answered. They may have been sent.
    pub(super) open: usize,
}

impl CallLedger {
    pub(super) fn summary(&self) -> CallSummary {
        lock(&self.0).clone()
    }

    fn count(&self, progress: CallProgress<'_>) {
        let mut summary = lock(&self.0);
        summary.open = progress.made - progress.done;
        if matches!(progress.phase, CallPhase::Answered | CallPhase::Failed) {
            *summary.calls.entry(progress.tool.to_owned()).or_default() += 1;
        }
    }
}

/// The latest progress of a program, as a client sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgressReport {
    pub(super) done: usize,
    pub(super) message: String,
}

/// A call that needs a person's approval.
#[derive(Debug)]
pub(super) struct ApprovalRequest {
    pub(super) question: ApprovalQuestion,
    reply: oneshot::Sender<Approval>,
}

/// Whether a client can ask its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanAsk {
    Client,
    Nobody,
}

/// Passes approval requests on to the task that serves the client.
struct ChannelApprover(mpsc::UnboundedSender<ApprovalRequest>);

impl Approver for ChannelApprover {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(async {
            let (reply, replied) = oneshot::channel();
            let request = ApprovalRequest { question, reply };
            match self.0.send(request) {
                Ok(()) => replied.await.unwrap_or(Approval::Unavailable),
                Err(_) => Approval::Unavailable,
            }
        })
    }
}

impl ProgramTask {
    pub(super) fn start(
        runner: Arc<Runner>,
        host: Arc<dyn ToolHost>,
        program: String,
        stored: StoredValues,
        reuse: Vec<CompletedCall>,
        can_ask: CanAsk,
        meta: Map<String, Value>,
    ) -> ProgramTask {
        let (request_sender, requests) = mpsc::unbounded_channel();
        let (progress_sender, progress) = watch::channel(ProgressReport::default());
        let (log_sender, logs) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let (digest, ledger) = (ProgramDigest::of(&program), Arc::<CallLedger>::default());
        let counts = Arc::clone(&ledger);
        let given = stored.clone();
        let execution = tokio::spawn(async move {
            let on_progress = |progress: RunProgress<'_>| match progress {
                RunProgress::Call(call) => {
                    counts.count(call);
                    drop(progress_sender.send(ProgressReport::of(call)));
                }
                RunProgress::Log(line) => drop(log_sender.send(line.clone())),
            };
            let approver: &dyn Approver = match can_ask {
                CanAsk::Client => &ChannelApprover(request_sender),
                CanAsk::Nobody => &Approval::Unavailable,
            };
            let start = ProgramStart { code: &program, stored: given, reuse };
            with_trace(&meta, runner.run(start, &*host, approver, &on_progress, &cancelled)).await
        });
        let (open, standing) = (VecDeque::new(), StandingApprovals::default());
        ProgramTask {
            execution,
            progress,
            logs,
            requests,
            open,
            standing,
            digest,
            stored,
            ledger,
            cancel: cancel.drop_guard(),
        }
    }

    /// Cancels the program, and yields what it leaves.
    pub(super) async fn cancelled(self) -> Option<Execution> {
        drop(self.cancel);
        self.execution.await.ok()
    }

    pub(super) fn latest_progress(&mut self) -> ProgressReport {
        self.progress.borrow_and_update().clone()
    }

    /// Takes a request. If an earlier verdict decides it, it is answered at once.
    pub(super) fn enqueue(&mut self, request: ApprovalRequest) {
        match self.standing.decide(&request.question) {
            Some(approval) => request.answer(approval),
            None => self.open.push_back(request),
        }
    }

    /// Answers a request, and all open ones that the verdict decides too.
    pub(super) fn answer(&mut self, request: ApprovalRequest, verdict: ApprovalVerdict) {
        let approval = self.standing.record(&request.question, verdict);
        request.answer(approval);
        for request in std::mem::take(&mut self.open) {
            self.enqueue(request);
        }
    }

    /// Takes the oldest open request of each tool.
    pub(super) fn oldest_by_tool(&mut self) -> VecDeque<ApprovalRequest> {
        let mut tools = BTreeSet::new();
        let (first, rest) = self.open.drain(..).partition(|request| tools.insert(request.tool()));
        self.open = rest;
        first
    }
}

impl ApprovalRequest {
    fn tool(&self) -> (String, String) {
        (self.question.call.server.clone(), self.question.call.tool.clone())
    }

    fn answer(self, approval: Approval) {
        // A program that has ended does not wait for it any more.
        self.reply.send(approval).unwrap_or_default();
    }
}

impl ProgressReport {
    fn of(progress: CallProgress<'_>) -> ProgressReport {
        let CallProgress { tool, phase, done, made } = progress;
        let what = match phase {
            CallPhase::Started => format!("calling {tool}"),
            CallPhase::Answered => format!("{tool} answered"),
            CallPhase::Failed => format!("{tool} failed"),
            CallPhase::Refused => format!("{tool} was refused"),
        };
        ProgressReport { done, message: format!("{done} of {made} calls done; {what}") }
    }
}
