//! Runs a program to its end, and executes its calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dacapo_replay::{
    Answer, Call, CallIndex, CompletedCall, Effect, Journal, JournalEntry, Limits, LogLine, MadeCall, Outcome, Program,
    RecordedOutcome, SandboxError, Shortage, Step, StepError, StepRequest, Stepper, StoredValues, Tool, ToolShape,
    Toolbox, WarmPrograms,
};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use crate::answer_window::gather_answers;
use crate::approval::{Approval, ApprovalQuestion, Approver};
use crate::call_gate::CallGate;
use crate::execution::{Execution, RunError, StopKind, StoppedRun};
use crate::in_flight::{CallTracker, Completed, Disposition, InFlight, in_order_of_handles};
use crate::lock::lock;
use crate::policy::{Decision, Policy};
use crate::stopwatch::Stopwatch;
use crate::tool_host::{CallError, ToolCall, ToolHost, ToolOutput};

/// What a run may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLimits {
    /// Limits of the program inside its sandbox.
    pub program: Limits,
    /// Wall-clock time, without the time that a person takes to approve calls.
    pub wall: Duration,
    /// Bytes of content that is not text, held until the program ends.
    pub attachment_bytes: usize,
}

impl Default for RunLimits {
    fn default() -> RunLimits {
        RunLimits { program: Limits::default(), wall: Duration::from_mins(5), attachment_bytes: 64 << 20 }
    }
}

/// Runs programs. A process has one, which all of its programs share.
#[derive(Debug)]
pub struct Runner {
    stepper: Arc<Stepper>,
    gate: CallGate,
    limits: RunLimits,
    /// The decisions at the start of the last program, by tool. They are used again while the toolbox is the same.
    initial_decisions: Mutex<(Weak<Toolbox>, Arc<[Decision]>)>,
}

