//! A history in our own words, whatever the wire.

use dacapo_replay::{Answer, CallIndex, Entry, Journal, JsonText};
use serde_json::Value;

use crate::ids::RunId;
use crate::state::{Asked, RunState};

/// A client's history.
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
}

/// A program with its rounds, as they stand in the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub run: RunId,
    /// What an explicit client calls it.
    pub id: String,
    pub state: RunState,
    pub rounds: Vec<Round>,
    /// Calls that the model made beside the program, and that the client executed, in the shape of the wire.
    pub direct: Vec<Given>,
    /// The result, where the history holds it.
    pub result: Option<Value>,
}

/// Calls that were handed out together.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    pub number: u32,
    pub calls: Vec<HandedOut>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HandedOut {
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
            Some(Item::Block(block)) if block.result.is_none() => Some(block),
            _ => None,
        }
    }
}

impl Block {
    /// Do all rounds stand in the history?
    pub fn is_whole(&self) -> bool {
        self.rounds.iter().zip(0..).all(|(round, number)| round.number == number)
    }

    /// The answers, in the order in which the client gave them. Whoever answers twice is not heard again.
    pub fn journal(&self) -> Journal {
        let mut answered = std::collections::BTreeSet::new();
        let mut journal = Journal::default();
        for round in &self.rounds {
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
        journal
    }

    /// The number of the next round: a round that nobody answered is asked again.
    pub fn next_round(&self) -> u32 {
        self.rounds.last().map_or(0, |round| {
            let is_answered = round.calls.iter().any(|call| call.answer.is_some());
            round.number + u32::from(is_answered)
        })
    }

    /// Bytes of all answers.
    pub fn answer_bytes(&self) -> usize {
        self.journal().bytes()
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
    fn entry(&self, answer: Answer) -> Entry {
        match &self.asked {
            Expected::Digest(asked) => Entry::with_digest(asked.call, &self.tool, asked.args, answer),
            Expected::Args(call, args) => Entry::new(*call, &self.tool, Some(args), answer),
        }
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
