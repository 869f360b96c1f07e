//! Explicit mode: programs and their results are messages of the history.

use dacapo_replay::{CallIndex, Catalog};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{fields, history};
use crate::call_round::{CallRound, ExpectedCall, IssuedCall};
use crate::conversation::{BlockStatus, Conversation, ConversationItem, ProgramBlock, WireCall};
use crate::encoder::ServerCall;
use crate::ids::{GivenRecord, RunId, UnsealedCallId};
use crate::model_message::{CallExtra, ModelCall, ModelMessage};
use crate::neutral::{remove_fields, without_fields};
use crate::plain_mode::tool_name;
use crate::prompt::EXECUTE;
use crate::reasoning::Reasoning;
use crate::request::BadRequest;
use crate::state::{RunState, arguments};
use crate::usage::ContextTokens;

pub(super) const CODE: &str = "code";
pub(super) const CODE_RESULT: &str = "code_result";
/// The role of a message that asks whether a call may be made.
const APPROVAL_REQUEST: &str = "approval_request";
/// The role of the client's answer to it.
const APPROVAL_RESPONSE: &str = "approval_response";
const APPROVAL_PREFIX: &str = "approval_";
/// The field for the tokens that the model had read.
const CONTEXT: &str = "context_tokens";
/// The field for reasoning of a model on another wire.
const FOREIGN: &str = "reasoning_state";
/// Fields that the model sees in the result. For the client they are beside it.
const BESIDE_RESULT: [&str; 4] = ["logs", "reused", "note", "shapes"];

/// Reads a history of explicit mode.
pub(super) fn read(messages: Vec<Value>, catalog: &Catalog) -> Result<Conversation, BadRequest> {
    let mut reader = ChatProgramReader::default();
    for (at, message) in messages.into_iter().enumerate() {
        reader.read(at, message, catalog)?;
    }
    reader.flush_messages();
    reader.push_open_program();
    Ok(reader.conversation)
}

#[derive(Default)]
struct ChatProgramReader {
    conversation: Conversation,
    /// Messages outside of programs that are not in the conversation yet.
    messages: Vec<Value>,
    open: Option<OpenProgram>,
}

/// A program that no `code_result` has closed yet.
struct OpenProgram {
    block: Box<ProgramBlock>,
    /// Position of its `code` message in the request.
    at: usize,
    /// The index of its next call.
    next_call: u32,
    answers: usize,
}

impl ChatProgramReader {
    fn read(&mut self, at: usize, message: Value, catalog: &Catalog) -> Result<(), BadRequest> {
        match (&mut self.open, fields::role(&message)) {
            (None, CODE) => {
                let block = ChatProgramReader::code(at, &message)?;
                self.flush_messages();
                self.open = Some(OpenProgram { block: Box::new(block), at, next_call: 0, answers: 0 });
            }
            (None, CODE_RESULT) => {
                return Err(wrong(
                    at,
                    "role",
                    "this `code_result` closes no `code` message; remove it, or put the `code` message before it",
                ));
            }
            (_, APPROVAL_REQUEST) => {}
            (_, APPROVAL_RESPONSE) => {
                let (call, is_approved) = approval(at, &message)?;
                self.conversation.approvals.insert(call, is_approved);
            }
            (None, _) => self.messages.push(message),
            (Some(open), "assistant") if !fields::tool_calls(&message).is_empty() => {
                open.round(at, &message, catalog)?;
            }
            (Some(open), "tool") => open.answer(at, message)?,
            (Some(open), CODE_RESULT) => {
                open.close(at, message)?;
                self.push_open_program();
            }
            (Some(open), role) => {
                return Err(wrong(
                    at,
                    "role",
                    &format!(
                        "a message of role `{role}` cannot stand inside the block of `{}` (messages[{}]); between `code` and `code_result` only assistant messages with tool calls, tool messages and approvals are allowed",
                        open.block.id, open.at
                    ),
                ));
            }
        }
        Ok(())
    }

    fn push_open_program(&mut self) {
        let block = self.open.take().map(|open| ConversationItem::Program(open.block));
        self.conversation.items.extend(block);
    }

