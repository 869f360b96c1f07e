//! Explicit mode: programs and their results are items of the history.

use std::collections::BTreeMap;

use dacapo_replay::CallIndex;
use serde_json::{Map, Value, json};

use super::{echoes, fields, history, marks};
use crate::carrier;
use crate::conversation::{Block, Conversation, Expected, Given, HandedOut, Item, Round};
use crate::ids::RunId;
use crate::plain::Seals;
use crate::prompt::EXECUTE;
use crate::saying::{ModelCall, Saying};
use crate::seal::Unsealed;
use crate::state::{RunState, arguments};
use crate::turn::BadRequest;

pub(super) fn read(items: Vec<Value>, seals: &Seals<'_>) -> Result<Conversation, BadRequest> {
    let mut reader = Reader::default();
    for (at, item) in marks::resolved(items) {
        reader.read(at, item, seals)?;
    }
    reader.end_items();
    reader.end_block();
    Ok(reader.conversation)
}

#[derive(Default)]
struct Reader {
    conversation: Conversation,
    /// Outside of blocks.
    items: Vec<Value>,
    open: Option<Open>,
}

/// A program that no `program_output` has closed yet.
struct Open {
    block: Box<Block>,
    at: usize,
    calls: u32,
    /// Where each call stands, by its id.
    places: BTreeMap<String, Place>,
    answers: usize,
    /// An answer has come since the last call.
    is_answered: bool,
}

#[derive(Clone, Copy)]
enum Place {
    Round(usize, usize),
    Direct(usize),
}

impl Reader {
    fn read(&mut self, at: usize, item: Value, seals: &Seals<'_>) -> Result<(), BadRequest> {
        let kind = fields::kind(&item).to_owned();
        match (&mut self.open, kind.as_str()) {
            (_, "program") => {
                self.end_block();
                let block = self.program(at, &item, seals)?;
                self.end_items();
                let (calls, answers, is_answered) = (0, 0, false);
                let block = Box::new(block);
                self.open = Some(Open { block, at, calls, places: BTreeMap::new(), answers, is_answered });
            }
            (Some(open), "function_call" | "custom_tool_call") => open.call(at, item, seals)?,
            (Some(open), "function_call_output" | "custom_tool_call_output") => open.answer(at, item)?,
            (Some(open), "program_output") => {
                let id = fields::call_id(&item);
                // Who refers to it by its id only knows no result.
                if id != open.block.id && item.get("result").is_some() {
                    let message = format!(
                        "`{id}` is not the program that is open here: that is `{}` (input[{}])",
                        open.block.id, open.at
                    );
                    return Err(wrong(at, "call_id", &message));
                }
                open.block.result = item.get("result").map(result);
                open.block.is_closed = true;
                self.end_block();
            }
            (None, "program_output") if item.get("result").is_none() => {}
            (None, "program_output") => {
                return Err(wrong(
                    at,
                    "call_id",
                    "this `program_output` closes no program; remove it, or put the `program` item before it",
                ));
            }
            (None, _) if fields::caller_id(&item).is_some() && fields::is_call(&item) => {
                return Err(wrong(
                    at,
                    "caller",
                    "this call is of a program that is not open here; put the `program` item before it",
                ));
            }
            (Some(_), "reasoning") => {}
            // What the client did for calls beside the program.
            (Some(open), _) if fields::is_client_output(&item) => open.block.remarks.push(item),
            (_, _) => {
                // The conversation went on without its result.
                self.end_block();
                self.items.push(item);
            }
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if let Some(open) = self.open.take() {
            self.conversation.items.push(Item::Block(open.block));
        }
    }

    /// A client may have brought ids of plain mode along, which no provider takes.
    fn end_items(&mut self) {
        let items = std::mem::take(&mut self.items);
        self.conversation.items.extend(history::walk(items, None).items);
    }

    fn program(&mut self, at: usize, item: &Value, seals: &Seals<'_>) -> Result<Block, BadRequest> {
        let text = |key: &str| match item.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(at, key, "must be a string")),
        };
        let (id, code) = (text("call_id")?, text("code")?);
        let unsealed = text("fingerprint")?.and_then(|fingerprint| seals.sealer.unseal(fingerprint));
        let before = self.items.iter().rposition(|item| !fields::is_said(item)).map_or(0, |last| last + 1);
        let before = self.items.split_off(before);
        let (state, run, id) = match unsealed {
            Some(Unsealed::Round { state, run, .. }) if code.is_none_or(|code| code == state.code) => {
                self.items.extend(echoes::unknown(before, &state));
                (*state, run, id.map_or_else(|| marks::program_call(run), str::to_owned))
            }
            _ => {
                let id = id.ok_or_else(|| wrong(at, "call_id", "a `program` item needs a `call_id`"))?;
                let code = code.ok_or_else(|| wrong(at, "code", "a `program` item needs `code`: the program"))?;
                let state = written(id, code, before);
                let run = state.run();
                (state, run, id.to_owned())
            }
        };
        Ok(Block {
            run,
            id,
            state,
            rounds: Vec::new(),
            direct: Vec::new(),
            result: None,
            is_orphan: false,
            is_closed: false,
            remarks: Vec::new(),
        })
    }
}

