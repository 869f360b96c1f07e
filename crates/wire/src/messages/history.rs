//! Programs of a history, in either mode: a client may carry both kinds.

use std::iter::Peekable;

use serde_json::{Map, Value, json};

use super::claims::Claims;
use super::reader::Reader;
use super::{fields, tools};
use crate::conversation::{self, Conversation, Item};
use crate::plain::{self, AnswerOf, CallOf, Exchange, Seals};
use crate::seal::Sealer;

/// `body`: what the messages were taken from.
pub(super) fn read(messages: Vec<Value>, body: &Map<String, Value>, seals: &Seals<'_>) -> Conversation {
    let claims = Claims::new(&messages, tools::declares_programs(body));
    let mut reader = Reader::new(claims, tools::search_name(body), seals);
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !is_of_model(&turn) || !has(&turn, |block| reader.claims.is_ours(block)) {
            for message in turn {
                pass_on(&mut reader.conversation, message);
            }
            continue;
        }
        let is_handed_out = has(&turn, |block| reader.claims.is_handed_out(block));
        match answers(&mut turns, is_handed_out) {
            None if is_handed_out => {
                // Nobody answers, so that whatever the model says after its calls is something new.
                for message in turn {
                    if fields::blocks(&message).iter().any(|block| reader.claims.is_ours(block)) {
                        reader.message(fields::content(&message).into_owned(), Answers::default());
                    } else {
                        pass_on(&mut reader.conversation, message);
                    }
                }
            }
            heard => {
                let is_text =
                    |message: &&Value| fields::content(message).iter().all(|block| fields::kind(block) == "text");
                let texts = turn.iter().take_while(is_text).count();
                let before = reader.conversation.items.len();
                reader.message(merged(&turn[texts..]), heard.unwrap_or_default());
                let items = &mut reader.conversation.items;
                let unsaid = turn.into_iter().take(texts).filter(|text| !is_said(text, items.get(before)));
                let unsaid: Vec<Item> = unsaid.map(Item::Message).collect();
                items.splice(before..before, unsaid);
            }
        }
    }
    reader.conversation
}

/// For a model that hears nothing of programs: their calls are calls like others.
pub(super) fn read_off(messages: Vec<Value>) -> Conversation {
    let mut conversation = Conversation::default();
    let messages = messages.into_iter().filter_map(without_ours).collect();
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !has(&turn, |block| is_call(block) && Sealer::claims(fields::id(block))) {
            for message in turn {
                pass_on(&mut conversation, message);
            }
            continue;
        }
        let message = json!({"role": "assistant", "content": merged(&turn)});
        let calls = fields::blocks(&message).iter().filter(|block| is_call(block)).map(call_of).collect();
        let Answers { answers, remarks } = answers(&mut turns, true).unwrap_or_default();
        Exchange { message, calls, answers, remarks }.add_to(&mut conversation, None);
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
fn answers(turns: &mut Peekable<impl Iterator<Item = Vec<Value>>>, is_asked: bool) -> Option<Answers> {
    let has_results = |turn: &Vec<Value>| has(turn, |block| fields::kind(block) == fields::TOOL_RESULT);
    let turn = turns.next_if(|turn| is_asked && !is_of_model(turn) && has_results(turn))?;
    let mut heard = Answers::default();
    for message in turn {
        heard.read(message);
    }
    Some(heard)
}

/// Does a program's state say it too?
fn is_said(text: &Value, item: Option<&Item>) -> bool {
    let text = conversation::text(text.get("content"));
    match item {
        Some(Item::Block(block)) => {
            let mut said = block.state.sayings.iter().filter_map(|saying| saying.text.as_deref());
            said.any(|said| said.contains(text.trim()))
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
    let is_late = |block: &Value| Sealer::claims(fields::tool_use_id(block));
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut)
        && content.iter().any(is_late)
    {
        for block in content.iter().filter(|block| is_late(block)) {
            plain::hear_late(conversation, fields::tool_use_id(block), fields::answer(block));
        }
        content.retain(|block| !is_late(block));
        if content.is_empty() {
            return;
        }
    }
    conversation.items.push(Item::Message(message));
}

pub(super) fn call_of(block: &Value) -> CallOf {
    CallOf { id: fields::id(block).to_owned(), name: fields::name(block).to_owned(), call: block.clone() }
}

fn user(content: &[Value]) -> Value {
    json!({"role": "user", "content": content})
}

/// What a client says after calls.
#[derive(Default)]
pub(super) struct Answers {
    pub answers: Vec<AnswerOf>,
    pub remarks: Vec<Value>,
}

impl Answers {
    fn read(&mut self, message: Value) {
        let is_result = |block: &Value| fields::kind(block) == fields::TOOL_RESULT;
        if !fields::blocks(&message).iter().any(is_result) {
            self.remarks.push(message);
            return;
        }
        let mut said = Vec::new();
        for block in fields::content(&message).into_owned() {
            if !is_result(&block) {
                said.push(block);
                continue;
            }
            let id = fields::tool_use_id(&block).to_owned();
            // A program is no call, though some clients answer it like one.
            if !fields::is_server_id(&id) {
                self.answers.push(AnswerOf { id, said: fields::answer(&block), answer: block });
            }
        }
        if !said.is_empty() {
            self.remarks.push(user(&said));
        }
    }

    /// Nobody waits for them.
    pub(super) fn pass_on(self, conversation: &mut Conversation) {
        if !self.answers.is_empty() {
            let answers: Vec<Value> = self.answers.into_iter().map(|answer| answer.answer).collect();
            pass_on(conversation, user(&answers));
        }
        conversation.items.extend(self.remarks.into_iter().map(Item::Message));
    }
}
