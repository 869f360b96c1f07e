//! Programs of a history, in either mode: a client may carry both kinds.

use std::collections::BTreeSet;
use std::iter;

use serde_json::{Value, json};

use super::{fields, program};
use crate::conversation::{Block, Conversation, Given, Item, Lost};
use crate::plain::{self, AnswerOf, CallOf, Exchange, Seals};
use crate::saying::ECHOED;
use crate::seal::{Sealer, Unsealed};

pub(super) fn read(messages: Vec<Value>, seals: &Seals<'_>) -> Conversation {
    let mut reader = Reader { conversation: Conversation::default(), structural: BTreeSet::new(), seals };
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if fields::role(&message) == "assistant" && fields::blocks(&message).iter().any(is_ours) {
            let mut heard = Answers::default();
            if fields::blocks(&message).iter().any(is_handed_out) {
                while let Some(answers) = messages.next_if(has_results) {
                    heard.read(&answers);
                }
            }
            reader.message(&message, heard);
        } else {
            pass_on(&mut reader.conversation, message);
        }
    }
    reader.conversation
}

/// For a model that hears nothing of programs: their calls are calls like others.
pub(super) fn read_off(messages: Vec<Value>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut messages = messages.into_iter().peekable();
    while let Some(mut message) = messages.next() {
        if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut) {
            let blocks = content.len();
            content.retain(|block| {
                !fields::is_our_program(block)
                    && !fields::is_our_search(block)
                    && fields::carried_state(block).is_none()
            });
            if content.is_empty() && blocks > 0 {
                continue;
            }
        }
        if fields::blocks(&message).iter().any(|block| is_call(block) && Sealer::claims(fields::id(block))) {
            let mut heard = Answers::default();
            while let Some(answers) = messages.next_if(has_results) {
                heard.read(&answers);
            }
            let calls = fields::blocks(&message).iter().filter(|block| is_call(block)).map(call_of).collect();
            let Answers { answers, remarks } = heard;
            Exchange { message, calls, answers, remarks }.add_to(&mut conversation, None);
        } else {
            pass_on(&mut conversation, message);
        }
    }
    conversation
}

fn is_call(block: &Value) -> bool {
    fields::kind(block) == fields::TOOL_USE
}

fn is_ours(block: &Value) -> bool {
    is_handed_out(block)
        || fields::is_program(block)
        || fields::kind(block) == fields::PROGRAM_RESULT
        || fields::is_our_search(block)
}

fn is_handed_out(block: &Value) -> bool {
    is_call(block) && fields::is_of_program(block) || fields::carried_state(block).is_some()
}

fn has_results(message: &Value) -> bool {
    fields::role(message) == "user"
        && fields::blocks(message).iter().any(|block| fields::kind(block) == fields::TOOL_RESULT)
}

/// A message of no program. What it may still hold are answers that come late.
fn pass_on(conversation: &mut Conversation, mut message: Value) {
    let is_late = |block: &Value| Sealer::claims(fields::tool_use_id(block));
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut)
        && content.iter().any(is_late)
    {
        for block in content.iter().filter(|block| is_late(block)) {
            plain::hear_late(conversation, fields::tool_use_id(block), fields::answer(block));
        }
        content.retain(|block| !is_late(block));
        if content.is_empty() {
            return;
        }
    }
    conversation.items.push(Item::Message(message));
}

fn call_of(block: &Value) -> CallOf {
    CallOf { id: fields::id(block).to_owned(), name: fields::name(block).to_owned(), call: block.clone() }
}

fn user(content: &[Value]) -> Value {
    json!({"role": "user", "content": content})
}

/// What a client says after calls.
#[derive(Default)]
pub(super) struct Answers {
    pub answers: Vec<AnswerOf>,
    pub remarks: Vec<Value>,
}

impl Answers {
    fn read(&mut self, message: &Value) {
        let mut said = Vec::new();
        for block in fields::content(message).into_owned() {
            if fields::kind(&block) != fields::TOOL_RESULT {
                said.push(block);
                continue;
            }
            let id = fields::tool_use_id(&block).to_owned();
            // A program is no call, though some clients answer it like one.
            if !fields::is_server_id(&id) {
                self.answers.push(AnswerOf { id, said: fields::answer(&block), answer: block });
            }
        }
        if !said.is_empty() {
            self.remarks.push(user(&said));
        }
    }

    /// Nobody waits for them.
    fn pass_on(self, conversation: &mut Conversation) {
        if !self.answers.is_empty() {
            let answers: Vec<Value> = self.answers.into_iter().map(|answer| answer.answer).collect();
            pass_on(conversation, user(&answers));
        }
        conversation.items.extend(self.remarks.into_iter().map(Item::Message));
    }
}

/// A part of an assistant message: what the model said, and the program that it wrote by it.
#[derive(Default)]
pub(super) struct Segment {
    /// All that is neither program nor carrier.
    pub said: Vec<Value>,
    pub program: Option<Value>,
    carried: Option<String>,
}

