//! Explicit mode: programs and their results are messages of the history.

use std::collections::BTreeMap;

use dacapo_replay::{CallIndex, Catalog};
use serde_json::{Map, Value, json};

use super::{fields, history};
use crate::conversation::{
    CallRound, Conversation, ConversationItem, ExpectedCall, IssuedCall, ProgramBlock, WireCall,
};
use crate::ids::RunId;
use crate::model_message::{CallExtra, ModelCall, ModelMessage};
use crate::plain_mode::tool_name;
use crate::prompt::EXECUTE;
use crate::reasoning::Reasoning;
use crate::request::BadRequest;
use crate::state::{RunState, arguments};

pub(super) const CODE: &str = "code";
pub(super) const CODE_RESULT: &str = "code_result";
/// Reasoning of a model on another wire.
const FOREIGN: &str = "reasoning_state";
/// What the model is shown beside the result itself.
const SHOWN_BESIDE: [&str; 2] = ["note", "logs"];

pub(super) fn read(messages: Vec<Value>, catalog: &Catalog) -> Result<Conversation, BadRequest> {
    let mut reader = ChatProgramReader::default();
    for (at, message) in messages.into_iter().enumerate() {
        reader.read(at, message, catalog)?;
    }
    reader.end_messages();
    if let Some(open) = reader.open.take() {
        reader.conversation.items.push(ConversationItem::Program(open.block));
    }
    Ok(reader.conversation)
}

#[derive(Default)]
struct ChatProgramReader {
    conversation: Conversation,
    /// Outside of blocks.
    messages: Vec<Value>,
    open: Option<OpenProgram>,
    /// Blocks by the ids of their code messages.
    runs: BTreeMap<String, RunId>,
}

/// A block that no `code_result` has closed yet.
struct OpenProgram {
    block: Box<ProgramBlock>,
    at: usize,
    calls: u32,
    answers: usize,
}

