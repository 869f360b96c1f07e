//! `OpenAI` Chat Completions.

mod explicit;
mod fields;
mod listener;
mod request;
mod speaker;
mod transcript;
mod translate;

use crate::dialect::Dialect;

pub(crate) static DIALECT: Dialect = Dialect {
    survey: request::survey,
    split: |body, _| request::split(body),
    ordinary_tools: |body, _| request::ordinary_tools(body),
    unpromised: request::unpromised,
    wanted: request::wanted,
    conversation: request::conversation,
    call_ids: request::call_ids,
    without_code_mode: request::without_code_mode,
    preface: |_| Vec::new(),
    read: translate::read,
    read_tool: translate::read_tool,
    wishes: translate::wishes,
    speaker: |manner, _, _| Box::new(speaker::ChatSpeaker::new(manner)),
    error: translate::error,
    write: translate::write,
    saying: transcript::saying,
    ordinary: transcript::ordinary,
    read_given: translate::read_given,
    write_given: translate::write_given,
    write_tool: translate::write_tool,
    body: translate::body,
    ask: request::ask,
    listener: || Box::new(listener::ChatListener::default()),
    said: listener::said,
    tokens: translate::tokens,
    usage: translate::usage,
};

pub(crate) use translate::error;
