//! One program, run again answer by answer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::{
    Answer, ArgsDigest, Call, CompletedCall, ErrorKind, Journal, JournalEntry, JsonText, Limit, Outcome, Program,
    ProgramFailure, RecordedOutcome, Step, StepRequest, StoredValues,
};
use dacapo_wire::{CallRound, ExpectedCall, Intent, IssuedCall, ProgramBlock};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Inspection;
use super::explanation::{
    AnsweredWith, Attempt, BlockExplanation, CallExplanation, ModelReads, Point, ProgramText, ReplayStatus,
    ReplayVerdict,
};
use crate::turn::HistoryReplay;

/// With more answers, a point stands for several.
const POINTS_MAX: usize = 1_000;

/// A program that was run to the last of its answers.
pub(super) struct Played {
    /// Its journal has the answers that it got.
    pub request: StepRequest,
    pub points: Vec<Point>,
    pub end: Option<Step>,
    /// The calls that it made, with the number of answers that it had then.
    pub issued: BTreeMap<u32, (usize, Call)>,
}

impl Played {
    /// The answers that it got, in order.
    pub(super) fn settled(&self) -> &[JournalEntry] {
        self.request.journal.entries()
    }

    pub(super) fn failure(&self) -> Option<&ProgramFailure> {
        match &self.end.as_ref()?.outcome {
            Outcome::Finished { result: Err(failure) } => Some(failure),
            _ => None,
        }
    }

    fn add(&mut self, step: Step) {
        let waiting = match &step.outcome {
            Outcome::Paused { calls } => calls.as_slice(),
            Outcome::Finished { .. } => &[],
        };
        let answers = self.settled().len();
        let known = self.issued.last_key_value().map_or(0, |(last, _)| last + 1);
        // Calls are numbered in issue order, so the new ones are at the end.
        for call in waiting.iter().rev().take_while(|call| call.call.0 >= known) {
            self.issued.insert(call.call.0, (answers, call.clone()));
        }
        self.points.push(Point {
            answers,
            finished: matches!(step.outcome, Outcome::Finished { .. }),
            waiting: waiting.len(),
            logs: step.logs.len(),
            fuel: step.usage.fuel,
            memory_bytes: step.usage.memory_bytes,
        });
        self.end = Some(step);
    }

    fn waiting(&self) -> &[Call] {
        match self.end.as_ref().map(|end| &end.outcome) {
            Some(Outcome::Paused { calls }) => calls,
            _ => &[],
        }
    }
}

/// A program as far as a history tells of it.
struct RecordedProgram {
    /// What the program can be given. After a gap it is nothing.
    journal: Journal,
    calls: Vec<CallExplanation>,
    gap: Option<(ReplayStatus, String)>,
}

/// What earlier programs left to a program.
#[derive(Debug, Default)]
pub(super) struct ProgramInputs {
    pub record: Vec<CompletedCall>,
    pub stored: StoredValues,
}

impl Inspection<'_> {
    /// Runs a program with recorded answers, then with those that `next` finds for calls that wait.
    pub(super) fn play(
        &self,
        request: StepRequest,
        entries: Vec<JournalEntry>,
        mut next: impl FnMut(&[Call]) -> Option<JournalEntry>,
    ) -> Played {
        let stride = entries.len().div_ceil(POINTS_MAX).max(1);
        let mut entries = entries.into_iter();
        let mut played = Played { request, points: Vec::new(), end: None, issued: BTreeMap::new() };
        loop {
            let Ok(step) = self.stepper.step(&played.request, self.should_continue) else {
                played.end = None;
                return played;
            };
            played.add(step);
            if matches!(played.failure(), Some(failure) if is_diverged(failure)) {
                return played;
            }
            let answers = played.settled().len();
            entries.by_ref().take(stride).for_each(|entry| played.request.journal.push(entry));
            if played.settled().len() == answers {
                let Some(entry) = next(played.waiting()) else { return played };
                played.request.journal.push(entry);
            }
        }
    }

    /// Explains a program of a conversation. `given` is what it was run with, if it could be run.
    pub(super) fn block(
        &self,
        number: usize,
        block: &ProgramBlock,
        replay: &HistoryReplay<'_>,
        given: &BTreeMap<String, ProgramInputs>,
    ) -> BlockExplanation {
        let program = block.state.waiting();
        let inputs = given.get(&program.id);
        let RecordedProgram { journal, mut calls, gap } = recorded_program(block);
        let mut entries = journal.into_entries();
        let is_stopped = match self.stop {
            Some(stop) if stop.block.is_none_or(|of| of == number) && entries.len() > stop.answers => {
                entries.truncate(stop.answers);
                true
            }
            _ => false,
        };
        let is_orphaned = block.state.record.is_some() && inputs.is_none();
        let nothing = ProgramInputs::default();
        let ProgramInputs { record: reuse, stored } = inputs.unwrap_or(&nothing);
        let answered = entries.len();
        let request = replay.request_of(block, program, reuse, stored);
        let mut played = self.play(request, entries, |_| None);
        let verdict = if is_orphaned {
            let message = "calls of an earlier program that it relied on are not in the conversation any more";
            ReplayVerdict { status: ReplayStatus::Orphaned, message: message.to_owned(), call: None }
        } else {
            verdict(block, &played, gap, is_stopped)
        };
        for call in &mut calls {
            if let Some((issued, made)) = played.issued.remove(&call.call) {
                call.issued = Some(issued);
                call.args.get_or_insert(made.args);
            }
            if call.settled.is_some_and(|place| place > answered) {
                (call.settled, call.answer, call.bytes) = (None, None, 0);
            }
        }
        let mut explained = explained(number, block.run.as_str().to_owned(), played, calls);
        explained.attempts = self.attempts(block, replay, given);
        explained.replay = verdict;
        explained
    }

    /// Programs before this one in the same turn.
    fn attempts(
        &self,
        block: &ProgramBlock,
        replay: &HistoryReplay<'_>,
        given: &BTreeMap<String, ProgramInputs>,
    ) -> Vec<Attempt> {
        let Some((_, before)) = block.state.model_messages.split_last() else { return Vec::new() };
        let attempt = |(at, message): (usize, &dacapo_wire::ModelMessage)| {
            let Intent::Program { code, .. } = message.intent(replay.model_tools) else { return None };
            let program = block.state.program(at, &code);
            let nothing = ProgramInputs::default();
            let ProgramInputs { record, stored } = given.get(&program.id).unwrap_or(&nothing);
            let request = replay.request_of(block, program, record, stored);
            let end = self.stepper.step(&request, self.should_continue).ok();
            Some(Attempt { program: program_text(request.program), end })
        };
        before.iter().enumerate().filter_map(attempt).collect()
    }
}

