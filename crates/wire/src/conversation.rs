//! A history in our own words, whatever the wire.

use dacapo_replay::{Answer, CallIndex, Journal, JournalEntry, JsonText};
use serde_json::Value;

use crate::ids::RunId;
use crate::saying::Saying;
use crate::state::{Asked, RunState};

/// A client's history. What is not ours stays in the words of the client's wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    pub items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Passed on as it came.
    Message(Value),
    Block(Box<Block>),
    Lost(Lost),
    /// A message of the model with calls that we answered, and answer again: searches.
    Search(Saying),
}

/// A program with its rounds, as they stand in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub run: RunId,
    /// What an explicit client calls it.
    pub id: String,
    pub state: RunState,
    pub rounds: Vec<Round>,
    /// Calls that the model made beside the program, and that the client executed.
    pub direct: Vec<Given>,
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
pub struct Round {
    pub number: u32,
    /// Stands for the answers that had been given before, where the round knows of them.
    pub answered: Option<[u8; 8]>,
    pub calls: Vec<HandedOut>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HandedOut {
    pub id: String,
    pub asked: Expected,
    pub tool: String,
    /// With its place among the answers of the round.
    pub answer: Option<(usize, Answer)>,
}

/// What the program must be asking when it gets the answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    Digest(Asked),
    Args(CallIndex, Value),
}

/// A call of the wire and its answer, both as they came.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub call: Value,
    pub answer: Option<Value>,
}

/// Calls of a program whose state did not come back.
#[derive(Debug, Clone, PartialEq)]
pub struct Lost {
    /// The assistant message.
    pub message: Value,
    pub calls: Vec<Given>,
}

impl Conversation {
    /// The block whose answers the client has just given, if it is one.
    pub fn live(&self) -> Option<&Block> {
        match self.items.last() {
            Some(Item::Block(block)) if !block.is_closed => Some(block),
            _ => None,
        }
    }
}

/// Why a program cannot be run again: its history is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    Trimmed,
    Edited,
}

impl Block {
    /// A program of which nothing has been heard yet.
    pub(crate) fn new(id: &str, state: RunState) -> Block {
        Block {
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
    pub fn journal(&self) -> Result<Journal, Gap> {
        let mut answered = std::collections::BTreeSet::new();
        let mut journal = Journal::default();
        for (round, number) in self.rounds.iter().zip(0..) {
            if round.number != number {
                return Err(Gap::Trimmed);
            }
            if round.answered.is_some_and(|before| before != journal.fingerprint()) {
                return Err(Gap::Edited);
            }
            let mut answers: Vec<(usize, &HandedOut, &Answer)> = round
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

impl Expected {
    pub fn call(&self) -> CallIndex {
        match self {
            Expected::Digest(asked) => asked.call,
            Expected::Args(call, _) => *call,
        }
    }
}

impl HandedOut {
    fn entry(&self, answer: Answer) -> JournalEntry {
        match &self.asked {
            Expected::Digest(asked) => JournalEntry::with_digest(asked.call, &self.tool, asked.args, answer),
            Expected::Args(call, args) => JournalEntry::new(*call, &self.tool, Some(args), answer),
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
pub(crate) fn answer(text: String, is_error: bool) -> Answer {
    if is_error {
        Answer::Error { message: text, data: None }
    } else {
        Answer::Ok(JsonText::from(&Value::String(text)))
    }
}
