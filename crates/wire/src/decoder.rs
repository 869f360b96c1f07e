//! A model's response, and how it is decoded.

use serde_json::{Map, Value};

use crate::ids::RunId;
use crate::model_message::ModelMessage;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::wire::{ClientSide, Wire};

/// The fields of a response around its content.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseMeta {
    /// The provider's id of the response. Programs in it draw their entropy from it.
    pub id: String,
    /// When the provider says that it responded, in seconds since 1970.
    pub created: Option<u64>,
    pub model: String,
    /// The wire that `fields` belong to.
    pub wire: Wire,
    /// All fields of the response, those above among them, without its content and usage.
    pub fields: Map<String, Value>,
}

impl ResponseMeta {
    /// For a request that continues a program without asking a model.
    pub fn resumed(client: ClientSide, run: RunId, round: u32, started_at_ms: u64, model: &str) -> ResponseMeta {
        let id = format!("{}{run}-{round}", client.0.capabilities().response_id_prefix);
        let (created, wire) = (Some(started_at_ms / 1000), client.wire());
        ResponseMeta { id, created, model: model.to_owned(), wire, fields: Map::new() }
    }

    /// The id with the prefix that clients of another wire expect.
    pub(crate) fn prefixed_id(&self, prefix: &str) -> String {
        if self.id.starts_with(prefix) { self.id.clone() } else { format!("{prefix}{}", self.id) }
    }
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Calls,
    /// A limit on its length.
    Length,
    /// The provider's content filter.
    Filter,
}

/// A whole response of a model.
#[derive(Debug, Clone)]
pub struct ModelResponse {
    pub message: ModelMessage,
    /// Reasoning that people can read.
    pub reasoning_text: String,
    pub finish: FinishReason,
    /// As the provider reports it.
    pub usage: Option<Value>,
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
    pub kind: DeltaKind,
}

/// Whether a delta belongs to the text of the message. Only such deltas are held back by `hold_text_chars`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeltaKind {
    /// It opens, continues or closes text.
    Text,
    #[default]
    Other,
}

impl ResponseDelta {
    pub fn text_chars(&self) -> usize {
        self.text.chars().count()
    }

    pub fn is_empty(&self) -> bool {
        self.native.is_none() && self.text.is_empty() && self.reasoning_text.is_empty() && self.reasoning.is_none()
    }
}

/// Why a stream cannot be decoded any further.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamError {
    NotJson(String),
    /// The provider reports an error, in the form in which it would have come instead of a stream.
    Provider(Value),
}

/// Decodes a streamed response.
pub trait ResponseDecoder: Send + Sync {
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError>;

    /// Known after the first events.
    fn meta(&self) -> Option<&ResponseMeta>;

    /// Whether the provider has said that the response is complete.
    fn is_complete(&self) -> bool;

    /// Called at the end of the stream. `None` if the stream ended before the response did.
    fn finish(self: Box<Self>) -> Option<ModelResponse>;
}
