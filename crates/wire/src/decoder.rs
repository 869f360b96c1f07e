//! A model's response, and how it is decoded.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::ids::RunId;
use crate::model_message::ModelMessage;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::state::RunState;
use crate::usage::ContextTokens;
use crate::wire::{ClientSide, Wire};

/// The fields of a response around its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseMeta {
    /// The provider's id of the response. Programs in it draw their entropy from it.
    pub id: String,
    /// When the provider says that it responded, in seconds since 1970.
    pub created: Option<u64>,
    /// The model that responded, as its provider names it.
    pub model: String,
    /// What the model reads, if that is known when the response begins.
    pub context: Option<ContextTokens>,
    /// The wire that `fields` belong to.
    pub wire: Wire,
    /// All fields of the response, those above among them, without its content and usage.
    pub fields: Map<String, Value>,
}

impl ResponseMeta {
    /// For a request that continues a program without asking a model.
    pub fn resumed(client: ClientSide, run: RunId, state: &RunState, round: u32, model: &str) -> ResponseMeta {
        let id = format!("{}{run}-{round}", client.0.capabilities().response_id_prefix);
        let (created, context) = (Some(state.started_at_ms / 1000), state.context);
        ResponseMeta { id, created, model: model.to_owned(), context, wire: client.wire(), fields: Map::new() }
    }

    /// The id with the prefix that clients of another wire expect.
    pub(crate) fn prefixed_id(&self, prefix: &str) -> Cow<'_, str> {
        if self.id.starts_with(prefix) { Cow::Borrowed(&self.id) } else { Cow::Owned(format!("{prefix}{}", self.id)) }
    }
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// The model had nothing more to say.
    Stop,
    /// It waits for the results of its calls.
    Calls,
    /// A limit on its length.
    Length,
    /// The provider's content filter.
    Filter,
}

/// A whole response of a model. As a text it lacks the provider's ids of its calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelResponse {
    /// What the model wrote: text, reasoning, calls.
    pub message: ModelMessage,
    /// Reasoning that people can read.
    pub reasoning_text: String,
    /// Why it ended.
    pub finish: FinishReason,
    /// As the provider reports it.
    pub usage: Option<Value>,
    /// The fields around the content.
    pub meta: ResponseMeta,
    /// The response as it came, calls included, for a client on the same wire: a choice (Chat Completions), a message
    /// (Messages) or a response (Responses).
    pub native: Map<String, Value>,
}

impl ModelResponse {
    /// The message was cut off, so its calls are incomplete.
    pub fn is_cut(&self) -> bool {
        matches!(self.finish, FinishReason::Length | FinishReason::Filter)
    }
}

/// What one event of a stream adds to the response. Tool calls are not part of it: they go to the client only when it
/// is known who executes them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResponseDelta {
    /// The event without calls, finish reason and usage, for a client on the same wire; `None` if nothing is left.
    pub native: Option<Value>,
    /// Text of the message.
    pub text: String,
    /// Reasoning that people can read.
    pub reasoning_text: String,
    /// Set when a piece of reasoning is complete: what its provider wants back.
    pub reasoning: Option<Reasoning>,
    /// Whether `hold_text_chars` applies to it.
    pub kind: DeltaKind,
}

/// Whether a delta belongs to the text of the message. Only such deltas are held back by `hold_text_chars`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaKind {
    /// It opens, continues or closes text.
    Text,
    /// Reasoning, server tools, and all that has no text.
    #[default]
    Other,
}

impl ResponseDelta {
    /// In characters, as `hold_text_chars` counts them.
    pub fn text_chars(&self) -> usize {
        self.text.chars().count()
    }

    /// Whether it has nothing that a client could be sent.
    pub fn is_empty(&self) -> bool {
        self.native.is_none() && self.text.is_empty() && self.reasoning_text.is_empty() && self.reasoning.is_none()
    }
}

/// Why a stream cannot be decoded any further.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamError {
    /// The data of an event is not JSON; the text is that of the parser.
    NotJson(String),
    /// The provider reports an error, in the form in which it would have come instead of a stream.
    Provider(Value),
}

impl SseEvent {
    /// The data. An event that is named `error` may hold plain text.
    pub(crate) fn json(&self) -> Result<Value, StreamError> {
        match serde_json::from_str(&self.data) {
            Ok(data) => Ok(data),
            Err(_) if self.is_error() => Ok(Value::from(self.data.trim())),
            Err(error) => Err(StreamError::NotJson(error.to_string())),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.name.as_deref() == Some("error")
    }
}

/// What an error says, in whichever form a server writes it; `None` if it says nothing.
///
/// ```
/// use serde_json::json;
/// let message = |body| dacapo_wire::error_message(&body);
/// assert_eq!(message(json!({"error": {"message": "busy"}})).as_deref(), Some("busy"));
/// assert_eq!(message(json!({"detail": [{"msg": "field required"}]})).as_deref(), Some("field required"));
/// assert_eq!(message(json!({"error": {}})), None);
/// ```
pub fn error_message(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned),
        Value::Array(errors) => errors.iter().find_map(error_message),
        Value::Object(fields) => {
            const KEYS: [&str; 7] = ["message", "error", "detail", "msg", "errors", "error_message", "reason"];
            KEYS.iter().find_map(|key| error_message(fields.get(*key)?))
        }
        _ => None,
    }
}

/// An error of a server, with its message where clients of every wire look for it.
pub(crate) fn provider_error(data: Value) -> Value {
    if data.pointer("/error/message").is_some_and(Value::is_string) {
        return data;
    }
    let message = error_message(&data).unwrap_or_else(|| data.to_string());
    let code = data.get("code").or_else(|| data.pointer("/error/code"));
    json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}})
}

/// Decodes a streamed response.
pub trait ResponseDecoder: Send + Sync {
    /// Takes the next event of the stream, and returns what the client can be sent of it now.
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError>;

    /// Known after the first events.
    fn meta(&self) -> Option<&ResponseMeta>;

    /// Whether the provider has said that the response is complete.
    fn is_complete(&self) -> bool;

    /// Called at the end of the stream. `None` if the stream ended before the response did.
    fn finish(self: Box<Self>) -> Option<ModelResponse>;
}
