//! One conversation of a client on any wire, and what the model alone takes for the same requests.

use std::time::Duration;

use anyhow::ensure;
use dacapo_wire::Wire;
use serde_json::json;

use super::client::Connection;
use super::client_conversation::{ClientConversation, path};
use super::conversation::{Kind, REQUESTS, tool_answer};
use super::cost::{Delivery, QUESTION};
use super::servers::{ANSWER_HEADER, SAID, STREAM_HEADER};

/// What a client waited for one answer.
pub(crate) struct Played {
    pub kind: Kind,
    pub taken: Duration,
    /// What the model alone takes; nothing in the middle, where it is not asked.
    pub alone: Duration,
}

/// Plays a conversation to its end.
pub(crate) fn play(
    gateway: &mut Connection,
    (model, upstream): (&mut Connection, Wire),
    mut talk: ClientConversation,
    delivery: Delivery,
) -> anyhow::Result<Vec<Played>> {
    talk.user(QUESTION);
    let stream = match delivery {
        Delivery::Whole => String::new(),
        Delivery::Streamed => {
            talk.extra = json!({"stream": true});
            format!("{STREAM_HEADER}: yes\r\n")
        }
    };
    let mut played = Vec::new();
    for number in 0..REQUESTS {
        let is_last = number == REQUESTS - 1;
        let (request_path, body) = talk.request();
        let answer = if number == 0 { "program" } else { "text" };
        let header = format!("{ANSWER_HEADER}: {answer}\r\n{stream}");
        let body = body.to_string();
        let (reply, taken) = gateway.post_to(request_path, &header, &body)?;
        let is_asked = number == 0 || is_last;
        let alone = if is_asked { model.post_to(path(upstream), &header, &body)?.1 } else { Duration::ZERO };
        let kind = match number {
            0 => Kind::Program,
            _ if is_last => Kind::Result,
            _ => Kind::Middle,
        };
        played.push(Played { kind, taken, alone });
        let response = talk.read_response(std::str::from_utf8(&reply)?);
        ensure!(response.calls.is_empty() == is_last, "{} calls", response.calls.len());
        for call in &response.calls {
            talk.answer(call, &tool_answer(&call.name, &call.args)?, false);
        }
        ensure!(!is_last || response.text == SAID, "{}", response.text);
    }
    Ok(played)
}
