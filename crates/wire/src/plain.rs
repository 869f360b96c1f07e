//! Plain mode: the state of programs is in the ids of their calls.

use std::collections::BTreeMap;

use dacapo_replay::{Answer, Catalog};
use serde_json::Value;

use crate::conversation::{Block, Conversation, Expected, Given, HandedOut, Item, Lost, Round};
use crate::ids::RunId;
use crate::seal::{Sealer, Unsealed};
use crate::state::{Asked, RunState};
use crate::wire::Wire;

/// Sealed ids of rounds whose calls have short ids only, from wherever they were kept.
#[derive(Debug, Clone, Default)]
pub struct Kept(BTreeMap<(RunId, u32), String>);

impl Kept {
    /// Run and round of each message in which no id is sealed.
    pub fn wanted(wire: Wire, body: &Value) -> Vec<(RunId, u32)> {
        let wanted = |ids: Vec<String>| {
            let is_sealed = ids.iter().any(|id| Sealer::is_sealed(id));
            let short = ids.iter().find_map(|id| Sealer::run_and_round(id));
            short.filter(|_| !is_sealed)
        };
        (wire.dialect().call_ids)(body).into_iter().filter_map(wanted).collect()
    }

    /// Does the history end with answers, so that a program would go on now?
    pub fn is_vital(wire: Wire, body: &Value) -> bool {
        let last = |key: &str| body.get(key).and_then(Value::as_array).and_then(|entries| entries.last());
        let is = |entry: Option<&Value>, key: &str, value: &str| entry.is_some_and(|entry| entry[key] == value);
        match wire {
            Wire::Chat => is(last("messages"), "role", "tool"),
            Wire::Responses => is(last("input"), "type", "function_call_output"),
            Wire::Messages => {
                // Neighbours of one role are one message.
                let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten().rev();
                let of_client = messages.take_while(|message| message["role"] != "assistant");
                let blocks = of_client.filter_map(|message| message.get("content")?.as_array()).flatten();
                blocks.into_iter().any(|block| block["type"] == "tool_result")
            }
        }
    }

    pub fn insert(&mut self, run: RunId, round: u32, sealed: String) {
        self.0.insert((run, round), sealed);
    }
}

/// What programs of a history are read with.
pub(crate) struct Seals<'a> {
    pub sealer: &'a Sealer,
    pub kept: &'a Kept,
    pub catalog: &'a Catalog,
}

/// A message of the model in which some call has an id of ours, with the answers that follow it.
pub(crate) struct Exchange {
    pub message: Value,
    pub calls: Vec<CallOf>,
    pub answers: Vec<AnswerOf>,
    /// What the client said beside its answers, as entries of the history.
    pub remarks: Vec<Value>,
}

pub(crate) struct CallOf {
    pub id: String,
    pub name: String,
    pub call: Value,
}

pub(crate) struct AnswerOf {
    pub id: String,
    pub said: Answer,
    pub answer: Value,
}

impl Exchange {
    pub(crate) fn add_to(self, conversation: &mut Conversation, seals: Option<&Seals<'_>>) {
        let read = seals.and_then(|seals| HandedOutMessage::read(&self, seals));
        if let Some(handed_out) = read {
            handed_out.add_to(conversation, self.remarks);
            return;
        }
        let (lost, remarks) = self.lost();
        conversation.items.push(Item::Lost(lost));
        conversation.items.extend(remarks.into_iter().map(Item::Message));
    }

    fn lost(self) -> (Lost, Vec<Value>) {
        let given = |call: CallOf| {
            let answer = self.answers.iter().find(|answer| answer.id == call.id);
            Given { call: call.call, answer: answer.map(|answer| answer.answer.clone()) }
        };
        (Lost { message: self.message, calls: self.calls.into_iter().map(given).collect() }, self.remarks)
    }
}

/// An answer that does not stand with its call. If that was trimmed away, nobody can make sense of it.
pub(crate) fn hear_late(conversation: &mut Conversation, id: &str, said: Answer) {
    let blocks = conversation.items.iter_mut().rev().filter_map(|item| match item {
        Item::Block(block) => Some(block),
        _ => None,
    });
    let mut calls = blocks.flat_map(|block| &mut block.rounds).flat_map(|round| &mut round.calls);
    if let Some(call) = calls.find(|call| call.id == id && call.answer.is_none()) {
        call.answer = Some((usize::MAX, said));
    }
}

/// The name by which journals know the tool, for any name that programs know it by.
pub(crate) fn tool_name(name: &str, catalog: &Catalog) -> String {
    if catalog.find(name).is_none() {
        let known = catalog
            .functions()
            .iter()
            .find(|function| function.identifier == name || function.aliases.iter().any(|alias| alias == name));
        if let Some(function) = known {
            return catalog.qualified_name(function.tool).to_owned();
        }
    }
    name.to_owned()
}

/// An assistant message that hands out calls of a program, with its answers.
struct HandedOutMessage {
    state: Box<RunState>,
    run: RunId,
    round: Round,
    direct: Vec<Given>,
}

impl HandedOutMessage {
    fn read(exchange: &Exchange, seals: &Seals<'_>) -> Option<HandedOutMessage> {
        let Exchange { calls, answers, .. } = exchange;
        let carried = calls.iter().position(|call| Sealer::is_sealed(&call.id));
        let id = if let Some(at) = carried {
            &calls[at].id
        } else {
            let short = calls.iter().find_map(|call| Sealer::run_and_round(&call.id))?;
            seals.kept.0.get(&short)?
        };
        let Unsealed::Round { state, run, round: number, answered, calls: asked } = seals.sealer.unseal(id)? else {
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
            let id = &call.id;
            let answered = answers.iter().position(|answer| answer.id == *id);
            if let Some(answered) = answered {
                heard[answered] = true;
            }
            if !Sealer::claims(id) {
                let answer = answered.map(|at| answers[at].answer.clone());
                message.direct.push(Given { call: call.call.clone(), answer });
                continue;
            }
            let asked: Asked = if Some(place) == carried {
                *asked.first()?
            } else {
                match seals.sealer.unseal(id)? {
                    Unsealed::Sibling { run: other, round, call } if other == run && round == number => {
                        *asked.iter().find(|asked| asked.call == call)?
                    }
                    _ => return None,
                }
            };
            let answer = answered.map(|at| (at, answers[at].said.clone()));
            let tool = tool_name(&call.name, seals.catalog);
            message.round.calls.push(HandedOut { id: id.clone(), asked: Expected::Digest(asked), tool, answer });
        }
        // An answer with an id that was changed on its way: asking again would go on for ever.
        let stray =
            answers.iter().zip(&heard).any(|(answer, heard)| !heard && !calls.iter().any(|call| call.id == answer.id));
        if stray { None } else { Some(message) }
    }

    fn add_to(self, conversation: &mut Conversation, remarks: Vec<Value>) {
        if let Some(Item::Block(block)) = conversation.items.last_mut()
            && block.run == self.run
            && !block.is_closed
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
                if !block.direct.iter().any(|known| known.call == given.call) {
                    block.direct.push(given);
                }
            }
            block.remarks.extend(remarks);
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
            is_closed: false,
            remarks,
        })));
    }
}
