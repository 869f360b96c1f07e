//! Messages of a model, in which programs are ours.

use std::collections::BTreeSet;
use std::iter;

use serde_json::{Value, json};

use super::history::{ClientAnswers, call_of, is_call};
use super::ownership::ProgramOwnership;
use super::searches::AnsweredSearch;
use super::{client_echo, fields, programs};
use crate::conversation::{Conversation, ConversationItem, LostCalls, ProgramBlock, WireCall};
use crate::plain_mode::{CallExchange, HistoryAnswer, HistoryCall, StateOpener, StoredStates};
use crate::seal::{Sealer, Unsealed};

/// A part of an assistant message: what the model said, and the program that it wrote by it.
#[derive(Default)]
pub(super) struct MessageSegment {
    /// All that is neither program nor carrier.
    pub content: Vec<Value>,
    pub program: Option<Value>,
    carried: Option<String>,
    /// It has calls of a program.
    is_handed_out: bool,
    /// Searches before it, in messages of their own.
    searched: Vec<AnsweredSearch>,
}

impl MessageSegment {
    pub(super) fn calls(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().filter(|block| is_call(block))
    }

    /// All of which the model is shown something else.
    fn rewritten(&self) -> impl Iterator<Item = &Value> {
        self.program.iter().chain(&self.content)
    }

    fn search(&mut self, block: Value) {
        // Answers are found anew, and after calls nobody searches.
        if fields::id(&block).is_empty() || self.is_handed_out || self.program.is_some() {
            return;
        }
        match self.searched.last_mut() {
            Some(last) if fields::is_further_search(fields::id(&block)) && self.content.is_empty() => {
                last.calls.push(block);
            }
            _ => self.searched.push(AnsweredSearch { content: std::mem::take(&mut self.content), calls: vec![block] }),
        }
    }
}

pub(super) struct MessagesHistoryReader<'a> {
    pub conversation: Conversation,
    pub ownership: ProgramOwnership,
    /// What the model calls our search.
    search: &'static str,
    /// What clients call programs whose state is not sealed.
    structural: BTreeSet<String>,
    opener: &'a StateOpener<'a>,
}

