//! Plain mode: calls of programs among the items of a history.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{echoes, fields};
use crate::conversation::{Conversation, Item};
use crate::ids::RunId;
use crate::plain::{self, AnswerOf, CallOf, Exchange, Seals};
use crate::seal::Sealer;

/// Reads the programs of plain mode. Without `seals` their calls are calls like others.
pub(super) fn walk(items: impl IntoIterator<Item = Value>, seals: Option<&Seals<'_>>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut seen = BTreeSet::new();
    for group in groups(items) {
        if !group.has_sealed {
            seen.extend(group.call_ids());
            for item in group.items {
                if let Some(item) = not_late(&mut conversation, item) {
                    conversation.items.push(Item::Message(item));
                }
            }
            continue;
        }
        let ids: BTreeSet<String> = group.call_ids().collect();
        let (mut before, mut calls, mut answers, mut remarks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for item in group.items {
            let id = fields::call_id(&item).to_owned();
            if fields::is_call(&item) {
                let name = match seals {
                    Some(seals) => fields::tool_name(&item, seals.catalog),
                    None => fields::full_name(&item),
                };
                calls.push(CallOf { id, name, call: item });
            } else if !fields::is_output(&item) {
                let place = if fields::is_said(&item) { &mut before } else { &mut remarks };
                place.push(item);
            } else if ids.contains(&id) || !seen.contains(&id) {
                answers.push(AnswerOf { id, said: fields::answer(&item), answer: item });
            } else {
                remarks.extend(not_late(&mut conversation, item));
            }
        }
        seen.extend(ids);
        let message = Value::Array(before.clone());
        Exchange { message, calls, answers, remarks }.add_to(&mut conversation, seals);
        if let Some(Item::Block(block)) = conversation.items.last() {
            let kept = echoes::unknown(before, &block.state);
            let at = conversation.items.len() - 1;
            conversation.items.splice(at..at, kept.into_iter().map(Item::Message));
        }
    }
    conversation
}

/// Gives an answer that does not stand with its call to its program. Anything else comes back.
fn not_late(conversation: &mut Conversation, item: Value) -> Option<Value> {
    let id = fields::call_id(&item);
    if !fields::is_output(&item) {
        return Some(item);
    }
    if Sealer::claims(id) {
        plain::hear_late(conversation, id, fields::answer(&item));
        return None;
    }
    let blocks = conversation.items.iter_mut().rev().filter_map(|item| match item {
        Item::Block(block) => Some(block),
        _ => None,
    });
    match blocks.flat_map(|block| &mut block.direct).find(|given| fields::call_id(&given.call) == id) {
        Some(given) => {
            given.answer.get_or_insert(item);
            None
        }
        None => Some(item),
    }
}

/// Ids of calls, by the answer of the model that holds them.
pub(super) fn call_ids(items: impl IntoIterator<Item = Value>) -> Vec<Vec<String>> {
    groups(items).iter().map(|group| group.call_ids().collect()).collect()
}

/// What belongs to one answer of the model: what it said, its calls, and what the client answered. Anything else is a
/// group by itself.
#[derive(Default)]
struct Group {
    items: Vec<Value>,
    has_calls: bool,
    has_outputs: bool,
    /// Some call is a program's.
    has_sealed: bool,
    /// Of the calls with short ids.
    round: Option<(RunId, u32)>,
}

impl Group {
    fn call_ids(&self) -> impl Iterator<Item = String> {
        let calls = self.items.iter().filter(|item| fields::is_call(item));
        calls.map(|call| fields::call_id(call).to_owned())
    }

    /// Does the item go on with the same answer?
    fn takes(&self, item: &Value) -> bool {
        if fields::is_call(item) {
            return !self.is_new(fields::call_id(item));
        }
        if fields::is_output(item) {
            return self.has_calls;
        }
        if fields::is_client_output(item) {
            return self.has_sealed;
        }
        if fields::is_instruction(item) {
            return self.has_sealed && self.has_outputs;
        }
        // Some clients put what was said after the calls.
        fields::is_said(item) && (!self.has_calls || self.has_sealed) && !self.has_outputs
    }

    /// The first call of each round is sealed; where ids are short, they say which round they are of.
    fn is_new(&self, id: &str) -> bool {
        if !Sealer::claims(id) {
            return self.has_outputs;
        }
        // What was answered before was another answer of the model.
        let is_answered = self.has_outputs && !self.has_sealed;
        if Sealer::is_sealed(id) {
            return self.has_sealed || is_answered;
        }
        is_answered || self.round.is_some() && self.round != Sealer::run_and_round(id)
    }

    fn push(&mut self, item: Value) {
        let id = fields::call_id(&item);
        if fields::is_call(&item) {
            self.has_calls = true;
            self.has_sealed |= Sealer::claims(id);
            self.round = self.round.or_else(|| Sealer::run_and_round(id));
        }
        self.has_outputs |= fields::is_output(&item);
        self.items.push(item);
    }
}

fn groups(items: impl IntoIterator<Item = Value>) -> Vec<Group> {
    let mut groups = vec![Group::default()];
    for item in items {
        match groups.last_mut() {
            Some(group) if group.takes(&item) => group.push(item),
            _ => {
                let is_whole = !fields::is_call(&item) && !fields::is_said(&item);
                let mut group = Group::default();
                group.push(item);
                groups.push(group);
                if is_whole {
                    groups.push(Group::default());
                }
            }
        }
    }
    groups.retain(|group| !group.items.is_empty());
    groups
}
