//! Programs of a history, in either mode: a client may carry both kinds.

use std::iter::Peekable;

use serde_json::{Map, Value, json};

use super::ownership::ProgramOwnership;
use super::segments::MessagesHistoryReader;
use super::{client_echo, fields, tools};
use crate::conversation::{self, Conversation, ConversationItem, WireCall};
use crate::model_history::UNANSWERED;
use crate::model_message::ModelMessage;
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, StateOpener};
use crate::seal::Sealer;

/// `body`: what the messages were taken from.
pub(super) fn read(messages: Vec<Value>, body: &Map<String, Value>, opener: &StateOpener<'_>) -> Conversation {
    let ownership = ProgramOwnership::new(&messages, tools::program_declaration(body));
    let mut reader = MessagesHistoryReader::new(ownership, tools::search_name(body), opener);
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !is_of_model(&turn) || !has(&turn, |block| reader.ownership.is_ours(block)) {
            for message in turn {
                pass_on(&mut reader.conversation, message);
            }
            continue;
        }
        let is_handed_out = has(&turn, |block| reader.ownership.is_handed_out(block));
        match answers(&mut turns, is_handed_out) {
            None if is_handed_out => {
                // Nobody answers, so that whatever the model says after its calls is something new.
                for message in turn {
                    if fields::blocks(&message).iter().any(|block| reader.ownership.is_ours(block)) {
                        reader.message(fields::content(&message).into_owned(), ClientAnswers::default());
                    } else {
                        pass_on(&mut reader.conversation, message);
                    }
                }
            }
            client_answers => {
                let is_text =
                    |message: &&Value| fields::content(message).iter().all(|block| fields::kind(block) == "text");
                let texts = turn.iter().take_while(is_text).count();
                let before = reader.conversation.items.len();
                reader.message(merged(&turn[texts..]), client_answers.unwrap_or_default());
                let items = &mut reader.conversation.items;
                let unsaid = turn.into_iter().take(texts).filter(|text| !is_model_output(text, items.get(before)));
                let unsaid: Vec<ConversationItem> = unsaid.map(ConversationItem::Entry).collect();
                items.splice(before..before, unsaid);
            }
        }
    }
    reader.conversation
}

/// For a model that hears nothing of programs: their calls are calls like others.
pub(super) fn read_without_programs(messages: Vec<Value>) -> Conversation {
    let mut conversation = Conversation::default();
    let messages = messages.into_iter().filter_map(without_ours).collect();
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !has(&turn, |block| is_call(block) && Sealer::is_own_id(fields::id(block))) {
            for message in turn {
                pass_on(&mut conversation, message);
            }
            continue;
        }
        let message = json!({"role": "assistant", "content": merged(&turn)});
        let calls = fields::blocks(&message).iter().filter(|block| is_call(block)).map(call_of).collect();
        let ClientAnswers { answers, remarks } = answers(&mut turns, true).unwrap_or_default();
        CallExchange { message, calls, answers, remarks }.add_to(&mut conversation, None);
    }
    conversation
}

/// `None` if nothing is left.
fn without_ours(mut message: Value) -> Option<Value> {
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut) {
        let blocks = content.len();
        content.retain(|block| {
            !fields::is_our_program(block) && !fields::is_our_search(block) && fields::carried_state(block).is_none()
        });
        if content.is_empty() && blocks > 0 {
            return None;
        }
    }
    Some(message)
}

/// Neighbours of one role are one message to the provider.
fn turns(messages: Vec<Value>) -> Vec<Vec<Value>> {
    let mut turns: Vec<Vec<Value>> = Vec::new();
    for message in messages {
        match turns.last_mut() {
            Some(turn) if is_of_model(turn) == is_of_model(std::slice::from_ref(&message)) => turn.push(message),
            _ => turns.push(vec![message]),
        }
    }
    turns
}

fn is_of_model(turn: &[Value]) -> bool {
    turn.first().is_some_and(|message| fields::role(message) == "assistant")
}

fn has(turn: &[Value], test: impl Fn(&Value) -> bool) -> bool {
    turn.iter().flat_map(fields::blocks).any(test)
}

fn merged(turn: &[Value]) -> Vec<Value> {
    turn.iter().flat_map(|message| fields::content(message).into_owned()).collect()
}

/// What the client says next, if that answers any call.
fn answers(turns: &mut Peekable<impl Iterator<Item = Vec<Value>>>, is_asked: bool) -> Option<ClientAnswers> {
    let has_results = |turn: &Vec<Value>| has(turn, |block| fields::kind(block) == fields::TOOL_RESULT);
    let turn = turns.next_if(|turn| is_asked && !is_of_model(turn) && has_results(turn))?;
    let mut client_answers = ClientAnswers::default();
    for message in turn {
        client_answers.read(message);
    }
    Some(client_answers)
}

/// Does a program's state say it too?
fn is_model_output(text: &Value, item: Option<&ConversationItem>) -> bool {
    let text = conversation::text(text.get("content"));
    match item {
        Some(ConversationItem::Program(block)) => {
            let mut parsed =
                block.state.model_messages.iter().filter_map(|model_message| model_message.text.as_deref());
            parsed.any(|parsed| parsed.contains(text.trim()))
        }
        // The program goes on: the model has said nothing.
        None => true,
        Some(_) => false,
    }
}

