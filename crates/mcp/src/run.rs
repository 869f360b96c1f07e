//! Runs a program to its end, with its calls executed by their owners.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dacapo_replay::{
    Answer, Call, CallIndex, JournalEntry, Limits, LogLine, MadeCall, Outcome, Program, SandboxError, Step, StepError,
    StepRequest, Stepper, Tool, Toolbox, WarmPrograms,
};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;

use crate::approval::{Approval, Approver};
use crate::ask::{Ask, Owners, Refusal, Told};
use crate::execution::{Execution, Fault, StopKind, Stopped};
use crate::flights::{Fate, Flights, Landed, Round, in_order_of_handles};
use crate::lock::lock;
use crate::policy::{Decision, Denial, Policy};
use crate::stopwatch::Stopwatch;

/// What a program may use up here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLimits {
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

/// Runs programs. One per process; shared by all who have programs to run.
#[derive(Debug)]
pub struct Runner {
    stepper: Arc<Stepper>,
    policy: Policy,
    limits: RunLimits,
    /// What was decided at the start of the last program, as long as the tools stay the same.
    standing: Mutex<(Weak<Toolbox>, Arc<[Decision]>)>,
}

/// A call that began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// `server.tool`
    pub tool: &'a str,
    pub moment: Moment,
    /// Calls that have ended so far.
    pub done: usize,
    /// Calls that the program has made so far.
    pub made: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Began,
    Answered,
    Failed,
    /// It was not made.
    Refused,
}

