//! `OpenAI` Responses.

mod around;
mod echoes;
mod events;
mod explicit;
mod fields;
mod history;
mod listener;
mod marks;
mod open;
mod output;
mod references;
mod request;
mod speaker;
mod tools;
mod transcript;
mod translate;

use std::sync::Arc;

use dacapo_replay::Toolbox;
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

pub(crate) struct Responses;

impl Dialect for Responses {
    fn survey(&self, body: &Map<String, Value>) -> Result<Survey, BadRequest> {
        request::survey(body)
    }

    fn split<'a>(&self, body: &'a Map<String, Value>, explicit: bool) -> Result<Split<'a>, BadRequest> {
        Ok(Split { has_ours: request::has_ours(body), ..tools::split(body, explicit)? })
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
        explicit: bool,
        seals: Option<&Seals<'_>>,
    ) -> Result<Conversation, BadRequest> {
        request::conversation(body, explicit, seals)
    }

    fn call_ids(&self, body: &Value) -> Vec<Vec<String>> {
        request::call_ids(body)
    }

    fn without_code_mode(&self, body: Map<String, Value>, history: Option<Vec<Value>>) -> Value {
        request::without_code_mode(body, history)
    }

    fn preface(&self, body: &Map<String, Value>) -> Vec<Message> {
        translate::preface(body)
    }

    fn read(&self, entry: &Value) -> Vec<Message> {
        translate::read(entry)
    }

    fn read_tool(&self, entry: &Value) -> Option<Tool> {
        tools::read(entry)
    }

    fn wishes(&self, body: &Map<String, Value>) -> Wishes {
        translate::wishes(body)
    }

    fn speaker(&self, manner: Manner) -> Box<dyn Speaker> {
        Box::new(speaker::ResponsesSpeaker::new(manner))
    }

    fn speaker_for(&self, manner: Manner, body: &Map<String, Value>, toolbox: &Arc<Toolbox>) -> Box<dyn Speaker> {
        Box::new(speaker::ResponsesSpeaker::answering(manner, body, toolbox))
    }

    fn error(&self, trouble: &Trouble<'_>) -> Value {
        json!({"error": {"message": trouble.message, "type": trouble.kind, "param": trouble.param, "code": trouble.code}})
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
        (translate::call(&given.call), given.answer.as_ref().map(translate::answered))
    }

    fn write_given(&self, call: &ModelCall, answer: Option<&Answered>) -> Given {
        Given { call: fields::written(&call.id, call), answer: answer.map(translate::write_answer) }
    }

    fn write_tool(&self, tool: &Tool) -> Value {
        tools::write(tool)
    }

    fn body(&self, wishes: &Wishes) -> Map<String, Value> {
        translate::body(wishes)
    }

    fn ask(&self, body: Map<String, Value>, ask: Ask<'_>) -> Value {
        request::ask(body, ask)
    }

    fn listener(&self) -> Box<dyn Listener> {
        Box::new(listener::ResponsesListener::default())
    }

    fn said(&self, body: Value) -> Result<Said, String> {
        listener::said(body)
    }

    fn tokens(&self, usage: &Map<String, Value>) -> Tokens {
        translate::tokens(usage)
    }

    fn usage(&self, tokens: Tokens) -> Map<String, Value> {
        translate::usage(tokens)
    }
}
