//! Reads histories, which may have programs of both modes, and writes the messages of a model's history.

use std::borrow::Cow;
use std::iter::Peekable;

use serde_json::{Map, Value, json};

use super::ownership::ProgramOwnership;
use super::segments::MessagesHistoryReader;
use super::{client_echo, fields, tools, translate};
use crate::conversation::{Conversation, ConversationItem, LostCalls, WireCall};
use crate::model_history::UNANSWERED;
use crate::model_message::ModelMessage;
use crate::neutral::{ToolResult, text_or_json};
use crate::plain_mode::{self, CallExchange, HistoryAnswer, HistoryCall, StateOpener};
use crate::seal::Sealer;

/// Reads a history with its programs. `body` is the request that the messages were taken from.
pub(super) fn read(messages: Vec<Value>, body: &Map<String, Value>, opener: &StateOpener<'_>) -> Conversation {
    let ownership = ProgramOwnership::new(&messages, tools::program_declaration(body));
    let mut reader = MessagesHistoryReader::new(ownership, tools::search_name(body), opener);
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !is_assistant(&turn) || !has_block(&turn, |block| reader.ownership.is_ours(block)) {
            for message in turn {
                push_message(&mut reader.conversation, message);
            }
            continue;
        }
        let has_issued_calls = has_block(&turn, |block| reader.ownership.is_issued_call(block));
        let client_answers = if has_issued_calls { next_answers(&mut turns) } else { None };
        match client_answers {
            None if has_issued_calls => {
                // The calls have no answers, so messages after them belong to another response of the model.
                for message in turn {
                    if fields::blocks(&message).iter().any(|block| reader.ownership.is_ours(block)) {
                        reader.read_message(into_content(message), ClientAnswers::default());
                    } else {
                        push_message(&mut reader.conversation, message);
                    }
                }
            }
            client_answers => {
                let (turn, client_answers) = reader.with_rest_of_round(turn, client_answers, &mut turns);
                let is_text =
                    |message: &&Value| fields::content(message).iter().all(|block| fields::kind(block) == "text");
                let texts_end = turn.iter().take_while(is_text).count();
                let mut texts = turn;
                let messages = texts.split_off(texts_end);
                let before = reader.conversation.items.len();
                let mut client_answers = client_answers.unwrap_or_default();
                let words = std::mem::take(&mut client_answers.words);
                reader.read_message(merged_content(messages), client_answers);
                let items = &mut reader.conversation.items;
                let new_texts = texts.into_iter().filter(|text| !is_known_text(text, items.get(before)));
                let new_texts: Vec<ConversationItem> = new_texts.map(ConversationItem::Entry).collect();
                items.splice(before..before, new_texts);
                items.extend(words.into_iter().map(ConversationItem::Entry));
            }
        }
    }
    reader.conversation
}

impl MessagesHistoryReader<'_> {
    /// Adds the calls of the same round that a client keeps in messages of their own, each with its answer.
    fn with_rest_of_round(
        &self,
        mut turn: Vec<Value>,
        mut client_answers: Option<ClientAnswers>,
        turns: &mut Peekable<impl Iterator<Item = Vec<Value>>>,
    ) -> (Vec<Value>, Option<ClientAnswers>) {
        let ids = |turn: &[Value]| -> Vec<String> {
            let calls = turn.iter().flat_map(fields::blocks).filter(|block| is_call(block));
            calls.map(|block| fields::id(block).to_owned()).collect()
        };
        while client_answers.as_ref().is_some_and(|answers| answers.words.is_empty()) {
            let before = ids(&turn);
            let before: Vec<&str> = before.iter().map(String::as_str).collect();
            let is_same_round = |next: &Vec<Value>| {
                let next = ids(next);
                let next: Vec<&str> = next.iter().map(String::as_str).collect();
                self.opener.is_same_round(&before, &next)
            };
            let Some(rest) = turns.next_if(|next| is_assistant(next) && is_same_round(next)) else { break };
            turn.extend(rest);
            if let (Some(known), Some(more)) = (&mut client_answers, next_answers(turns)) {
                known.answers.extend(more.answers);
                known.remarks.extend(more.remarks);
                known.words.extend(more.words);
            }
        }
        (turn, client_answers)
    }
}