    /// Adds the messages outside of programs. The history may have sealed ids of plain mode, which no provider accepts.
    fn flush_messages(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        self.conversation.items.extend(history::read(messages, None).items);
    }

    /// Reads a `code` message.
    fn code(at: usize, message: &Value) -> Result<ProgramBlock, BadRequest> {
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
        let record = match text("record")? {
            Some(record) => {
                let message = "must be as it was in the response";
                Some(GivenRecord::parse(&record).ok_or_else(|| wrong(at, "record", message))?)
            }
            None => None,
        };
        let context = match message.get(CONTEXT) {
            None | Some(Value::Null) => None,
            Some(context) => {
                let message = "must be as it was in the response";
                Some(ContextTokens::deserialize(context).map_err(|_invalid| wrong(at, CONTEXT, message))?)
            }
        };
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
        let state = RunState { seed, started_at_ms, record, context, model_messages, code, ..RunState::default() };
        Ok(ProgramBlock::new(&id, state))
    }
}

impl OpenProgram {
    /// Reads an assistant message with calls.
    fn round(&mut self, at: usize, message: &Value, catalog: &Catalog) -> Result<(), BadRequest> {
        let calls = fields::tool_calls(message);
        let mut own_ids: Vec<Option<UnsealedCallId>> = calls.iter().map(|call| self.own_id(fields::id(call))).collect();
        let first = own_ids.iter_mut().flatten().next();
        let has_own_ids = first.is_some();
        // Rounds of calls with ids that the gateway did not make are counted.
        let mut round = CallRound::unsealed(first.as_ref().map_or(self.block.rounds.len() as u32, |id| id.round));
        if let Some(carried) = first.and_then(|id| id.carried.take()) {
            round.set_carried(carried);
        }
        for (position, (call, own)) in calls.iter().zip(own_ids).enumerate() {
            if has_own_ids && own.is_none() {
                // A direct call of the model, in the same message as the program's.
                self.block.direct.push(WireCall { call: call.clone(), answer: None });
                continue;
            }
            // Calls with ids that the gateway did not make are counted in order.
            let index = own.map_or(CallIndex(self.next_call), |id| id.call);
            self.next_call = self.next_call.max(index.0.saturating_add(1));
            let arguments = fields::arguments(call);
            let args = if arguments.trim().is_empty() { Ok(json!({})) } else { serde_json::from_str(&arguments) };
            let args = args.map_err(|error| {
                wrong(at, &format!("tool_calls[{position}].function.arguments"), &format!("must be JSON: {error}"))
            })?;
            let tool = tool_name(fields::function_name(call), catalog);
            let (id, expected) = (fields::id(call).to_owned(), ExpectedCall::Args(index, args));
            round.calls.push(IssuedCall::unanswered(id, tool, expected, String::new()));
        }
        self.block.add_round(round);
        Ok(())
    }

    /// An id that the gateway made for this program.
    fn own_id(&self, id: &str) -> Option<UnsealedCallId> {
        UnsealedCallId::parse(id).filter(|id| id.run == self.block.run)
    }

    /// Reads a tool message.
    fn answer(&mut self, at: usize, message: Value) -> Result<(), BadRequest> {
        let id = fields::tool_call_id(&message);
        let block = &mut self.block;
        let run = block.run;
        if let Some(call) = block.direct.iter_mut().find(|direct| fields::id(&direct.call) == id) {
            call.answer.get_or_insert(message);
            return Ok(());
        }
        let is_known = block.rounds.iter().flat_map(|round| &round.calls).any(|call| call.id == id);
        let call = if is_known {
            block.rounds.iter_mut().rev().flat_map(|round| &mut round.calls).find(|call| call.id == id)
        } else {
            // If the round has only one call, the answer belongs to it, whatever its id is.
            let last = block.rounds.last_mut().map_or(&mut [][..], |round| &mut round.calls);
            if let [only] = last { Some(only).filter(|only| only.answer.is_none()) } else { None }
        };
        let Some(call) = call else {
            let message =
                format!("`{id}` is not the id of a call in the block of `{}` (messages[{}])", block.id, self.at);
            return Err(wrong(at, "tool_call_id", &message));
        };
        self.answers += 1;
        let appended = call.set_answer(run, self.answers, |key| fields::answer(&message, key));
        block.add_appended(appended);
        Ok(())
    }