/// The state of a program that somebody else wrote down.
fn written(id: &str, code: &str, before: Vec<Value>) -> RunState {
    let text: String = before.iter().filter(|item| fields::is_message(item)).map(fields::said_text).collect();
    let mut opaque = Map::new();
    let mut items = Vec::new();
    for item in before {
        match carrier::unwrap(fields::text_of(&item, "encrypted_content")) {
            Some(carried) => opaque.extend(carried),
            None => items.push(item),
        }
    }
    if items.iter().any(|item| !fields::is_message(item)) {
        opaque.insert("items".to_owned(), Value::Array(items));
    }
    let call = ModelCall { name: EXECUTE.to_owned(), arguments: arguments(code), ..ModelCall::default() };
    let saying = Saying { text: Some(text).filter(|text| !text.is_empty()), opaque, calls: vec![call] };
    RunState {
        seed: id.to_owned(),
        started_at_ms: RunState::STARTED_AT_DEFAULT_MS,
        tools: [0; 8],
        continues: None,
        sayings: vec![saying],
        at: 0,
        code: code.to_owned(),
    }
}

impl Open {
    fn call(&mut self, at: usize, item: Value, seals: &Seals<'_>) -> Result<(), BadRequest> {
        let id = fields::call_id(&item).to_owned();
        let own = self.own_place(&id);
        let caller = fields::caller_id(&item);
        if let Some(caller) = caller.filter(|caller| *caller != self.block.id) {
            let message = format!(
                "`{caller}` is not the program that is open here: that is `{}` (input[{}])",
                self.block.id, self.at
            );
            return Err(wrong(at, "caller.caller_id", &message));
        }
        if caller.is_none() && own.is_none() {
            // The model's own call, beside the program's.
            self.places.insert(id, Place::Direct(self.block.direct.len()));
            self.block.direct.push(Given { call: item, answer: None });
            return Ok(());
        }
        let rounds = &mut self.block.rounds;
        let last = rounds.last().map(|round| round.number);
        // Calls with ids of others count in order, and an answer ends their round.
        let next = last.map_or(0, |last| last + u32::from(self.is_answered));
        let (number, index) = own.unwrap_or((next, CallIndex(self.calls)));
        self.calls = self.calls.max(index.0.saturating_add(1));
        self.is_answered = false;
        let arguments = fields::model_call(&item).arguments;
        let args = if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) };
        let args = args.map_err(|error| wrong(at, "arguments", &format!("must be JSON: {error}")))?;
        if last != Some(number) {
            rounds.push(Round { number, answered: None, calls: Vec::new() });
        }
        let at = rounds.len() - 1;
        self.places.insert(id.clone(), Place::Round(at, rounds[at].calls.len()));
        let tool = fields::tool_name(&item, seals.catalog);
        rounds[at].calls.push(HandedOut { id, asked: Expected::Args(index, args), tool, answer: None });
        Ok(())
    }

    /// Round and number that our own ids end with.
    fn own_place(&self, id: &str) -> Option<(u32, CallIndex)> {
        let (run, numbers) = id.strip_prefix("call_")?.split_at_checked(RunId::CHARS)?;
        let (round, call) = numbers.strip_prefix('_')?.split_once('_')?;
        let place = (round.parse().ok()?, CallIndex(call.parse().ok()?));
        (RunId::parse(run)? == self.block.run).then_some(place)
    }

    fn answer(&mut self, at: usize, item: Value) -> Result<(), BadRequest> {
        let id = fields::call_id(&item);
        let place = self.places.get(id).copied().or_else(|| {
            // A round of one call cannot be answered wrongly.
            let last = self.block.rounds.len().checked_sub(1)?;
            let calls = &self.block.rounds[last].calls;
            (calls.len() == 1 && calls[0].answer.is_none()).then_some(Place::Round(last, 0))
        });
        self.is_answered = true;
        match place {
            Some(Place::Direct(place)) => _ = self.block.direct[place].answer.get_or_insert(item),
            Some(Place::Round(round, place)) => {
                self.answers += 1;
                let answer = (self.answers, fields::answer(&item));
                self.block.rounds[round].calls[place].answer.get_or_insert(answer);
            }
            None => {
                let message =
                    format!("`{id}` is not the id of a call of the program `{}` (input[{}])", self.block.id, self.at);
                return Err(wrong(at, "call_id", &message));
            }
        }
        Ok(())
    }
}

/// What the model was shown. Results of others need not have our form.
fn result(result: &Value) -> Value {
    let parsed = match result {
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| result.clone()),
        other => other.clone(),
    };
    if parsed.get("status").is_some() { parsed } else { json!({"status": "success", "data": parsed}) }
}

fn wrong(at: usize, key: &str, message: &str) -> BadRequest {
    BadRequest { param: format!("input[{at}].{key}"), message: message.to_owned() }
}
