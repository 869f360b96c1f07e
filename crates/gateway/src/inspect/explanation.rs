//! An explanation, as it is serialised for `dacapo replay --json` and for the inspector page.

use std::collections::BTreeMap;

use dacapo_replay::Step;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What was found in a file.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Of this format: 1. Fields may be added without another number.
    pub version: u32,
    /// Whether every program was replayed exactly, and nothing was lost.
    pub exact: bool,
    /// In the order of the file.
    pub conversations: Vec<ConversationExplanation>,
}

/// One conversation. Of several requests that continue each other, the last one tells all.
#[derive(Debug, Default, Serialize)]
pub struct ConversationExplanation {
    /// The line of the file, if it has one request per line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Why it cannot be explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether every program of it was replayed exactly, and nothing was lost.
    pub exact: bool,
    /// `None` for a step request.
    pub wire: Option<&'static str>,
    /// As the request names it.
    pub model: String,
    /// `plain`, `explicit` or `off`.
    pub mode: &'static str,
    /// Remarks about how it was read.
    pub notes: Vec<String>,
    /// States of programs that cannot be opened, such as those of another secret.
    pub unopened: Vec<UnopenedState>,
    /// The whole conversation, part by part.
    pub items: Vec<ItemExplanation>,
    /// The programs in it.
    pub blocks: Vec<BlockExplanation>,
    /// The client's history.
    pub history: Vec<Value>,
    /// The client's request without its history.
    pub request: Map<String, Value>,
    /// The history as the model reads it.
    pub model_history: Vec<Value>,
    /// The model's request without its history.
    pub model_request: Map<String, Value>,
    /// The tools that programs may call, as a step request takes them.
    pub tools: Vec<Value>,
    /// What code mode saves; `None` without programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextTokens>,
}

/// A state that cannot be opened.
#[derive(Debug, Serialize)]
pub struct UnopenedState {
    /// The beginning of the id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A part of the conversation, with its entries in both histories, as half-open ranges.
#[derive(Debug, Serialize)]
pub struct ItemExplanation {
    /// Who wrote it.
    pub kind: ItemKind,
    /// The program, for items that are programs: its position in `blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// Its entries in the client's history.
    pub client: [usize; 2],
    /// Its entries in the model's history.
    pub model: [usize; 2],
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// Written by the client: user, system, results of direct calls.
    Client,
    /// Text of the model.
    Model,
    /// A program with its calls, which `blocks` shows.
    Program,
    /// Calls of a program whose state cannot be opened.
    LostCalls,
    /// A search of the model for tools.
    Search,
}

/// A program with its calls and its end.
#[derive(Debug, Serialize)]
pub struct BlockExplanation {
    /// From 1.
    pub number: usize,
    /// Names the run in the ids of its calls, and in a store.
    pub run: String,
    /// What the model wrote.
    pub program: ProgramText,
    /// Programs that the model wrote before this one in the same turn, and that made no calls.
    pub attempts: Vec<Attempt>,
    /// In the order of their rounds, then of their indexes.
    pub calls: Vec<CallExplanation>,
    /// The program after each answer; the first one is its start.
    pub points: Vec<Point>,
    /// The step after the last answer; `None` if the program could not be run.
    pub end: Option<Step>,
    /// Completed calls of earlier programs that it was given, as a step request takes them.
    pub reuse: Vec<Value>,
    /// Limits, as a step request takes them.
    pub limits: BTreeMap<&'static str, u64>,
    /// What the model reads of it, and what it is spared.
    pub tokens: ModelReads,
    /// Whether it did again what it did then.
    pub replay: ReplayVerdict,
}

/// All that a program is run from.
#[derive(Debug, Serialize)]
pub struct ProgramText {
    /// As the model wrote it.
    pub code: String,
    /// Part of the idempotency keys of its calls.
    pub id: String,
    /// The source of its random numbers.
    pub seed: String,
    /// Milliseconds since 1970.
    pub started_at: f64,
}

/// A program that ended without a call.
#[derive(Debug, Serialize)]
pub struct Attempt {
    /// What the model wrote.
    pub program: ProgramText,
    /// Its only step; `None` if it could not be run.
    pub end: Option<Step>,
}

/// A call of a program.
#[derive(Debug, Serialize)]
pub struct CallExplanation {
    /// Its index, in issue order.
    pub call: u32,
    /// From 1.
    pub round: usize,
    /// `server.tool`, or the name alone for a tool without a server.
    pub tool: String,
    /// `None` if the client has changed them in its history.
    pub args: Option<Value>,
    /// How many answers the program had when it made the call; `None` if it does not make it in this run.
    pub issued: Option<usize>,
    /// The place of its answer among all answers, from 1.
    pub settled: Option<usize>,
    /// `None` if there is none in the history.
    #[serde(flatten)]
    pub answer: Option<AnsweredWith>,
    /// Size of the answer.
    pub bytes: usize,
}

/// An answer, as a journal holds it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredWith {
    /// The value, as JSON.
    Ok(Box<RawValue>),
    /// A failure, which the program can catch.
    Error {
        /// What the program reads as `error.message`.
        message: String,
        /// What else the tool said.
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    },
}

/// Where a program stands after so many answers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// How many it has had.
    pub answers: usize,
    /// Whether it has ended.
    pub finished: bool,
    /// Calls that wait for an answer.
    pub waiting: usize,
    /// Lines logged so far.
    pub logs: usize,
    /// Instructions so far.
    pub fuel: u64,
    /// Memory that it has touched.
    pub memory_bytes: usize,
}

/// What the model reads of a program's answers, in estimated tokens.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ModelReads {
    /// Of all answers.
    pub answers: u64,
    /// Of the result.
    pub result: u64,
    /// Of the answers, what is not in the result.
    pub kept_out: u64,
}

/// Whether a program did again what it did then.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayVerdict {
    /// What came out.
    pub status: ReplayStatus,
    /// What is wrong; empty if nothing is.
    pub message: String,
    /// The call at which it first differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
}

/// How a replay compares with what the history says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// It made the same calls, and came to the same result.
    Exact,
    /// It made other calls, or had another result.
    Diverged,
    /// An answer was changed in the history.
    Edited,
    /// Rounds are missing in the history.
    Trimmed,
    /// Calls of earlier programs that it relied on are missing in the history.
    Orphaned,
    /// It was stopped after the number of answers that was asked for.
    Stopped,
    /// Running it took too long.
    Interrupted,
}

/// Estimated tokens that the model reads in the whole conversation, as far as it goes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ContextTokens {
    /// In code mode.
    pub code: ModelCalls,
    /// The same calls, made by the model itself: all calls of a round in one message.
    pub classic: ModelCalls,
}

/// What a conversation costs in one of the two ways.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ModelCalls {
    /// How often the model is asked.
    pub model_calls: u64,
    /// Read in all of them together.
    pub tokens: u64,
    /// Read in the last one.
    pub tokens_last: u64,
}
