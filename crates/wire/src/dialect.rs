//! What is particular to each wire.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Map, Value};

use crate::callers::Split;
use crate::chat::Chat;
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

/// One wire. A client's side reads requests and speaks answers; a model's side writes requests and hears answers.
pub(crate) trait Dialect: Sync {
    /// Looks through a body once, and checks its shape.
    fn survey(&self, body: &Map<String, Value>) -> Result<Survey, BadRequest>;

    /// The client's tools by who may call them. `explicit`: the client declares that programs may be written.
    fn split<'a>(&self, body: &'a Map<String, Value>, explicit: bool) -> Result<Split<'a>, BadRequest>;

    /// Entries of `tools` that a model without programs sees.
    fn ordinary_tools(&self, body: &Map<String, Value>, explicit: bool) -> Vec<Value>;

    /// The first field that asks for what a program cannot promise.
    fn unpromised(&self, body: &Map<String, Value>) -> Option<&'static str>;

    fn wanted(&self, body: &Map<String, Value>) -> Wanted;

    /// Takes the history out of the body. With `seals` programs are read, else their calls are calls like others.
    fn conversation(
        &self,
        body: &mut Map<String, Value>,
        explicit: bool,
        seals: Option<&Seals<'_>>,
    ) -> Result<Conversation, BadRequest>;

    /// Ids of calls in the history, by the message that holds them.
    fn call_ids(&self, body: &Value) -> Vec<Vec<String>>;

    /// Puts a history into a body that is sent without code mode, and takes out what only we understand. `None`: the
    /// history stays as it is.
    fn without_code_mode(&self, body: Map<String, Value>, history: Option<Vec<Value>>) -> Value;

    /// What of the body comes before the history.
    fn preface(&self, body: &Map<String, Value>) -> Vec<Message>;

    /// An entry of the history in our words.
    fn read(&self, entry: &Value) -> Vec<Message>;

    /// A tool of the client in our words; `None` for those that only providers of this wire have.
    fn read_tool(&self, entry: &Value) -> Option<Tool>;

    fn wishes(&self, body: &Map<String, Value>) -> Wishes;

    fn speaker(&self, manner: Manner) -> Box<dyn Speaker>;

    /// The same, where an answer repeats what was asked.
    fn speaker_for(&self, manner: Manner, _body: &Map<String, Value>, _toolbox: &Arc<Toolbox>) -> Box<dyn Speaker> {
        self.speaker(manner)
    }

    fn error(&self, trouble: &Trouble<'_>) -> Value;

    /// Entries of the history for a message from another wire.
    fn write(&self, message: &Message) -> Vec<Value>;

    /// A message of the model as it stands in its history: its calls have these ids and results, and `direct` are the
    /// calls beside them that the client executed.
    fn saying(&self, saying: &Saying, ids: &[String], results: &[String], direct: &[Given]) -> Vec<Value>;

    /// Calls that a client executed for a program, as ordinary ones with other ids. `note` is put to what the message
    /// says.
    fn ordinary(&self, message: &Value, calls: &[Given], ids: &[String], note: Option<&str>) -> Vec<Value>;

    /// A call and its answer, as [`Given`] holds them, in our words.
    fn read_given(&self, given: &Given) -> (ModelCall, Option<Answered>);

    fn write_given(&self, call: &ModelCall, answer: Option<&Answered>) -> Given;

    fn write_tool(&self, tool: &Tool) -> Value;

    /// The body of a request that comes from another wire, but for its history and tools.
    fn body(&self, wishes: &Wishes) -> Map<String, Value>;

    fn ask(&self, body: Map<String, Value>, ask: Ask<'_>) -> Value;

    fn listener(&self) -> Box<dyn Listener>;

    /// Reads an answer that came whole.
    fn said(&self, body: Value) -> Result<Said, String>;

    fn tokens(&self, usage: &Map<String, Value>) -> Tokens;

    fn usage(&self, tokens: Tokens) -> Map<String, Value>;
}

impl Wire {
    pub(crate) fn dialect(self) -> &'static dyn Dialect {
        match self {
            Wire::Chat => &Chat,
            Wire::Messages => &crate::messages::Messages,
            Wire::Responses => &crate::responses::Responses,
        }
    }

    /// An error in the words of this wire.
    pub fn error(self, trouble: &Trouble<'_>) -> Value {
        self.dialect().error(trouble)
    }

    pub fn listener(self) -> Box<dyn Listener> {
        self.dialect().listener()
    }

    /// Reads an answer that came whole.
    pub fn said(self, body: Value) -> Result<Said, String> {
        self.dialect().said(body)
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
