//! An explanation, as it is serialised for `dacapo replay --json` and for the inspector page.

use std::collections::BTreeMap;

use dacapo_replay::Step;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What was found in a file.
#[derive(Debug, Serialize)]
pub struct Explanation {
    pub version: u32,
    /// Whether every program was replayed exactly, and nothing was lost.
    pub exact: bool,
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
    pub exact: bool,
    /// `None` for a step request.
    pub wire: Option<&'static str>,
    pub model: String,
    /// `plain`, `explicit` or `off`.
    pub mode: &'static str,
    /// Remarks about how it was read.
    pub notes: Vec<String>,
    pub unopened: Vec<UnopenedState>,
    pub items: Vec<ItemExplanation>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextTokens>,
}

/// A state that cannot be opened.
#[derive(Debug, Serialize)]
pub struct UnopenedState {
    /// The beginning of the id.
    pub id: String,
    pub reason: String,
}

/// A part of the conversation, with its entries in both histories, as half-open ranges.
#[derive(Debug, Serialize)]
pub struct ItemExplanation {
    pub kind: ItemKind,
    /// The program, for items that are programs: its position in `blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    pub client: [usize; 2],
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
    Program,
    /// Calls of a program whose state cannot be opened.
    LostCalls,
    Search,
}

/// A program with its calls and its end.
#[derive(Debug, Serialize)]
pub struct BlockExplanation {
    /// From 1.
    pub number: usize,
    pub run: String,
    pub program: ProgramText,
    /// Programs that the model wrote before this one in the same turn, and that made no calls.
    pub attempts: Vec<Attempt>,
    pub calls: Vec<CallExplanation>,
    /// The program after each answer; the first one is its start.
    pub points: Vec<Point>,
    /// The step after the last answer; `None` if the program could not be run.
    pub end: Option<Step>,
    /// Completed calls of earlier programs that it was given, as a step request takes them.
    pub reuse: Vec<Value>,
    /// Limits, as a step request takes them.
    pub limits: BTreeMap<&'static str, u64>,
    pub tokens: ModelReads,
    pub replay: ReplayVerdict,
}

/// All that a program is run from.
#[derive(Debug, Serialize)]
pub struct ProgramText {
    pub code: String,
    pub id: String,
    pub seed: String,
    /// Milliseconds since 1970.
    pub started_at: f64,
}

/// A program that ended without a call.
#[derive(Debug, Serialize)]
pub struct Attempt {
    pub program: ProgramText,
    pub end: Option<Step>,
}

/// A call of a program.
#[derive(Debug, Serialize)]
pub struct CallExplanation {
    /// Its index, in issue order.
    pub call: u32,
    /// From 1.
    pub round: usize,
    pub tool: String,
    /// `None` if the client has changed them in its history.
    pub args: Option<Value>,
    /// How many answers the program had when it made the call; `None` if it does not make it in this run.
    pub issued: Option<usize>,
    /// The place of its answer among all answers, from 1.
    pub settled: Option<usize>,
    #[serde(flatten)]
    pub answer: Option<AnsweredWith>,
    /// Size of the answer.
    pub bytes: usize,
}

/// An answer, as a journal holds it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredWith {
    Ok(Box<RawValue>),
    Error {
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<Box<RawValue>>,
    },
}

/// Where a program stands after so many answers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    pub answers: usize,
    pub finished: bool,
    /// Calls that wait for an answer.
    pub waiting: usize,
    /// Lines logged so far.
    pub logs: usize,
    pub fuel: u64,
    pub memory_bytes: usize,
}

/// What the model reads of a program's answers, in estimated tokens.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ModelReads {
    /// Of all answers.
    pub answers: u64,
    /// Of the result.
    pub result: u64,
    pub kept_out: u64,
}

/// Whether a program did again what it did then.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayVerdict {
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
    pub code: ModelCalls,
    /// The same calls, made by the model itself: all calls of a round in one message.
    pub classic: ModelCalls,
}

/// What a conversation costs in one of the two ways.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ModelCalls {
    pub model_calls: u64,
    /// Read in all of them together.
    pub tokens: u64,
    /// Read in the last one.
    pub tokens_last: u64,
}
