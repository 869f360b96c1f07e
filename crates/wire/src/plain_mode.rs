//! Plain mode: the state of programs is in the ids of their calls.

use std::collections::BTreeMap;

use dacapo_replay::{Answer, Catalog};
use serde_json::Value;

use crate::conversation::{
    CallRound, Conversation, ConversationItem, ExpectedCall, IssuedCall, LostCalls, ProgramBlock, WireCall,
};
use crate::ids::RunId;
use crate::seal::{Sealer, Unsealed};
use crate::state::{CallRef, RunState};
use crate::wire::ClientSide;

/// Sealed ids of rounds whose calls have short ids only, from wherever they were kept.
#[derive(Debug, Clone, Default)]
pub struct StoredStates(BTreeMap<(RunId, u32), String>);

impl StoredStates {
    /// Run and round of each message in which no id is sealed.
    pub fn referred_to(client: ClientSide, body: &Value) -> Vec<(RunId, u32)> {
        let referred_to = |ids: Vec<String>| {
            let is_sealed = ids.iter().any(|id| Sealer::is_sealed(id));
            let short = ids.iter().find_map(|id| Sealer::run_and_round(id));
            short.filter(|_| !is_sealed)
        };
        client.0.call_ids(body).into_iter().filter_map(referred_to).collect()
    }

    pub fn insert(&mut self, run: RunId, round: u32, sealed: String) {
        self.0.insert((run, round), sealed);
    }
}

/// What programs of a history are read with.
pub(crate) struct StateOpener<'a> {
    pub sealer: &'a Sealer,
    pub stored: &'a StoredStates,
    pub catalog: &'a Catalog,
}

/// A message of the model in which some call has an id of ours, with the answers that follow it.
pub(crate) struct CallExchange {
    pub message: Value,
    pub calls: Vec<HistoryCall>,
    pub answers: Vec<HistoryAnswer>,
    /// What the client said beside its answers, as entries of the history.
    pub remarks: Vec<Value>,
}

pub(crate) struct HistoryCall {
    pub id: String,
    pub name: String,
    pub call: Value,
}

pub(crate) struct HistoryAnswer {
    pub id: String,
    pub parsed: Answer,
    pub answer: Value,
}

impl CallExchange {
    pub(crate) fn add_to(self, conversation: &mut Conversation, opener: Option<&StateOpener<'_>>) {
        let read = opener.and_then(|opener| IssuedRound::read(&self, opener));
        if let Some(handed_out) = read {
            handed_out.add_to(conversation, self.remarks);
            return;
        }
        let (lost, remarks) = self.lost();
        conversation.items.push(ConversationItem::LostCalls(lost));
        conversation.items.extend(remarks.into_iter().map(ConversationItem::Entry));
    }

    fn lost(self) -> (LostCalls, Vec<Value>) {
        let given = |call: HistoryCall| {
            let answer = self.answers.iter().find(|answer| answer.id == call.id);
            WireCall { call: call.call, answer: answer.map(|answer| answer.answer.clone()) }
        };
        (LostCalls { message: self.message, calls: self.calls.into_iter().map(given).collect() }, self.remarks)
    }
}

/// An answer that does not stand with its call. If that was trimmed away, nobody can make sense of it.
pub(crate) fn add_late_answer(conversation: &mut Conversation, id: &str, parsed: Answer) {
    let blocks = conversation.items.iter_mut().rev().filter_map(|item| match item {
        ConversationItem::Program(block) => Some(block),
        _ => None,
    });
    let mut calls = blocks.flat_map(|block| &mut block.rounds).flat_map(|round| &mut round.calls);
    if let Some(call) = calls.find(|call| call.id == id && call.answer.is_none()) {
        call.answer = Some((usize::MAX, parsed));
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
struct IssuedRound {
    state: Box<RunState>,
    run: RunId,
    round: CallRound,
    direct: Vec<WireCall>,
}

impl IssuedRound {
    fn read(exchange: &CallExchange, opener: &StateOpener<'_>) -> Option<IssuedRound> {
        let CallExchange { calls, answers, .. } = exchange;
        let carried = calls.iter().position(|call| Sealer::is_sealed(&call.id));
        let id = if let Some(at) = carried {
            &calls[at].id
        } else {
            let short = calls.iter().find_map(|call| Sealer::run_and_round(&call.id))?;
            opener.stored.0.get(&short)?
        };
        let Unsealed::Round { state, run, round: number, answered, calls: asked } = opener.sealer.unseal(id)? else {
            return None;
        };
        let mut message = IssuedRound {
            state,
            run,
            round: CallRound { number, answered: Some(answered), calls: Vec::new() },
            direct: Vec::new(),
        };
        let mut matched = vec![false; answers.len()];
        for (place, call) in calls.iter().enumerate() {
            let id = &call.id;
            let answered = answers.iter().position(|answer| answer.id == *id);
            if let Some(answered) = answered {
                matched[answered] = true;
            }
            if !Sealer::is_own_id(id) {
                let answer = answered.map(|at| answers[at].answer.clone());
                message.direct.push(WireCall { call: call.call.clone(), answer });
                continue;
            }
            let asked: CallRef = if Some(place) == carried {
                *asked.first()?
            } else {
                match opener.sealer.unseal(id)? {
                    Unsealed::Sibling { run: other, round, call } if other == run && round == number => {
                        *asked.iter().find(|asked| asked.call == call)?
                    }
                    _ => return None,
                }
            };
            let answer = answered.map(|at| (at, answers[at].parsed.clone()));
            let tool = tool_name(&call.name, opener.catalog);
            message.round.calls.push(IssuedCall { id: id.clone(), asked: ExpectedCall::Digest(asked), tool, answer });
        }
        // An answer with an id that was changed on its way: asking again would go on for ever.
        let stray = answers
            .iter()
            .zip(&matched)
            .any(|(answer, matched)| !matched && !calls.iter().any(|call| call.id == answer.id));
        if stray { None } else { Some(message) }
    }

    fn add_to(self, conversation: &mut Conversation, remarks: Vec<Value>) {
        if let Some(ConversationItem::Program(block)) = conversation.items.last_mut()
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
        conversation.items.push(ConversationItem::Program(Box::new(ProgramBlock {
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
