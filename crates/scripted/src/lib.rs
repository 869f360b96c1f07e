//! A model whose answers come from a script file. It stands in for a provider in tests and demonstrations, on all three
//! wires: Chat Completions, Responses and Messages.
//!
//! The crate does no I/O and reads no clock and no randomness, so the same request gets the same bytes. The caller sends
//! the bytes and waits for the delays between them. `docs/scripted-model.md` describes the keys of a script.
//!
//! ```
//! use dacapo_scripted::ScriptedModel;
//! use dacapo_wire::Wire;
//! use serde_json::json;
//!
//! let model = ScriptedModel::parse("[[turn]]\ntext = 'Hello.'")?;
//! let reply = model.reply(Wire::Chat, &json!({"messages": [{"role": "user", "content": "Hi"}]}));
//! assert_eq!(reply.status, 200);
//! # Ok::<(), dacapo_scripted::ScriptFileError>(())
//! ```
//!
//! Start reading at [`ScriptedModel::reply`].

#![warn(missing_docs)]

mod chat;
mod conditions;
mod ids;
mod message_template;
mod messages;
mod observer;
mod placeholders;
mod provider_failure;
mod quirk;
mod reply_message;
mod request_options;
mod responses;
mod script_file;
mod script_turn;
mod scripted_conversation;
mod signatures;
mod stream;
mod strict;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use self::ids::IdGenerator;
use self::observer::ReplyObserver;
use self::provider_failure::ProviderFailure;
use self::reply_message::{OutgoingMessage, ReplyMessage};
use self::request_options::{ReplyMode, RequestOptions};
use self::script_file::{TomlFields, TomlNode};
use self::script_turn::{EarlyEnd, ScriptTurn, TurnAnswer};
use self::scripted_conversation::ScriptedConversation;
use self::signatures::Signatures;

/// A parsed script, ready to answer requests.
#[derive(Debug, Clone)]
pub struct ScriptedModel {
    turns: Arc<[ScriptTurn]>,
    constants: ReplyConstants,
    count: fn(&str) -> usize,
    observer: Option<ReplyObserver>,
}

/// Values that are the same in every reply of a script.
#[derive(Debug, Clone)]
struct ReplyConstants {
    created: u64,
    system_fingerprint: Option<Arc<str>>,
}

/// A mistake in a script file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptFileError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub message: String,
}

/// An HTTP response of the scripted model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedReply {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, in the parts in which it is sent.
    pub chunks: Vec<BodyChunk>,
    /// What happens after the last chunk.
    pub ending: ReplyEnding,
}

/// A part of the response body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyChunk {
    /// To wait before sending.
    pub delay: Duration,
    /// Empty only if the connection breaks after a delay and before the first byte of the body.
    pub bytes: Bytes,
}

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnding {
    /// The body is complete.
    Complete,
    /// The connection breaks after the last chunk.
    Cut,
}

/// 2026-01-01T00:00:00Z
const CREATED: u64 = 1_767_225_600;

/// The model that replies name if the request does not.
const MODEL: &str = "scripted";

impl ScriptedModel {
    /// Reads a script file.
    pub fn parse(toml: &str) -> Result<ScriptedModel, ScriptFileError> {
        let mut fields = TomlFields::read(TomlNode::parse(toml)?, "", &["created", "system_fingerprint", "turn"])?;
        let constants = ReplyConstants {
            created: fields.whole("created", 0..=u64::from(u32::MAX))?.unwrap_or(CREATED),
            system_fingerprint: fields.text("system_fingerprint")?.map(Arc::from),
        };
        let turns = fields.tables("turn")?;
        if turns.is_empty() {
            return Err(
                fields.error("the script has no turn; add a [[turn]] with an answer, such as text = \"Hello.\"")
            );
        }
        let turns = turns.into_iter().enumerate().map(|(i, node)| ScriptTurn::read(node, &format!("turn {}", i + 1)));
        let turns = turns.collect::<Result<_, _>>()?;
        Ok(ScriptedModel { turns, constants, count: |text| text.len().div_ceil(4), observer: None })
    }

    /// The built-in script: it runs the program in the user's message, or explains how to send one.
    #[expect(clippy::missing_panics_doc, reason = "the script is part of this crate, and a test parses it")]
    pub fn demo() -> ScriptedModel {
        ScriptedModel::parse(include_str!("demo.toml")).expect("the built-in script is valid")
    }

    /// Sets the function that counts the tokens of a text, for `usage` and `max_tokens`.
    #[must_use]
    pub fn with_token_counter(self, count: fn(&str) -> usize) -> ScriptedModel {
        ScriptedModel { count, ..self }
    }

    /// Calls `callback` with every request and its reply, in the order of the replies.
    #[must_use]
    pub fn with_observer(
        self,
        callback: impl Fn(Wire, &Value, &ScriptedReply) + Send + Sync + 'static,
    ) -> ScriptedModel {
        ScriptedModel { observer: Some(ReplyObserver::new(callback)), ..self }
    }