/// Reads a history for a request without code mode: calls of programs become lost calls.
pub(super) fn read_without_programs(messages: Vec<Value>) -> Conversation {
    let mut conversation = Conversation::default();
    let messages = messages.into_iter().filter_map(without_programs).collect();
    let mut turns = turns(messages).into_iter().peekable();
    while let Some(turn) = turns.next() {
        if !has_block(&turn, |block| is_call(block) && Sealer::is_own_id(fields::id(block))) {
            for message in turn {
                push_message(&mut conversation, message);
            }
            continue;
        }
        let message = message_with("assistant", merged_content(turn));
        let calls = fields::blocks(&message).iter().filter(|block| is_call(block)).map(history_call).collect();
        let ClientAnswers { answers, remarks, words } = next_answers(&mut turns).unwrap_or_default();
        CallExchange { message, calls, answers, remarks }.add_to(&mut conversation, None);
        conversation.items.extend(words.into_iter().map(ConversationItem::Entry));
    }
    conversation
}

/// Removes programs, searches and states of the gateway. `None` if nothing is left.
fn without_programs(mut message: Value) -> Option<Value> {
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut) {
        let blocks = content.len();
        content.retain(|block| {
            !fields::is_our_program(block)
                && !fields::is_our_search(block)
                && !fields::is_our_server_call(block)
                && fields::carried_state(block).is_none()
        });
        if content.is_empty() && blocks > 0 {
            return None;
        }
    }
    Some(message)
}

/// Groups messages by role: the provider joins neighbouring messages of one role.
fn turns(messages: Vec<Value>) -> Vec<Vec<Value>> {
    let mut turns: Vec<Vec<Value>> = Vec::new();
    for message in messages {
        match turns.last_mut() {
            Some(turn) if is_assistant(turn) == is_assistant(std::slice::from_ref(&message)) => turn.push(message),
            _ => turns.push(vec![message]),
        }
    }
    turns
}

fn is_assistant(turn: &[Value]) -> bool {
    turn.first().is_some_and(|message| fields::role(message) == "assistant")
}

fn has_block(turn: &[Value], test: impl Fn(&Value) -> bool) -> bool {
    turn.iter().flat_map(fields::blocks).any(test)
}

fn merged_content(messages: Vec<Value>) -> Vec<Value> {
    messages.into_iter().flat_map(into_content).collect()
}

/// The blocks of a message, without copying them.
fn into_content(mut message: Value) -> Vec<Value> {
    match message.get_mut("content") {
        Some(Value::Array(blocks)) => std::mem::take(blocks),
        _ => fields::content(&message).into_owned(),
    }
}

/// The next messages of the client, if they have tool results.
fn next_answers(turns: &mut Peekable<impl Iterator<Item = Vec<Value>>>) -> Option<ClientAnswers> {
    let has_results = |turn: &Vec<Value>| has_block(turn, |block| fields::kind(block) == fields::TOOL_RESULT);
    let turn = turns.next_if(|turn| !is_assistant(turn) && has_results(turn))?;
    let mut client_answers = ClientAnswers::default();
    for message in turn {
        client_answers.read(message);
    }
    Some(client_answers)
}

/// Whether the state of the program after a text message has the text too.
fn is_known_text(message: &Value, item: Option<&ConversationItem>) -> bool {
    let text = text_or_json(message.get("content"));
    match item {
        Some(ConversationItem::Program(block)) => {
            let mut texts = block.state.model_messages.iter().filter_map(|model_message| model_message.text.as_deref());
            texts.any(|known| known.contains(text.trim()))
        }
        // The calls continue an earlier program: the model was not asked, so the text is not new.
        None => true,
        Some(_) => false,
    }
}

pub(super) fn is_call(block: &Value) -> bool {
    fields::kind(block) == fields::TOOL_USE
}

/// Adds a message that is not part of a program. It may still hold late answers to calls of one.
fn push_message(conversation: &mut Conversation, mut message: Value) {
    let is_late = |block: &Value| Sealer::is_own_id(fields::tool_use_id(block));
    if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut)
        && content.iter().any(is_late)
    {
        for block in content.iter().filter(|block| is_late(block)) {
            plain_mode::add_late_answer(conversation, fields::tool_use_id(block), block, fields::answer);
        }
        content.retain(|block| !is_late(block));
        if content.is_empty() {
            return;
        }
    }
    conversation.items.push(ConversationItem::Entry(message));
}

pub(super) fn history_call(block: &Value) -> HistoryCall {
    HistoryCall {
        id: fields::id(block).to_owned(),
        name: fields::name(block).to_owned(),
        arguments: block.get("input").map(ToString::to_string).unwrap_or_default(),
        native: block.clone(),
    }
}

fn message_with(role: &str, content: Vec<Value>) -> Value {
    let fields = [("role".to_owned(), Value::from(role)), ("content".to_owned(), Value::Array(content))];
    Value::Object(Map::from_iter(fields))
}

/// The client's messages after calls: tool results, and everything else.
#[derive(Default)]
pub(super) struct ClientAnswers {
    pub answers: Vec<HistoryAnswer>,
    pub remarks: Vec<Value>,
    /// Messages with words of the user, which end a program.
    pub words: Vec<Value>,
}

