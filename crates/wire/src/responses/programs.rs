//! Explicit mode: programs and their results are items of the history.

use std::sync::Arc;

use serde_json::{Value, json};

use super::open_program::OpenProgramItem;
use super::{client_echo, fields, history, item_ids};
use crate::conversation::{BlockStatus, Conversation, ConversationItem, LostCalls, ProgramBlock, WireCall};
use crate::ids::UnsealedCallId;
use crate::model_message::ModelMessage;
use crate::plain_mode::StateOpener;
use crate::reasoning::Reasoning;
use crate::request::BadRequest;
use crate::seal::{Sealer, Unsealed};
use crate::state::RunState;

/// Reads a history of explicit mode. Each item has its position in the request.
pub(super) fn read(items: Vec<(usize, Value)>, opener: &StateOpener<'_>) -> Result<Conversation, BadRequest> {
    let mut reader = ResponsesProgramReader::default();
    for (at, item) in items {
        reader.read(at, item, opener)?;
    }
    reader.conversation()
}

#[derive(Default)]
struct ResponsesProgramReader {
    entries: Vec<HistoryEntry>,
    /// Position of the open program: no `program_output` has closed it, and the conversation has not moved on.
    open: Option<usize>,
}

enum HistoryEntry {
    /// An item outside of programs.
    Item(Value),
    Program(Box<OpenProgramItem>),
    /// Calls of a program that the client removed from the history.
    Lost(LostCalls),
}

impl ResponsesProgramReader {
    fn read(&mut self, at: usize, item: Value, opener: &StateOpener<'_>) -> Result<(), BadRequest> {
        match fields::kind(&item) {
            "program" => {
                let block = self.program(at, &item, opener)?;
                self.open = Some(self.entries.len());
                self.entries.push(HistoryEntry::Program(Box::new(OpenProgramItem::new(block, at))));
            }
            "program_output" => self.read_result(at, item),
            _ if fields::is_call(&item) => self.read_call(at, item, opener),
            _ if fields::is_output(&item) => self.read_answer(at, item),
            _ => self.read_other(item),
        }
        Ok(())
    }

    fn read_other(&mut self, item: Value) {
        let Some(open) = self.open_program() else {
            self.entries.push(HistoryEntry::Item(item));
            return;
        };
        // Results of the provider's tools that the client executes, and instructions, may come with the answers.
        if fields::is_client_output(&item) || fields::is_instruction(&item) || fields::is_user_remark(&item) {
            open.block.remarks.push(item);
        } else if !fields::is_reasoning(&item) && !client_echo::is_in_state(&item, &open.block.state) {
            // The conversation moved on without the program's result.
            self.open = None;
            self.entries.push(HistoryEntry::Item(item));
        }
    }

    fn open_program(&mut self) -> Option<&mut OpenProgramItem> {
        self.open.and_then(|at| self.program_at(at))
    }

    fn program_at(&mut self, at: usize) -> Option<&mut OpenProgramItem> {
        match self.entries.get_mut(at) {
            Some(HistoryEntry::Program(open)) => Some(open),
            _ => None,
        }
    }

    /// Position of the last program that `test` accepts.
    fn position(&self, test: impl Fn(&OpenProgramItem) -> bool) -> Option<usize> {
        self.entries.iter().rposition(|entry| matches!(entry, HistoryEntry::Program(open) if test(open)))
    }

    fn read_call(&mut self, at: usize, item: Value, opener: &StateOpener<'_>) {
        let id = fields::call_id(&item);
        let caller = fields::caller_id(&item);
        let owner = match caller {
            Some(caller) => self.position(|open| open.block.id == caller),
            None => self.position(|open| open.own_id(id).is_some()),
        };
        if let Some(open) = owner.and_then(|owner| self.program_at(owner)) {
            open.add_call(at, &item, opener);
        } else if caller.is_some() || Sealer::is_own_id(id) {
            self.push_lost_call(item);
        } else if let Some(open) = self.open_program() {
            open.add_direct_call(item);
        } else {
            self.entries.push(HistoryEntry::Item(item));
        }
    }

