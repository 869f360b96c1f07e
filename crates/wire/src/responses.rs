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

use crate::callers::Split;
use crate::chat;
use crate::dialect::Dialect;

pub(crate) static DIALECT: Dialect = Dialect {
    survey: request::survey,
    split: |body, explicit| Ok(Split { has_ours: request::has_ours(body), ..tools::split(body, explicit)? }),
    ordinary_tools: tools::ordinary,
    unpromised: request::unpromised,
    wanted: request::wanted,
    conversation: request::conversation,
    call_ids: request::call_ids,
    without_code_mode: request::without_code_mode,
    preface: translate::preface,
    read: translate::read,
    read_tool: tools::read,
    wishes: translate::wishes,
    speaker: |manner, body, toolbox| Box::new(speaker::ResponsesSpeaker::answering(manner, body, toolbox)),
    error: chat::error,
    write: translate::write,
    saying: transcript::saying,
    ordinary: transcript::ordinary,
    read_given: translate::read_given,
    write_given: translate::write_given,
    write_tool: tools::write,
    body: translate::body,
    ask: request::ask,
    listener: || Box::new(listener::ResponsesListener::default()),
    said: listener::said,
    tokens: translate::tokens,
    usage: translate::usage,
};