impl Segment {
    pub(super) fn calls(&self) -> impl Iterator<Item = &Value> {
        self.said.iter().filter(|block| is_call(block))
    }

    fn is_handed_out(&self) -> bool {
        self.carried.is_some() || self.calls().any(fields::is_of_program)
    }
}

struct Reader<'a> {
    conversation: Conversation,
    /// What clients call programs whose state is not sealed.
    structural: BTreeSet<String>,
    seals: &'a Seals<'a>,
}

impl Reader<'_> {
    fn message(&mut self, message: &Value, heard: Answers) {
        let mut segment = Segment::default();
        for block in fields::content(message).into_owned() {
            if fields::is_program(&block) {
                if segment.program.is_some() || segment.is_handed_out() {
                    self.segment(&std::mem::take(&mut segment), Answers::default());
                }
                segment.program = Some(block);
            } else if fields::kind(&block) == fields::PROGRAM_RESULT {
                if segment.program.is_some() {
                    self.segment(&std::mem::take(&mut segment), Answers::default());
                }
                self.close(&block);
            } else if let Some(state) = fields::carried_state(&block) {
                segment.carried = Some(state.to_owned());
            } else if fields::is_our_search(&block) {
                // The model is not shown where they led.
                segment.said.retain(|block| !fields::is_thought(block));
            } else {
                segment.said.push(block);
            }
        }
        self.segment(&segment, heard);
    }

    fn segment(&mut self, segment: &Segment, heard: Answers) {
        if segment.is_handed_out() && (segment.program.is_none() || segment.calls().any(is_sealed)) {
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
        if let Some(carried) = &segment.carried {
            self.mend(&mut exchange, carried);
        }
        if !exchange.calls.iter().any(|call| Sealer::claims(&call.id)) {
            return self.structural_round(segment, exchange);
        }
        let heard = Answers { answers: copied(&exchange.answers), remarks: exchange.remarks.clone() };
        let before = self.conversation.items.len();
        exchange.add_to(&mut self.conversation, Some(self.seals));
        if let (Some(Item::Lost(_)), Some(_)) = (self.conversation.items.get(before), &segment.program) {
            // Not all is lost: the program itself is there.
            self.conversation.items.truncate(before);
            return self.program(segment, heard);
        }
        if let Some(Item::Block(block)) = self.conversation.items.last_mut() {
            if let Some(program) = &segment.program {
                fields::id(program).clone_into(&mut block.id);
            }
            echo(block, &segment.said);
        }
    }

    /// Gives calls whose ids did not survive those that they had. Ours come first, in order.
    fn mend(&self, exchange: &mut Exchange, carried: &str) {
        if exchange.calls.iter().any(|call| call.id == carried) {
            return;
        }
        let Some(Unsealed::Round { run, round, calls: asked, .. }) = self.seals.sealer.unseal(carried) else { return };
        if asked.is_empty() || exchange.calls.len() < asked.len() {
            return;
        }
        let ids = iter::once(carried.to_owned()).chain(Sealer::short(run, round, &asked).into_iter().skip(1));
        for (call, id) in exchange.calls.iter_mut().zip(ids) {
            for answer in exchange.answers.iter_mut().filter(|answer| answer.id == call.id) {
                answer.id.clone_from(&id);
            }
            call.id = id;
        }
    }

    /// Calls that say by whom they were made, and no more.
    fn structural_round(&mut self, segment: &Segment, exchange: Exchange) {
        let catalog = self.seals.catalog;
        if let Some(Item::Block(block)) = self.conversation.items.last_mut()
            && !block.is_closed
            && self.structural.contains(&block.id)
        {
            program::round(block, segment, &exchange.answers, catalog);
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
            let mut block = program::block(id, *state);
            echo(&mut block, &segment.said);
            block
        } else {
            self.structural.insert(id.to_owned());
            program::structural(segment)
        };
        if segment.calls().next().is_some() {
            program::round(&mut block, segment, &heard.answers, self.seals.catalog);
        }
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

/// Thoughts that were too large for an id are where the client has put them.
fn echo(block: &mut Block, said: &[Value]) {
    let is_only = block.state.sayings.len() == 1;
    let Some(saying) = block.state.sayings.last_mut() else { return };
    if saying.opaque.contains_key(fields::BLOCKS) || saying.opaque.contains_key(ECHOED) {
        return;
    }
    let thoughts = said.iter().filter(|block| fields::is_thought(block) && !fields::is_carrier(block));
    // Of several messages, only the last thought is surely of the last.
    let skipped = if is_only { 0 } else { thoughts.clone().count().saturating_sub(1) };
    let thoughts: Vec<Value> = thoughts.skip(skipped).cloned().collect();
    if !thoughts.is_empty() {
        saying.opaque.insert(ECHOED.to_owned(), Value::Array(thoughts));
    }
}