impl ChatProgramReader {
    fn read(&mut self, at: usize, message: Value, catalog: &Catalog) -> Result<(), BadRequest> {
        let role = fields::role(&message).to_owned();
        match (&mut self.open, role.as_str()) {
            (None, CODE) => {
                let block = self.code(at, &message)?;
                self.end_messages();
                self.runs.insert(block.id.clone(), block.run);
                self.runs.insert(code_id(block.run), block.run);
                self.open = Some(OpenProgram { block: Box::new(block), at, calls: 0, answers: 0 });
            }
            (None, CODE_RESULT) => {
                return Err(wrong(
                    at,
                    "role",
                    "this `code_result` closes no `code` message; remove it, or put the `code` message before it",
                ));
            }
            (None, _) => self.messages.push(message),
            (Some(open), "assistant") if !fields::tool_calls(&message).is_empty() => {
                open.round(at, &message, catalog)?;
            }
            (Some(open), "tool") => open.answer(at, &message)?,
            (Some(open), CODE_RESULT) => {
                let result = message.get("result").filter(|result| result.is_object());
                let result = result.ok_or_else(|| wrong(at, "result", "a `code_result` needs `result`: {\"status\": \"success\", \"data\": …} or {\"status\": \"error\", \"error\": …}"))?;
                let mut shown = result.clone();
                for key in SHOWN_BESIDE {
                    if let Some(value) = message.get(key).filter(|value| !value.is_null()) {
                        shown[key] = value.clone();
                    }
                }
                open.block.result = Some(shown);
                open.block.is_closed = true;
                if let Some(open) = self.open.take() {
                    self.conversation.items.push(ConversationItem::Program(open.block));
                }
            }
            (Some(open), role) => {
                return Err(wrong(
                    at,
                    "role",
                    &format!(
                        "a message of role `{role}` cannot stand inside the block of `{}` (messages[{}]); between `code` and `code_result` only assistant messages with tool calls and tool messages are allowed",
                        open.block.id, open.at
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A client may have brought ids of plain mode along, which no provider takes.
    fn end_messages(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        self.conversation.items.extend(history::read(messages, None).items);
    }

    fn code(&self, at: usize, message: &Value) -> Result<ProgramBlock, BadRequest> {
        let text = |key: &str| match message.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(at, key, "must be a string")),
        };
        let id = text("id")?.ok_or_else(|| wrong(at, "id", "a `code` message needs an `id`"))?;
        let code = text("code")?.ok_or_else(|| wrong(at, "code", "a `code` message needs `code`: the program"))?;
        let default = RunState::STARTED_AT_DEFAULT_MS;
        let started_at_ms = match message.get("started_at") {
            None | Some(Value::Null) => default,
            Some(value) => value
                .as_u64()
                .filter(|ms| *ms < 1 << 52)
                .ok_or_else(|| wrong(at, "started_at", "must be milliseconds since 1970"))?,
        };
        let predecessor = text("continues")?;
        let continues = predecessor.as_ref().and_then(|id| self.runs.get(id)).copied();
        let is_orphan = predecessor.is_some() && continues.is_none();
        let before = match message.get("before") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(before)) => before.iter().map(model_message).collect(),
            Some(_) => return Err(wrong(at, "before", "must be an array of assistant messages")),
        };
        let mut model_message = model_message(message);
        let extra = message.get(CallExtra::EXTRA_CONTENT).cloned();
        let extra = extra.map_or(CallExtra::None, CallExtra::ExtraContent);
        model_message.calls =
            vec![ModelCall { name: EXECUTE.to_owned(), arguments: arguments(&code), extra, ..ModelCall::default() }];
        let mut model_messages: Vec<ModelMessage> = before;
        model_messages.push(model_message);
        let seed = text("seed")?.unwrap_or_else(|| id.clone());
        let state = RunState { seed, started_at_ms, tools: [0; 8], continues, model_messages, at: 0, code };
        Ok(ProgramBlock { is_orphan, ..ProgramBlock::new(&id, state) })
    }
}

impl OpenProgram {
    fn round(&mut self, at: usize, message: &Value, catalog: &Catalog) -> Result<(), BadRequest> {
        let number = self.block.rounds.len();
        let mut round = CallRound { number: number as u32, answered: None, calls: Vec::new() };
        let calls = fields::tool_calls(message);
        let are_ours = calls.iter().any(|call| self.own_index(fields::id(call)).is_some());
        for (place, call) in calls.iter().enumerate() {
            let id = fields::id(call);
            let own = self.own_index(id);
            if are_ours && own.is_none() {
                // The model's own call, beside the program's.
                self.block.direct.push(WireCall { call: call.clone(), answer: None });
                continue;
            }
            // Calls with ids of others count in order.
            let index = own.unwrap_or(CallIndex(self.calls));
            self.calls = self.calls.max(index.0.saturating_add(1));
            let arguments = fields::arguments(call);
            let args = if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) };
            let args = args.map_err(|error| {
                wrong(at, &format!("tool_calls[{place}].function.arguments"), &format!("must be JSON: {error}"))
            })?;
            round.calls.push(IssuedCall {
                id: id.to_owned(),
                asked: ExpectedCall::Args(index, args),
                tool: tool_name(fields::function_name(call), catalog),
                answer: None,
            });
        }
        self.block.rounds.push(round);
        Ok(())
    }

    /// The number that our own ids end with.
    fn own_index(&self, id: &str) -> Option<CallIndex> {
        let (run, numbers) = id.strip_prefix("call_")?.split_at_checked(RunId::CHARS)?;
        let (_, call) = numbers.strip_prefix('_')?.split_once('_')?;
        (RunId::parse(run)? == self.block.run).then(|| call.parse().ok().map(CallIndex)).flatten()
    }

