//! What is particular to each wire.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Map, Value};

use crate::callers::Split;
use crate::conversation::{Conversation, Given};
use crate::message::{Answered, Message, Tool, Wishes};
use crate::plain::Seals;
use crate::reader::BadRequest;
use crate::said::{Listener, Said};
use crate::saying::{ModelCall, Saying};
use crate::speaker::{Manner, Speaker, Trouble};
use crate::turn::{Demand, Wanted};
use crate::usage::Tokens;
use crate::wire::Wire;
use crate::{chat, messages, responses};

/// A request's or an answer's fields.
type Fields = Map<String, Value>;
type WriteSaying = fn(&Saying, &[String], &[String], &[Given]) -> Vec<Value>;
type WriteOrdinary = fn(&Value, &[Given], &[String], Option<&str>) -> Vec<Value>;

/// One wire. A client's side reads requests and speaks answers; a model's side writes requests and hears answers.
pub(crate) struct Dialect {
    /// Looks through a body once, and checks its shape.
    pub survey: fn(&Fields) -> Result<Survey, BadRequest>,
    /// The client's tools by who may call them, and whether the client declares that programs may be written.
    pub split: for<'a> fn(&'a Fields, bool) -> Result<Split<'a>, BadRequest>,
    /// Entries of `tools` that a model without programs sees; the second as above.
    pub ordinary_tools: fn(&Fields, bool) -> Vec<Value>,
    /// The first field that asks for what a program cannot promise.
    pub unpromised: fn(&Fields) -> Option<&'static str>,
    pub wanted: fn(&Fields) -> Wanted,
    /// Takes the history out of the body, in explicit mode or not. With seals programs are read, else their calls are
    /// calls like others.
    pub conversation: fn(&mut Fields, bool, Option<&Seals<'_>>) -> Result<Conversation, BadRequest>,
    /// Ids of calls in the history, by the message that holds them.
    pub call_ids: fn(&Value) -> Vec<Vec<String>>,
    /// Puts a history into a body that is sent without code mode, and takes out what only we understand. `None`: the
    /// history stays as it is.
    pub without_code_mode: fn(Fields, Option<Vec<Value>>) -> Value,
    /// What of the body comes before the history.
    pub preface: fn(&Fields) -> Vec<Message>,
    /// An entry of the history in our words.
    pub read: fn(&Value) -> Vec<Message>,
    /// A tool of the client in our words; `None` for those that only providers of this wire have.
    pub read_tool: fn(&Value) -> Option<Tool>,
    pub wishes: fn(&Fields) -> Wishes,
    /// For a client that asked this, with these tools for programs.
    pub speaker: fn(Manner, &Fields, &Arc<Toolbox>) -> Box<dyn Speaker>,
    pub error: fn(&Trouble<'_>) -> Value,
    /// Entries of the history for a message from another wire.
    pub write: fn(&Message) -> Vec<Value>,
    /// A message of the model as it stands in its history: its calls have these ids and results, and the last are the
    /// calls beside them that the client executed.
    pub saying: WriteSaying,
    /// Calls of a message that a client executed for a program, as ordinary ones with these ids. The note is put to what
    /// the message says.
    pub ordinary: WriteOrdinary,
    /// A call and its answer, as [`Given`] holds them, in our words.
    pub read_given: fn(&Given) -> (ModelCall, Option<Answered>),
    pub write_given: fn(&ModelCall, Option<&Answered>) -> Given,
    pub write_tool: fn(&Tool) -> Value,
    /// The body of a request that comes from another wire, but for its history and tools.
    pub body: fn(&Wishes) -> Fields,
    pub ask: fn(Fields, Ask<'_>) -> Value,
    pub listener: fn() -> Box<dyn Listener>,
    /// Reads an answer that came whole.
    pub said: fn(Value) -> Result<Said, String>,
    pub tokens: fn(&Fields) -> Tokens,
    pub usage: fn(Tokens) -> Fields,
}

impl Wire {
    pub(crate) fn dialect(self) -> &'static Dialect {
        match self {
            Wire::Chat => &chat::DIALECT,
            Wire::Responses => &responses::DIALECT,
            Wire::Messages => &messages::DIALECT,
        }
    }

    /// An error in the words of this wire.
    pub fn error(self, trouble: &Trouble<'_>) -> Value {
        (self.dialect().error)(trouble)
    }

    pub fn listener(self) -> Box<dyn Listener> {
        (self.dialect().listener)()
    }

    /// Reads an answer that came whole.
    pub fn said(self, body: Value) -> Result<Said, String> {
        (self.dialect().said)(body)
    }
}

/// What a body holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Ids of ours.
    pub has_sealed: bool,
    /// Programs that the client knows about.
    pub has_programs: bool,
    /// The client declares that it knows about programs.
    pub declares_programs: bool,
}

/// What a model is asked with, in the words of its wire.
pub(crate) struct Ask<'a> {
    /// The client's body, with its own tools.
    pub client: &'a Map<String, Value>,
    pub history: &'a [Value],
    /// Our tools, then the others that the model may call.
    pub tools: Vec<Value>,
    /// What the model has to do, unless the body says it already.
    pub demand: Demand,
    pub one_call: bool,
    pub is_stream: bool,
    /// The body is the client's own.
    pub is_same_wire: bool,
}
