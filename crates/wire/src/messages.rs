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

use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::speaker::Trouble;

pub(crate) static DIALECT: Dialect = Dialect {
    survey: request::survey,
    split: tools::split,
    ordinary_tools: tools::ordinary,
    unpromised: request::unpromised,
    wanted: request::wanted,
    // One reader serves both modes.
    conversation: |body, _, seals| Ok(request::conversation(body, seals)),
    call_ids: request::call_ids,
    without_code_mode: request::without_code_mode,
    preface: |body| translate::preface(body.get("system")),
    read: translate::read,
    read_tool: tools::read,
    wishes: wishes::wishes,
    speaker: |manner, _, _| Box::new(speaker::MessagesSpeaker::new(manner)),
    error,
    write: translate::write,
    saying: transcript::saying,
    ordinary: transcript::ordinary,
    read_given: translate::read_given,
    write_given: translate::write_given,
    write_tool: tools::write,
    body: wishes::body,
    ask: request::ask,
    listener: || Box::new(listener::MessagesListener::default()),
    said: listener::said,
    tokens: wishes::tokens,
    usage: wishes::usage,
};

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
