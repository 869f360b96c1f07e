//! What a client speaks: requests in, responses out.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Map, Value};

use crate::allowed_callers::{ListContents, ProgramDeclaration, ToolSplit};
use crate::conversation::{Conversation, LostCalls, WireCall};
use crate::encoder::{ApiError, EncoderOptions, ResponseEncoder};
use crate::model_message::ModelCall;
use crate::neutral::{Media, MessagePart, NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::plain_mode::StateOpener;
use crate::request::BadRequest;
use crate::request_servers::RequestServer;
use crate::sse::SseEvent;
use crate::tool_answer::ToolAnswer;
use crate::tool_lists::ListText;
use crate::turn::ResponsePrefs;
use crate::usage::TokenCounts;
use crate::wire::Wire;

/// The fields of a request body.
pub(crate) type Body = Map<String, Value>;

/// The client's side of a wire. A wire that models can be asked on, but no client speaks, has none.
pub(crate) trait ClientWire: Sync {
    fn wire(&self) -> Wire;

    fn capabilities(&self) -> ClientCapabilities;

    /// Looks through a body once, and checks its shape.
    fn survey(&self, body: &Body) -> Result<RequestSurvey, BadRequest>;

    /// Sorts the client's tools by who may call them. `contents` is what is known of its list.
    fn split_tools<'a>(
        &self,
        body: &'a Body,
        programs: ProgramDeclaration,
        contents: ListContents,
    ) -> Result<ToolSplit<'a>, BadRequest>;

    /// Entries of `tools` for a model that writes no programs.
    fn ordinary_tools(&self, body: &Body, programs: ProgramDeclaration) -> Vec<Value>;

    /// The first field whose guarantee a program cannot give, such as a tool that must be called.
    fn incompatible_with_programs(&self, body: &Body) -> Option<&'static str>;

    fn response_prefs(&self, body: &Body) -> ResponsePrefs;

    /// The MCP servers that the request names, with their addresses.
    fn request_servers(&self, _: &Body) -> Result<Vec<RequestServer>, BadRequest> {
        Ok(Vec::new())
    }

    /// Takes the history out of the body.
    fn conversation(&self, body: &mut Body, reading: HistoryReading<'_>) -> Result<Conversation, BadRequest>;

    /// Ids of tool calls in the history, grouped by the model response that holds them.
    fn call_ids(&self, body: &Value) -> Vec<Vec<String>>;

    /// Who wrote an entry of the history.
    fn entry_author(&self, entry: &Value) -> EntryAuthor;

    /// Whether the history ends with tool results, so that a program may continue now.
    fn awaits_answers(&self, body: &Value) -> bool;

    /// The body for the same wire without code mode: fields that only the gateway understands are removed, and
    /// `history`, if given, replaces the client's.
    fn without_code_mode(&self, body: Body, history: Option<Vec<Value>>) -> Value;

    /// System messages that stand outside of the history.
    fn system_messages(&self, body: &Body) -> Vec<NeutralMessage>;

    fn read_entry(&self, entry: &Value) -> Vec<NeutralMessage>;

    /// A tool result, as a program gets it that made the call with this key.
    fn read_answer(&self, answer: &Value, key: &str) -> ToolAnswer;

    /// An image or a file of a tool result.
    fn read_block(&self, block: &Value) -> MessagePart;

    /// A block with an image or a file.
    fn write_block(&self, media: &Media) -> Value;

    /// `None` for tools that only providers of this wire have.
    fn read_tool(&self, entry: &Value) -> Option<ToolDeclaration>;

    fn read_params(&self, body: &Body) -> RequestParams;

    /// A tool call and its result, as a history of this wire holds them.
    fn read_call(&self, call: &WireCall) -> (ModelCall, Option<ToolResult>);

    /// Calls that a client executed for a program, as ordinary tool calls with these ids. `note` is appended to the
    /// text of the message that held them.
    fn ordinary_calls(&self, calls: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value>;

    /// An encoder for the client that sent `body`; `toolbox` holds the tools that its programs may call.
    /// `known_tools` is the text of the body's tool list, if responses may repeat it.
    fn encoder(
        &self,
        options: EncoderOptions,
        body: &Body,
        known_tools: Option<Arc<ListText>>,
        toolbox: &Arc<Toolbox>,
    ) -> Box<dyn ResponseEncoder>;

    fn error_body(&self, error: &ApiError<'_>) -> Value;

    /// An error in a stream that the gateway only passes on, from the body that it would have as a response.
    fn error_event(&self, body: &Value) -> SseEvent;

    fn write_usage(&self, tokens: TokenCounts) -> Body;
}

/// How clients of a wire differ where the code of all wires is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientCapabilities {
    /// Where the state of a program is in explicit mode. In plain mode it is in the call ids.
    pub explicit_state: ExplicitState,
    pub entries: EntriesPerResponse,
    pub failures: FailureMark,
    /// What the ids of responses begin with.
    pub response_id_prefix: &'static str,
    /// What the ids of calls begin with.
    pub call_id_prefix: &'static str,
    pub params: ParamNames,
    /// The field that holds the history.
    pub history: &'static str,
    /// How strings begin, with their quotation marks, in entries of a history that are read together with others.
    pub linking_words: &'static [&'static str],
}

/// Request fields that every wire has under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParamNames {
    /// The most tokens that the model may write.
    pub tokens_max: &'static [&'static str],
    /// The reasoning effort, as a path of keys joined by dots.
    pub effort: &'static str,
    /// `None`: the wire has no stop sequences.
    pub stops: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExplicitState {
    /// In the ids of the calls, as in plain mode: a conversation may change its mode at any time.
    CallIds,
    /// In an item or message of the history.
    HistoryEntry,
}