    /// Adds a call whose program the client removed from the history.
    fn push_lost_call(&mut self, item: Value) {
        let end = self.open.unwrap_or(self.entries.len());
        let call = WireCall { call: item, answer: None };
        if let Some(HistoryEntry::Lost(lost)) = end.checked_sub(1).and_then(|last| self.entries.get_mut(last)) {
            lost.calls.push(call);
        } else {
            self.insert(end, HistoryEntry::Lost(LostCalls::new(json!([]), vec![call])));
        }
    }

    fn insert(&mut self, at: usize, entry: HistoryEntry) {
        self.entries.insert(at, entry);
        self.open = self.open.map(|open| if open >= at { open + 1 } else { open });
    }

    /// An answer belongs to its call, wherever that is in the history.
    fn read_answer(&mut self, at: usize, item: Value) {
        let id = fields::call_id(&item).to_owned();
        if let Some(owner) = self.position(|open| open.has_call(&id)) {
            if let Some(open) = self.program_at(owner) {
                open.add_answer(&id, item);
            }
            return;
        }
        let lost = self.entries.iter_mut().filter_map(|entry| match entry {
            HistoryEntry::Lost(lost) => Some(lost),
            _ => None,
        });
        if let Some(call) = lost.flat_map(|lost| &mut lost.calls).find(|call| fields::call_id(&call.call) == id) {
            call.answer.get_or_insert(item);
            return;
        }
        let caller = fields::caller_id(&item).map(str::to_owned);
        let outside = self.entries.iter().rposition(
            |entry| matches!(entry, HistoryEntry::Item(call) if fields::is_call(call) && fields::call_id(call) == id),
        );
        match (outside, self.open_program()) {
            (Some(call), Some(_)) => self.insert_answer(call, &id, item),
            (None, Some(open)) => {
                if caller.is_none_or(|caller| caller == open.block.id) {
                    open.add_stray_answer(at, item);
                }
            }
            // The client removed the call, and providers refuse an answer without its call.
            (None, None) if caller.is_some() || UnsealedCallId::parse(&id).is_some() => {}
            (_, None) => self.entries.push(HistoryEntry::Item(item)),
        }
    }

    /// Adds the answer to a call before the open program.
    fn insert_answer(&mut self, call: usize, id: &str, item: Value) {
        let is_item =
            |entry: &HistoryEntry, test: fn(&Value) -> bool| matches!(entry, HistoryEntry::Item(item) if test(item));
        let is_answer = |entry: &HistoryEntry| matches!(entry, HistoryEntry::Item(item) if fields::is_output(item) && fields::call_id(item) == id);
        if self.entries[call..].iter().any(is_answer) {
            return;
        }
        let after = self.entries[call..]
            .iter()
            .take_while(|entry| is_item(entry, fields::is_call) || is_item(entry, fields::is_output));
        let at = call + after.count();
        self.insert(at, HistoryEntry::Item(item));
    }

    fn read_result(&mut self, at: usize, mut item: Value) {
        let shown = item.get_mut("result").map(|result| shown_result(result.take()));
        let id = fields::call_id(&item);
        let owner = self.position(|open| open.block.id == id);
        // A reference has only an id, and no result.
        let owner = owner.or(self.open.filter(|_| shown.is_none()));
        if let Some(owner) = owner {
            if self.open == Some(owner) {
                self.open = None;
            }
            if let Some(open) = self.program_at(owner)
                && !open.block.is_closed()
            {
                open.block.result = shown;
                open.block.status = BlockStatus::Closed;
            }
        } else if let Some(open) = self.open_program() {
            let message = format!("`{id}` is not the program that is open here: that is `{}`", open.label());
            open.set_error(wrong(at, "call_id", &message));
        }
    }

