//! A model that answers from a script: a stand-in for a provider of any of the three formats in tests and demonstrations.
//!
//! It reads no clock and no randomness: the same request gets the same bytes. How the bytes get to the client, and what
//! `delay` waits for, is the caller's affair. The script's keys are described in `docs/scripted-model.md`.

mod chat;
mod conversation;
mod draft;
mod failure;
mod file;
mod ids;
mod message;
mod messages;
mod options;
mod quirk;
mod responses;
mod seal;
mod stream;
mod strict;
mod template;
mod turn;
mod watcher;
mod when;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use dacapo_wire::Wire;
use serde_json::{Value, json};

use self::conversation::Conversation;
use self::failure::Failure;
use self::file::{Fields, Node};
use self::ids::Ids;
use self::message::{Message, Outgoing};
use self::options::Options;
use self::seal::Seals;
use self::turn::{Answer, Break, Turn};
use self::watcher::Watcher;

/// What a script says, ready to answer requests.
#[derive(Debug, Clone)]
pub struct Script {
    turns: Arc<[Turn]>,
    stamp: Stamp,
    count: fn(&str) -> usize,
    watcher: Option<Watcher>,
}

/// What every answer of a script carries alike.
#[derive(Debug, Clone)]
struct Stamp {
    created: u64,
    system_fingerprint: Option<Arc<str>>,
}

/// What is wrong with a script, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    pub line: usize,
    pub message: String,
}

/// A response to a `POST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub pieces: Vec<Piece>,
    pub ending: Ending,
}

/// A part of the response body: wait, then send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub delay: Duration,
    /// Empty only where a connection breaks without a byte of body, after a delay.
    pub bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Complete,
    /// The connection breaks after the last piece.
    Cut,
}

/// 2026-01-01T00:00:00Z
const CREATED: u64 = 1_767_225_600;

/// For requests that name no model.
const MODEL: &str = "scripted";

impl Script {
    pub fn parse(toml: &str) -> Result<Script, ScriptError> {
        let mut fields = Fields::read(Node::parse(toml)?, "", &["created", "system_fingerprint", "turn"])?;
        let stamp = Stamp {
            created: fields.whole("created", 0..=u64::from(u32::MAX))?.unwrap_or(CREATED),
            system_fingerprint: fields.text("system_fingerprint")?.map(Arc::from),
        };
        let turns = fields.tables("turn")?;
        if turns.is_empty() {
            return Err(
                fields.error("the script has no turn; add a [[turn]] with an answer, such as text = \"Hello.\"")
            );
        }
        let turns = turns.into_iter().enumerate().map(|(i, node)| Turn::read(node, &format!("turn {}", i + 1)));
        let turns = turns.collect::<Result<_, _>>()?;
        Ok(Script { turns, stamp, count: |text| text.len().div_ceil(4), watcher: None })
    }

    /// The built-in script: runs the program in the user's message, or says how to send one.
    #[expect(clippy::missing_panics_doc, reason = "the script is part of this crate, and a test parses it")]
    pub fn demo() -> Script {
        Script::parse(include_str!("demo.toml")).expect("the built-in script is valid")
    }

    /// How `usage` and `max_tokens` count the tokens of a text.
    #[must_use]
    pub fn counting_with(self, count: fn(&str) -> usize) -> Script {
        Script { count, ..self }
    }

    /// Tells every request and its reply, in the order in which they are answered.
    #[must_use]
    pub fn watched_by(self, watch: impl Fn(Wire, &Value, &Reply) + Send + Sync + 'static) -> Script {
        Script { watcher: Some(Watcher::new(watch)), ..self }
    }

    /// Answers the body of a `POST` to the path of a wire, such as `/v1/chat/completions`.
    pub fn reply(&self, wire: Wire, request: &Value) -> Reply {
        let ids = Ids::of(request);
        let refused = |failure: Failure| failure.reply(wire, &ids, Duration::ZERO);
        let mut reply = self.answer(wire, request, &ids).unwrap_or_else(refused);
        let header = match wire {
            Wire::Chat | Wire::Responses => "x-request-id",
            Wire::Messages => "request-id",
        };
        if !reply.headers.iter().any(|(name, _)| name == header) {
            reply.headers.push((header.into(), ids.request()));
        }
        let created = UNIX_EPOCH + Duration::from_secs(self.stamp.created);
        reply.headers.push(("date".into(), httpdate::fmt_http_date(created)));
        if let Some(watcher) = &self.watcher {
            watcher.tell(wire, request, &reply);
        }
        reply
    }