pub(super) fn is_call(block: &Value) -> bool {
    fields::kind(block) == fields::TOOL_USE
}

/// A message of no program. What it may still hold are answers that come late.
fn pass_on(conversation: &mut Conversation, mut message: Value) {
    let is_late = |block: &Value| Sealer::is_own_id(fields::tool_use_id(block));
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut)
        && content.iter().any(is_late)
    {
        for block in content.iter().filter(|block| is_late(block)) {
            plain_mode::add_late_answer(conversation, fields::tool_use_id(block), fields::answer(block));
        }
        content.retain(|block| !is_late(block));
        if content.is_empty() {
            return;
        }
    }
    conversation.items.push(ConversationItem::Entry(message));
}

pub(super) fn call_of(block: &Value) -> HistoryCall {
    HistoryCall { id: fields::id(block).to_owned(), name: fields::name(block).to_owned(), call: block.clone() }
}

fn user(content: &[Value]) -> Value {
    json!({"role": "user", "content": content})
}

/// What a client says after calls.
#[derive(Default)]
pub(super) struct ClientAnswers {
    pub answers: Vec<HistoryAnswer>,
    pub remarks: Vec<Value>,
}

impl ClientAnswers {
    fn read(&mut self, message: Value) {
        let is_result = |block: &Value| fields::kind(block) == fields::TOOL_RESULT;
        if !fields::blocks(&message).iter().any(is_result) {
            self.remarks.push(message);
            return;
        }
        let mut parsed = Vec::new();
        for block in fields::content(&message).into_owned() {
            if !is_result(&block) {
                parsed.push(block);
                continue;
            }
            let id = fields::tool_use_id(&block).to_owned();
            // A program is no call, though some clients answer it like one.
            if !fields::is_server_id(&id) {
                self.answers.push(HistoryAnswer { id, parsed: fields::answer(&block), answer: block });
            }
        }
        if !parsed.is_empty() {
            self.remarks.push(user(&parsed));
        }
    }

    /// Nobody waits for them.
    pub(super) fn pass_on(self, conversation: &mut Conversation) {
        if !self.answers.is_empty() {
            let answers: Vec<Value> = self.answers.into_iter().map(|answer| answer.answer).collect();
            pass_on(conversation, user(&answers));
        }
        conversation.items.extend(self.remarks.into_iter().map(ConversationItem::Entry));
    }
}

pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: &[String],
    direct: &[WireCall],
) -> Vec<Value> {
    let echo = &model_message.client_echo;
    let mut content = match echo.blocks.as_deref().or(model_message.reasoning.blocks()) {
        Some(blocks) => blocks.to_vec(),
        None => model_message.text.as_deref().map(fields::text_block).into_iter().collect(),
    };
    content.extend(ids.iter().zip(&model_message.calls).map(|(id, call)| fields::written(id, call)));
    content.extend(direct.iter().map(|given| given.call.clone()));
    let mut answers: Vec<Value> = ids.iter().zip(results).map(|(id, result)| answered(id, result)).collect();
    if let (Some(cached), Some(last)) = (&echo.cache_control, answers.last_mut()) {
        last[client_echo::CACHE_CONTROL] = cached.clone();
    }
    answers.extend(direct.iter().map(answer_of));
    pair(&content, &answers)
}

pub(super) fn ordinary_calls(message: &Value, calls: &[WireCall], ids: &[String], note: Option<&str>) -> Vec<Value> {
    let said = fields::content(message);
    let is_model_output = |block: &&Value| {
        fields::kind(block) != fields::TOOL_USE && !fields::is_carrier(block) && !fields::is_our_program(block)
    };
    let mut content: Vec<Value> = said.iter().filter(is_model_output).cloned().collect();
    content.extend(note.map(fields::text_block));
    let mut answers = Vec::new();
    for (given, id) in calls.iter().zip(ids) {
        let mut call = given.call.clone();
        let mut answer = answer_of(given);
        if let (Some(call), Some(answer)) = (call.as_object_mut(), answer.as_object_mut()) {
            call.shift_remove("caller");
            call.insert("id".to_owned(), Value::from(id.as_str()));
            answer.insert("tool_use_id".to_owned(), Value::from(id.as_str()));
        }
        content.push(call);
        answers.push(answer);
    }
    pair(&content, &answers)
}

fn answer_of(given: &WireCall) -> Value {
    given.answer.clone().unwrap_or_else(|| answered(fields::id(&given.call), UNANSWERED))
}

fn answered(id: &str, text: &str) -> Value {
    json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": text})
}

/// Answers follow their calls at once.
fn pair(content: &[Value], answers: &[Value]) -> Vec<Value> {
    let mut messages = vec![json!({"role": "assistant", "content": content})];
    if !answers.is_empty() {
        messages.push(json!({"role": "user", "content": answers}));
    }
    messages
}

/// A message without what clients carry for us.
pub(super) fn without_carriers(mut message: Value) -> Option<Value> {
    if !fields::blocks(&message).iter().any(fields::is_carrier) {
        return Some(message);
    }
    let content = message.get_mut("content").and_then(Value::as_array_mut)?;
    content.retain(|block| !fields::is_carrier(block));
    if content.is_empty() { None } else { Some(message) }
}
