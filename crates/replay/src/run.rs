//! One program while its journal is replayed.

use std::collections::{BTreeMap, BTreeSet};

use dacapo_catalog::{Decoded, OutOfBudget, ToolIndex, WorkBudget};
use dacapo_sandbox::{
    AnswerKind, FinalReport, IdleState, LogLevel, Sandbox, SandboxError, ShouldContinue, ShrunkVm, Stop, Vm,
};
use serde_json::json;

use crate::call_recorder::{CallRecorder, Callee, FUEL_PER_CHECK_STEP, Issued};
use crate::journal::{Answer, CallIndex, Journal, JournalEntry};
use crate::json_text::{JsonText, holds_big_integers};
use crate::limits::{Limit, Limits};
use crate::program::Program;
use crate::report;
use crate::step::{Call, ComparedCall, LogLine, Outcome, ProgramFailure, ResourceUsage, Step};

/// Fuel for looking at the shape of an answer.
const FUEL_PER_OBSERVED_BYTE: u64 = 10;

/// A program whose job queue is empty, with all journal answers so far settled.
pub(crate) struct ReplayRun<V = Vm<CallRecorder>> {
    vm: V,
    rest: Result<IdleState, Stop>,
    /// Journal entries settled.
    consumed: usize,
    /// The latest epoch in which an answered call was issued. Whoever answered it was handed all calls that were issued
    /// up to that epoch and still open.
    handed_out_epoch: Option<usize>,
    /// Calls that were open when the program returned, and that a warning has been logged for.
    left_behind: BTreeSet<CallIndex>,
}

/// The same while it is not expected to go on soon.
pub(crate) type ShrunkRun = ReplayRun<ShrunkVm<CallRecorder>>;

/// Why a run goes no further.
enum StepEnd {
    Paused(Vec<Call>),
    Finished,
    Deadlock,
    Diverged { entry: usize, actual: Option<ComparedCall> },
    Stopped(Stop),
}

impl From<Stop> for StepEnd {
    fn from(stop: Stop) -> StepEnd {
        StepEnd::Stopped(stop)
    }
}

/// The caller's [`ShouldContinue`] returned `false`. The run is lost, and nothing is known of the program.
#[derive(Debug)]
pub(crate) struct Interrupted;

/// What a run depends on besides its journal.
pub(crate) struct RunInputs<'a> {
    pub program: &'a Program,
    pub limits: &'a Limits,
    /// Calls before this one are not handed out again.
    pub new: CallIndex,
    pub should_continue: ShouldContinue<'a>,
}

impl ReplayRun {
    pub(crate) fn new(vm: Vm<CallRecorder>, rest: Result<IdleState, Stop>) -> ReplayRun {
        ReplayRun { vm, rest, consumed: 0, handed_out_epoch: None, left_behind: BTreeSet::new() }
    }