/// What happened in a program that runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RunProgress<'a> {
    /// It begins, or goes on: see [`ResumedRun`].
    Started(&'a Program),
    /// To one of its calls.
    Call(CallProgress<'a>),
    /// It has written this line, and goes on.
    Log(&'a LogLine),
    /// A call is over and has this answer. A call that was [`CallPhase::Refused`] was not sent.
    Settled(&'a JournalEntry, CallPhase),
    /// All that it can do has been done: it waits for calls.
    Waiting,
}

/// A call that started or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallProgress<'a> {
    /// `server.tool`
    pub tool: &'a str,
    /// What happened to the call.
    pub phase: CallPhase,
    /// Calls that have ended so far.
    pub done: usize,
    /// Calls that the program has made so far.
    pub made: usize,
}

/// What happened to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    /// The program has made the call.
    Started,
    /// The tool returned a value.
    Answered,
    /// The tool returned an error, or its server could not be reached.
    Failed,
    /// The call was not sent: not allowed, or not possible.
    Refused,
}

/// Receives the progress of a run as it happens.
pub type ProgressSink<'a> = &'a (dyn Fn(RunProgress<'_>) + Send + Sync);

/// Programs that stay in memory while their calls are executed. More are replayed, which takes longer and changes
/// nothing else.
const WARM: WarmPrograms = WarmPrograms { count_max: 64, bytes_max: 2 << 30 };

/// Calls that are cancelled may take this long to notify their servers.
const CANCEL_GRACE: Duration = Duration::from_millis(200);

impl Runner {
    /// A runner for programs under this policy and these limits.
    pub fn new(policy: Policy, limits: RunLimits) -> Result<Runner, SandboxError> {
        let initial_decisions = Mutex::new((Weak::new(), Arc::default()));
        Ok(Runner { stepper: Arc::new(Stepper::new(WARM)?), gate: CallGate::new(policy), limits, initial_decisions })
    }

    /// Set if address space is limited: there may be room for fewer programs, and they may run more slowly.
    pub fn shortage(&self) -> Option<Shortage> {
        self.stepper.shortage()
    }

    /// Runs a program until it ends, or until soon after `cancel`. Calls that are in flight then are cancelled.
    ///
    /// Needs a Tokio runtime with time enabled.
    pub async fn run<'p>(
        &self,
        program: impl Into<ProgramStart<'p>>,
        host: &dyn ToolHost,
        approver: &dyn Approver,
        progress: ProgressSink<'_>,
        cancel: &CancellationToken,
    ) -> Execution {
        let started = Instant::now();
        let toolbox = host.toolbox();
        let initial_decisions = self.initial_decisions(&toolbox, host);
        let ProgramStart { code, stored, reuse, resumed } = program.into();
        let begun = || ResumedRun { program: new_program(code), journal: Journal::default(), refused: Vec::new() };
        let ResumedRun { program, journal, refused } = resumed.unwrap_or_else(begun);
        progress(RunProgress::Started(&program));
        let tracker = CallTracker::of(&journal, refused);
        let sent = tracker.completed.iter().map(|call| (*call, None)).collect();
        let request = StepRequest::new(program, Arc::clone(&toolbox)).with_stored(stored.clone());
        let mut request = request.with_reuse(reuse.to_vec()).with_journal(journal);
        request.limits = self.limits.program;
        let mut request = Some(request);
        let cancel_calls = cancel.child_token();
        let context = RunContext {
            runner: self,
            host,
            approver,
            toolbox: &toolbox,
            initial_decisions: &initial_decisions,
            sent: Mutex::new(sent),
            stopwatch: Arc::new(Stopwatch::start(self.limits.wall)),
            cancel: &cancel_calls,
        };
        let mut in_flight = InFlight { futures: FuturesUnordered::new(), tracker, progress };
        let end = context.drive(&mut request, &mut in_flight).await;
        cancel_calls.cancel();
        let InFlight { mut futures, mut tracker, .. } = in_flight;
        let cancelled = async { while futures.next().await.is_some() {} };
        // Calls that take longer than the grace period are dropped.
        tokio::time::timeout(CANCEL_GRACE, cancelled).await.unwrap_or_default();
        drop(futures);
        let sent = std::mem::take(&mut *lock(&context.sent));
        tracker.completed.sort_unstable();
        let RunEnd { result, logs, stored, reused, mut record, shapes } = match end {
            Ok(mut end) => {
                if let Err(RunError::Failed(failure)) = &mut end.result {
                    failure.completed = tracker.list(&tracker.completed);
                    failure.unfinished.retain(|made| !tracker.has_settled(made.call));
                }
                end
            }
            Err(reason) => {
                let result = Err(RunError::Stopped(Box::new(self.stopped(reason, &tracker))));
                let (logs, reused) = (std::mem::take(&mut tracker.logs), std::mem::take(&mut tracker.reused));
                let mut record = reuse.to_vec();
                record.extend(request.iter().flat_map(|request| CallTracker::succeeded(request.journal.entries())));
                RunEnd { result, logs, stored: stored.clone(), reused, record, shapes: Vec::new() }
            }
        };
        let refused = tracker.list(&tracker.refused);
        let unfinished = tracker.list(tracker.open.iter().filter(|call| sent.contains_key(call)));
        if result.is_ok() {
            record.clear();
        } else {
            record.extend(tracker.open.iter().filter_map(|call| sent.get(call).cloned().flatten()));
        }
        let mut calls = BTreeMap::new();
        for tool in sent.keys().filter_map(|call| tracker.made.remove(call)).map(|made| made.tool) {
            *calls.entry(tool).or_default() += 1;
        }
        let returned = result.as_ref().map_or("", |data| data.get());
        let shown: String = std::iter::once(returned).chain(logs.iter().flat_map(|line| ["\n", &line.text])).collect();
        let attachments = in_order_of_handles(tracker.attachments, &shown);
        let duration = started.elapsed();
        Execution { result, logs, calls, refused, unfinished, attachments, stored, reused, record, shapes, duration }
    }

    /// The policy's decision about every tool at the start of a program. A tool may leave its server's list, or lose its
    /// annotations, while the program runs; that must not make a decision less strict.
    fn initial_decisions(&self, toolbox: &Arc<Toolbox>, host: &dyn ToolHost) -> Arc<[Decision]> {
        let mut last = lock(&self.initial_decisions);
        if !last.0.upgrade().is_some_and(|known| Arc::ptr_eq(&known, toolbox)) {
            let decide = |tool: &Tool| {
                let server = tool.server.as_deref().unwrap_or_default();
                self.gate.decide(server, &tool.name, host)
            };
            *last = (Arc::downgrade(toolbox), toolbox.catalog().tools().iter().map(decide).collect());
        }
        Arc::clone(&last.1)
    }

    fn stopped(&self, reason: StopReason, tracker: &CallTracker) -> StoppedRun {
        let (kind, message) = match reason {
            StopReason::WallTime => {
                let seconds = self.limits.wall.as_secs_f64();
                let waiting = match tracker.open.len() {
                    0 => "while it computed".to_owned(),
                    calls => format!("while it waited for {calls} of its calls"),
                };
                let advice = "do less in one program, or split the work into several";
                (StopKind::Limit, format!("the program was stopped after {seconds} s, {waiting}; {advice}"))
            }
            StopReason::Cancelled => (StopKind::Cancelled, "the program was cancelled".to_owned()),
            StopReason::Internal(message) => (StopKind::Internal, message),
        };
        let (completed, unfinished) = (tracker.list(&tracker.completed), tracker.list(&tracker.open));
        StoppedRun { kind, name: kind.name(), message, completed, unfinished }
    }
}

/// A program with a seed and a start time of its own.
fn new_program(code: &str) -> Program {
    let mut program = Program::new(code);
    let mut entropy = [0; 16];
    getrandom::fill(&mut entropy).expect("the system has randomness");
    program.seed = u128::from_le_bytes(entropy).to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    program.started_at_ms = (now.as_secs_f64() * 1000.0).trunc();
    program
}

/// Why a program was ended from outside.
enum StopReason {
    WallTime,
    Cancelled,
    Internal(String),
}

/// What a program starts with: its code, and what earlier programs keep for it.
#[derive(Debug, Clone)]
pub struct ProgramStart<'a> {
    /// The source.
    pub code: &'a str,
    /// The [`Execution::stored`] of the program before.
    pub stored: &'a StoredValues,
    /// The [`Execution::record`] of the program before, if it failed: the same calls are not executed again.
    pub reuse: &'a [CompletedCall],
    /// How far it has come, if it was begun elsewhere. Then `code` is not looked at.
    pub resumed: Option<ResumedRun>,
}

/// A program that another process has begun: what it said with [`RunProgress`], at a moment when nothing but calls that
/// nobody had allowed was open. Those are made again; calls with an answer are not.
#[derive(Debug, Clone)]
pub struct ResumedRun {
    /// With its seed and its clock.
    pub program: Program,
    /// The answers to its calls, in the order in which they settled.
    pub journal: Journal,
    /// Of these calls, those that were not sent.
    pub refused: Vec<CallIndex>,
}

impl<'a> From<&'a str> for ProgramStart<'a> {
    fn from(code: &'a str) -> ProgramStart<'a> {
        const NOTHING: &StoredValues = &StoredValues::new();
        ProgramStart { code, stored: NOTHING, reuse: &[], resumed: None }
    }
}

/// What a program leaves.
struct RunEnd {
    result: Result<Box<RawValue>, RunError>,
    logs: Vec<LogLine>,
    stored: StoredValues,
    reused: Vec<MadeCall>,
    record: Vec<CompletedCall>,
    shapes: Vec<ToolShape>,
}

/// What the calls of one program share.
struct RunContext<'a> {
    runner: &'a Runner,
    host: &'a dyn ToolHost,
    approver: &'a dyn Approver,
    toolbox: &'a Toolbox,
    /// By the tool's number in the catalog.
    initial_decisions: &'a [Decision],
    /// Calls that were sent to their servers, answered or not; those with effects as the record of a program that does not
    /// get their answers.
    sent: Mutex<BTreeMap<CallIndex, Option<CompletedCall>>>,
    stopwatch: Arc<Stopwatch>,
    cancel: &'a CancellationToken,
}

