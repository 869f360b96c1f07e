//! Plain mode: the state of programs is in the ids of their calls.

use std::collections::BTreeMap;

use dacapo_replay::Catalog;
use serde_json::Value;

use super::fields;
use crate::conversation::{Block, Conversation, Expected, Given, HandedOut, Item, Lost, Round};
use crate::ids::RunId;
use crate::seal::{Sealer, Unsealed};
use crate::state::{Asked, RunState};

/// Sealed ids of rounds whose calls have short ids only, from wherever they were kept.
#[derive(Debug, Clone, Default)]
pub struct Kept(BTreeMap<(RunId, u32), String>);

impl Kept {
    /// Run and round of each message in which no id is sealed.
    pub fn wanted(body: &Value) -> Vec<(RunId, u32)> {
        let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let wanted = |message: &Value| {
            let calls = fields::tool_calls(message);
            let is_sealed = calls.iter().any(|call| Sealer::is_sealed(fields::id(call)));
            let short = calls.iter().find_map(|call| Sealer::run_and_round(fields::id(call)));
            short.filter(|_| !is_sealed)
        };
        messages.iter().filter_map(wanted).collect()
    }

    pub fn insert(&mut self, run: RunId, round: u32, sealed: String) {
        self.0.insert((run, round), sealed);
    }
}

pub(super) fn read(messages: Vec<Value>, sealer: &Sealer, kept: &Kept, catalog: &Catalog) -> Conversation {
    walk(messages, &|message, answers| HandedOutMessage::read(message, answers, sealer, kept, catalog))
}

/// Without programs: their calls are calls like others.
pub(super) fn as_ordinary(messages: Vec<Value>) -> Conversation {
    walk(messages, &|_, _| None)
}

fn walk(messages: Vec<Value>, read: &dyn Fn(&Value, &[Value]) -> Option<HandedOutMessage>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut messages = messages.into_iter().peekable();
    while let Some(message) = messages.next() {
        if fields::tool_calls(&message).iter().any(|call| Sealer::claims(fields::id(call))) {
            let mut answers = Vec::new();
            while let Some(answer) = messages.next_if(|next| fields::role(next) == "tool") {
                answers.push(answer);
            }
            match read(&message, &answers) {
                Some(handed_out) => handed_out.add_to(&mut conversation),
                None => conversation.items.push(Item::Lost(lost(message, &answers))),
            }
        } else if fields::role(&message) == "tool" && Sealer::claims(fields::tool_call_id(&message)) {
            hear_late(&mut conversation, &message);
        } else {
            conversation.items.push(Item::Message(message));
        }
    }
    conversation
}

/// An answer that does not stand with its call. If that was trimmed away, nobody can make sense of it.
fn hear_late(conversation: &mut Conversation, message: &Value) {
    let id = fields::tool_call_id(message);
    let blocks = conversation.items.iter_mut().rev().filter_map(|item| match item {
        Item::Block(block) => Some(block),
        _ => None,
    });
    let mut calls = blocks.flat_map(|block| &mut block.rounds).flat_map(|round| &mut round.calls);
    if let Some(call) = calls.find(|call| call.id == id && call.answer.is_none()) {
        call.answer = Some((usize::MAX, fields::answer(message)));
    }
}

/// An assistant message that hands out calls of a program, with its answers.
struct HandedOutMessage {
    state: Box<RunState>,
    run: RunId,
    round: Round,
    direct: Vec<Given>,
}

impl HandedOutMessage {
    fn read(
        message: &Value,
        answers: &[Value],
        sealer: &Sealer,
        kept: &Kept,
        catalog: &Catalog,
    ) -> Option<HandedOutMessage> {
        let calls = fields::tool_calls(message);
        let unsealed = |call: &Value| sealer.unseal(fields::id(call));
        let carried = calls.iter().position(|call| Sealer::is_sealed(fields::id(call)));
        let id = if let Some(at) = carried {
            fields::id(&calls[at])
        } else {
            let short = calls.iter().find_map(|call| Sealer::run_and_round(fields::id(call)))?;
            kept.0.get(&short)?
        };
        let Unsealed::Round { state, run, round: number, answered, calls: asked } = sealer.unseal(id)? else {
            return None;
        };
        let mut message = HandedOutMessage {
            state,
            run,
            round: Round { number, answered: Some(answered), calls: Vec::new() },
            direct: Vec::new(),
        };
        let mut heard = vec![false; answers.len()];
        for (place, call) in calls.iter().enumerate() {
            let id = fields::id(call);
            let answered = answers.iter().position(|answer| fields::tool_call_id(answer) == id);
            if let Some(answered) = answered {
                heard[answered] = true;
            }
            if !Sealer::claims(id) {
                let answer = answered.map(|at| answers[at].clone());
                message.direct.push(Given { call: call.clone(), answer });
                continue;
            }
            let asked: Asked = if Some(place) == carried {
                *asked.first()?
            } else {
                match unsealed(call)? {
                    Unsealed::Sibling { run: other, round, call } if other == run && round == number => {
                        *asked.iter().find(|asked| asked.call == call)?
                    }
                    _ => return None,
                }
            };
            let answer = answered.map(|at| (at, fields::answer(&answers[at])));
            let tool = fields::tool_name(call, catalog);
            message.round.calls.push(HandedOut { id: id.to_owned(), asked: Expected::Digest(asked), tool, answer });
        }
        // An answer with an id that was changed on its way: asking again would go on for ever.
        let stray = answers.iter().zip(&heard).any(|(answer, heard)| {
            let id = fields::tool_call_id(answer);
            !heard && !calls.iter().any(|call| fields::id(call) == id)
        });
        if stray { None } else { Some(message) }
    }

    fn add_to(self, conversation: &mut Conversation) {
        if let Some(Item::Block(block)) = conversation.items.last_mut()
            && block.run == self.run
        {
            match block.rounds.iter_mut().find(|round| round.number == self.round.number) {
                // The same round once more: what it adds are answers that were missing.
                Some(round) => {
                    let places = round.calls.len();
                    for call in self.round.calls {
                        let known = round.calls.iter_mut().find(|known| known.asked == call.asked);
                        if let Some(known) = known.filter(|known| known.answer.is_none()) {
                            known.answer = call.answer.map(|(place, answer)| (places + place, answer));
                        }
                    }
                }
                None => block.rounds.push(self.round),
            }
            for given in self.direct {
                if !block.direct.iter().any(|known| fields::id(&known.call) == fields::id(&given.call)) {
                    block.direct.push(given);
                }
            }
            return;
        }
        conversation.items.push(Item::Block(Box::new(Block {
            run: self.run,
            id: String::new(),
            is_orphan: false,
            state: *self.state,
            rounds: vec![self.round],
            direct: self.direct,
            result: None,
        })));
    }
}

fn lost(message: Value, answers: &[Value]) -> Lost {
    let given = |call: &Value| {
        let id = fields::id(call);
        let answer = answers.iter().find(|answer| fields::tool_call_id(answer) == id).cloned();
        Given { call: call.clone(), answer }
    };
    let calls = fields::tool_calls(&message).iter().map(given).collect();
    Lost { message, calls }
}
