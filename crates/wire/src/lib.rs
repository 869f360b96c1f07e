//! The protocols of LLM APIs: what clients send, what models respond, and how a program's state travels between them.
//!
//! A client's history is read into a [`Conversation`]: entries that are passed on as they came, and programs with
//! their rounds of calls and answers. In plain mode the state of a program is in the ids of its calls ([`Sealer`]). The
//! model is shown each program as one call of `execute` and one result ([`ModelHistory`]).
//!
//! Each protocol is a [`Wire`] with a folder of its own. A wire has two sides: [`ClientSide`] reads requests and encodes
//! responses, [`ProviderSide`] writes requests and decodes responses. Client and model may be on different wires.
//!
//! Nothing here does I/O, reads a clock or runs a program. Start reading at [`RequestReader::read`].

#![warn(missing_docs)]

mod allowed_callers;
mod applied_mode;
mod body_outline;
mod call_digests;
mod call_round;
mod chat;
mod client_wire;
mod compression;
mod conversation;
mod decoder;
mod deflate;
mod encoder;
mod error_texts;
mod ids;
mod json_fields;
mod marks;
mod messages;
mod model_history;
mod model_message;
mod model_request;
mod near_json;
mod neutral;
mod object_scan;
mod opened_states;
mod owned_answers;
mod placeholder;
mod plain_mode;
mod prefix_codes;
mod prompt;
mod provider_wire;
mod reasoning;
mod remarks;
mod request;
mod request_servers;
mod responses;
mod seal;
mod sealing_key;
mod server_tools;
mod sse;
mod state;
mod tool_answer;
mod tool_lists;
mod turn;
mod unread_entries;
mod usage;
mod wire;

pub use allowed_callers::{CallerRules, DefaultCallers};
pub use applied_mode::{AppliedMode, OffReason};
pub use body_outline::BodyOutline;
pub use call_digests::CallDigests;
pub use call_round::{CallRound, ExpectedCall, IssuedCall, SentCall, SentOutcome};
pub use client_wire::EntryAuthor;
pub use conversation::{
    AnswerBytes, BlockStatus, Conversation, ConversationItem, HistoryGap, LostCalls, ProgramBlock, WireCall, may_search,
};
pub use decoder::{
    DeltaKind, FinishReason, ModelResponse, ResponseDecoder, ResponseDelta, ResponseMeta, StreamError, error_message,
};
pub use encoder::{
    AnswerParts, ApiError, CallDeltas, CallsIssued, EncoderOptions, ItemIds, ProgramFinished, ProgramName,
    ProgramProgress, ProgramStarted, ResponseEncoder, ServerCall, ServerCallApproval, ServerCallEnd, ToolsSearched,
};
pub use error_texts::ErrorTexts;
pub use ids::{BASE62, GivenRecord, RunId};
pub use model_history::{CallResult, ModelHistory, ToolMedia};
pub use model_message::{CallExtra, CallFormat, CallReply, ClientEcho, Intent, ModelCall, ModelMessage, SearchQuery};
pub use model_request::ModelRequestBody;
pub use owned_answers::OwnedAnswers;
pub use plain_mode::{StoredStates, UnopenedReason, UnopenedStates};
pub use prompt::{ModelTools, PROMPT_VERSION, prompt_variants};
pub use provider_wire::{
    AuthHeader, ImageDetail, ProviderCapabilities, ResultMedia, StopSequences, StreamedDeltas, TextTools,
};
pub use reasoning::Reasoning;
pub use request::{BadRequest, CodeMode, CodeModeDefaults, ParsedRequest, ReadRequest, RequestReader};
pub use request_servers::{RequestServer, remove_credentials};
pub use seal::{PackedState, RoundHeader, Sealer, Unsealed};
pub use sealing_key::{SealingSecrets, UnsealError};
pub use server_tools::{ServerToolList, ServerTools};
pub use sse::{SseError, SseEvent, SseReader};
pub use state::{CallRef, RunState, StoredId};
pub use tool_lists::{RequestBody, ToolLists};
pub use turn::{
    CallsPerMessage, Delivery, ProgramMode, ResponsePrefs, StreamUsage, ToolChoice, ToolChoiceOverride, Turn,
};
pub use unread_entries::UnreadEntries;
pub use usage::{ContextTokens, TurnUsage};
pub use wire::{ClientSide, ProviderSide, Wire};
