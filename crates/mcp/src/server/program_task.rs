//! A program that runs for a client, as a task of its own: it goes on while the client asks a person between two requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{CompletedCall, Journal, LogLine, StoredValues};
use dacapo_runner::{
    Approval, ApprovalQuestion, ApprovalVerdict, Approver, BoxFuture, CallPhase, CallProgress, CancellationToken,
    Execution, ProgramStart, ResumedRun, RunProgress, Runner, StandingApprovals, ToolDigest, ToolHost, with_trace,
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use super::elicitation::ApprovalForm;
use super::kept_programs::{AskedCall, ProgramToKeep};
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
    pub(super) given: Arc<GivenValues>,
    /// How far it has come.
    state: Arc<ProgramRunState>,
    /// What a person has said about calls that another process has asked about, by their keys.
    answered: BTreeMap<String, (Option<ToolDigest>, Value)>,
    pub(super) ledger: Arc<CallLedger>,
    /// Cancels the program when it is dropped.
    cancel: DropGuard,
}

/// A program that is to be run.
#[derive(Debug)]
pub(super) struct ProgramToRun {
    pub(super) source: ProgramSource,
    pub(super) given: Arc<GivenValues>,
}

/// Where a program that is to be run comes from.
#[derive(Debug)]
pub(super) enum ProgramSource {
    Code(String),
    /// Another process has begun it.
    Resumed(ResumedRun),
}

/// What earlier programs left to a program.
#[derive(Debug)]
pub(super) struct GivenValues {
    pub(super) stored: StoredValues,
    pub(super) reuse: Vec<CompletedCall>,
}

impl ProgramToRun {
    pub(super) fn code(&self) -> &str {
        match &self.source {
            ProgramSource::Code(code) => code,
            ProgramSource::Resumed(run) => &run.program.code,
        }
    }
}

/// How far a program has come, for another process that goes on with it.
#[derive(Debug, Default)]
pub(super) struct ProgramRunState(Mutex<RunSoFar>);

#[derive(Debug, Default)]
struct RunSoFar {
    run: Option<ResumedRun>,
    is_waiting: bool,
    /// Calls without an answer.
    open: usize,
    /// Calls of these that wait for a person.
    asked: usize,
}

/// Why another process could not go on with a program.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunStateError {
    #[error("it was given images or files, which are in memory only")]
    HasAttachments,
}

impl ProgramRunState {
    /// The run, if nothing happens to it until a person answers.
    pub(super) fn at_rest(&self) -> Result<Option<ResumedRun>, RunStateError> {
        let so_far = lock(&self.0);
        let Some(run) = so_far.run.as_ref().filter(|_| so_far.is_waiting && so_far.open == so_far.asked) else {
            return Ok(None);
        };
        if run.journal.entries().iter().any(|entry| !entry.answer.handles().is_empty()) {
            return Err(RunStateError::HasAttachments);
        }
        Ok(Some(run.clone()))
    }

    fn note(&self, progress: RunProgress<'_>) {
        let mut so_far = lock(&self.0);
        so_far.is_waiting = matches!(progress, RunProgress::Waiting);
        match (progress, &mut so_far.run) {
            (RunProgress::Started(program), None) => {
                let (program, journal, refused) = (program.clone(), Journal::default(), Vec::new());
                so_far.run = Some(ResumedRun { program, journal, refused });
            }
            (RunProgress::Settled(entry, phase), Some(run)) => {
                if phase == CallPhase::Refused {
                    run.refused.push(entry.call);
                }
                run.journal.push(entry.clone());
            }
            (RunProgress::Call(call), _) => so_far.open = call.made - call.done,
            _ => {}
        }
    }
}

/// Counts a call as one that waits for a person, until it is dropped.
#[derive(Debug)]
struct AskedCount(Arc<ProgramRunState>);

impl AskedCount {
    fn new(state: &Arc<ProgramRunState>) -> AskedCount {
        lock(&state.0).asked += 1;
        AskedCount(Arc::clone(state))
    }
}

