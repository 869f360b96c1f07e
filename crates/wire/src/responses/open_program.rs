//! A program of explicit mode, while its calls and answers are read.

use std::collections::BTreeMap;

use dacapo_replay::CallIndex;
use serde_json::{Value, json};

use super::programs::wrong;
use super::{fields, item_ids};
use crate::call_round::{CallRound, ExpectedCall, IssuedCall};
use crate::conversation::{ProgramBlock, WireCall};
use crate::ids::UnsealedCallId;
use crate::plain_mode::StateOpener;
use crate::request::BadRequest;
use crate::state::CallRef;

pub(super) struct OpenProgramItem {
    pub block: ProgramBlock,
    /// Position of the program in the request.
    at: usize,
    /// The index of the next call.
    next_call: u32,
    /// Positions of the calls, by their ids.
    positions: BTreeMap<String, CallPosition>,
    answers: usize,
    /// Answers that precede their calls.
    early: BTreeMap<String, Value>,
    /// There is an answer after the last call.
    is_answered: bool,
    /// The first error.
    error: Option<BadRequest>,
}

#[derive(Clone, Copy)]
enum CallPosition {
    Round(usize, usize),
    Direct(usize),
}

impl OpenProgramItem {
    /// `at` is the position of the program in the request.
    pub(super) fn new(block: ProgramBlock, at: usize) -> OpenProgramItem {
        let (positions, early) = (BTreeMap::new(), BTreeMap::new());
        OpenProgramItem { block, at, next_call: 0, positions, answers: 0, early, is_answered: false, error: None }
    }

    /// Id and position of the program, for error messages.
    pub(super) fn label(&self) -> String {
        format!("{} (input[{}])", self.block.id, self.at)
    }

    pub(super) fn set_error(&mut self, error: BadRequest) {
        self.error.get_or_insert(error);
    }

    /// The program, whatever is wrong with it.
    pub(super) fn into_block(self) -> ProgramBlock {
        self.block
    }

    /// The program that continues with this request. An error makes that impossible, unless the program is closed.
    pub(super) fn into_live_block(self) -> Result<ProgramBlock, BadRequest> {
        match self.error {
            Some(error) if !self.block.is_closed() => Err(error),
            _ => Ok(self.block),
        }
    }

    /// Whether the program, or the model's message with it, has a call of this id.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.positions.contains_key(id)
    }

    /// Adds a direct call of the model.
    pub(super) fn add_direct_call(&mut self, item: Value) {
        self.positions.insert(fields::call_id(&item).to_owned(), CallPosition::Direct(self.block.direct.len()));
        self.block.direct.push(WireCall { call: item, answer: None });
    }

    /// Adds a call of the program.
    pub(super) fn add_call(&mut self, at: usize, item: &Value, opener: &StateOpener<'_>) {
        let id = fields::call_id(item).to_owned();
        if self.has_call(&id) {
            return;
        }
        let rounds = &self.block.rounds;
        let last = rounds.last().map(|round| round.number);
        // Calls with ids that the gateway did not make are counted in order, and an answer ends their round.
        let next = last.map_or(0, |last| last + u32::from(self.is_answered));
        let own = self.own_id(&id);
        let (number, index) = own.as_ref().map_or((next, CallIndex(self.next_call)), |own| (own.round, own.call));
        self.next_call = self.next_call.max(index.0.saturating_add(1));
        self.is_answered = false;
        let expected = match (item_ids::digest(item), arguments(item)) {
            (Some(args), _) => ExpectedCall::Digest(CallRef { call: index, args }),
            (None, Ok(args)) => ExpectedCall::Args(index, args),
            (None, Err(error)) => return self.set_error(wrong(at, "arguments", &format!("must be JSON: {error}"))),
        };
        let rounds = &mut self.block.rounds;
        if last != Some(number) {
            rounds.push(CallRound::unsealed(number));
        }
        let at = rounds.len() - 1;
        if let Some(carried) = own.and_then(|own| own.carried) {
            rounds[at].set_carried(carried);
        }
        let position = CallPosition::Round(at, rounds[at].calls.len());
        let answer = self.early.remove(&id);
        let tool = fields::tool_name(item, opener.catalog);
        self.positions.insert(id.clone(), position);
        let arguments = fields::model_call(item).arguments;
        rounds[at].calls.push(IssuedCall::unanswered(id, tool, expected, arguments));
        if let Some(answer) = answer {
            self.add_answer_at(position, answer);
        }
    }

    /// An id that the gateway made for a call of this program.
    pub(super) fn own_id(&self, id: &str) -> Option<UnsealedCallId> {
        UnsealedCallId::parse(id).filter(|id| id.run == self.block.run)
    }

    /// Adds the answer to a call.
    pub(super) fn add_answer(&mut self, id: &str, item: Value) {
        if let Some(position) = self.positions.get(id).copied() {
            self.add_answer_at(position, item);
        }
    }

    /// Adds an answer with an id that no call has so far.
    pub(super) fn add_stray_answer(&mut self, at: usize, item: Value) {
        let id = fields::call_id(&item);
        if self.own_id(id).is_some() {
            self.early.insert(id.to_owned(), item);
            return;
        }
        // If the round has only one call, the answer belongs to it, whatever its id is.
        let last = self.block.rounds.last().filter(|round| round.calls.len() == 1 && round.calls[0].answer.is_none());
        if last.is_some() {
            return self.add_answer_at(CallPosition::Round(self.block.rounds.len() - 1, 0), item);
        }
        let message = format!("`{}` is not the id of a call of the program `{}`", id, self.label());
        self.set_error(wrong(at, "call_id", &message));
    }

    fn add_answer_at(&mut self, position: CallPosition, item: Value) {
        self.is_answered = true;
        match position {
            CallPosition::Direct(at) => _ = self.block.direct[at].answer.get_or_insert(item),
            CallPosition::Round(round, at) => {
                self.answers += 1;
                let call = &mut self.block.rounds[round].calls[at];
                let appended = call.set_answer(self.block.run, self.answers, |key| fields::answer(&item, key));
                self.block.add_appended(appended);
            }
        }
    }
}

fn arguments(call: &Value) -> Result<Value, serde_json::Error> {
    let arguments = fields::model_call(call).arguments;
    if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) }
}