    /// Reads a `code_result` message.
    fn close(&mut self, at: usize, mut message: Value) -> Result<(), BadRequest> {
        let result = message.get_mut("result").map(Value::take).filter(Value::is_object);
        let result = result.ok_or_else(|| wrong(at, "result", "a `code_result` needs `result`: {\"status\": \"success\", \"data\": …} or {\"status\": \"error\", \"error\": …}"))?;
        // In the order in which the model was shown them: what was written stands before what was returned.
        let mut shown = json!({"status": result["status"]});
        let mut beside = |key: &str| message.get_mut(key).map(Value::take).filter(|value| !value.is_null());
        if let Some(logs) = beside("logs") {
            shown["logs"] = logs;
        }
        if let (Some(shown), Value::Object(result)) = (shown.as_object_mut(), result) {
            shown.extend(result);
        }
        for (key, value) in BESIDE_RESULT.into_iter().filter_map(|key| Some((key, beside(key)?))) {
            shown[key] = value;
        }
        self.block.result = Some(shown);
        self.block.status = BlockStatus::Closed;
        Ok(())
    }
}

/// Reads the answer to a question: the call that was asked about, and whether it may be made.
fn approval(at: usize, message: &Value) -> Result<(String, bool), BadRequest> {
    let key = "approval_request_id";
    let id = message.get(key).and_then(Value::as_str).and_then(|id| id.strip_prefix(APPROVAL_PREFIX));
    let call = id.ok_or_else(|| wrong(at, key, "must be the `id` of an `approval_request`"))?;
    let approve = message.get("approve").and_then(Value::as_bool);
    Ok((call.to_owned(), approve.ok_or_else(|| wrong(at, "approve", "must be true or false"))?))
}

/// The message that asks whether a call may be made.
pub(super) fn approval_request(call: &ServerCall<'_>) -> Value {
    json!({
        "role": APPROVAL_REQUEST,
        "id": format!("{APPROVAL_PREFIX}{}", call.approval_id()),
        "server": call.server,
        "name": call.tool,
        "arguments": call.call.args.to_string(),
    })
}

fn wrong(at: usize, key: &str, message: &str) -> BadRequest {
    BadRequest { param: format!("messages[{at}].{key}"), message: message.to_owned() }
}

/// Reads a message of the model that an explicit client stores.
fn model_message(message: &Value) -> ModelMessage {
    let mut model_message = fields::model_message(message);
    let foreign = message.get(FOREIGN).and_then(Value::as_str).and_then(Reasoning::from_carried);
    model_message.reasoning.extend(foreign.unwrap_or_default());
    model_message
}

/// Reasoning as an explicit client stores it: the provider's own fields, or one opaque field if the model is on another
/// wire.
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

/// The message that closes a program. `shown` is the result as the model reads it.
pub(super) fn code_result(id: &str, shown: &Value) -> Value {
    let mut message = json!({"role": CODE_RESULT, "id": id, "result": without_fields(shown, &BESIDE_RESULT)});
    for key in BESIDE_RESULT {
        if let Some(value) = shown.get(key) {
            message[key] = value.clone();
        }
    }
    message
}

/// The message that opens a program.
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
    if let Some(record) = &state.record {
        fields.insert("record".to_owned(), Value::from(record.to_string()));
    }
    if let Some(context) = state.context {
        fields.insert(CONTEXT.to_owned(), json!(context));
    }
    if !before.is_empty() {
        fields.insert("before".to_owned(), Value::Array(before));
    }
    message
}

/// A message of the model before the program's, without results. Explicit clients store it in the `code` message.
pub(super) fn carried(model_message: &ModelMessage) -> Value {
    let mut message = Map::new();
    if let Some(text) = &model_message.text {
        message.insert("content".to_owned(), Value::from(text.as_str()));
    }
    message.extend(carried_reasoning(&model_message.reasoning));
    let calls = model_message.calls.iter().map(|call| {
        let mut call = fields::write_call("", call);
        remove_fields(&mut call, &["id"]);
        call
    });
    message.insert("tool_calls".to_owned(), calls.collect());
    Value::Object(message)
}
