//! A program of explicit mode, with what stands after it in the history.

use std::collections::BTreeMap;

use dacapo_replay::CallIndex;
use serde_json::{Value, json};

use super::programs::wrong;
use super::{fields, item_ids};
use crate::conversation::{CallRound, ExpectedCall, IssuedCall, ProgramBlock, WireCall};
use crate::plain_mode::StateOpener;
use crate::request::BadRequest;
use crate::state::CallRef;

pub(super) struct OpenProgramItem {
    pub block: ProgramBlock,
    at: usize,
    calls: u32,
    /// Where each call stands, by its id.
    places: BTreeMap<String, CallPlace>,
    answers: usize,
    /// Answers that stand before their calls.
    early: BTreeMap<String, Value>,
    /// An answer has come since the last call.
    is_answered: bool,
    /// The first thing that is wrong.
    fault: Option<BadRequest>,
}

#[derive(Clone, Copy)]
enum CallPlace {
    Round(usize, usize),
    Direct(usize),
}

impl OpenProgramItem {
    /// `at` is its place in the request.
    pub(super) fn new(block: ProgramBlock, at: usize) -> OpenProgramItem {
        let (places, early) = (BTreeMap::new(), BTreeMap::new());
        OpenProgramItem { block, at, calls: 0, places, answers: 0, early, is_answered: false, fault: None }
    }

    /// What it is called, and where it stands.
    pub(super) fn place(&self) -> String {
        format!("{} (input[{}])", self.block.id, self.at)
    }

    pub(super) fn fault(&mut self, fault: BadRequest) {
        self.fault.get_or_insert(fault);
    }

    pub(super) fn ended(self, is_last: bool) -> Result<Box<ProgramBlock>, BadRequest> {
        match self.fault {
            Some(fault) if is_last && !self.block.is_closed => Err(fault),
            _ => Ok(Box::new(self.block)),
        }
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.places.contains_key(id)
    }

    /// The model's own call, beside the program's.
    pub(super) fn direct(&mut self, item: Value) {
        self.places.insert(fields::call_id(&item).to_owned(), CallPlace::Direct(self.block.direct.len()));
        self.block.direct.push(WireCall { call: item, answer: None });
    }

    /// A call of the program.
    pub(super) fn call(&mut self, at: usize, item: &Value, opener: &StateOpener<'_>) {
        let id = fields::call_id(item).to_owned();
        if self.knows(&id) {
            return;
        }
        let rounds = &self.block.rounds;
        let last = rounds.last().map(|round| round.number);
        // Calls with ids of others count in order, and an answer ends their round.
        let next = last.map_or(0, |last| last + u32::from(self.is_answered));
        let (number, index) = self.own_place(&id).unwrap_or((next, CallIndex(self.calls)));
        self.calls = self.calls.max(index.0.saturating_add(1));
        self.is_answered = false;
        let asked = match (item_ids::digest(item), arguments(item)) {
            (Some(args), _) => ExpectedCall::Digest(CallRef { call: index, args }),
            (None, Ok(args)) => ExpectedCall::Args(index, args),
            (None, Err(error)) => return self.fault(wrong(at, "arguments", &format!("must be JSON: {error}"))),
        };
        let rounds = &mut self.block.rounds;
        if last != Some(number) {
            rounds.push(CallRound { number, answered: None, calls: Vec::new() });
        }
        let at = rounds.len() - 1;
        let place = CallPlace::Round(at, rounds[at].calls.len());
        self.places.insert(id.clone(), place);
        let answer = self.early.remove(&id);
        let tool = fields::tool_name(item, opener.catalog);
        rounds[at].calls.push(IssuedCall { id, asked, tool, answer: None });
        if let Some(answer) = answer {
            self.answer_at(place, answer);
        }
    }

    /// Round and number, if the id is one that we gave a call of this program.
    pub(super) fn own_place(&self, id: &str) -> Option<(u32, CallIndex)> {
        let (run, round, call) = item_ids::open_call(id)?;
        (run == self.block.run).then_some((round, call))
    }

    pub(super) fn answer(&mut self, id: &str, item: Value) {
        if let Some(place) = self.places.get(id).copied() {
            self.answer_at(place, item);
        }
    }

    /// An answer to a call that nobody knows of.
    pub(super) fn stray(&mut self, at: usize, item: &Value) {
        let id = fields::call_id(item);
        if self.own_place(id).is_some() {
            self.early.insert(id.to_owned(), item.clone());
            return;
        }
        // A round of one call cannot be answered wrongly.
        let last = self.block.rounds.last().filter(|round| round.calls.len() == 1 && round.calls[0].answer.is_none());
        if last.is_some() {
            return self.answer_at(CallPlace::Round(self.block.rounds.len() - 1, 0), item.clone());
        }
        let message = format!("`{}` is not the id of a call of the program `{}`", id, self.place());
        self.fault(wrong(at, "call_id", &message));
    }

    fn answer_at(&mut self, place: CallPlace, item: Value) {
        self.is_answered = true;
        match place {
            CallPlace::Direct(place) => _ = self.block.direct[place].answer.get_or_insert(item),
            CallPlace::Round(round, place) => {
                self.answers += 1;
                let answer = (self.answers, fields::answer(&item));
                self.block.rounds[round].calls[place].answer.get_or_insert(answer);
            }
        }
    }
}

fn arguments(call: &Value) -> Result<Value, serde_json::Error> {
    let arguments = fields::model_call(call).arguments;
    if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) }
}
