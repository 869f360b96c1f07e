//! What a client gets of a turn.

use dacapo_replay::Call;
use serde_json::Value;

use crate::said::{Head, Heard, Said};
use crate::saying::ModelCall;
use crate::sse::Event;
use crate::state::RunState;
use crate::usage::Usage;
use crate::wire::Wire;

/// How a client wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Of the model that is asked.
    pub upstream: Wire,
    pub is_stream: bool,
    pub explicit: bool,
    /// A stream ends with what it cost, where clients have to ask for that.
    pub include_usage: bool,
    pub deltas: CallDeltas,
}

/// How a call is streamed on Chat Completions. Some clients read only whole calls, and the loop in `OpenAI`'s own guide
/// only calls whose arguments come after their opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDeltas {
    Whole,
    /// As `OpenAI` does it, with the arguments in one piece.
    Opened,
}

/// A round on its way out.
#[derive(Debug)]
pub struct Handing<'a> {
    /// What the model said, if it was asked in this turn.
    pub said: Option<&'a Said>,
    pub state: &'a RunState,
    /// What an explicit client calls the program; empty if it does not know it yet, or is none.
    pub program: &'a str,
    /// One for each call.
    pub ids: &'a [String],
    pub calls: &'a [Call],
    /// Calls that the model made itself, beside the program.
    pub direct: &'a [ModelCall],
}

/// A program on its way, for a client that knows about programs.
#[derive(Debug)]
pub struct Announced<'a> {
    pub state: &'a RunState,
    /// All that is needed to run it again, sealed.
    pub sealed: &'a str,
    /// It has come to its end already.
    pub is_finished: bool,
}

/// A program that has come to its end, for a client that knows about programs.
#[derive(Debug)]
pub struct Ended<'a> {
    /// What the client calls it; empty if it was announced in this turn.
    pub program: &'a str,
    pub state: &'a RunState,
    /// What the model is shown.
    pub shown: &'a Value,
}

/// A search for tools, as a client knows it.
#[derive(Debug)]
pub struct Searched<'a> {
    /// The message that it is a call of.
    pub said: &'a Said,
    /// What the client calls the search.
    pub tool: &'a str,
    /// Where in the turn it stands.
    pub number: usize,
    /// Where in the conversation the turn stands.
    pub seed: &'a str,
    pub query: &'a str,
    /// How many tools, if the model said so.
    pub limit: Option<usize>,
    /// Names of tools.
    pub found: &'a [String],
}

/// What stands for a program that was cut, where nothing else was said.
pub(crate) const CUT: &str = "(The answer was cut off before its program was complete.)";

/// What of a message the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed {
    All,
    Text,
}

/// Something that goes wrong, in the client's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble<'a> {
    pub status: u16,
    /// `OpenAI`'s name for the kind of error.
    pub kind: &'a str,
    pub message: &'a str,
    pub param: Option<&'a str>,
    pub code: Option<&'a str>,
}

/// Puts an answer into the client's words: piece by piece, and as a whole. What it returns are events of a stream;
/// whoever wants the whole takes [`Speaker::body`].
pub trait Speaker: Send + Sync + std::fmt::Debug {
    /// A model begins to answer.
    fn begins(&mut self);

    /// What stands around the answer. The first head of a stream stays; a whole answer has the last.
    fn head(&mut self, head: &Head);

    /// A piece of the model's answer that is surely for the client. Only for streams.
    fn pass(&mut self, heard: Heard) -> Vec<Event>;

    /// A program begins. Only for clients that know about programs.
    fn program(&mut self, program: &Announced<'_>) -> Vec<Event>;

    /// A program has come to its end. Only for clients that know about programs.
    fn result(&mut self, ended: &Ended<'_>) -> Vec<Event>;

    /// What led to calls that we answer, or to a program that is at its end already: more of the model follows.
    fn aside(&mut self, _: &Said) -> Vec<Event> {
        Vec::new()
    }

    /// The model has searched for tools. Only for clients that asked their provider to let it.
    fn searched(&mut self, _: &Searched<'_>) -> Vec<Event> {
        Vec::new()
    }

    /// What comes last: calls.
    fn calls(&mut self, handing: &Handing<'_>) -> Vec<Event>;

    /// What comes last: what the model said. A stream has passed its pieces already, if the model streamed.
    fn answer(&mut self, said: &Said, passed: Passed) -> Vec<Event>;

    /// The end of a stream.
    fn finish(&mut self, usage: &Usage) -> Vec<Event>;

    /// The whole answer; `None` if nobody answered.
    fn body(&mut self, usage: &Usage) -> Option<Value>;

    /// An error in the middle of a stream; `body` is how the client is told of it otherwise.
    fn fail(&mut self, body: Value) -> Vec<Event>;
}
