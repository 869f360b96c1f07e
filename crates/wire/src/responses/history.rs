//! Reads histories of plain mode, and writes the items of a model's history.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::{client_echo, fields, translate};
use crate::conversation::{Conversation, ConversationItem, LostCalls, WireCall};
use crate::ids::RunId;
use crate::model_history::UNANSWERED;
use crate::model_message::{ModelCall, ModelMessage};
use crate::neutral::ToolResult;
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, RoundState, StateOpener};
use crate::seal::Sealer;

/// Reads a history of plain mode. Without `opener` the calls of programs become lost calls.
pub(super) fn read(items: impl IntoIterator<Item = Value>, opener: Option<&StateOpener<'_>>) -> Conversation {
    let mut conversation = Conversation::default();
    let mut seen = BTreeSet::new();
    for group in groups(items) {
        if group.has_sealed {
            read_issued_calls(&mut conversation, group, &mut seen, opener);
            continue;
        }
        seen.extend(group.call_ids());
        for item in group.items {
            if let Some(item) = take_late_answer(&mut conversation, item) {
                conversation.items.push(ConversationItem::Entry(item));
            }
        }
    }
    conversation
}

/// Reads a group with calls of a program. `seen` are the ids of calls in earlier groups.
fn read_issued_calls(
    conversation: &mut Conversation,
    group: ResponseGroup,
    seen: &mut BTreeSet<String>,
    opener: Option<&StateOpener<'_>>,
) {
    let ids: BTreeSet<String> = group.call_ids().collect();
    let (mut output, mut calls, mut answers, mut remarks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for item in group.items {
        let id = fields::call_id(&item).to_owned();
        if fields::is_call(&item) {
            let name = match opener {
                Some(opener) => fields::tool_name(&item, opener.catalog),
                None => fields::full_name(&item),
            };
            let arguments = fields::text_of(&item, "arguments").to_owned();
            calls.push(HistoryCall { id, name, arguments, native: item });
        } else if !fields::is_output(&item) {
            let list = if fields::is_model_output(&item) { &mut output } else { &mut remarks };
            list.push(item);
        } else if ids.contains(&id) || !seen.contains(&id) {
            answers.push(HistoryAnswer { id, native: item, read: fields::answer });
        } else {
            remarks.extend(take_late_answer(conversation, item));
        }
    }
    seen.extend(ids);
    let exchange = CallExchange { message: Value::Array(output), calls, answers, remarks };
    let round = match opener.map_or(Err(None), |opener| RoundState::open(&exchange, opener)) {
        Ok(round) => round,
        Err(carried) => return exchange.add_lost_to(conversation, carried),
    };
    round.add_to(conversation, exchange.calls, &exchange.answers, exchange.remarks);
    if let (Some(ConversationItem::Program(block)), Value::Array(output)) =
        (conversation.items.last(), exchange.message)
    {
        let output = client_echo::not_in_state(output, &block.state);
        let at = conversation.items.len() - 1;
        conversation.items.splice(at..at, output.into_iter().map(ConversationItem::Entry));
    }
}

/// Adds an answer that is not next to its call to its program. Any other item is returned.
fn take_late_answer(conversation: &mut Conversation, item: Value) -> Option<Value> {
    let id = fields::call_id(&item);
    if !fields::is_output(&item) {
        return Some(item);
    }
    if Sealer::is_own_id(id) {
        plain_mode::add_late_answer(conversation, id, &item, fields::answer);
        return None;
    }
    let mut direct = conversation.programs_from_end().flat_map(|block| &mut block.direct);
    match direct.find(|call| fields::call_id(&call.call) == id) {
        Some(call) => {
            call.answer.get_or_insert(item);
            None
        }
        None => Some(item),
    }
}

/// Ids of calls, grouped by the model response that holds them.
pub(super) fn call_ids(items: impl IntoIterator<Item = Value>) -> Vec<Vec<String>> {
    groups(items).iter().map(|group| group.call_ids().collect()).collect()
}

/// The items of one model response: its output, its calls, and the client's answers to them. Any other item is a group
/// by itself.
#[derive(Default)]
struct ResponseGroup {
    items: Vec<Value>,
    has_calls: bool,
    has_outputs: bool,
    /// It has a call of a program.
    has_sealed: bool,
    /// Run and round of the calls with short ids.
    round: Option<(RunId, u32)>,
}

impl ResponseGroup {
    fn call_ids(&self) -> impl Iterator<Item = String> {
        let calls = self.items.iter().filter(|item| fields::is_call(item));
        calls.map(|call| fields::call_id(call).to_owned())
    }

    /// Whether the item belongs to the same response.
    fn continues_with(&self, item: &Value) -> bool {
        if fields::is_call(item) {
            return !self.ends_before(fields::call_id(item));
        }
        if fields::is_output(item) {
            return self.has_calls;
        }
        if fields::is_client_output(item) {
            return self.has_sealed;
        }
        if fields::is_instruction(item) {
            return self.has_sealed;
        }
        if fields::is_user_remark(item) {
            return self.has_sealed && self.has_outputs;
        }
        // Some clients put the other output of the model after its calls.
        fields::is_model_output(item) && (!self.has_calls || self.has_sealed) && !self.has_outputs
    }

    /// Whether a call with this id begins another response. The first call of each round has a sealed id, and a short
    /// id has the number of its round.
    fn ends_before(&self, id: &str) -> bool {
        if !Sealer::is_own_id(id) {
            return self.has_outputs;
        }
        // Calls that have answers already belong to an earlier response.
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
            Some(group) if group.continues_with(&item) => group.push(item),
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

/// A message of the model with the results of its calls. `direct` are calls that the client executed.
pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: Vec<ToolResult>,
    direct: Vec<WireCall>,
) -> Vec<Value> {
    let mut entries = model_message.reasoning.items().to_vec();
    if let Some(text) = &model_message.text
        && !entries.iter().any(fields::is_message)
    {
        entries.push(fields::message(text));
    }
    let calls: Vec<_> = model_message.calls.iter().map(fields::original_call).collect();
    entries.extend(ids.iter().zip(&calls).map(|(id, call)| fields::write_call(id, call)));
    let output = |(call, result): (&Cow<'_, ModelCall>, ToolResult)| {
        translate::write_result(&ToolResult { format: call.format, ..result })
    };
    let mut outputs: Vec<Value> = calls.iter().zip(results).map(output).collect();
    for WireCall { call, answer } in direct {
        outputs.push(answer.unwrap_or_else(|| unanswered(&call)));
        entries.push(call);
    }
    entries.extend(outputs);
    entries
}

fn unanswered(call: &Value) -> Value {
    fields::output(fields::call_id(call), UNANSWERED, fields::model_call(call).format)
}

/// Lost calls as ordinary tool calls with these ids. Their `message` is the list of items before the calls.
pub(super) fn ordinary_calls(lost: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value> {
    let mut entries = match lost.message {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    entries.extend(note.map(fields::message));
    let mut outputs = Vec::new();
    for (WireCall { mut call, answer }, id) in lost.calls.into_iter().zip(ids) {
        let mut output = answer.unwrap_or_else(|| unanswered(&call));
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
