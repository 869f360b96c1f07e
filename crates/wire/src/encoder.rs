//! A response on its way to the client, and how it is encoded.

use std::borrow::Cow;

use dacapo_catalog::SearchText;
use dacapo_replay::{Answer, Call, json_text};
use serde_json::Value;

use crate::decoder::{ModelResponse, ResponseDelta, ResponseMeta};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::server_tools::ServerToolList;
use crate::sse::SseEvent;
use crate::state::RunState;
use crate::turn::{Delivery, ProgramMode, StreamUsage};
use crate::usage::TurnUsage;
use crate::wire::ProviderSide;

/// How the client wants its response.
#[derive(Debug, Clone, Copy)]
pub struct EncoderOptions {
    /// Of the model that is asked first.
    pub provider: ProviderSide,
    /// At once, or as a stream.
    pub delivery: Delivery,
    /// Whether the client reads about programs.
    pub mode: ProgramMode,
    /// Whether the stream ends with the usage.
    pub stream_usage: StreamUsage,
    /// In how many deltas a call comes.
    pub call_deltas: CallDeltas,
    /// What the ids of items are for.
    pub item_ids: ItemIds,
    /// How much text a stream holds back until it is known that no program follows.
    pub hold_text_chars: usize,
}

impl EncoderOptions {
    /// Whether the client is shown the text that stands before a program. Text that a stream held back is not.
    pub(crate) fn shows_preamble(&self, response: &ModelResponse) -> bool {
        let text = response.message.text.as_deref().unwrap_or_default();
        !self.delivery.is_streamed() || text.chars().count() > self.hold_text_chars
    }
}

/// What the ids of items are for, on Responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemIds {
    /// A client may send back nothing else, so that they carry the items.
    Carriers,
    /// The items are stored under them, so that they can be short.
    Names,
}

/// How a tool call is streamed on Chat Completions. Some clients read only whole calls; the loop in `OpenAI`'s guide
/// reads only calls whose arguments come after the delta that opens them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDeltas {
    /// In one delta.
    Whole,
    /// As `OpenAI` does it, with the arguments in one piece.
    Opened,
}

/// A round of tool calls for the client to execute.
#[derive(Debug)]
pub struct CallsIssued<'a> {
    /// The model's response that holds the program, if the model was asked in this request.
    pub response: Option<&'a ModelResponse>,
    /// Of the program that makes the calls.
    pub state: &'a RunState,
    /// How an explicit client knows it.
    pub program: ProgramName<'a>,
    /// One for each call.
    pub ids: &'a [String],
    /// What the client is to execute.
    pub calls: &'a [Call],
    /// Calls that the model made directly, beside the program.
    pub direct: &'a [ModelCall],
}

impl CallsIssued<'_> {
    /// Whether the client is to make a call. If not, the program waits for nothing but approvals.
    pub(crate) fn has_calls(&self) -> bool {
        !(self.calls.is_empty() && self.direct.is_empty())
    }
}

/// How an explicit client refers to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramName<'a> {
    /// The program was written in this request, so its name follows from its state.
    New,
    /// As the program is called in the client's history.
    Known(&'a str),
}

impl ProgramName<'_> {
    /// The client's name, or the one that `name` makes for a new program.
    pub(crate) fn or_else(self, name: impl FnOnce() -> String) -> String {
        match self {
            ProgramName::New => name(),
            ProgramName::Known(known) => known.to_owned(),
        }
    }
}

/// A program that an explicit client reads about.
#[derive(Debug)]
pub struct ProgramStarted<'a> {
    /// All that the program is run from, except its answers.
    pub state: &'a RunState,
    /// All that is needed to run it again, sealed.
    pub sealed: &'a str,
    /// How far it has come.
    pub progress: ProgramProgress,
}

/// How far a program has come when the client is shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramProgress {
    /// It waits for calls, which follow.
    Waiting,
    /// It made no calls; its result follows.
    Finished,
    /// It makes calls that the gateway executes. Whether calls for the client follow is not known.
    Running,
}

/// A call that the gateway executes itself for a program, as an explicit client reads about it.
#[derive(Debug)]
pub struct ServerCall<'a> {
    /// The server that has the tool.
    pub server: &'a str,
    /// The tool's name, as the server knows it.
    pub tool: &'a str,
    /// As the program made it.
    pub call: &'a Call,
    /// Whether a person was asked about it.
    pub approval: ServerCallApproval,
}

/// Whether a person was asked about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerCallApproval {
    /// The policy allows it.
    NotAsked,
    /// The client has answered the question.
    Asked,
}

impl ServerCall<'_> {
    /// Names the call for the client. The same call has the same name whenever it is shown.
    pub(crate) fn id(&self) -> String {
        short_id(&self.call.key, &self.call.tool, 0)
    }

    /// Names the question whether the call may be made. Another call has another one, also if it takes the same place in
    /// its program.
    pub fn approval_id(&self) -> String {
        short_id(&self.call.key, &format!("{} {}", self.call.tool, self.call.args), 1)
    }
}

/// The outcome of a call that the gateway executed.
#[derive(Debug, Clone, Copy)]
pub enum ServerCallEnd<'a> {
    /// The server has answered.
    Answered(&'a Answer),
    /// The program has ended without the answer.
    Cancelled,
}