    /// Answers the body of a `POST` to the path of a wire, such as `/v1/chat/completions`.
    pub fn reply(&self, wire: Wire, request: &Value) -> ScriptedReply {
        let ids = IdGenerator::of(request);
        let refused = |failure: ProviderFailure| failure.reply(wire, &ids, Duration::ZERO);
        let mut reply = self.answer(wire, request, &ids).unwrap_or_else(refused);
        let header = match wire {
            Wire::Chat | Wire::Responses => "x-request-id",
            Wire::Messages => "request-id",
        };
        if !reply.headers.iter().any(|(name, _)| name == header) {
            reply.headers.push((header.into(), ids.request()));
        }
        let created = UNIX_EPOCH + Duration::from_secs(self.constants.created);
        reply.headers.push(("date".into(), httpdate::fmt_http_date(created)));
        if let Some(observer) = &self.observer {
            observer.notify(wire, request, &reply);
        }
        reply
    }

    /// Answers the body of a `POST /v1/messages/count_tokens`.
    pub fn count_tokens(&self, request: &Value) -> Value {
        match messages::prompt(request) {
            Ok(prompt) => json!({"input_tokens": scripted_conversation::input_tokens(&prompt, self.count)}),
            Err(failure) => failure.body(Wire::Messages, &IdGenerator::of(request)),
        }
    }

    fn answer(&self, wire: Wire, request: &Value, ids: &IdGenerator) -> Result<ScriptedReply, ProviderFailure> {
        let (conversation, options) = match wire {
            Wire::Chat => chat::read(request)?,
            Wire::Responses => responses::read(request, &Signatures(&self.turns))?,
            Wire::Messages => messages::read(request, &Signatures(&self.turns))?,
        };
        let turn = self.turn(wire, &conversation)?;
        Ok(match &turn.answer {
            TurnAnswer::Failure(failure) => failure.reply(wire, ids, turn.pace.delay),
            TurnAnswer::Raw { status, content_type, body } => {
                let chunks = turn.pace.split_raw(body);
                let content_type = content_type.as_deref().unwrap_or_else(|| content_type_of(&options));
                turn.paced(*status, content_type, chunks)
            }
            TurnAnswer::Message(template) => {
                let message = ReplyMessage::compose(wire, template, &conversation, &options, ids, self.count);
                encode(
                    wire,
                    &OutgoingMessage {
                        message: &message,
                        template,
                        turn,
                        conversation: &conversation,
                        options: &options,
                        ids,
                        constants: &self.constants,
                        tokens: message.tokens(&conversation, &options, self.count),
                    },
                )
            }
        })
    }

    /// The first turn whose conditions hold. The error names the turn that came closest.
    fn turn(&self, wire: Wire, conversation: &ScriptedConversation<'_>) -> Result<&ScriptTurn, ProviderFailure> {
        let mut closest: Option<(usize, &ScriptTurn, Vec<String>)> = None;
        for (i, turn) in self.turns.iter().enumerate() {
            let unmet = turn.unmet(conversation);
            if unmet.is_empty() {
                return Ok(turn);
            }
            if closest.as_ref().is_none_or(|(_, _, fewest)| unmet.len() < fewest.len()) {
                closest = Some((i + 1, turn, unmet));
            }
        }
        let closest = closest.map_or_else(String::new, |(number, turn, unmet)| {
            format!(" The closest is turn {number} (line {}), but {}.", turn.line, unmet.join(", and "))
        });
        let message = format!("No turn of the script answers this request. {}{closest}", conversation.describe_last());
        let param = if wire == Wire::Responses { "input" } else { "messages" };
        Err(ProviderFailure::invalid(message, Some(param.into())).with_code("no_turn_matches"))
    }
}

impl ScriptFileError {
    fn new(line: usize, message: impl Into<String>) -> ScriptFileError {
        ScriptFileError { line, message: message.into() }
    }
}

/// Encodes a message for its wire.
fn encode(wire: Wire, outgoing: &OutgoingMessage<'_>) -> ScriptedReply {
    let OutgoingMessage { turn, options, ids, .. } = *outgoing;
    if options.mode == ReplyMode::Stream {
        let events = match wire {
            Wire::Chat => chat::events(outgoing),
            Wire::Responses => responses::events(outgoing),
            Wire::Messages => messages::events(outgoing),
        };
        return turn.paced(200, content_type_of(options), events);
    }
    if let EarlyEnd::Error(_, failure) = &turn.early_end {
        return failure.reply(wire, ids, turn.pace.delay);
    }
    let body = match wire {
        Wire::Chat => chat::body(outgoing),
        Wire::Responses => responses::body(outgoing),
        Wire::Messages => messages::body(outgoing),
    };
    let mut body = body.to_string().into_bytes();
    let mut ending = ReplyEnding::Complete;
    if let EarlyEnd::Cut(_) = turn.early_end {
        body.truncate(body.len() / 2);
        ending = ReplyEnding::Cut;
    }
    let chunks = vec![BodyChunk { delay: turn.pace.delay, bytes: body.into() }];
    ScriptedReply { status: 200, headers: vec![content_type(content_type_of(options))], chunks, ending }
}

fn content_type_of(options: &RequestOptions<'_>) -> &'static str {
    match options.mode {
        ReplyMode::Whole => "application/json",
        ReplyMode::Stream => "text/event-stream; charset=utf-8",
    }
}

fn content_type(value: &str) -> (String, String) {
    ("content-type".into(), value.into())
}
