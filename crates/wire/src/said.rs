//! Listening to a model: what it said, and around it.

use serde_json::{Map, Value};

use crate::ids::RunId;
use crate::saying::Saying;
use crate::sse::Event;
use crate::wire::Wire;

/// What stands around an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The provider's name for this answer: where our chance comes from.
    pub id: String,
    /// When the provider says it answered, in seconds since 1970.
    pub created: Option<u64>,
    pub model: String,
    /// Whose fields they are.
    pub wire: Wire,
    /// All fields around the answer, the above among them, without the answer itself and its usage.
    pub fields: Map<String, Value>,
}

impl Head {
    /// For a turn in which no model was asked.
    pub fn resumed(wire: Wire, run: RunId, round: u32, started_at_ms: u64, model: &str) -> Head {
        let id = format!("{}{run}-{round}", wire.answer_prefix());
        Head { id, created: Some(started_at_ms / 1000), model: model.to_owned(), wire, fields: Map::new() }
    }
}

/// Why an answer ended, in our own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Calls,
    /// A limit on its length.
    Length,
    /// The provider did not let it go on.
    Filter,
}

/// A whole answer of a model.
#[derive(Debug, Clone)]
pub struct Said {
    pub saying: Saying,
    /// Thoughts that people can read.
    pub reasoning: String,
    pub finish: Finish,
    /// As the provider tells it.
    pub usage: Option<Value>,
    pub head: Head,
    /// The answer as it came, calls included, for a client on the same wire: a choice (Chat Completions), a message
    /// (Messages), a response (Responses).
    pub native: Map<String, Value>,
}

impl Said {
    /// The message was cut, so its calls mean nothing.
    pub fn is_cut(&self) -> bool {
        matches!(self.finish, Finish::Length | Finish::Filter)
    }
}

/// What of an event the client may get.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Heard {
    /// The event without calls, ends and figures, for a client on the same wire; `None` if nothing is left of it.
    pub native: Option<Value>,
    /// Text of the answer in it.
    pub text: String,
    /// Thoughts in it that people can read.
    pub reasoning: String,
    /// A thought that is over: what the provider wants back of it.
    pub opaque: Option<Map<String, Value>>,
    /// It opens, continues or closes text: it is held back where text is.
    pub is_text: bool,
}

impl Heard {
    pub fn text_chars(&self) -> usize {
        self.text.chars().count()
    }

    pub fn is_empty(&self) -> bool {
        self.native.is_none() && self.text.is_empty() && self.reasoning.is_empty() && self.opaque.is_none()
    }
}

/// What a model's stream cannot go on after.
#[derive(Debug, Clone, PartialEq)]
pub enum Unheard {
    NotJson(String),
    /// The provider tells of an error, in these words.
    Error(Value),
}

/// Puts a streamed answer together.
pub trait Listener: Send + Sync {
    fn hear(&mut self, event: &Event) -> Result<Heard, Unheard>;

    /// Known from the beginning of the stream on, or nearly.
    fn head(&self) -> Option<&Head>;

    /// Whether the model has said that this is all.
    fn is_over(&self) -> bool;

    /// The stream is over. `None` if it ended before the model did.
    fn finish(self: Box<Self>) -> Option<Said>;
}