    /// Only an error in the program that continues now is reported. Earlier programs need not be complete.
    fn conversation(self) -> Result<Conversation, BadRequest> {
        let mut conversation = Conversation::default();
        let mut items = Vec::new();
        let end = self.entries.len();
        for (at, entry) in self.entries.into_iter().enumerate() {
            let item = match entry {
                HistoryEntry::Item(item) => {
                    items.push(item);
                    continue;
                }
                HistoryEntry::Program(open) => {
                    let block = if at + 1 == end { open.into_live_block()? } else { open.into_block() };
                    ConversationItem::Program(Box::new(block))
                }
                HistoryEntry::Lost(lost) => ConversationItem::LostCalls(lost),
            };
            // The history may have sealed ids of plain mode, which no provider accepts.
            conversation.items.extend(history::read(std::mem::take(&mut items), None).items);
            conversation.items.push(item);
        }
        conversation.items.extend(history::read(items, None).items);
        Ok(conversation)
    }

    /// Takes the output of the model right before a program.
    fn take_model_output(&mut self) -> Vec<Value> {
        let is_model_output =
            |entry: &HistoryEntry| matches!(entry, HistoryEntry::Item(item) if fields::is_model_output(item));
        let begin = self.entries.iter().rposition(|entry| !is_model_output(entry)).map_or(0, |last| last + 1);
        let items = self.entries.split_off(begin).into_iter().filter_map(|entry| match entry {
            HistoryEntry::Item(item) => Some(item),
            _ => None,
        });
        items.collect()
    }

    fn program(&mut self, at: usize, item: &Value, opener: &StateOpener<'_>) -> Result<ProgramBlock, BadRequest> {
        let text = |key: &str| match item.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(at, key, "must be a string")),
        };
        let (id, code) = (text("call_id")?, text("code")?);
        let unsealed = text("fingerprint")?.and_then(|fingerprint| opener.unseal(fingerprint));
        let before = self.take_model_output();
        let (state, run, id) = match unsealed {
            Some(Unsealed::Round { state, packed, .. }) if code.is_none_or(|code| code == state.code) => {
                self.entries.extend(client_echo::not_in_state(before, &state).into_iter().map(HistoryEntry::Item));
                let run = packed.run();
                (Arc::unwrap_or_clone(state), run, id.map_or_else(|| item_ids::program_call(run), str::to_owned))
            }
            _ => {
                let id = id.ok_or_else(|| wrong(at, "call_id", "a `program` item needs a `call_id`"))?;
                let code = code.ok_or_else(|| wrong(at, "code", "a `program` item needs `code`: the program"))?;
                let state = state_without_seal(id, code, before);
                let run = state.run();
                (state, run, id.to_owned())
            }
        };
        Ok(ProgramBlock { run, ..ProgramBlock::new(&id, state) })
    }
}

/// The state of a program without a fingerprint of the gateway, from the model's output before it.
fn state_without_seal(id: &str, code: &str, before: Vec<Value>) -> RunState {
    let text: String = before.iter().filter(|item| fields::is_message(item)).map(fields::message_text).collect();
    let mut reasoning = Reasoning::default();
    let mut items = Vec::new();
    for item in before {
        match Reasoning::from_carried(fields::text_of(&item, "encrypted_content")) {
            Some(carried) => reasoning.extend(carried),
            None => items.push(item),
        }
    }
    if items.iter().any(|item| !fields::is_message(item)) {
        reasoning.extend(Reasoning::from_items(items));
    }
    let text = Some(text).filter(|text| !text.is_empty());
    RunState::without_seal(id, code, ModelMessage { text, reasoning, ..ModelMessage::default() })
}

/// The result as the model was shown it. Results that the gateway did not write may have any form.
fn shown_result(result: Value) -> Value {
    let parsed = match result {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    if parsed.get("status").is_some() { parsed } else { json!({"status": "success", "data": parsed}) }
}

pub(super) fn wrong(at: usize, key: &str, message: &str) -> BadRequest {
    BadRequest { param: format!("input[{at}].{key}"), message: message.to_owned() }
}