/// Whether a tool result can say that the tool failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureMark {
    /// By a field of its own.
    Field,
    /// Only by its text.
    Text,
}

/// Who wrote an entry of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryAuthor {
    /// The model, and nothing has to be executed.
    ModelText,
    /// The model, with calls or reasoning.
    ModelCalls,
    /// The client: user, system, tool results.
    Client,
}

/// How many entries of the history one response of the model makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntriesPerResponse {
    One,
    /// Text, reasoning and each call are entries of their own; calls made together have to be joined again for wires
    /// on which they are one message.
    Many,
}

/// How a history is read.
#[derive(Clone, Copy)]
pub(crate) enum HistoryReading<'a> {
    /// Calls of programs become ordinary calls.
    WithoutPrograms,
    /// Programs are read from the ids of their calls.
    Plain(&'a StateOpener<'a>),
    /// Programs are entries of the history.
    Explicit(&'a StateOpener<'a>),
}

impl<'a> HistoryReading<'a> {
    /// `None` where programs are not read.
    pub(crate) fn opener(self) -> Option<&'a StateOpener<'a>> {
        match self {
            HistoryReading::WithoutPrograms => None,
            HistoryReading::Plain(opener) | HistoryReading::Explicit(opener) => Some(opener),
        }
    }
}

/// What a body holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSurvey {
    pub call_ids: CallIds,
    pub history: ProgramHistory,
    pub declaration: ProgramDeclaration,
}

/// Whether a history has tool-call ids, or other values, that carry a program's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallIds {
    Ordinary,
    Sealed,
}

impl CallIds {
    pub(crate) fn sealed_if(any: bool) -> CallIds {
        if any { CallIds::Sealed } else { CallIds::Ordinary }
    }
}

/// Whether a history has programs as entries of their own, as explicit clients keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramHistory {
    None,
    HasPrograms,
}

impl ProgramHistory {
    pub(crate) fn found_if(any: bool) -> ProgramHistory {
        if any { ProgramHistory::HasPrograms } else { ProgramHistory::None }
    }
}
