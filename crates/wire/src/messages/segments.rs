//! Reads the messages of the model that have programs of the gateway.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use serde_json::{Value, json};

use super::client_echo::ContentOrigin;
use super::history::{ClientAnswers, history_call, is_call};
use super::ownership::ProgramOwnership;
use super::searches::AnsweredSearch;
use super::{client_echo, fields, programs};
use crate::conversation::{BlockStatus, Conversation, ConversationItem, LostCalls, ProgramBlock, WireCall};
use crate::plain_mode::{CallExchange, HistoryAnswer, HistoryCall, RoundState, StateOpener, StoredStates};
use crate::seal::{Sealer, Unsealed};

/// A part of an assistant message with at most one program.
#[derive(Default)]
pub(super) struct MessageSegment {
    /// All blocks except the program, searches and the sealed state.
    pub content: Vec<Value>,
    pub program: Option<Value>,
    carried_state: Option<String>,
    /// It has calls of a program.
    has_issued_calls: bool,
    /// Searches before it. Each was a message of its own.
    searches: Vec<AnsweredSearch>,
}

impl MessageSegment {
    pub(super) fn calls(&self) -> impl Iterator<Item = &Value> {
        self.content.iter().filter(|block| is_call(block))
    }

    /// The blocks that the model sees in another form.
    fn rewritten(&self) -> impl Iterator<Item = &Value> {
        self.program.iter().chain(&self.content)
    }

    fn content_origin(&self) -> ContentOrigin {
        if self.searches.is_empty() { ContentOrigin::AnyMessage } else { ContentOrigin::LastMessage }
    }

    fn add_search(&mut self, block: Value) {
        // A result has no id of its own. It is not needed, because the search is executed again. After a program or its
        // calls the model does not search in the same response.
        if fields::id(&block).is_empty() || self.has_issued_calls || self.program.is_some() {
            return;
        }
        match self.searches.last_mut() {
            Some(last) if fields::is_further_search(fields::id(&block)) && self.content.is_empty() => {
                last.calls.push(block);
            }
            _ => self.searches.push(AnsweredSearch { content: std::mem::take(&mut self.content), calls: vec![block] }),
        }
    }
}

pub(super) struct MessagesHistoryReader<'a> {
    pub conversation: Conversation,
    pub ownership: ProgramOwnership,
    /// The name of the search tool that the model has.
    search: &'static str,
    /// The client's ids of programs without a sealed state.
    unsealed: BTreeSet<String>,
    pub opener: &'a StateOpener<'a>,
}

