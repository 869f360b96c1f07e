//! Messages of a model, in which programs are ours.

use std::collections::BTreeSet;
use std::iter;

use serde_json::{Value, json};

use super::claims::Claims;
use super::history::{Answers, call_of, is_call};
use super::search::Search;
use super::{echo, fields, program};
use crate::conversation::{Block, Conversation, Given, Item, Lost};
use crate::plain::{AnswerOf, CallOf, Exchange, Kept, Seals};
use crate::seal::{Sealer, Unsealed};

/// A part of an assistant message: what the model said, and the program that it wrote by it.
#[derive(Default)]
pub(super) struct Segment {
    /// All that is neither program nor carrier.
    pub said: Vec<Value>,
    pub program: Option<Value>,
    carried: Option<String>,
    /// It has calls of a program.
    is_handed_out: bool,
    /// Searches before it, in messages of their own.
    searched: Vec<Search>,
}

impl Segment {
    pub(super) fn calls(&self) -> impl Iterator<Item = &Value> {
        self.said.iter().filter(|block| is_call(block))
    }

    /// All of which the model is shown something else.
    fn rewritten(&self) -> impl Iterator<Item = &Value> {
        self.program.iter().chain(&self.said)
    }

    fn search(&mut self, block: Value) {
        // Answers are found anew, and after calls nobody searches.
        if fields::id(&block).is_empty() || self.is_handed_out || self.program.is_some() {
            return;
        }
        match self.searched.last_mut() {
            Some(last) if fields::is_further_search(fields::id(&block)) && self.said.is_empty() => {
                last.calls.push(block);
            }
            _ => self.searched.push(Search { said: std::mem::take(&mut self.said), calls: vec![block] }),
        }
    }
}