impl RunContext<'_> {
    /// Steps the program and executes its calls, until it ends or is stopped. `slot` holds the request, whose journal grows.
    async fn drive<'r>(
        &'r self,
        slot: &mut Option<StepRequest>,
        in_flight: &mut InFlight<'r>,
    ) -> Result<RunEnd, StopReason> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(StopReason::Cancelled);
            }
            if self.stopwatch.has_expired() {
                return Err(StopReason::WallTime);
            }
            let mut completed = Vec::new();
            let Some(request) = slot.take() else {
                return Err(StopReason::Internal("a step ended without its request".to_owned()));
            };
            let (request, step) = self.step(request, in_flight, &mut completed).await?;
            let request = slot.insert(request);
            let step = step?;
            match step.outcome {
                Outcome::Finished { result } => {
                    // The program does not see these answers, but its report lists their calls as completed.
                    let unseen: Vec<JournalEntry> =
                        completed.into_iter().map(|completed| self.settle(completed, in_flight)).collect();
                    let result = result.map_err(RunError::Failed);
                    let Step { logs, stored, reused, mut record, shapes, .. } = step;
                    record.extend(CallTracker::succeeded(&unseen));
                    return Ok(RunEnd { result, logs, stored, reused, record, shapes });
                }
                Outcome::Paused { calls } => self.issue(calls, in_flight),
            }
            in_flight.keep_logs(step.logs);
            in_flight.tracker.reused = step.reused;
            if completed.is_empty() {
                (in_flight.progress)(RunProgress::Waiting);
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => return Err(StopReason::Cancelled),
                    () = self.stopwatch.expired() => return Err(StopReason::WallTime),
                    next = in_flight.futures.next() => {
                        let message = "the program waits, and none of its calls is being executed";
                        completed.push(next.ok_or_else(|| StopReason::Internal(message.to_owned()))?);
                    }
                }
            }
            gather_answers(&mut in_flight.futures, &mut completed).await;
            for completed in completed {
                request.journal.push(self.settle(completed, in_flight));
            }
        }
    }

    /// Steps the program. Calls in flight go on meanwhile; those that end are added to `completed`.
    async fn step(
        &self,
        request: StepRequest,
        in_flight: &mut InFlight<'_>,
        completed: &mut Vec<Completed>,
    ) -> Result<(StepRequest, Result<Step, StopReason>), StopReason> {
        let (stepper, stopwatch) = (Arc::clone(&self.runner.stepper), Arc::clone(&self.stopwatch));
        let cancel = self.cancel.clone();
        let first_new_call = in_flight.tracker.next;
        let step = move || {
            let should_continue = || !cancel.is_cancelled() && !stopwatch.has_expired();
            let step = stepper.step_beyond(&request, first_new_call, &should_continue);
            (request, step)
        };
        let (request, step) = if in_flight.futures.is_empty() && may_block() {
            // This task has nothing else to do meanwhile, so it need not go to another thread and back.
            tokio::task::block_in_place(step)
        } else {
            let mut stepping = tokio::task::spawn_blocking(step);
            loop {
                tokio::select! {
                    biased;
                    done = &mut stepping => break done.map_err(|error| StopReason::Internal(error.to_string()))?,
                    Some(next) = in_flight.futures.next(), if !in_flight.futures.is_empty() => completed.push(next),
                }
            }
        };
        let step = step.map_err(|error| match error {
            StepError::Interrupted if self.cancel.is_cancelled() => StopReason::Cancelled,
            StepError::Interrupted => StopReason::WallTime,
            error => StopReason::Internal(error.to_string()),
        });
        Ok((request, step))
    }

    /// Starts to execute new calls.
    fn issue<'r>(&'r self, calls: Vec<Call>, in_flight: &mut InFlight<'r>) {
        for call in calls {
            let made = MadeCall::new(call.call, call.tool.as_str(), call.args.clone());
            in_flight.tracker.made.insert(call.call, made);
            in_flight.tracker.open.insert(call.call);
            in_flight.tracker.next = CallIndex(call.call.0 + 1);
            in_flight.report(&call.tool, CallPhase::Started);
            in_flight.futures.push(self.execute(call).boxed());
        }
    }

    async fn execute(&self, mut call: Call) -> Completed {
        let catalog = self.toolbox.catalog();
        let number = catalog.find(&call.tool).map(|tool| tool.0 as usize);
        let has_effects = number.is_some_and(|number| catalog.tools()[number].effect() == Effect::Write);
        let unanswered = || CompletedCall::with_outcome(call.tool.as_str(), &call.args, RecordedOutcome::Unknown);
        let unanswered = has_effects.then(unanswered);
        let (Some(number), Value::Object(args)) = (number, &mut call.args) else {
            let message = format!("`{}` is not a tool that takes an object", call.tool);
            return refused(call, message);
        };
        let tool = &catalog.tools()[number];
        let mut tool_call = ToolCall {
            server: tool.server.clone().unwrap_or_default(),
            tool: tool.name.clone(),
            args: std::mem::take(args),
            idempotency_key: std::mem::take(&mut call.key),
            approved: None,
        };
        let approver = StoppedWhileAsked { approver: self.approver, stopwatch: &self.stopwatch };
        let earlier = self.initial_decisions[number];
        let authorised = self.runner.gate.authorise(&mut tool_call, earlier, self.host, &approver, self.cancel).await;
        let output = match authorised {
            Err(CallError(denied)) => Err(denied),
            Ok(()) if self.cancel.is_cancelled() => Err("the program has ended".to_owned()),
            Ok(()) => {
                lock(&self.sent).insert(call.call, unanswered);
                Ok(self.host.call(&tool_call, self.cancel).await)
            }
        };
        // The journal records the arguments.
        call.args = Value::Object(std::mem::take(&mut tool_call.args));
        match output {
            Ok(output) => Completed { call, output, disposition: Disposition::Sent },
            Err(message) => refused(call, message),
        }
    }

    /// Notes that a call is over, and makes its journal entry.
    fn settle(&self, completed: Completed, in_flight: &mut InFlight<'_>) -> JournalEntry {
        let Completed { call, output, disposition } = completed;
        let tracker = &mut in_flight.tracker;
        tracker.open.remove(&call.call);
        match disposition {
            Disposition::Sent => tracker.completed.push(call.call),
            Disposition::Refused => tracker.refused.push(call.call),
        }
        let answer = match output {
            Ok(output) => self.keep_attachments(output, tracker),
            Err(CallError(message)) => Answer::Error { message, data: None },
        };
        let phase = match (disposition, &answer) {
            (Disposition::Refused, _) => CallPhase::Refused,
            (Disposition::Sent, Answer::Ok(_)) => CallPhase::Answered,
            (Disposition::Sent, Answer::Error { .. }) => CallPhase::Failed,
        };
        in_flight.report(&call.tool, phase);
        let entry = JournalEntry::new(call.call, call.tool, Some(&call.args), answer);
        (in_flight.progress)(RunProgress::Settled(&entry, phase));
        entry
    }

    fn keep_attachments(&self, output: ToolOutput, tracker: &mut CallTracker) -> Answer {
        let bytes: usize = output.attachments.iter().map(|attachment| attachment.block.to_string().len()).sum();
        let max = self.runner.limits.attachment_bytes;
        if tracker.attachment_bytes + bytes > max {
            let message = format!(
                "the answer's images and files would take the program beyond the limit `attachment_bytes` of {max}"
            );
            return Answer::Error { message, data: None };
        }
        tracker.attachment_bytes += bytes;
        tracker.attachments.extend(output.attachments);
        output.answer
    }
}

/// The time that a person takes to approve a call does not count.
struct StoppedWhileAsked<'a> {
    approver: &'a dyn Approver,
    stopwatch: &'a Stopwatch,
}

impl Approver for StoppedWhileAsked<'_> {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(async move {
            let _pause = self.stopwatch.pause();
            self.approver.approve(question).await
        })
    }
}

fn refused(call: Call, message: String) -> Completed {
    Completed { call, output: Err(CallError(message)), disposition: Disposition::Refused }
}

/// In a multi-threaded runtime, other threads take over the tasks of a thread that blocks.
fn may_block() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}