impl ServerCallEnd<'_> {
    /// `completed`, `failed` or `incomplete`.
    pub(crate) fn status(self) -> &'static str {
        match self {
            ServerCallEnd::Answered(Answer::Ok(_)) => "completed",
            ServerCallEnd::Answered(Answer::Error { .. }) => "failed",
            ServerCallEnd::Cancelled => "incomplete",
        }
    }

    /// The answer or error as text: text as it is, and any other value as JSON.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            ServerCallEnd::Answered(Answer::Ok(json)) => {
                json.as_string().unwrap_or_else(|| Cow::Borrowed(json.as_str()))
            }
            ServerCallEnd::Answered(Answer::Error { message, .. }) => Cow::Borrowed(message),
            ServerCallEnd::Cancelled => Cow::Borrowed("the program ended before the call was answered"),
        }
    }
}

/// The end of a program that an explicit client knows.
#[derive(Debug)]
pub struct ProgramFinished<'a> {
    /// How the client knows it.
    pub program: ProgramName<'a>,
    /// All that the program was run from, except its answers.
    pub state: &'a RunState,
    /// The result as the model reads it.
    pub shown: &'a Value,
}

/// A tool search of the model, for clients that declared their provider's tool search.
#[derive(Debug)]
pub struct ToolsSearched<'a> {
    /// The response that holds the search.
    pub response: &'a ModelResponse,
    /// The client's name for the search tool.
    pub tool: &'a str,
    /// Position among the searches of the request.
    pub number: usize,
    /// Seed of the request, so that ids differ from those of other requests.
    pub seed: &'a str,
    /// What the model searched for.
    pub text: &'a SearchText,
    /// How many tools the model asked for, if it said so.
    pub limit: Option<usize>,
    /// Names of the tools that were found.
    pub found: &'a [String],
}

/// Stands for a program that was cut off where the model wrote no text beside it: clients cannot send an empty message
/// back.
pub(crate) const CUT_OFF: &str = "(The answer was cut off before its program was complete.)";

/// Which parts of the model's message go to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerParts {
    /// Text, reasoning and calls.
    All,
    /// Its calls are dropped: they are incomplete, or were not allowed.
    Text,
}

/// An error of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError<'a> {
    /// The HTTP status.
    pub status: u16,
    /// `OpenAI`'s name for the kind of error.
    pub kind: &'a str,
    /// What is wrong, and what to do about it.
    pub message: &'a str,
    /// The field of the request that is wrong.
    pub param: Option<&'a str>,
    /// A word for programs, such as `context_length_exceeded`.
    pub code: Option<&'a str>,
}

/// Encodes a response for the client. The methods return events of a stream; for a response that is not streamed, only
/// [`ResponseEncoder::body`] matters.
pub trait ResponseEncoder: Send + Sync + std::fmt::Debug {
    /// Another provider has taken over before any model has responded.
    fn provider_changed(&mut self, provider: ProviderSide);

    /// A model starts to respond. In one request this may happen several times.
    fn response_started(&mut self);

    /// Sets the fields around the content. A stream keeps the first, a whole response has the last.
    fn meta(&mut self, meta: &ResponseMeta);

    /// The events that open a stream, as soon as the fields around the content are known. Clients and proxies see that
    /// the model is at work, long before a program is written.
    fn open(&mut self) -> Vec<SseEvent>;

    /// What the wire sends in a silence. `None` if it has no event for that at this moment: a comment is sent then.
    fn keep_alive(&mut self) -> Option<SseEvent>;

    /// A delta that goes to the client as it comes. Only for streams.
    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent>;

    /// A program starts. Only for explicit clients.
    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent>;

    /// The tools of a server whose tools a program calls. Only for explicit clients that have no such list.
    fn tools_listed(&mut self, _: &ServerToolList<'_>) -> Vec<SseEvent> {
        Vec::new()
    }

    /// The gateway sends a call of a program to a server. Only for explicit clients.
    fn server_call_started(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent>;

    /// The client is asked whether a call may be made. Only for explicit clients.
    fn approval_requested(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent>;

    /// The call has ended. Several may be open at the same time.
    fn server_call_ended(&mut self, call: &ServerCall<'_>, end: ServerCallEnd<'_>) -> Vec<SseEvent>;

    /// A program has finished. Only for explicit clients.
    fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Vec<SseEvent>;

    /// What a response has before a search, a mistake or a program: text, reasoning and server-tool calls. It is not the
    /// end of the client's message: calls follow, or more of the model. What was streamed already is not sent again.
    fn preamble(&mut self, response: &ModelResponse) -> Vec<SseEvent>;

    /// The model has searched for tools. Only for clients that declared a tool search.
    fn tools_searched(&mut self, _: &ToolsSearched<'_>) -> Vec<SseEvent> {
        Vec::new()
    }

    /// The response ends with tool calls of a program. What the model wrote before it has been sent as a preamble.
    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent>;

    /// The response ends with what the model wrote. If the model streamed, its deltas have been sent already.
    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent>;

    /// The end of a stream.
    fn finish(&mut self, usage: &TurnUsage) -> Vec<SseEvent>;

    /// The whole response, after which nothing more is encoded; `None` if no model responded.
    fn body(&mut self, usage: &TurnUsage) -> Option<Value>;

    /// The same as JSON.
    fn body_text(&mut self, usage: &TurnUsage) -> Option<String> {
        self.body(usage).map(|body| json_text(&body))
    }

    /// An error in the middle of a stream; `body` is the error as it would be sent instead of a stream.
    fn error(&mut self, body: Value) -> Vec<SseEvent>;
}