pub(super) fn explained(number: usize, run: String, played: Played, calls: Vec<CallExplanation>) -> BlockExplanation {
    let StepRequest { program, reuse, limits, .. } = played.request;
    let answer_bytes: usize = calls.iter().filter(|call| call.settled.is_some()).map(|call| call.bytes).sum();
    let result = played.end.as_ref().and_then(|end| match &end.outcome {
        Outcome::Finished { .. } => serde_json::to_string(&end.outcome).ok(),
        Outcome::Paused { .. } => None,
    });
    let tokens = |bytes: usize| (bytes / BYTES_PER_TOKEN) as u64;
    let kept_out = result.as_ref().map_or(0, |result| tokens(answer_bytes.saturating_sub(result.len())));
    BlockExplanation {
        number,
        run,
        program: program_text(program),
        attempts: Vec::new(),
        calls,
        points: played.points,
        end: played.end,
        reuse: reuse.iter().filter_map(reused_call).collect(),
        limits: Limit::ALL.iter().map(|limit| (limit.name(), limits.get(*limit))).collect(),
        tokens: ModelReads {
            answers: tokens(answer_bytes),
            result: tokens(result.map_or(0, |text| text.len())),
            kept_out,
        },
        replay: ReplayVerdict { status: ReplayStatus::Exact, message: String::new(), call: None },
    }
}

fn program_text(program: Program) -> ProgramText {
    ProgramText { code: program.code, id: program.id, seed: program.seed, started_at: program.started_at_ms }
}

/// A completed call as a step request takes it; `None` if not enough is known of it.
fn reused_call(call: &CompletedCall) -> Option<Value> {
    let RecordedOutcome::Ok(ok) = &call.outcome else { return None };
    let ok: Value = serde_json::from_str(ok.as_str()).ok()?;
    Some(json!({"tool": call.tool()?, "args": call.args()?, "ok": ok}))
}

