//! What if: a program run again with changes, and with recorded answers wherever it makes the same calls.

use std::collections::BTreeMap;

use dacapo_replay::{Answer, Call, JournalEntry, JsonText, ServiceRules, StepRequest, canonical_args};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Inspection;
use super::block::{Played, answered_with, explained, is_diverged};
use super::explanation::{BlockExplanation, CallExplanation, ReplayStatus, ReplayVerdict};

/// A changed program or journal, and all that was recorded.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIf<'a> {
    /// A step request.
    #[serde(borrow)]
    step: &'a RawValue,
    /// Answers for calls that the journal does not answer, in any order.
    #[serde(default)]
    recorded: Vec<RecordedAnswer>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RecordedAnswer {
    tool: String,
    #[serde(default)]
    args: Value,
    #[serde(default)]
    ok: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<RecordedError>,
}

#[derive(Debug, Deserialize)]
struct RecordedError {
    message: String,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

impl RecordedAnswer {
    fn answer(self) -> Option<Answer> {
        match (self.ok, self.error) {
            (Some(ok), None) => Some(Answer::Ok(JsonText::from(&*ok))),
            (None, Some(error)) => Some(Answer::Error {
                message: error.message,
                data: error.data.as_ref().map(|data| JsonText::from(&**data)),
            }),
            _ => None,
        }
    }
}

impl Inspection<'_> {
    /// Runs a changed program. The error says what is wrong with the request.
    pub fn what_if(&self, text: &str, tenant: &str) -> Result<BlockExplanation, String> {
        let what_if: WhatIf<'_> = serde_json::from_str(text).map_err(|error| format!("body: {error}"))?;
        let rules = ServiceRules { toolboxes: self.toolboxes, tenant, limits: self.limits };
        let request = StepRequest::parse_for(what_if.step.get(), rules).map_err(|error| format!("step.{error}"))?;
        Ok(self.step_block(request, what_if.recorded))
    }

    /// Explains a step request. Calls that its journal does not answer get the recorded answer to the same call.
    pub(super) fn step_block(&self, mut request: StepRequest, recorded: Vec<RecordedAnswer>) -> BlockExplanation {
        let entries = std::mem::take(&mut request.journal).into_entries();
        // By tool and arguments.
        let mut unused: BTreeMap<String, BTreeMap<String, Vec<Answer>>> = BTreeMap::new();
        for mut recorded in recorded.into_iter().rev() {
            let of_tool = unused.entry(std::mem::take(&mut recorded.tool)).or_default();
            of_tool.entry(canonical_args(&recorded.args)).or_default().extend(recorded.answer());
        }
        let find = |waiting: &[Call]| {
            let answer = |call: &Call| {
                let answers = unused.get_mut(&call.tool)?.get_mut(&canonical_args(&call.args))?;
                Some(JournalEntry::answering(call, answers.pop()?))
            };
            waiting.iter().find_map(answer)
        };
        let run = request.program.id.clone();
        let mut played = self.play(request, entries, find);
        let calls = calls(&mut played);
        let verdict = match played.failure().filter(|failure| is_diverged(failure)) {
            Some(failure) => ReplayVerdict {
                status: ReplayStatus::Diverged,
                message: failure.message.clone(),
                call: played.settled().last().map(|entry| entry.call.0),
            },
            None if played.end.is_none() => ReplayVerdict {
                status: ReplayStatus::Interrupted,
                message: "running it took too long".to_owned(),
                call: None,
            },
            None => ReplayVerdict { status: ReplayStatus::Exact, message: String::new(), call: None },
        };
        let mut block = explained(1, run, played, calls);
        block.replay = verdict;
        block
    }
}

/// The calls of a program without a history: those that it made at the same point are a round.
fn calls(played: &mut Played) -> Vec<CallExplanation> {
    let mut rounds: Vec<usize> = played.issued.values().map(|(issued, _)| *issued).collect();
    rounds.dedup();
    let places: BTreeMap<u32, usize> =
        played.settled().iter().enumerate().map(|(at, entry)| (entry.call.0, at)).collect();
    let mut calls: Vec<CallExplanation> = Vec::new();
    for (index, (issued, call)) in std::mem::take(&mut played.issued) {
        let place = places.get(&index).copied();
        let answer = place.map(|at| answered_with(&played.settled()[at].answer));
        let (answer, bytes) = answer.map_or((None, 0), |(answer, bytes)| (Some(answer), bytes));
        calls.push(CallExplanation {
            call: index,
            round: rounds.iter().position(|round| *round == issued).map_or(1, |at| at + 1),
            tool: call.tool,
            args: Some(call.args),
            issued: Some(issued),
            settled: place.map(|at| at + 1),
            answer,
            bytes,
        });
    }
    calls
}
