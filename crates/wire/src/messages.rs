//! Anthropic Messages.

mod claims;
mod draft;
mod echo;
mod fields;
mod history;
mod listener;
mod program;
mod reader;
mod request;
mod search;
mod speaker;
mod stream;
mod tools;
mod transcript;
mod translate;
mod wishes;

use serde_json::{Map, Value, json};

use crate::callers::Split;
use crate::conversation::{Conversation, Given};
use crate::dialect::{Ask, Dialect, Survey};
use crate::message::{Answered, Message, Tool, Wishes};
use crate::plain::Seals;
use crate::reader::BadRequest;
use crate::said::{Listener, Said};
use crate::saying::{ModelCall, Saying};
use crate::speaker::{Manner, Speaker, Trouble};
use crate::turn::Wanted;
use crate::usage::Tokens;

pub(crate) struct Messages;

impl Dialect for Messages {
    fn survey(&self, body: &Map<String, Value>) -> Result<Survey, BadRequest> {
        request::survey(body)
    }

    fn split<'a>(&self, body: &'a Map<String, Value>, explicit: bool) -> Result<Split<'a>, BadRequest> {
        tools::split(body, explicit)
    }

    fn ordinary_tools(&self, body: &Map<String, Value>, explicit: bool) -> Vec<Value> {
        tools::ordinary(body, explicit)
    }

    fn unpromised(&self, body: &Map<String, Value>) -> Option<&'static str> {
        request::unpromised(body)
    }

    fn wanted(&self, body: &Map<String, Value>) -> Wanted {
        request::wanted(body)
    }

    fn conversation(
        &self,
        body: &mut Map<String, Value>,
        _: bool,
        seals: Option<&Seals<'_>>,
    ) -> Result<Conversation, BadRequest> {
        let messages = match body.insert("messages".to_owned(), Value::Null) {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        Ok(match seals {
            Some(seals) => history::read(messages, body, seals),
            None => history::read_off(messages),
        })
    }

    fn call_ids(&self, body: &Value) -> Vec<Vec<String>> {
        let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let ids = |message: &Value| {
            let calls = fields::blocks(message).iter().filter(|block| fields::kind(block) == fields::TOOL_USE);
            calls.map(|call| fields::id(call).to_owned()).collect()
        };
        messages.iter().map(ids).collect()
    }

    fn without_code_mode(&self, body: Map<String, Value>, history: Option<Vec<Value>>) -> Value {
        request::without_code_mode(body, history)
    }

    fn preface(&self, body: &Map<String, Value>) -> Vec<Message> {
        translate::preface(body.get("system"))
    }

    fn read(&self, entry: &Value) -> Vec<Message> {
        translate::read(entry)
    }

    fn read_tool(&self, entry: &Value) -> Option<Tool> {
        tools::read(entry)
    }

    fn wishes(&self, body: &Map<String, Value>) -> Wishes {
        wishes::wishes(body)
    }

    fn speaker(&self, manner: Manner) -> Box<dyn Speaker> {
        Box::new(speaker::MessagesSpeaker::new(manner))
    }

    fn error(&self, trouble: &Trouble<'_>) -> Value {
        error(trouble)
    }

    fn write(&self, message: &Message) -> Vec<Value> {
        translate::write(message)
    }

    fn saying(&self, saying: &Saying, ids: &[String], results: &[String], direct: &[Given]) -> Vec<Value> {
        transcript::saying(saying, ids, results, direct)
    }

    fn ordinary(&self, message: &Value, calls: &[Given], ids: &[String], note: Option<&str>) -> Vec<Value> {
        transcript::ordinary(message, calls, ids, note)
    }

    fn read_given(&self, given: &Given) -> (ModelCall, Option<Answered>) {
        (fields::model_call(&given.call), given.answer.as_ref().map(translate::answered))
    }

    fn write_given(&self, call: &ModelCall, answer: Option<&Answered>) -> Given {
        Given { call: fields::written(&call.id, call), answer: answer.map(translate::write_answer) }
    }

    fn write_tool(&self, tool: &Tool) -> Value {
        tools::write(tool)
    }

    fn body(&self, wishes: &Wishes) -> Map<String, Value> {
        wishes::body(wishes)
    }

    fn ask(&self, body: Map<String, Value>, ask: Ask<'_>) -> Value {
        request::ask(body, ask)
    }

    fn listener(&self) -> Box<dyn Listener> {
        Box::new(listener::MessagesListener::default())
    }

    fn said(&self, body: Value) -> Result<Said, String> {
        listener::said(body)
    }

    fn tokens(&self, usage: &Map<String, Value>) -> Tokens {
        wishes::tokens(usage)
    }

    fn usage(&self, tokens: Tokens) -> Map<String, Value> {
        wishes::usage(tokens)
    }
}

fn error(trouble: &Trouble<'_>) -> Value {
    let kind = match trouble.status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let mut error = json!({"type": kind, "message": trouble.message});
    if let Some(code) = trouble.code {
        error["details"] = json!({"error_code": code});
    }
    json!({"type": "error", "error": error, "request_id": null})
}
