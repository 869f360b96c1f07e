//! A history in our own words, whatever the wire.

use dacapo_replay::{Answer, CallIndex, Journal, JournalEntry, JsonText};
use serde_json::Value;

use crate::ids::RunId;
use crate::model_message::ModelMessage;
use crate::neutral::ToolStatus;
use crate::state::{CallRef, RunState};

/// A client's history. What is not ours stays in the words of the client's wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    pub items: Vec<ConversationItem>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ConversationItem {
    /// Passed on as it came.
    Entry(Value),
    Program(Box<ProgramBlock>),
    LostCalls(LostCalls),
    /// A message of the model with calls that we answered, and answer again: searches.
    Search(ModelMessage),
}

/// A program with its rounds, as they stand in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramBlock {
    pub run: RunId,
    /// What an explicit client calls it.
    pub id: String,
    pub state: RunState,
    pub rounds: Vec<CallRound>,
    /// Calls that the model made beside the program, and that the client executed.
    pub direct: Vec<WireCall>,
    /// The result, where the history holds it, as the model was shown it.
    pub result: Option<Value>,
    /// The program that it continues is not in the history.
    pub is_orphan: bool,
    /// The client has seen it end.
    pub is_closed: bool,
    /// What the client said beside its answers, as entries of the history: the model reads it after the result.
    pub remarks: Vec<Value>,
}

/// Calls that were handed out together.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRound {
    pub number: u32,
    /// Stands for the answers that had been given before, where the round knows of them.
    pub answered: Option<[u8; 8]>,
    pub calls: Vec<IssuedCall>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct IssuedCall {
    pub id: String,
    pub asked: ExpectedCall,
    pub tool: String,
    /// With its place among the answers of the round.
    pub answer: Option<(usize, Answer)>,
}

/// What the program must be asking when it gets the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedCall {
    Digest(CallRef),
    Args(CallIndex, Value),
}

/// A call of the wire and its answer, both as they came.
#[derive(Debug, Clone, PartialEq)]
pub struct WireCall {
    pub call: Value,
    pub answer: Option<Value>,
}

/// Calls of a program whose state did not come back.
#[derive(Debug, Clone, PartialEq)]
pub struct LostCalls {
    /// The assistant message.
    pub message: Value,
    pub calls: Vec<WireCall>,
}

impl Conversation {
    /// The block whose answers the client has just given, if it is one.
    pub fn live(&self) -> Option<&ProgramBlock> {
        match self.items.last() {
            Some(ConversationItem::Program(block)) if !block.is_closed => Some(block),
            _ => None,
        }
    }
}

/// Why a program cannot be run again: its history is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryGap {
    Trimmed,
    Edited,
}

impl ProgramBlock {
    /// A program of which nothing has been heard yet.
    pub(crate) fn new(id: &str, state: RunState) -> ProgramBlock {
        ProgramBlock {
            run: state.run(),
            id: id.to_owned(),
            state,
            rounds: Vec::new(),
            direct: Vec::new(),
            result: None,
            is_orphan: false,
            is_closed: false,
            remarks: Vec::new(),
        }
    }

    /// The answers, in the order in which the client gave them. Whoever answers twice is not heard again.
    pub fn journal(&self) -> Result<Journal, HistoryGap> {
        let mut answered = std::collections::BTreeSet::new();
        let mut journal = Journal::default();
        for (round, number) in self.rounds.iter().zip(0..) {
            if round.number != number {
                return Err(HistoryGap::Trimmed);
            }
            if round.answered.is_some_and(|before| before != journal.fingerprint()) {
                return Err(HistoryGap::Edited);
            }
            let mut answers: Vec<(usize, &IssuedCall, &Answer)> = round
                .calls
                .iter()
                .filter_map(|call| call.answer.as_ref().map(|(place, answer)| (*place, call, answer)))
                .collect();
            answers.sort_by_key(|(place, ..)| *place);
            for (_, call, answer) in answers {
                if answered.insert(call.asked.call()) {
                    journal.push(call.entry(answer.clone()));
                }
            }
        }
        Ok(journal)
    }

    /// Tools of the calls that were answered, whether or not the program can be run again.
    pub fn answered_tools(&self) -> impl Iterator<Item = &str> {
        let calls = self.rounds.iter().flat_map(|round| &round.calls);
        calls.filter(|call| call.answer.is_some()).map(|call| call.tool.as_str())
    }

    /// The number of the next round: a round that nobody answered is asked again.
    pub fn next_round(&self) -> u32 {
        self.rounds.last().map_or(0, |round| {
            let is_answered = round.calls.iter().any(|call| call.answer.is_some());
            round.number + u32::from(is_answered)
        })
    }
}

impl ExpectedCall {
    pub fn call(&self) -> CallIndex {
        match self {
            ExpectedCall::Digest(asked) => asked.call,
            ExpectedCall::Args(call, _) => *call,
        }
    }
}

impl IssuedCall {
    fn entry(&self, answer: Answer) -> JournalEntry {
        match &self.asked {
            ExpectedCall::Digest(asked) => JournalEntry::with_digest(asked.call, &self.tool, asked.args, answer),
            ExpectedCall::Args(call, args) => JournalEntry::new(*call, &self.tool, Some(args), answer),
        }
    }
}

/// Text of a message's or an answer's content; what is not text stays JSON.
pub(crate) fn text(content: Option<&Value>) -> String {
    match content {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect();
            texts.map_or_else(|| Value::to_string(&Value::Array(parts.clone())), |texts| texts.concat())
        }
        Some(other) => other.to_string(),
    }
}

/// What a tool said, from text.
pub(crate) fn answer(text: String, status: ToolStatus) -> Answer {
    match status {
        ToolStatus::Failed => Answer::Error { message: text, data: None },
        ToolStatus::Ok => Answer::Ok(JsonText::from(&Value::String(text))),
    }
}