impl Drop for AskedCount {
    fn drop(&mut self) {
        lock(&self.0.0).asked -= 1;
    }
}

/// Identifies a program by its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProgramDigest([u8; 32]);

impl ProgramDigest {
    pub(super) fn of(code: &str) -> ProgramDigest {
        ProgramDigest(Sha256::digest(code.as_bytes()).into())
    }

    pub(super) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
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
    count: AskedCount,
}

/// Whether a client can ask its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanAsk {
    Client,
    Nobody,
}

/// Passes approval requests on to the task that serves the client.
struct ChannelApprover {
    requests: mpsc::UnboundedSender<ApprovalRequest>,
    state: Arc<ProgramRunState>,
}

impl Approver for ChannelApprover {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(async {
            let (reply, replied) = oneshot::channel();
            let request = ApprovalRequest { question, reply, count: AskedCount::new(&self.state) };
            match self.requests.send(request) {
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
        program: ProgramToRun,
        can_ask: CanAsk,
        meta: Map<String, Value>,
    ) -> ProgramTask {
        let (request_sender, requests) = mpsc::unbounded_channel();
        let (progress_sender, progress) = watch::channel(ProgressReport::default());
        let (log_sender, logs) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let cancelled = cancel.clone();
        let (digest, ledger) = (ProgramDigest::of(program.code()), Arc::<CallLedger>::default());
        let ProgramToRun { source, given } = program;
        let (code, resumed) = match source {
            ProgramSource::Code(code) => (code, None),
            ProgramSource::Resumed(run) => (String::new(), Some(run)),
        };
        let counts = Arc::clone(&ledger);
        let run = RunSoFar { run: resumed.clone(), ..RunSoFar::default() };
        let state = Arc::new(ProgramRunState(Mutex::new(run)));
        let (noted, inputs) = (Arc::clone(&state), Arc::clone(&given));
        let execution = tokio::spawn(async move {
            let on_progress = |progress: RunProgress<'_>| {
                noted.note(progress);
                match progress {
                    RunProgress::Call(call) => {
                        counts.count(call);
                        drop(progress_sender.send(ProgressReport::of(call)));
                    }
                    RunProgress::Log(line) => drop(log_sender.send(line.clone())),
                    RunProgress::Started(_) | RunProgress::Settled(..) | RunProgress::Waiting => {}
                }
            };
            let approver: &dyn Approver = match can_ask {
                CanAsk::Client => &ChannelApprover { requests: request_sender, state: Arc::clone(&noted) },
                CanAsk::Nobody => &Approval::Unavailable,
            };
            let start = ProgramStart { code: &code, stored: &inputs.stored, reuse: &inputs.reuse, resumed };
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
            given,
            state,
            answered: BTreeMap::new(),
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

    /// The program, for whoever keeps it once it waits. The client was told to ask about these calls.
    pub(super) fn to_keep(&self, asked: &BTreeMap<String, ApprovalRequest>) -> ProgramToKeep {
        let asked = asked.iter().map(|(key, request)| {
            let ApprovalQuestion { call, definition, .. } = &request.question;
            (key.clone(), AskedCall { idempotency_key: call.idempotency_key.clone(), definition: *definition })
        });
        ProgramToKeep { state: Arc::downgrade(&self.state), given: Arc::clone(&self.given), asked: asked.collect() }
    }

    /// Takes what a person has said about a call that another process has asked about.
    pub(super) fn already_answered(&mut self, call: AskedCall, response: Value) {
        self.answered.insert(call.idempotency_key, (call.definition, response));
    }

    /// Takes a request. If an earlier verdict decides it, it is answered at once.
    pub(super) fn enqueue(&mut self, request: ApprovalRequest) {
        // If the tool is another one now, the person is asked again.
        let answered = self.answered.remove(&request.question.call.idempotency_key);
        if let Some((_, response)) = answered.filter(|(definition, _)| *definition == request.question.definition) {
            let verdict = ApprovalForm::new(&request.question).read(&response);
            return self.answer(request, verdict);
        }
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
        // Before the program goes on: it does not rest any more.
        drop(self.count);
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