pub(super) fn answered_with(answer: &Answer) -> (AnsweredWith, usize) {
    let raw =
        |json: &JsonText| RawValue::from_string(json.as_str().to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    let answered = match answer {
        Answer::Ok(json) => AnsweredWith::Ok(raw(json)),
        Answer::Error { message, data } => {
            AnsweredWith::Error { message: message.clone(), data: data.as_ref().map(raw) }
        }
    };
    (answered, answer.size())
}

pub(super) fn is_diverged(failure: &ProgramFailure) -> bool {
    matches!(failure.kind, ErrorKind::Diverged { .. })
}

/// Reads calls and answers out of a history, also where the program could not go on with them.
fn recorded_program(block: &ProgramBlock) -> RecordedProgram {
    let mut args: BTreeMap<u32, Option<Value>> = BTreeMap::new();
    for sent in block.sent_calls() {
        args.insert(sent.index().0, sent.args().map(Cow::into_owned));
    }
    let mut recorded = RecordedProgram { journal: Journal::default(), calls: Vec::new(), gap: None };
    let mut known = BTreeSet::new();
    for (round, number) in block.rounds.iter().zip(0..) {
        if recorded.gap.is_none() && round.number != number {
            let message = format!("round {} is not in the conversation any more", number + 1);
            recorded.gap = Some((ReplayStatus::Trimmed, message));
        }
        match round.owned.entries() {
            Some(entries) => entries.iter().for_each(|entry| recorded.add_executed(entry, round.number)),
            None if recorded.gap.is_none() => {
                let message = "answers to calls that the gateway executed are in its store only".to_owned();
                recorded.gap = Some((ReplayStatus::Trimmed, message));
            }
            None => {}
        }
        if recorded.gap.is_none() && round.answered.is_some_and(|before| before != recorded.journal.fingerprint()) {
            let message = if number == 0 {
                "the program was sent with other answers than the conversation has".to_owned()
            } else {
                format!("an answer in round {number} was changed after the program had gone on")
            };
            recorded.gap = Some((ReplayStatus::Edited, message));
        }
        let is_trimmed = matches!(recorded.gap, Some((ReplayStatus::Trimmed, _)));
        let answers = answers(round);
        let unanswered = round.calls.iter().filter(|call| call.answer.is_none()).map(|call| (call, None));
        for (call, answer) in answers.into_iter().map(|(call, answer)| (call, Some(answer))).chain(unanswered) {
            let index = call.expected.index().0;
            if !known.insert(index) {
                continue;
            }
            let mut explained = CallExplanation {
                call: index,
                round: round.number as usize + 1,
                tool: call.tool.clone(),
                args: args.remove(&index).flatten(),
                issued: None,
                settled: None,
                answer: None,
                bytes: 0,
            };
            if let Some(answer) = answer {
                let (answered, bytes) = answered_with(answer);
                (explained.answer, explained.bytes) = (Some(answered), bytes);
                if !is_trimmed {
                    recorded.journal.push(entry(call, answer.clone()));
                    explained.settled = Some(recorded.journal.entries().len());
                }
            }
            recorded.calls.push(explained);
        }
    }
    recorded.calls.sort_by_key(|call| (call.round, call.call));
    recorded
}

impl RecordedProgram {
    /// Adds a call that the gateway executed before this round.
    fn add_executed(&mut self, entry: &JournalEntry, round: u32) {
        if matches!(self.gap, Some((ReplayStatus::Trimmed, _))) {
            return;
        }
        let (answer, bytes) = answered_with(&entry.answer);
        self.journal.push(entry.clone());
        self.calls.push(CallExplanation {
            call: entry.call.0,
            round: round as usize + 1,
            tool: entry.tool.clone(),
            args: entry.args(),
            issued: None,
            settled: Some(self.journal.entries().len()),
            answer: Some(answer),
            bytes,
        });
    }
}

/// The calls that were answered, in the order of their answers.
fn answers(round: &CallRound) -> Vec<(&IssuedCall, &Answer)> {
    let mut answers: Vec<(usize, &IssuedCall, &Answer)> =
        round.calls.iter().filter_map(|call| call.answer.as_ref().map(|(at, answer)| (*at, call, answer))).collect();
    answers.sort_by_key(|(at, ..)| *at);
    answers.into_iter().map(|(_, call, answer)| (call, answer)).collect()
}

fn entry(call: &IssuedCall, answer: Answer) -> JournalEntry {
    match &call.expected {
        ExpectedCall::Digest(expected) => JournalEntry::with_digest(expected.call, &call.tool, expected.args, answer),
        ExpectedCall::Args(index, args) => JournalEntry::new(*index, &call.tool, Some(args), answer),
    }
}

fn verdict(
    block: &ProgramBlock,
    played: &Played,
    gap: Option<(ReplayStatus, String)>,
    is_stopped: bool,
) -> ReplayVerdict {
    let of = |status, message: String, call| ReplayVerdict { status, message, call };
    let Some(end) = &played.end else {
        return of(ReplayStatus::Interrupted, "running it again took too long".to_owned(), None);
    };
    let diverged = played.failure().filter(|failure| is_diverged(failure));
    let at = diverged.and_then(|_| played.settled().last()).map(|entry| entry.call.0);
    if let Some((status, message)) = gap {
        return of(status, message, at);
    }
    if let Some(failure) = diverged {
        return of(ReplayStatus::Diverged, failure.message.clone(), at);
    }
    if is_stopped {
        return of(ReplayStatus::Stopped, format!("stopped after {} answers", played.settled().len()), None);
    }
    if let Some(result) = &block.result {
        let now = serde_json::to_value(&end.outcome).unwrap_or_default();
        let then = ["status", "data"].map(|key| result.get(key));
        if now["status"] != "finished" || then != ["status", "data"].map(|key| now["result"].get(key)) {
            return of(ReplayStatus::Diverged, "it now ends otherwise than the conversation says".to_owned(), None);
        }
    }
    let last = block.rounds.last().map_or(&[][..], |round| round.calls.as_slice());
    let is_as_then = |call: &IssuedCall| {
        let expected = match &call.expected {
            ExpectedCall::Digest(expected) => expected.args,
            ExpectedCall::Args(_, args) => ArgsDigest::of_args(args),
        };
        let made = played.issued.get(&call.expected.index().0);
        made.is_some_and(|(_, made)| made.tool == call.tool && made.args_digest() == expected)
    };
    match last.iter().find(|call| call.answer.is_none() && !is_as_then(call)) {
        Some(call) => {
            let index = call.expected.index();
            of(ReplayStatus::Diverged, format!("{index} is not the one that was sent to the client"), Some(index.0))
        }
        None => of(ReplayStatus::Exact, String::new(), None),
    }
}