/// Who is told of progress.
pub type Watcher<'a> = &'a (dyn Fn(Progress<'_>) + Send + Sync);

/// Programs that stay in memory while their calls run; more are replayed, which takes longer and changes nothing.
const WARM: WarmPrograms = WarmPrograms { count_max: 64, bytes_max: 2 << 30 };

/// Calls that are no longer needed may take this long to say so to their servers.
const FAREWELL: Duration = Duration::from_millis(200);

impl Runner {
    pub fn new(policy: Policy, limits: RunLimits) -> Result<Runner, SandboxError> {
        let standing = Mutex::new((Weak::new(), Arc::default()));
        Ok(Runner { stepper: Arc::new(Stepper::new(WARM)?), policy, limits, standing })
    }

    /// Ends when the program has, or soon after `cancel`. Calls that are then in flight are cancelled.
    pub async fn run(
        &self,
        program: &str,
        owners: &dyn Owners,
        approver: &dyn Approver,
        watcher: Watcher<'_>,
        cancel: &CancellationToken,
    ) -> Execution {
        let began = Instant::now();
        let toolbox = owners.toolbox();
        let standing = self.standing(&toolbox, owners);
        let mut request = StepRequest::new(fresh(program), Arc::clone(&toolbox));
        request.limits = self.limits.program.clone();
        let inner = cancel.child_token();
        let world = World {
            runner: self,
            owners,
            approver,
            toolbox: &toolbox,
            standing: &standing,
            sent: Mutex::default(),
            stopwatch: Arc::new(Stopwatch::start(self.limits.wall)),
            cancel: &inner,
        };
        let mut round = Round { flying: FuturesUnordered::new(), flights: Flights::default(), watcher };
        let end = world.play(request, &mut round).await;
        inner.cancel();
        let Round { mut flying, mut flights, .. } = round;
        let farewell = async { while flying.next().await.is_some() {} };
        // Whoever does not end in time is dropped.
        tokio::time::timeout(FAREWELL, farewell).await.unwrap_or_default();
        drop(flying);
        let sent = std::mem::take(&mut *lock(&world.sent));
        flights.completed.sort_by_key(|made| made.call);
        let (result, logs) = match end {
            Ok((Err(Fault::Failed(mut failure)), logs)) => {
                failure.completed.clone_from(&flights.completed);
                failure.unfinished.retain(|made| !flights.has_settled(made.call));
                (Err(Fault::Failed(failure)), logs)
            }
            Ok((result, logs)) => (result, logs),
            Err(kind) => (Err(Fault::Stopped(Box::new(self.stopped(kind, &flights)))), flights.logs.clone()),
        };
        let mut calls = BTreeMap::new();
        for tool in sent.values() {
            *calls.entry(tool.clone()).or_default() += 1;
        }
        let unfinished = flights.unfinished().into_iter().filter(|made| sent.contains_key(&made.call)).collect();
        let attachments = match &result {
            Ok(data) => in_order_of_handles(flights.attachments, data.get()),
            Err(_) => Vec::new(),
        };
        let refused = flights.refused;
        Execution { result, logs, calls, refused, unfinished, attachments, duration: began.elapsed() }
    }

    /// What the policy says of every tool now. A tool may leave its list or change in it while a program runs; what
    /// was said of it before must not be forgotten then.
    fn standing(&self, toolbox: &Arc<Toolbox>, owners: &dyn Owners) -> Arc<[Decision]> {
        let mut standing = lock(&self.standing);
        if !standing.0.upgrade().is_some_and(|known| Arc::ptr_eq(&known, toolbox)) {
            let decide = |tool: &Tool| {
                let server = tool.server.as_deref().unwrap_or_default();
                self.policy.decide(server, &tool.name, &owners.annotations(server, &tool.name))
            };
            *standing = (Arc::downgrade(toolbox), toolbox.catalog().tools().iter().map(decide).collect());
        }
        Arc::clone(&standing.1)
    }

    fn stopped(&self, why: Why, flights: &Flights) -> Stopped {
        let (kind, message) = match why {
            Why::WallTime => {
                let seconds = self.limits.wall.as_secs_f64();
                let waiting = match flights.unfinished().len() {
                    0 => "while it computed".to_owned(),
                    calls => format!("while it waited for {calls} of its calls"),
                };
                let advice = "do less in one program, or raise `dacapo.limits.wall_seconds` in the configuration";
                (StopKind::Limit, format!("the program was stopped after {seconds} s, {waiting}; {advice}"))
            }
            Why::Cancelled => (StopKind::Cancelled, "the program was cancelled".to_owned()),
            Why::Broken(message) => (StopKind::Internal, message),
        };
        let (completed, unfinished) = (flights.completed.clone(), flights.unfinished());
        Stopped { kind, name: kind.name(), message, completed, unfinished }
    }
}

/// A program in a world of its own: a run here is not repeated elsewhere.
fn fresh(code: &str) -> Program {
    let mut program = Program::new(code);
    let mut chance = [0; 16];
    getrandom::fill(&mut chance).expect("the system has randomness");
    program.seed = u128::from_le_bytes(chance).to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    program.started_at_ms = (now.as_secs_f64() * 1000.0).trunc();
    program
}

/// Why a program was ended from outside.
enum Why {
    WallTime,
    Cancelled,
    Broken(String),
}

type End = (Result<Box<serde_json::value::RawValue>, Fault>, Vec<LogLine>);

/// What the calls of one program share.
struct World<'a> {
    runner: &'a Runner,
    owners: &'a dyn Owners,
    approver: &'a dyn Approver,
    toolbox: &'a Toolbox,
    /// By the number of the tool.
    standing: &'a [Decision],
    /// Calls that have gone to their owners, whatever came of them.
    sent: Mutex<BTreeMap<CallIndex, String>>,
    stopwatch: Arc<Stopwatch>,
    cancel: &'a CancellationToken,
}

impl World<'_> {
    async fn play<'r>(&'r self, mut request: StepRequest, round: &mut Round<'r>) -> Result<End, Why> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Why::Cancelled);
            }
            if self.stopwatch.is_over() {
                return Err(Why::WallTime);
            }
            let mut landed = Vec::new();
            let step;
            (request, step) = self.step(request, round, &mut landed).await?;
            match step.outcome {
                Outcome::Finished { result } => {
                    // The program does not see these answers, but they are known.
                    for landed in landed {
                        drop(self.settle(landed, round));
                    }
                    return Ok((result.map_err(Fault::Failed), step.logs));
                }
                Outcome::Paused { calls } => self.issue(calls, round),
            }
            round.flights.logs = step.logs;
            if landed.is_empty() {
                tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => return Err(Why::Cancelled),
                    () = self.stopwatch.over() => return Err(Why::WallTime),
                    next = round.flying.next() => match next {
                        Some(next) => landed.push(next),
                        None => return Err(Why::Broken("the program waits, and none of its calls is on its way".to_owned())),
                    },
                }
            }
            round.gather(&mut landed).await;
            for landed in landed {
                request.journal.push(self.settle(landed, round));
            }
        }
    }

    /// Computes, while calls in flight go on.
    async fn step(
        &self,
        request: StepRequest,
        round: &mut Round<'_>,
        landed: &mut Vec<Landed>,
    ) -> Result<(StepRequest, Step), Why> {
        let (stepper, stopwatch) = (Arc::clone(&self.runner.stepper), Arc::clone(&self.stopwatch));
        let cancel = self.cancel.clone();
        let new = round.flights.next();
        let step = move || {
            let step = stepper.step_beyond(&request, new, &|| !cancel.is_cancelled() && !stopwatch.is_over());
            (request, step)
        };
        let (request, step) = if round.flying.is_empty() && may_block() {
            // Nothing of this task goes on meanwhile, so the way to another thread and back is saved.
            tokio::task::block_in_place(step)
        } else {
            let mut stepping = tokio::task::spawn_blocking(step);
            loop {
                tokio::select! {
                    biased;
                    done = &mut stepping => break done.map_err(|error| Why::Broken(error.to_string()))?,
                    Some(next) = round.flying.next(), if !round.flying.is_empty() => landed.push(next),
                }
            }
        };
        match step {
            Ok(step) => Ok((request, step)),
            Err(StepError::Interrupted) if self.cancel.is_cancelled() => Err(Why::Cancelled),
            Err(StepError::Interrupted) => Err(Why::WallTime),
            Err(error) => Err(Why::Broken(error.to_string())),
        }
    }

    /// Sends out new calls.
    fn issue<'r>(&'r self, calls: Vec<Call>, round: &mut Round<'r>) {
        for call in calls {
            round.flights.issued.insert(call.call);
            round.flights.open.insert(call.call, call.tool.clone());
            round.tell(&call.tool, Moment::Began);
            round.flying.push(self.execute(call).boxed());
        }
    }

    async fn execute(&self, call: Call) -> Landed {
        let catalog = self.toolbox.catalog();
        let number = catalog.find(&call.tool).map(|tool| tool.0 as usize);
        let (Some(number), Value::Object(args)) = (number, &call.args) else {
            let refusal = Refusal(format!("`{}` is not a tool that takes an object", call.tool));
            return Landed { call, told: Err(refusal), fate: Fate::Refused };
        };
        let tool = &catalog.tools()[number];
        let ask = Ask {
            server: tool.server.clone().unwrap_or_default(),
            tool: tool.name.clone(),
            args: args.clone(),
            key: call.key.clone(),
        };
        if let Err(denial) = self.authorise(&ask, self.standing[number]).await {
            let refusal = Refusal(denial.message(&ask.server, &ask.tool));
            return Landed { call, told: Err(refusal), fate: Fate::Refused };
        }
        if self.cancel.is_cancelled() {
            let refusal = Refusal("the program has ended".to_owned());
            return Landed { call, told: Err(refusal), fate: Fate::Refused };
        }
        lock(&self.sent).insert(call.call, call.tool.clone());
        Landed { call, told: self.owners.call(&ask, self.cancel).await, fate: Fate::Sent }
    }

    /// The stricter of what was decided when the program started and what would be decided now.
    async fn authorise(&self, ask: &Ask, standing: Decision) -> Result<(), Denial> {
        if standing != Decision::Deny {
            self.owners.confirmed(&ask.server, self.cancel).await;
        }
        let annotations = self.owners.annotations(&ask.server, &ask.tool);
        match standing.max(self.runner.policy.decide(&ask.server, &ask.tool, &annotations)) {
            Decision::Allow => Ok(()),
            Decision::Deny => Err(Denial::ByPolicy),
            Decision::Ask => {
                let pause = self.stopwatch.pause();
                let approval = self.approver.approve(ask).await;
                drop(pause);
                match approval {
                    Approval::Given => Ok(()),
                    Approval::Declined => Err(Denial::ByPerson),
                    Approval::Nobody => Err(Denial::NobodyToAsk),
                }
            }
        }
    }

    fn settle(&self, landed: Landed, round: &mut Round<'_>) -> JournalEntry {
        let Landed { call, told, fate } = landed;
        let flights = &mut round.flights;
        flights.open.remove(&call.call);
        let made = MadeCall { call: call.call, tool: call.tool.clone() };
        match fate {
            Fate::Sent => flights.completed.push(made),
            Fate::Refused => flights.refused.push(made),
        }
        let answer = match told {
            Ok(told) => self.keep(told, flights),
            Err(Refusal(message)) => Answer::Error { message, data: None },
        };
        let moment = match (fate, &answer) {
            (Fate::Refused, _) => Moment::Refused,
            (Fate::Sent, Answer::Ok(_)) => Moment::Answered,
            (Fate::Sent, Answer::Error { .. }) => Moment::Failed,
        };
        round.tell(&call.tool, moment);
        JournalEntry::new(call.call, call.tool, Some(&call.args), answer)
    }

    fn keep(&self, told: Told, flights: &mut Flights) -> Answer {
        let bytes: usize = told.attachments.iter().map(|attachment| attachment.block.to_string().len()).sum();
        let max = self.runner.limits.attachment_bytes;
        if flights.attachment_bytes + bytes > max {
            let message = format!(
                "the answer's images and files would take the program beyond the limit `attachment_bytes` of {max}"
            );
            return Answer::Error { message, data: None };
        }
        flights.attachment_bytes += bytes;
        flights.attachments.extend(told.attachments);
        told.answer
    }
}

/// Would others take over what this thread has to do?
fn may_block() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}