    /// Answers the body of a `POST /v1/messages/count_tokens`.
    pub fn count_tokens(&self, request: &Value) -> Value {
        match messages::prompt(request) {
            Ok(prompt) => json!({"input_tokens": conversation::input_tokens(&prompt, self.count)}),
            Err(failure) => failure.body(Wire::Messages, &Ids::of(request)),
        }
    }

    fn answer(&self, wire: Wire, request: &Value, ids: &Ids) -> Result<Reply, Failure> {
        let (conversation, options) = match wire {
            Wire::Chat => chat::read(request)?,
            Wire::Responses => responses::read(request, &Seals(&self.turns))?,
            Wire::Messages => messages::read(request, &Seals(&self.turns))?,
        };
        let turn = self.turn(wire, &conversation)?;
        Ok(match &turn.answer {
            Answer::Failure(failure) => failure.reply(wire, ids, turn.pace.delay),
            Answer::Raw { status, content_type, body } => {
                let pieces = turn.pace.split_raw(body);
                let content_type = content_type.as_deref().unwrap_or_else(|| content_type_of(&options));
                turn.paced(*status, content_type, pieces)
            }
            Answer::Message(draft) => {
                let message = Message::compose(wire, draft, &conversation, &options, ids, self.count);
                send(
                    wire,
                    &Outgoing {
                        message: &message,
                        draft,
                        turn,
                        conversation: &conversation,
                        options: &options,
                        ids,
                        stamp: &self.stamp,
                        tokens: message.tokens(&conversation, &options, self.count),
                    },
                )
            }
        })
    }

    /// The first turn that fits, or a refusal that says which came closest.
    fn turn(&self, wire: Wire, conversation: &Conversation<'_>) -> Result<&Turn, Failure> {
        let mut closest: Option<(usize, &Turn, Vec<String>)> = None;
        for (i, turn) in self.turns.iter().enumerate() {
            let misses = turn.misses(conversation);
            if misses.is_empty() {
                return Ok(turn);
            }
            if closest.as_ref().is_none_or(|(_, _, fewest)| misses.len() < fewest.len()) {
                closest = Some((i + 1, turn, misses));
            }
        }
        let closest = closest.map_or_else(String::new, |(number, turn, misses)| {
            format!(" The closest is turn {number} (line {}), but {}.", turn.line, misses.join(", and "))
        });
        let message = format!("No turn of the script answers this request. {}{closest}", conversation.describe_last());
        let param = if wire == Wire::Responses { "input" } else { "messages" };
        Err(Failure::invalid(message, Some(param.into())).with_code("no_turn_matches"))
    }
}

impl ScriptError {
    fn new(line: usize, message: impl Into<String>) -> ScriptError {
        ScriptError { line, message: message.into() }
    }
}

fn send(wire: Wire, outgoing: &Outgoing<'_>) -> Reply {
    let Outgoing { turn, options, ids, .. } = *outgoing;
    if options.stream {
        let events = match wire {
            Wire::Chat => chat::events(outgoing),
            Wire::Responses => responses::events(outgoing),
            Wire::Messages => messages::events(outgoing),
        };
        return turn.paced(200, content_type_of(options), events);
    }
    if let Break::Error(_, failure) = &turn.breaks {
        return failure.reply(wire, ids, turn.pace.delay);
    }
    let body = match wire {
        Wire::Chat => chat::body(outgoing),
        Wire::Responses => responses::body(outgoing),
        Wire::Messages => messages::body(outgoing),
    };
    let mut body = body.to_string().into_bytes();
    let mut ending = Ending::Complete;
    if let Break::Cut(_) = turn.breaks {
        body.truncate(body.len() / 2);
        ending = Ending::Cut;
    }
    let pieces = vec![Piece { delay: turn.pace.delay, bytes: body.into() }];
    Reply { status: 200, headers: vec![content_type(content_type_of(options))], pieces, ending }
}

fn content_type_of(options: &Options) -> &'static str {
    if options.stream { "text/event-stream; charset=utf-8" } else { "application/json" }
}

fn content_type(value: &str) -> (String, String) {
    ("content-type".into(), value.into())
}