    fn answer(&mut self, at: usize, message: &Value) -> Result<(), BadRequest> {
        let id = fields::tool_call_id(message);
        let block = &mut self.block;
        if let Some(given) = block.direct.iter_mut().find(|given| fields::id(&given.call) == id) {
            given.answer.get_or_insert_with(|| message.clone());
            return Ok(());
        }
        let is_known = block.rounds.iter().flat_map(|round| &round.calls).any(|call| call.id == id);
        let call = if is_known {
            block.rounds.iter_mut().rev().flat_map(|round| &mut round.calls).find(|call| call.id == id)
        } else {
            // A round of one call cannot be answered wrongly.
            let last = block.rounds.last_mut().map_or(&mut [][..], |round| &mut round.calls);
            if let [only] = last { Some(only).filter(|only| only.answer.is_none()) } else { None }
        };
        let Some(call) = call else {
            let message =
                format!("`{id}` is not the id of a call in the block of `{}` (messages[{}])", block.id, self.at);
            return Err(wrong(at, "tool_call_id", &message));
        };
        self.answers += 1;
        if call.answer.is_none() {
            call.answer = Some((self.answers, fields::answer(message)));
        }
        Ok(())
    }
}

fn wrong(at: usize, key: &str, message: &str) -> BadRequest {
    BadRequest { param: format!("messages[{at}].{key}"), message: message.to_owned() }
}

/// A message of the model as an explicit client carries it.
fn model_message(message: &Value) -> ModelMessage {
    let mut model_message = fields::model_message(message);
    let foreign = message.get(FOREIGN).and_then(Value::as_str).and_then(Reasoning::from_carried);
    model_message.reasoning.extend(foreign.unwrap_or_default());
    model_message
}

/// Reasoning as an explicit client carries it: under its own names, or sealed up if the model's wire is another.
fn carried_reasoning(reasoning: &Reasoning) -> Map<String, Value> {
    let mut carried = reasoning.chat_fields().cloned().unwrap_or_default();
    if reasoning.has_other_than_chat() {
        carried.insert(FOREIGN.to_owned(), Value::from(reasoning.to_carried()));
    }
    carried
}

pub(super) fn code_id(run: RunId) -> String {
    format!("code_{run}")
}

/// The message that closes a block; `shown` is the result as the model reads it.
pub(super) fn code_result(id: &str, shown: &Value) -> Value {
    let mut result = shown.clone();
    let beside: Vec<(&str, Value)> = match result.as_object_mut() {
        Some(fields) => SHOWN_BESIDE.into_iter().filter_map(|key| Some((key, fields.shift_remove(key)?))).collect(),
        None => Vec::new(),
    };
    let mut message = json!({"role": CODE_RESULT, "id": id, "result": result});
    for (key, value) in beside {
        message[key] = value;
    }
    message
}

/// The message that opens a block.
pub(super) fn code(state: &RunState) -> Value {
    let before = state.model_messages.split_last().map_or(&[][..], |(_, before)| before);
    let before: Vec<Value> = before.iter().map(carried).collect();
    let mut message = json!({"role": CODE, "id": code_id(state.run()), "code": state.code});
    let fields = message.as_object_mut().expect("it is an object");
    if let Some(model_message) = state.model_messages.last() {
        if let Some(text) = &model_message.text {
            fields.insert("content".to_owned(), Value::from(text.as_str()));
        }
        fields.extend(carried_reasoning(&model_message.reasoning));
        if let Some(call) = model_message.calls.get(state.at) {
            fields.extend(Map::from(call.extra.clone()));
        }
    }
    fields.insert("seed".to_owned(), Value::from(state.seed.as_str()));
    fields.insert("started_at".to_owned(), Value::from(state.started_at_ms));
    if let Some(run) = state.continues {
        fields.insert("continues".to_owned(), Value::from(code_id(run)));
    }
    if !before.is_empty() {
        fields.insert("before".to_owned(), Value::Array(before));
    }
    message
}

/// Messages of the model that explicit clients carry for us, without results.
pub(super) fn carried(model_message: &ModelMessage) -> Value {
    let mut message = Map::new();
    if let Some(text) = &model_message.text {
        message.insert("content".to_owned(), Value::from(text.as_str()));
    }
    message.extend(carried_reasoning(&model_message.reasoning));
    let calls = model_message.calls.iter().map(|call| {
        let mut call = fields::written("", call);
        call.as_object_mut().map(|fields| fields.shift_remove("id"));
        call
    });
    message.insert("tool_calls".to_owned(), calls.collect());
    Value::Object(message)
}