impl<'a> MessagesHistoryReader<'a> {
    pub(super) fn new(
        ownership: ProgramOwnership,
        search: &'static str,
        opener: &'a StateOpener<'a>,
    ) -> MessagesHistoryReader<'a> {
        let conversation = Conversation::default();
        MessagesHistoryReader { conversation, ownership, search, structural: BTreeSet::new(), opener }
    }

    pub(super) fn message(&mut self, content: Vec<Value>, client_answers: ClientAnswers) {
        let mut segment = MessageSegment::default();
        for block in content {
            if self.ownership.is_program(&block) {
                if segment.program.is_some() || segment.is_handed_out {
                    self.segment(&std::mem::take(&mut segment), ClientAnswers::default());
                }
                segment.program = Some(block);
            } else if self.ownership.is_result(&block) {
                if segment.program.is_some() {
                    self.segment(&std::mem::take(&mut segment), ClientAnswers::default());
                }
                self.close(&block);
            } else if fields::is_our_search(&block) {
                segment.search(block);
            } else {
                segment.is_handed_out |= self.ownership.is_handed_out(&block);
                match fields::carried_state(&block) {
                    Some(state) => segment.carried = Some(state.to_owned()),
                    None => segment.content.push(block),
                }
            }
        }
        self.segment(&segment, client_answers);
    }

    fn segment(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let before = self.conversation.items.len();
        if segment.is_handed_out && (segment.program.is_none() || segment.calls().any(is_sealed)) {
            self.handed_out(segment, client_answers);
        } else if segment.program.is_some() {
            self.program(segment, client_answers);
        } else {
            if !segment.content.is_empty() {
                let message = json!({"role": "assistant", "content": segment.content});
                self.conversation.items.push(ConversationItem::Entry(message));
            }
            client_answers.pass_on(&mut self.conversation);
        }
        // A state that was sealed has the searches before it.
        let is_carried = match self.conversation.items.get(before) {
            Some(ConversationItem::Program(block)) => !self.structural.contains(&block.id),
            Some(_) => false,
            None => segment.is_handed_out,
        };
        if !is_carried {
            let searched = segment.searched.iter().map(|search| search.item(self.search));
            self.conversation.items.splice(before..before, searched);
        }
    }

    /// Calls of a program, whose state should be in their ids.
    fn handed_out(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let ClientAnswers { answers, remarks } = client_answers;
        let mut exchange = CallExchange {
            message: json!({"role": "assistant", "content": segment.content}),
            calls: segment.calls().map(call_of).collect(),
            answers,
            remarks,
        };
        let stored = segment.carried.as_ref().and_then(|carried| self.mend(&mut exchange, carried));
        let stored = stored.as_ref().unwrap_or(self.opener.stored);
        if !exchange.calls.iter().any(|call| Sealer::is_own_id(&call.id)) {
            return self.structural_round(segment, exchange);
        }
        let client_answers = ClientAnswers { answers: copied(&exchange.answers), remarks: exchange.remarks.clone() };
        let before = self.conversation.items.len();
        exchange.add_to(&mut self.conversation, Some(&StateOpener { stored, ..*self.opener }));
        if let (Some(ConversationItem::LostCalls(_)), Some(_)) = (self.conversation.items.get(before), &segment.program)
        {
            // Not all is lost: the program itself is there.
            self.conversation.items.truncate(before);
            return self.program(segment, client_answers);
        }
        if let Some(ConversationItem::Program(block)) = self.conversation.items.last_mut() {
            if let Some(program) = &segment.program {
                fields::id(program).clone_into(&mut block.id);
            }
            client_echo::take_back(block, &segment.content, !segment.searched.is_empty());
            client_echo::keep_cached(
                block,
                segment.rewritten().chain(client_answers.answers.iter().map(|answer| &answer.answer)),
            );
        }
    }

    /// Gives calls whose ids did not survive those that they had: ours come first, in order. Where the call that had
    /// the state is gone, its siblings find it among what is kept.
    fn mend(&self, exchange: &mut CallExchange, carried: &str) -> Option<StoredStates> {
        if exchange.calls.iter().any(|call| call.id == carried) {
            return None;
        }
        let Unsealed::Round { run, round, calls: asked, .. } = self.opener.sealer.unseal(carried)? else { return None };
        if asked.is_empty() {
            return None;
        }
        let ids: Vec<String> =
            iter::once(carried.to_owned()).chain(Sealer::short(run, round, &asked).into_iter().skip(1)).collect();
        let is_in_place = |(at, call): (usize, &HistoryCall)| {
            ids.iter().position(|id| *id == call.id).is_none_or(|place| place == at)
        };
        if exchange.calls.len() < ids.len() || !exchange.calls.iter().enumerate().all(is_in_place) {
            let mut stored = self.opener.stored.clone();
            stored.insert(run, round, carried.to_owned());
            return Some(stored);
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
    fn structural_round(&mut self, segment: &MessageSegment, exchange: CallExchange) {
        let catalog = self.opener.catalog;
        if let Some(ConversationItem::Program(block)) = self.conversation.items.last_mut()
            && !block.is_closed
            && self.structural.contains(&block.id)
        {
            programs::round(block, segment, &exchange.answers, catalog);
            let answers = exchange.answers.iter().map(|answer| &answer.answer);
            client_echo::keep_cached(block, segment.rewritten().chain(answers));
            block.remarks.extend(exchange.remarks);
            return;
        }
        let given = |call: HistoryCall| {
            let answer = exchange.answers.iter().find(|answer| answer.id == call.id);
            WireCall { call: call.call, answer: answer.map(|answer| answer.answer.clone()) }
        };
        let calls: Vec<WireCall> = exchange.calls.into_iter().map(given).collect();
        if calls.is_empty() {
            // All calls were trimmed away, and only what had carried their state is left.
            let content = exchange.message;
            let is_empty = fields::blocks(&content).is_empty();
            self.conversation.items.extend((!is_empty).then_some(ConversationItem::Entry(content)));
            ClientAnswers { answers: exchange.answers, remarks: Vec::new() }.pass_on(&mut self.conversation);
        } else {
            self.conversation.items.push(ConversationItem::LostCalls(LostCalls { message: exchange.message, calls }));
        }
        self.conversation.items.extend(exchange.remarks.into_iter().map(ConversationItem::Entry));
    }

    /// A program that the client was told of.
    fn program(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let Some(written) = &segment.program else { return };
        let id = fields::id(written);
        let sealed = fields::sealed_in(id).and_then(|sealed| self.opener.sealer.unseal(sealed));
        let mut block = if let Some(Unsealed::Round { state, .. }) = sealed {
            let mut block = ProgramBlock::new(id, *state);
            client_echo::take_back(&mut block, &segment.content, !segment.searched.is_empty());
            block
        } else {
            self.structural.insert(id.to_owned());
            programs::structural(segment)
        };
        if segment.calls().next().is_some() {
            programs::round(&mut block, segment, &client_answers.answers, self.opener.catalog);
        }
        let answers = client_answers.answers.iter().map(|answer| &answer.answer);
        client_echo::keep_cached(&mut block, segment.rewritten().chain(answers));
        block.remarks = client_answers.remarks;
        self.conversation.items.push(ConversationItem::Program(Box::new(block)));
    }

    /// A program's result, as the client was told it.
    fn close(&mut self, result: &Value) {
        let id = fields::tool_use_id(result);
        let blocks = self.conversation.items.iter_mut().rev().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(block),
            _ => None,
        });
        let mut known = blocks.filter(|block| block.id == id || fields::program_id(block.run) == id);
        // Without its program nobody can make sense of it.
        let Some(block) = known.next() else { return };
        block.is_closed = true;
        client_echo::keep_cached(block, iter::once(result));
        // Running it again gives the very bytes that the model saw, if all is there.
        if self.structural.contains(id) || !programs::is_complete(block) {
            block.result = Some(programs::read_result(result));
        }
    }
}

fn is_sealed(call: &Value) -> bool {
    Sealer::is_own_id(fields::id(call))
}

fn copied(answers: &[HistoryAnswer]) -> Vec<HistoryAnswer> {
    let copy = |answer: &HistoryAnswer| HistoryAnswer {
        id: answer.id.clone(),
        parsed: answer.parsed.clone(),
        answer: answer.answer.clone(),
    };
    answers.iter().map(copy).collect()
}