pub(super) struct Reader<'a> {
    pub conversation: Conversation,
    pub claims: Claims,
    /// What the model calls our search.
    search: &'static str,
    /// What clients call programs whose state is not sealed.
    structural: BTreeSet<String>,
    seals: &'a Seals<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(claims: Claims, search: &'static str, seals: &'a Seals<'a>) -> Reader<'a> {
        let conversation = Conversation::default();
        Reader { conversation, claims, search, structural: BTreeSet::new(), seals }
    }

    pub(super) fn message(&mut self, content: Vec<Value>, heard: Answers) {
        let mut segment = Segment::default();
        for block in content {
            if self.claims.is_program(&block) {
                if segment.program.is_some() || segment.is_handed_out {
                    self.segment(&std::mem::take(&mut segment), Answers::default());
                }
                segment.program = Some(block);
            } else if self.claims.is_result(&block) {
                if segment.program.is_some() {
                    self.segment(&std::mem::take(&mut segment), Answers::default());
                }
                self.close(&block);
            } else if fields::is_our_search(&block) {
                segment.search(block);
            } else {
                segment.is_handed_out |= self.claims.is_handed_out(&block);
                match fields::carried_state(&block) {
                    Some(state) => segment.carried = Some(state.to_owned()),
                    None => segment.said.push(block),
                }
            }
        }
        self.segment(&segment, heard);
    }

    fn segment(&mut self, segment: &Segment, heard: Answers) {
        let before = self.conversation.items.len();
        if segment.is_handed_out && (segment.program.is_none() || segment.calls().any(is_sealed)) {
            self.handed_out(segment, heard);
        } else if segment.program.is_some() {
            self.program(segment, heard);
        } else {
            if !segment.said.is_empty() {
                let message = json!({"role": "assistant", "content": segment.said});
                self.conversation.items.push(Item::Message(message));
            }
            heard.pass_on(&mut self.conversation);
        }
        // A state that was sealed has the searches before it.
        let is_carried = match self.conversation.items.get(before) {
            Some(Item::Block(block)) => !self.structural.contains(&block.id),
            Some(_) => false,
            None => segment.is_handed_out,
        };
        if !is_carried {
            let searched = segment.searched.iter().map(|search| search.item(self.search));
            self.conversation.items.splice(before..before, searched);
        }
    }

    /// Calls of a program, whose state should be in their ids.
    fn handed_out(&mut self, segment: &Segment, heard: Answers) {
        let Answers { answers, remarks } = heard;
        let mut exchange = Exchange {
            message: json!({"role": "assistant", "content": segment.said}),
            calls: segment.calls().map(call_of).collect(),
            answers,
            remarks,
        };
        let kept = segment.carried.as_ref().and_then(|carried| self.mend(&mut exchange, carried));
        let kept = kept.as_ref().unwrap_or(self.seals.kept);
        if !exchange.calls.iter().any(|call| Sealer::claims(&call.id)) {
            return self.structural_round(segment, exchange);
        }
        let heard = Answers { answers: copied(&exchange.answers), remarks: exchange.remarks.clone() };
        let before = self.conversation.items.len();
        exchange.add_to(&mut self.conversation, Some(&Seals { kept, ..*self.seals }));
        if let (Some(Item::Lost(_)), Some(_)) = (self.conversation.items.get(before), &segment.program) {
            // Not all is lost: the program itself is there.
            self.conversation.items.truncate(before);
            return self.program(segment, heard);
        }
        if let Some(Item::Block(block)) = self.conversation.items.last_mut() {
            if let Some(program) = &segment.program {
                fields::id(program).clone_into(&mut block.id);
            }
            echo::take_back(block, &segment.said, !segment.searched.is_empty());
            echo::keep_cached(block, segment.rewritten().chain(heard.answers.iter().map(|answer| &answer.answer)));
        }
    }

    /// Gives calls whose ids did not survive those that they had: ours come first, in order. Where the call that had
    /// the state is gone, its siblings find it among what is kept.
    fn mend(&self, exchange: &mut Exchange, carried: &str) -> Option<Kept> {
        if exchange.calls.iter().any(|call| call.id == carried) {
            return None;
        }
        let Unsealed::Round { run, round, calls: asked, .. } = self.seals.sealer.unseal(carried)? else { return None };
        if asked.is_empty() {
            return None;
        }
        let ids: Vec<String> =
            iter::once(carried.to_owned()).chain(Sealer::short(run, round, &asked).into_iter().skip(1)).collect();
        let is_in_place =
            |(at, call): (usize, &CallOf)| ids.iter().position(|id| *id == call.id).is_none_or(|place| place == at);
        if exchange.calls.len() < ids.len() || !exchange.calls.iter().enumerate().all(is_in_place) {
            let mut kept = self.seals.kept.clone();
            kept.insert(run, round, carried.to_owned());
            return Some(kept);
        }
        for (call, id) in exchange.calls.iter_mut().zip(ids) {
            for answer in exchange.answers.iter_mut().filter(|answer| answer.id == call.id) {
                answer.id.clone_from(&id);
            }
            call.id = id;
        }
        None
    }

    /// Calls that say by whom they were made, and no more.
    fn structural_round(&mut self, segment: &Segment, exchange: Exchange) {
        let catalog = self.seals.catalog;
        if let Some(Item::Block(block)) = self.conversation.items.last_mut()
            && !block.is_closed
            && self.structural.contains(&block.id)
        {
            program::round(block, segment, &exchange.answers, catalog);
            let answers = exchange.answers.iter().map(|answer| &answer.answer);
            echo::keep_cached(block, segment.rewritten().chain(answers));
            block.remarks.extend(exchange.remarks);
            return;
        }
        let given = |call: CallOf| {
            let answer = exchange.answers.iter().find(|answer| answer.id == call.id);
            Given { call: call.call, answer: answer.map(|answer| answer.answer.clone()) }
        };
        let calls: Vec<Given> = exchange.calls.into_iter().map(given).collect();
        if calls.is_empty() {
            // All calls were trimmed away, and only what had carried their state is left.
            let said = exchange.message;
            let is_empty = fields::blocks(&said).is_empty();
            self.conversation.items.extend((!is_empty).then_some(Item::Message(said)));
            Answers { answers: exchange.answers, remarks: Vec::new() }.pass_on(&mut self.conversation);
        } else {
            self.conversation.items.push(Item::Lost(Lost { message: exchange.message, calls }));
        }
        self.conversation.items.extend(exchange.remarks.into_iter().map(Item::Message));
    }

    /// A program that the client was told of.
    fn program(&mut self, segment: &Segment, heard: Answers) {
        let Some(written) = &segment.program else { return };
        let id = fields::id(written);
        let sealed = fields::sealed_in(id).and_then(|sealed| self.seals.sealer.unseal(sealed));
        let mut block = if let Some(Unsealed::Round { state, .. }) = sealed {
            let mut block = Block::new(id, *state);
            echo::take_back(&mut block, &segment.said, !segment.searched.is_empty());
            block
        } else {
            self.structural.insert(id.to_owned());
            program::structural(segment)
        };
        if segment.calls().next().is_some() {
            program::round(&mut block, segment, &heard.answers, self.seals.catalog);
        }
        let answers = heard.answers.iter().map(|answer| &answer.answer);
        echo::keep_cached(&mut block, segment.rewritten().chain(answers));
        block.remarks = heard.remarks;
        self.conversation.items.push(Item::Block(Box::new(block)));
    }

    /// A program's result, as the client was told it.
    fn close(&mut self, result: &Value) {
        let id = fields::tool_use_id(result);
        let blocks = self.conversation.items.iter_mut().rev().filter_map(|item| match item {
            Item::Block(block) => Some(block),
            _ => None,
        });
        let mut known = blocks.filter(|block| block.id == id || fields::program_id(block.run) == id);
        // Without its program nobody can make sense of it.
        let Some(block) = known.next() else { return };
        block.is_closed = true;
        echo::keep_cached(block, iter::once(result));
        // Running it again gives the very bytes that the model saw, if all is there.
        if self.structural.contains(id) || !program::is_complete(block) {
            block.result = Some(program::read_result(result));
        }
    }
}

fn is_sealed(call: &Value) -> bool {
    Sealer::claims(fields::id(call))
}

fn copied(answers: &[AnswerOf]) -> Vec<AnswerOf> {
    let copy = |answer: &AnswerOf| AnswerOf {
        id: answer.id.clone(),
        said: answer.said.clone(),
        answer: answer.answer.clone(),
    };
    answers.iter().map(copy).collect()
}