    /// Settles what the journal holds beyond what is settled already, until it is used up or the program is done.
    pub(crate) fn advance(&mut self, journal: &Journal, inputs: &RunInputs<'_>) -> Result<Step, Interrupted> {
        let end = self.walk(journal, inputs);
        self.conclude(end, journal, inputs)
    }

    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }

    /// What it has taken so far, and what replaying it would take.
    pub(crate) fn fuel_used(&self) -> u64 {
        self.vm.fuel_used()
    }

    /// Without its memory, unless more than `bytes_max` would be left of it.
    pub(crate) fn shrink(self, bytes_max: usize) -> Option<ShrunkRun> {
        let ReplayRun { vm, rest, consumed, handed_out_epoch, left_behind } = self;
        Some(ReplayRun { vm: vm.shrink(bytes_max)?, rest, consumed, handed_out_epoch, left_behind })
    }

    /// Its own memory, and what is kept of its calls and logs.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.vm.memory_bytes() + self.vm.reported_bytes() + self.vm.host().held_bytes()
    }

    fn walk(&mut self, journal: &Journal, inputs: &RunInputs<'_>) -> StepEnd {
        loop {
            match self.advance_once(journal, inputs) {
                Ok(rest) => self.rest = Ok(rest),
                Err(end) => return end,
            }
        }
    }

    /// Does the one thing that comes next when the job queue is empty.
    fn advance_once(&mut self, journal: &Journal, inputs: &RunInputs<'_>) -> Result<IdleState, StepEnd> {
        let rest = self.rest.clone()?;
        if rest == IdleState::Rejected {
            return Err(StepEnd::Finished);
        }
        if let Some(call) = self.vm.host_mut().at_hand.pop_front() {
            let answer = self.vm.host().answer(call);
            return self.settle(call, &answer, inputs);
        }
        if self.needed_calls(rest).next().is_none() {
            return match rest {
                IdleState::Fulfilled => Err(StepEnd::Finished),
                IdleState::WaitingForTimer => Ok(self.vm.tick(inputs.should_continue)?),
                _ => Err(StepEnd::Deadlock),
            };
        }
        if rest == IdleState::Fulfilled {
            self.warn_of_left_behind();
        }
        let Some(entry) = journal.entries().get(self.consumed) else {
            return Err(StepEnd::Paused(self.calls(rest, inputs)));
        };
        self.compare(entry).map_err(|actual| StepEnd::Diverged { entry: self.consumed, actual })?;
        self.consumed += 1;
        let recorder = self.vm.host_mut();
        recorder.epoch = self.consumed;
        let issued = recorder.calls[entry.call.0 as usize].epoch;
        self.handed_out_epoch = self.handed_out_epoch.max(Some(issued));
        self.settle(entry.call, &entry.answer, inputs)
    }

    /// Calls that must be answered before the program is done. Once it has returned, those are the open calls that have
    /// never been handed out: no issued call is lost.
    fn needed_calls(&self, rest: IdleState) -> impl Iterator<Item = CallIndex> {
        let is_needed = move |call: &CallIndex, issued: &Issued| {
            rest != IdleState::Fulfilled
                || self.left_behind.contains(call)
                || self.handed_out_epoch.is_none_or(|epoch| issued.epoch > epoch)
        };
        self.vm.host().open().filter(move |(call, issued)| is_needed(call, issued)).map(|(call, _)| call)
    }

    fn warn_of_left_behind(&mut self) {
        let needed = self.needed_calls(IdleState::Fulfilled);
        let fresh: Vec<CallIndex> = needed.filter(|call| !self.left_behind.contains(call)).collect();
        if fresh.is_empty() {
            return;
        }
        self.left_behind.extend(&fresh);
        let recorder = self.vm.host();
        let names: Vec<String> = fresh
            .iter()
            .map(|call| recorder.made(*call, &recorder.calls[call.0 as usize]))
            .map(|made| format!("{} ({})", made.tool, made.call))
            .collect();
        let text = format!("the program returned without awaiting {}; executed all the same", names.join(", "));
        self.vm.host_mut().logs.push(LogLine { level: LogLevel::Warn, text });
    }

    fn calls(&self, rest: IdleState, inputs: &RunInputs<'_>) -> Vec<Call> {
        let recorder = self.vm.host();
        let key = inputs.program.keys();
        let call = |call: CallIndex| {
            let issued = &recorder.calls[call.0 as usize];
            Call { call, tool: recorder.made(call, issued).tool, args: issued.args(), key: key(call) }
        };
        self.needed_calls(rest).filter(|call| *call >= inputs.new).map(call).collect()
    }

    /// Checks that this entry answers a call that this run made and that is still open; `Err` with the call that it made
    /// instead.
    fn compare(&self, entry: &JournalEntry) -> Result<(), Option<ComparedCall>> {
        let recorder = self.vm.host();
        let Some(issued) = recorder.get(entry.call) else { return Err(None) };
        let tool = recorder.name(issued);
        if tool == entry.tool && entry.args.match_canonical(&issued.canonical) && recorder.is_open(entry.call) {
            return Ok(());
        }
        Err(Some(ComparedCall { tool: tool.to_owned(), args: Some(issued.args()) }))
    }

    fn settle(&mut self, call: CallIndex, answer: &Answer, inputs: &RunInputs<'_>) -> Result<IdleState, StepEnd> {
        self.vm.host_mut().close(call);
        let recorder = self.vm.host();
        let issued = &recorder.calls[call.0 as usize];
        let (string, error);
        let (kind, text) = match answer {
            Answer::Ok(json) => {
                string = json.as_string();
                match (&issued.callee, string.as_deref()) {
                    (&Callee::Tool(tool), Some(text)) => match self.decode(tool, text, inputs)? {
                        Decoded::Json(json) => (json_kind(json), json),
                        Decoded::Text => (AnswerKind::Text, text),
                    },
                    _ => (json_kind(json.as_str()), json.as_str()),
                }
            }
            Answer::Error { message, data } => {
                error = error_json(recorder.name(issued), message, data.as_ref());
                (AnswerKind::Error, error.as_str())
            }
        };
        let observed = match self.vm.host().calls[call.0 as usize].callee {
            Callee::Tool(tool) if kind != AnswerKind::Error && kind != AnswerKind::Text => Some(tool),
            _ => None,
        };
        if let Some(tool) = observed.filter(|tool| self.vm.host().is_observed(*tool)) {
            self.vm.charge(text.len() as u64 * FUEL_PER_OBSERVED_BYTE, inputs.should_continue)?;
            self.vm.host_mut().observe(tool, text);
        }
        Ok(self.vm.settle(call.0, kind, text, inputs.should_continue)?)
    }

    fn decode<'a>(&mut self, tool: ToolIndex, text: &'a str, inputs: &RunInputs<'_>) -> Result<Decoded<'a>, Stop> {
        let mut budget = WorkBudget::new(self.vm.fuel_left() / FUEL_PER_CHECK_STEP);
        let decoded = self.vm.host().toolbox().catalog().decode_within(tool, text, &mut budget);
        self.vm.charge(budget.spent() * FUEL_PER_CHECK_STEP, inputs.should_continue)?;
        decoded.map_err(|OutOfBudget| Stop::OutOfFuel(Vec::new()))
    }

    fn conclude(&mut self, end: StepEnd, journal: &Journal, inputs: &RunInputs<'_>) -> Result<Step, Interrupted> {
        let outcome = match end {
            StepEnd::Paused(calls) => return Ok(self.step(Outcome::Paused { calls })),
            StepEnd::Finished => match self.finish(inputs) {
                Ok(ending) => self.unused_entry(journal).map_or_else(
                    || report::ending(ending, inputs),
                    |(entry, actual)| Err(report::diverged(journal, entry, actual)),
                ),
                Err(stop) => Err(self.stopped(stop, inputs)?),
            },
            StepEnd::Deadlock => match self.finish(inputs) {
                Ok(_) => Err(report::deadlock()),
                Err(stop) => Err(self.stopped(stop, inputs)?),
            },
            StepEnd::Diverged { entry, actual } => Err(report::diverged(journal, entry, actual)),
            StepEnd::Stopped(stop) => Err(self.stopped(stop, inputs)?),
        };
        let result = outcome.map_err(|mut failure| {
            self.list_calls(&mut failure, &self.answers(journal));
            failure
        });
        let record = match &result {
            Ok(_) => self.vm.host().unused_record(),
            Err(_) => self.vm.host().record(&self.answers_in_order(journal)),
        };
        Ok(Step { record, ..self.step(Outcome::Finished { result }) })
    }

    /// Takes the result or the error, and logs the rejections that nobody handled.
    fn finish(&mut self, inputs: &RunInputs<'_>) -> Result<FinalReport, Stop> {
        let ending = self.vm.finish(inputs.should_continue)?;
        self.vm.host_mut().logs.extend(report::unhandled(&ending.unhandled, inputs.program));
        Ok(ending)
    }

    /// Answers that the program did not wait for must still be answers to calls it made.
    fn unused_entry(&self, journal: &Journal) -> Option<(usize, Option<ComparedCall>)> {
        let rest = journal.entries().iter().enumerate().skip(self.consumed);
        rest.map(|(at, entry)| (at, self.compare(entry))).find_map(|(at, same)| same.err().map(|actual| (at, actual)))
    }

    fn stopped(&mut self, stop: Stop, inputs: &RunInputs<'_>) -> Result<Box<ProgramFailure>, Interrupted> {
        let (limit, places) = match stop {
            Stop::Interrupted => return Err(Interrupted),
            Stop::Fault(what) => return Ok(report::internal(&what)),
            Stop::OutOfFuel(places) => (Limit::Fuel, places),
            Stop::OutOfMemory => (Limit::MemoryBytes, Vec::new()),
            Stop::StackExhausted => (Limit::StackBytes, Vec::new()),
            Stop::ByHost(places) => {
                (self.vm.host().exceeded.expect("the recorder notes the limit before it stops a program"), places)
            }
        };
        Ok(report::limit(limit, &places, inputs))
    }

    /// The journal's answers to this run's calls, settled or not, in the order of the journal.
    fn answers_in_order<'a>(&self, journal: &'a Journal) -> Vec<(CallIndex, &'a Answer)> {
        let (settled, rest) = journal.entries().split_at(self.consumed);
        let late = rest.iter().filter(|entry| self.compare(entry).is_ok());
        settled.iter().chain(late).map(|entry| (entry.call, &entry.answer)).collect()
    }

    fn answers<'a>(&self, journal: &'a Journal) -> BTreeMap<CallIndex, &'a Answer> {
        self.answers_in_order(journal).into_iter().collect()
    }

    fn list_calls(&self, failure: &mut ProgramFailure, answers: &BTreeMap<CallIndex, &Answer>) {
        let recorder = self.vm.host();
        for (call, issued) in recorder.numbered().filter(|(_, issued)| matches!(issued.callee, Callee::Tool(_))) {
            let done = issued.is_reused() || answers.contains_key(&call);
            let list = if done { &mut failure.completed } else { &mut failure.unfinished };
            list.push(recorder.made(call, issued));
        }
    }

    fn step(&mut self, outcome: Outcome) -> Step {
        let usage = ResourceUsage { fuel: self.vm.fuel_used(), memory_bytes: self.vm.memory_bytes() };
        let recorder = self.vm.host();
        let reused = recorder.numbered().filter(|(_, issued)| issued.is_reused());
        let reused = reused.map(|(call, issued)| recorder.made(call, issued)).collect();
        let failure = match &outcome {
            Outcome::Finished { result: Err(failure) } => Some(&failure.kind),
            _ => None,
        };
        let stored = recorder.stored(failure);
        let shapes = if matches!(outcome, Outcome::Finished { .. }) { recorder.shapes() } else { Vec::new() };
        Step { outcome, logs: recorder.logs.clone(), usage, reused, record: Vec::new(), stored, shapes }
    }
}

impl ShrunkRun {
    /// With a memory again; `Err` if there is none.
    pub(crate) fn restore(self, sandbox: &Sandbox<CallRecorder>) -> Result<ReplayRun, SandboxError> {
        let ReplayRun { vm, rest, consumed, handed_out_epoch, left_behind } = self;
        Ok(ReplayRun { vm: sandbox.restore(vm)?, rest, consumed, handed_out_epoch, left_behind })
    }

    /// What is left of its memory, and what is kept of its calls and logs.
    pub(crate) fn bytes(&self) -> usize {
        self.vm.bytes() + self.vm.host().held_bytes()
    }
}

fn json_kind(json: &str) -> AnswerKind {
    if holds_big_integers(json) { AnswerKind::JsonWithBigIntegers } else { AnswerKind::Json }
}

fn error_json(tool: &str, message: &str, data: Option<&JsonText>) -> String {
    let head = json!({ "message": message, "tool": tool }).to_string();
    match data {
        Some(data) => format!("{},\"data\":{}}}", &head[..head.len() - 1], data.as_str()),
        None => head,
    }
}
