//! Explicit mode: programs and their results are messages of the history.

use std::collections::BTreeMap;

use dacapo_replay::{CallIndex, Catalog};
use serde_json::{Map, Value, json};

use super::request::BadRequest;
use super::{fields, plain};
use crate::conversation::{Block, Conversation, Expected, HandedOut, Item, Round};
use crate::ids::RunId;
use crate::prompt::EXECUTE;
use crate::saying::{ModelCall, Saying};
use crate::state::{RunState, arguments};

pub(super) const CODE: &str = "code";
pub(super) const CODE_RESULT: &str = "code_result";

pub(super) fn read(messages: Vec<Value>, catalog: &Catalog) -> Result<Conversation, BadRequest> {
    let mut reader = Reader::default();
    for (at, message) in messages.into_iter().enumerate() {
        reader.read(at, message, catalog)?;
    }
    reader.end_messages();
    if let Some(open) = reader.open.take() {
        reader.conversation.items.push(Item::Block(open.block));
    }
    Ok(reader.conversation)
}

#[derive(Default)]
struct Reader {
    conversation: Conversation,
    /// Outside of blocks.
    messages: Vec<Value>,
    open: Option<Open>,
    /// Blocks by the ids of their code messages.
    runs: BTreeMap<String, RunId>,
}

/// A block that no `code_result` has closed yet.
struct Open {
    block: Box<Block>,
    id: String,
    at: usize,
    /// Ids of the calls handed out, with their place in the block.
    handed_out: Vec<(String, usize, usize)>,
    calls: u32,
    answers: usize,
}

impl Reader {
    fn read(&mut self, at: usize, message: Value, catalog: &Catalog) -> Result<(), BadRequest> {
        let role = fields::role(&message).to_owned();
        match (&mut self.open, role.as_str()) {
            (None, CODE) => {
                let (id, state) = self.code(at, &message)?;
                let block = Block {
                    run: state.run(),
                    id: id.clone(),
                    state,
                    rounds: Vec::new(),
                    direct: Vec::new(),
                    result: None,
                };
                self.end_messages();
                self.runs.insert(id.clone(), block.run);
                let block = Box::new(block);
                self.open = Some(Open { block, id, at, handed_out: Vec::new(), calls: 0, answers: 0 });
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
                open.block.result = Some(result.clone());
                if let Some(open) = self.open.take() {
                    self.conversation.items.push(Item::Block(open.block));
                }
            }
            (Some(open), role) => {
                return Err(wrong(
                    at,
                    "role",
                    &format!(
                        "a message of role `{role}` cannot stand inside the block of `{}` (messages[{}]); between `code` and `code_result` only assistant messages with tool calls and tool messages are allowed",
                        open.id, open.at
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A client may have brought ids of plain mode along, which no provider takes.
    fn end_messages(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        self.conversation.items.extend(plain::as_ordinary(messages).items);
    }

    fn code(&self, at: usize, message: &Value) -> Result<(String, RunState), BadRequest> {
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
        let continues = match text("continues")? {
            None => None,
            Some(id) => Some(
                *self.runs.get(&id).ok_or_else(|| wrong(at, "continues", "names no `code` message before this one"))?,
            ),
        };
        let before = match message.get("before") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(before)) => before.iter().map(fields::saying).collect(),
            Some(_) => return Err(wrong(at, "before", "must be an array of assistant messages")),
        };
        let mut saying = fields::saying(message);
        let mut opaque = Map::new();
        if let Some(extra) = message.get(fields::CALL_OPAQUE) {
            opaque.insert(fields::CALL_OPAQUE.to_owned(), extra.clone());
        }
        saying.calls =
            vec![ModelCall { name: EXECUTE.to_owned(), arguments: arguments(&code), id: String::new(), opaque }];
        let mut sayings: Vec<Saying> = before;
        sayings.push(saying);
        let seed = text("seed")?.unwrap_or_else(|| id.clone());
        Ok((id, RunState { seed, started_at_ms, tools: [0; 8], continues, sayings, at: 0, code }))
    }
}

impl Open {
    fn round(&mut self, at: usize, message: &Value, catalog: &Catalog) -> Result<(), BadRequest> {
        let number = self.block.rounds.len();
        let mut round = Round { number: number as u32, calls: Vec::new() };
        for (place, call) in fields::tool_calls(message).iter().enumerate() {
            let id = fields::id(call);
            let index = self.index(id);
            self.calls = self.calls.max(index.0.saturating_add(1));
            let arguments = fields::arguments(call);
            let args = if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) };
            let args = args.map_err(|error| {
                wrong(at, &format!("tool_calls[{place}].function.arguments"), &format!("must be JSON: {error}"))
            })?;
            self.handed_out.push((id.to_owned(), number, place));
            round.calls.push(HandedOut {
                asked: Expected::Args(index, args),
                tool: fields::tool_name(call, catalog),
                answer: None,
            });
        }
        self.block.rounds.push(round);
        Ok(())
    }

    /// The number that our own ids end with; calls with ids of others count in order.
    fn index(&self, id: &str) -> CallIndex {
        let own = || {
            let (run, numbers) = id.strip_prefix("call_")?.split_at_checked(RunId::CHARS)?;
            let (_, call) = numbers.strip_prefix('_')?.split_once('_')?;
            (RunId::parse(run)? == self.block.run).then(|| call.parse().ok().map(CallIndex)).flatten()
        };
        own().unwrap_or(CallIndex(self.calls))
    }

    fn answer(&mut self, at: usize, message: &Value) -> Result<(), BadRequest> {
        let id = fields::tool_call_id(message);
        let known = self
            .handed_out
            .iter()
            .rev()
            .find(|(handed_out, ..)| handed_out == id)
            .map(|(_, round, place)| (*round, *place));
        // A round of one call cannot be answered wrongly.
        let only = || {
            let round = self.block.rounds.last()?;
            (round.calls.len() == 1 && round.calls[0].answer.is_none()).then(|| (self.block.rounds.len() - 1, 0))
        };
        let Some((round, place)) = known.or_else(only) else {
            return Err(wrong(
                at,
                "tool_call_id",
                &format!("`{id}` is not the id of a call in the block of `{}` (messages[{}])", self.id, self.at),
            ));
        };
        self.answers += 1;
        let call = &mut self.block.rounds[round].calls[place];
        if call.answer.is_none() {
            call.answer = Some((self.answers, fields::answer(message)));
        }
        Ok(())
    }
}

fn wrong(at: usize, key: &str, message: &str) -> BadRequest {
    BadRequest { param: format!("messages[{at}].{key}"), message: message.to_owned() }
}

/// The id of a call, for a client that knows about programs.
pub(super) fn call_id(run: RunId, round: u32, call: CallIndex) -> String {
    format!("call_{run}_{round}_{}", call.0)
}

pub(super) fn code_id(run: RunId) -> String {
    format!("code_{run}")
}

/// The message that opens a block.
pub(super) fn code_message(state: &RunState, before: Vec<Value>) -> Value {
    let mut message = json!({"role": CODE, "id": code_id(state.run()), "code": state.code});
    let fields = message.as_object_mut().expect("it is an object");
    if let Some(saying) = state.sayings.last() {
        if let Some(text) = &saying.text {
            fields.insert("content".to_owned(), Value::from(text.as_str()));
        }
        fields.extend(saying.opaque.clone());
        if let Some(call) = saying.calls.get(state.at) {
            fields.extend(call.opaque.clone());
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