impl<'a> MessagesHistoryReader<'a> {
    pub(super) fn new(
        ownership: ProgramOwnership,
        search: &'static str,
        opener: &'a StateOpener<'a>,
    ) -> MessagesHistoryReader<'a> {
        let conversation = Conversation::default();
        MessagesHistoryReader { conversation, ownership, search, unsealed: BTreeSet::new(), opener }
    }

    /// Reads the content of an assistant message, and the client's answers to its last calls.
    pub(super) fn read_message(&mut self, content: Vec<Value>, client_answers: ClientAnswers) {
        let mut segment = MessageSegment::default();
        for block in content {
            if self.ownership.is_program(&block) {
                if segment.program.is_some() || segment.has_issued_calls {
                    self.push_segment(&std::mem::take(&mut segment), ClientAnswers::default());
                }
                segment.program = Some(block);
            } else if self.ownership.is_result(&block) {
                if segment.program.is_some() {
                    self.push_segment(&std::mem::take(&mut segment), ClientAnswers::default());
                }
                self.close_program(&block);
            } else if fields::is_our_search(&block) {
                segment.add_search(block);
            } else if fields::is_our_server_call(&block) {
                // It only shows the client what the gateway did.
            } else {
                segment.has_issued_calls |= self.ownership.is_issued_call(&block);
                match fields::carried_state(&block) {
                    Some(state) => segment.carried_state = Some(state.to_owned()),
                    None => segment.content.push(block),
                }
            }
        }
        self.push_segment(&segment, client_answers);
    }

    fn push_segment(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let before = self.conversation.items.len();
        if segment.has_issued_calls && (segment.program.is_none() || segment.calls().any(is_sealed)) {
            self.push_issued_calls(segment, client_answers);
        } else if segment.program.is_some() {
            self.push_program(segment, client_answers);
        } else {
            if !segment.content.is_empty() {
                let message = json!({"role": "assistant", "content": segment.content});
                self.conversation.items.push(ConversationItem::Entry(message));
            }
            client_answers.push_to(&mut self.conversation);
        }
        // A sealed state has the searches before its program.
        let has_searches = match self.conversation.items.get(before) {
            Some(ConversationItem::Program(block)) => !self.unsealed.contains(&block.id),
            Some(_) => false,
            None => segment.has_issued_calls,
        };
        if !has_searches {
            let searches = segment.searches.iter().map(|search| search.item(self.search));
            self.conversation.items.splice(before..before, searches);
        }
    }

    /// Adds calls of a program whose state should be in their ids.
    fn push_issued_calls(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let ClientAnswers { answers, remarks, .. } = client_answers;
        let mut exchange = CallExchange {
            message: json!({"role": "assistant", "content": segment.content}),
            calls: segment.calls().map(history_call).collect(),
            answers,
            remarks,
        };
        let stored = segment.carried_state.as_ref().and_then(|sealed| self.restore_ids(&mut exchange, sealed));
        let stored = stored.as_ref().unwrap_or(self.opener.stored);
        if !exchange.calls.iter().any(|call| Sealer::is_own_id(&call.id)) {
            return self.push_unsealed_calls(segment, exchange);
        }
        let round = match RoundState::open(&exchange, &StateOpener { stored, ..*self.opener }) {
            Ok(round) => round,
            Err(_) if segment.program.is_some() => {
                // The state is lost, but the history has the program itself.
                let client_answers =
                    ClientAnswers { answers: exchange.answers, remarks: exchange.remarks, words: Vec::new() };
                return self.push_program(segment, client_answers);
            }
            Err(carried) => return exchange.add_lost_to(&mut self.conversation, carried),
        };
        round.add_to(&mut self.conversation, exchange.calls, &exchange.answers, exchange.remarks);
        if let Some(ConversationItem::Program(block)) = self.conversation.items.last_mut() {
            if let Some(program) = &segment.program {
                fields::id(program).clone_into(&mut block.id);
            }
            client_echo::restore_blocks(block, &segment.content, segment.content_origin());
            keep_cache_breakpoint(block, segment, &exchange.answers);
        }
    }

    /// Gives calls their ids back if the client changed them: the program's calls come first, in order. If the call that
    /// carried the state is missing, the state is returned as a stored one, which the short ids of the others refer to.
    fn restore_ids(&self, exchange: &mut CallExchange, sealed: &str) -> Option<StoredStates> {
        if exchange.calls.iter().any(|call| call.id == sealed) {
            return None;
        }
        let Unsealed::Round { packed, header, calls: issued, .. } = self.opener.unseal(sealed)? else { return None };
        let run = packed.run();
        if issued.is_empty() {
            return None;
        }
        let ids: Vec<String> =
            iter::once(sealed.to_owned()).chain(Sealer::siblings(run, header.number, &issued)).collect();
        let is_in_order = |(at, call): (usize, &HistoryCall)| {
            ids.iter().position(|id| *id == call.id).is_none_or(|position| position == at)
        };
        if exchange.calls.len() < ids.len() || !exchange.calls.iter().enumerate().all(is_in_order) {
            let mut stored = self.opener.stored.clone();
            stored.insert(run, header.number, sealed.to_owned());
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

    /// Adds calls that name a program as their caller, but carry no state.
    fn push_unsealed_calls(&mut self, segment: &MessageSegment, exchange: CallExchange) {
        let catalog = self.opener.catalog;
        if let Some(ConversationItem::Program(block)) = self.conversation.items.last_mut()
            && !block.is_closed()
            && self.unsealed.contains(&block.id)
        {
            programs::add_round(block, segment, &exchange.answers, catalog);
            keep_cache_breakpoint(block, segment, &exchange.answers);
            block.remarks.extend(exchange.remarks);
            return;
        }
        let calls = exchange.calls.into_iter().map(|call| call.into_wire_call(&exchange.answers));
        let calls: Vec<WireCall> = calls.collect();
        if calls.is_empty() {
            // The client removed all calls, and only the block with their state is left.
            let content = exchange.message;
            let is_empty = fields::blocks(&content).is_empty();
            self.conversation.items.extend((!is_empty).then_some(ConversationItem::Entry(content)));
            ClientAnswers { answers: exchange.answers, ..ClientAnswers::default() }.push_to(&mut self.conversation);
        } else {
            self.conversation.items.push(ConversationItem::LostCalls(LostCalls::new(exchange.message, calls)));
        }
        self.conversation.items.extend(exchange.remarks.into_iter().map(ConversationItem::Entry));
    }

    /// Adds a program that is in the client's history.
    fn push_program(&mut self, segment: &MessageSegment, client_answers: ClientAnswers) {
        let Some(program) = &segment.program else { return };
        let id = fields::id(program);
        let sealed = fields::sealed_in(id).and_then(|sealed| self.opener.unseal(sealed));
        let mut block = if let Some(Unsealed::Round { state, .. }) = sealed {
            let mut block = ProgramBlock::new(id, Arc::unwrap_or_clone(state));
            client_echo::restore_blocks(&mut block, &segment.content, segment.content_origin());
            block
        } else {
            self.unsealed.insert(id.to_owned());
            programs::unsealed_program(segment)
        };
        if segment.calls().next().is_some() {
            programs::add_round(&mut block, segment, &client_answers.answers, self.opener.catalog);
        }
        keep_cache_breakpoint(&mut block, segment, &client_answers.answers);
        block.remarks.extend(client_answers.remarks);
        self.conversation.items.push(ConversationItem::Program(Box::new(block)));
    }

    /// Reads the result of a program. It is dropped if the client removed the program from the history.
    fn close_program(&mut self, result: &Value) {
        let id = fields::tool_use_id(result);
        let mut programs = self.conversation.programs_from_end();
        let program = programs.find(|block| block.id == id || fields::program_id(block.run) == id);
        let Some(block) = program else { return };
        block.status = BlockStatus::Closed;
        client_echo::keep_cache_breakpoint(block, iter::once(result));
        // If the history is complete, running the program again gives the bytes that the model saw before.
        if self.unsealed.contains(id) || !programs::is_complete(block) {
            block.result = Some(programs::read_result(result));
        }
    }
}

fn is_sealed(call: &Value) -> bool {
    Sealer::is_own_id(fields::id(call))
}

fn keep_cache_breakpoint(block: &mut ProgramBlock, segment: &MessageSegment, answers: &[HistoryAnswer]) {
    let answers = answers.iter().map(|answer| &answer.native);
    client_echo::keep_cache_breakpoint(block, segment.rewritten().chain(answers));
}
