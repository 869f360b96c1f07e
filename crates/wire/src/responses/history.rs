//! Plain mode: calls of programs among the items of a history.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{client_echo, fields};
use crate::conversation::{Conversation, ConversationItem, WireCall};
use crate::ids::RunId;
use crate::model_history::UNANSWERED;
use crate::model_message::ModelMessage;
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, StateOpener};
use crate::seal::Sealer;

/// Reads the programs of plain mode. Without `opener` their calls are calls like others.
pub(super) fn read(items: impl IntoIterator<Item = Value>, opener: Option<&StateOpener<'_>>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut seen = BTreeSet::new();
    for group in groups(items) {
        if !group.has_sealed {
            seen.extend(group.call_ids());
            for item in group.items {
                if let Some(item) = not_late(&mut conversation, item) {
                    conversation.items.push(ConversationItem::Entry(item));
                }
            }
            continue;
        }
        let ids: BTreeSet<String> = group.call_ids().collect();
        let (mut before, mut calls, mut answers, mut remarks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for item in group.items {
            let id = fields::call_id(&item).to_owned();
            if fields::is_call(&item) {
                let name = match opener {
                    Some(opener) => fields::tool_name(&item, opener.catalog),
                    None => fields::full_name(&item),
                };
                calls.push(HistoryCall { id, name, call: item });
            } else if !fields::is_output(&item) {
                let place = if fields::is_model_output(&item) { &mut before } else { &mut remarks };
                place.push(item);
            } else if ids.contains(&id) || !seen.contains(&id) {
                answers.push(HistoryAnswer { id, parsed: fields::answer(&item), answer: item });
            } else {
                remarks.extend(not_late(&mut conversation, item));
            }
        }
        seen.extend(ids);
        let message = Value::Array(before.clone());
        CallExchange { message, calls, answers, remarks }.add_to(&mut conversation, opener);
        if let Some(ConversationItem::Program(block)) = conversation.items.last() {
            let kept = client_echo::unknown(before, &block.state);
            let at = conversation.items.len() - 1;
            conversation.items.splice(at..at, kept.into_iter().map(ConversationItem::Entry));
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
    if Sealer::is_own_id(id) {
        plain_mode::add_late_answer(conversation, id, fields::answer(&item));
        return None;
    }
    let blocks = conversation.items.iter_mut().rev().filter_map(|item| match item {
        ConversationItem::Program(block) => Some(block),
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
struct ResponseGroup {
    items: Vec<Value>,
    has_calls: bool,
    has_outputs: bool,
    /// Some call is a program's.
    has_sealed: bool,
    /// Of the calls with short ids.
    round: Option<(RunId, u32)>,
}

impl ResponseGroup {
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
        fields::is_model_output(item) && (!self.has_calls || self.has_sealed) && !self.has_outputs
    }

    /// The first call of each round is sealed; where ids are short, they say which round they are of.
    fn is_new(&self, id: &str) -> bool {
        if !Sealer::is_own_id(id) {
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
            self.has_sealed |= Sealer::is_own_id(id);
            self.round = self.round.or_else(|| Sealer::run_and_round(id));
        }
        self.has_outputs |= fields::is_output(&item);
        self.items.push(item);
    }
}

fn groups(items: impl IntoIterator<Item = Value>) -> Vec<ResponseGroup> {
    let mut groups = vec![ResponseGroup::default()];
    for item in items {
        match groups.last_mut() {
            Some(group) if group.takes(&item) => group.push(item),
            _ => {
                let is_whole = !fields::is_call(&item) && !fields::is_model_output(&item);
                let mut group = ResponseGroup::default();
                group.push(item);
                groups.push(group);
                if is_whole {
                    groups.push(ResponseGroup::default());
                }
            }
        }
    }
    groups.retain(|group| !group.items.is_empty());
    groups
}

pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: &[String],
    direct: &[WireCall],
) -> Vec<Value> {
    let mut entries = model_message.reasoning.items().to_vec();
    if let Some(text) = &model_message.text
        && !entries.iter().any(fields::is_message)
    {
        entries.push(fields::message(text));
    }
    let calls: Vec<_> = model_message.calls.iter().map(fields::as_made).collect();
    entries.extend(ids.iter().zip(&calls).map(|(id, call)| fields::written(id, call)));
    entries.extend(direct.iter().map(|given| given.call.clone()));
    let results = ids.iter().zip(&calls).zip(results);
    entries.extend(results.map(|((id, call), result)| fields::output(id, result.as_str(), call.format)));
    entries.extend(direct.iter().map(output));
    entries
}

fn output(given: &WireCall) -> Value {
    let format = fields::model_call(&given.call).format;
    let unanswered = || fields::output(fields::call_id(&given.call), UNANSWERED, format);
    given.answer.clone().unwrap_or_else(unanswered)
}

/// `message` is the list of what stood before the calls.
pub(super) fn ordinary_calls(message: &Value, calls: &[WireCall], ids: &[String], note: Option<&str>) -> Vec<Value> {
    let mut entries = message.as_array().cloned().unwrap_or_default();
    entries.extend(note.map(fields::message));
    let mut outputs = Vec::new();
    for (given, id) in calls.iter().zip(ids) {
        let (mut call, mut output) = (given.call.clone(), output(given));
        for item in [&mut call, &mut output] {
            if let Some(fields) = item.as_object_mut() {
                fields.insert("call_id".to_owned(), Value::from(id.as_str()));
                fields.shift_remove("id");
                fields.shift_remove("caller");
            }
        }
        entries.push(call);
        outputs.push(output);
    }
    entries.extend(outputs);
    entries
}