impl ClientAnswers {
    fn read(&mut self, message: Value) {
        let is_result = |block: &Value| fields::kind(block) == fields::TOOL_RESULT;
        if !fields::blocks(&message).iter().any(is_result) {
            self.push_beside(message);
            return;
        }
        let mut other = Vec::new();
        for block in into_content(message) {
            if !is_result(&block) {
                other.push(block);
                continue;
            }
            let id = fields::tool_use_id(&block).to_owned();
            // Some clients send a result for the program itself, as if it were a call.
            if !fields::is_server_id(&id) {
                self.answers.push(HistoryAnswer { id, native: block, read: fields::answer });
            }
        }
        if !other.is_empty() {
            self.push_beside(message_with("user", other));
        }
    }

    /// Content beside the results: a remark, or words of the user. What follows words belongs to them.
    fn push_beside(&mut self, message: Value) {
        if self.words.is_empty() && fields::is_remark(&message) {
            self.remarks.push(message);
        } else {
            self.words.push(message);
        }
    }

    /// Adds them as ordinary messages: no program waits for them.
    pub(super) fn push_to(self, conversation: &mut Conversation) {
        if !self.answers.is_empty() {
            let answers = self.answers.into_iter().map(|answer| answer.native).collect();
            push_message(conversation, message_with("user", answers));
        }
        conversation.items.extend(self.remarks.into_iter().chain(self.words).map(ConversationItem::Entry));
    }
}

/// A message of the model with the results of its calls. `direct` are calls that the client executed.
pub(super) fn model_message(
    model_message: &ModelMessage,
    ids: &[String],
    results: &[ToolResult],
    direct: Vec<WireCall>,
) -> Vec<Value> {
    let echo = &model_message.client_echo;
    let mut content = match echo.blocks.as_deref().or(model_message.reasoning.blocks()) {
        Some(blocks) => blocks.to_vec(),
        None => model_message.text.as_deref().map(fields::text_block).into_iter().collect(),
    };
    content.extend(ids.iter().zip(&model_message.calls).map(|(id, call)| fields::write_call(id, call)));
    let mut answers: Vec<Value> = results.iter().map(translate::write_result).collect();
    if let (Some(cache_control), Some(last)) = (&echo.cache_control, answers.last_mut()) {
        last[client_echo::CACHE_CONTROL] = cache_control.clone();
    }
    for WireCall { call, answer } in direct {
        answers.push(answer.unwrap_or_else(|| unanswered(&call)));
        content.push(call);
    }
    calls_and_answers(content, answers)
}

/// Lost calls as ordinary tool calls with these ids.
pub(super) fn ordinary_calls(lost: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value> {
    let mut content = into_content(lost.message);
    content.retain(|block| {
        fields::kind(block) != fields::TOOL_USE && !fields::is_carrier(block) && !fields::is_our_program(block)
    });
    content.extend(note.map(fields::text_block));
    let mut answers = Vec::new();
    for (WireCall { mut call, answer }, id) in lost.calls.into_iter().zip(ids) {
        let mut answer = answer.unwrap_or_else(|| unanswered(&call));
        if let (Some(call), Some(answer)) = (call.as_object_mut(), answer.as_object_mut()) {
            call.shift_remove("caller");
            call.insert("id".to_owned(), Value::from(id.as_str()));
            answer.insert("tool_use_id".to_owned(), Value::from(id.as_str()));
        }
        content.push(call);
        answers.push(answer);
    }
    calls_and_answers(content, answers)
}

fn unanswered(call: &Value) -> Value {
    tool_result(fields::id(call), UNANSWERED)
}

fn tool_result(id: &str, text: &str) -> Value {
    json!({"type": fields::TOOL_RESULT, "tool_use_id": id, "content": text})
}

/// Providers require the answers in the message right after their calls.
fn calls_and_answers(content: Vec<Value>, answers: Vec<Value>) -> Vec<Value> {
    let mut messages = vec![message_with("assistant", content)];
    if !answers.is_empty() {
        messages.push(message_with("user", answers));
    }
    messages
}

/// A message without the blocks that carry our state. `None` if nothing is left.
pub(super) fn without_carriers(message: &Value) -> Option<Cow<'_, Value>> {
    if !fields::blocks(message).iter().any(fields::is_carrier) {
        return Some(Cow::Borrowed(message));
    }
    let mut message = message.clone();
    let content = message.get_mut("content").and_then(Value::as_array_mut)?;
    content.retain(|block| !fields::is_carrier(block));
    if content.is_empty() { None } else { Some(Cow::Owned(message)) }
}
