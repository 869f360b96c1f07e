//! Calls that a client was asked to execute together, and what its history shows of them.

use std::borrow::Cow;

use dacapo_replay::{
    Answer, ArgsDigest, Attachment, CallIndex, CompletedCall, JournalEntry, JsonText, RecordedOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call_digests::CallDigests;
use crate::ids::{CarriedRound, RunId};
use crate::owned_answers::OwnedAnswers;
use crate::state::CallRef;
use crate::tool_answer::ToolAnswer;

/// Calls that were issued together, in one response.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRound {
    /// From 0 in each program.
    pub number: u32,
    /// Fingerprint of the journal when the round was issued, if the round carries it.
    pub answered: Option<[u8; 8]>,
    /// The program's calls before the round, if the round carries them.
    pub before: CallDigests,
    /// Answers to calls that the gateway executed itself before the round.
    pub owned: OwnedAnswers,
    /// In the order in which the program made them.
    pub calls: Vec<IssuedCall>,
}

/// A call that the client was asked to execute for a program.
#[derive(Debug, Clone, PartialEq)]
pub struct IssuedCall {
    /// The tool-call id on the client's wire.
    pub id: String,
    /// What the program has to call when it is run again.
    pub expected: ExpectedCall,
    /// Its qualified name: `server.tool`, or the name alone.
    pub tool: String,
    /// The arguments as the history holds them, where `expected` has only a digest.
    pub(crate) arguments: String,
    /// The answer, with its position among the answers of the round.
    pub answer: Option<(usize, Answer)>,
    /// The images and files of the answer, in blocks of the client's wire.
    pub attachments: Vec<Attachment>,
}

/// A call that a program sent, as far as the history shows it.
#[derive(Debug, Clone, Copy)]
pub struct SentCall<'a> {
    call: CallByOwner<'a>,
    /// The number of its round.
    pub round: u32,
    /// What came of it.
    pub outcome: SentOutcome<'a>,
}

/// A call with its owner: who executes it.
#[derive(Debug, Clone, Copy)]
enum CallByOwner<'a> {
    Client(&'a IssuedCall),
    Gateway(&'a JournalEntry),
}

/// The outcome of a call that was sent.
#[derive(Debug, Clone, Copy)]
pub enum SentOutcome<'a> {
    /// The history has its answer.
    Answered(&'a Answer),
    /// It was answered, and the client has replaced the answer since.
    Replaced,
    /// No answer has come: whether it was executed is not known.
    Unanswered,
}

/// The call that the program must make when it is replayed, so that the answer still belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedCall {
    /// The gateway issued it: its id carries a digest of the arguments.
    Digest(CallRef),
    /// Only the history tells of it, so that its arguments are taken as they stand there.
    Args(CallIndex, Value),
}

/// An answer of a round, as a store keeps it.
#[derive(Serialize, Deserialize)]
struct StoredAnswer<'a> {
    call: u32,
    /// Position among the answers of the round.
    place: usize,
    /// JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<Cow<'a, str>>,
    /// The message of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
}

impl StoredAnswer<'_> {
    fn answer(self) -> Option<Answer> {
        match (self.ok, self.error) {
            (Some(json), None) => JsonText::parse(json.into_owned()).map(Answer::Ok),
            (None, Some(message)) => Some(Answer::Error { message: message.into_owned(), data: None }),
            _ => None,
        }
    }
}

impl CallRound {
    /// The answers as a text from which [`ProgramBlock::restore_answers`](crate::ProgramBlock::restore_answers) restores them.
    pub fn answers_text(&self) -> String {
        let stored = self.calls.iter().filter_map(|call| {
            let (place, answer) = call.answer.as_ref()?;
            let (ok, error) = match answer {
                Answer::Ok(json) => (Some(json.as_str().into()), None),
                Answer::Error { message, .. } => (None, Some(message.into())),
            };
            Some(StoredAnswer { call: call.expected.index().0, place: *place, ok, error })
        });
        let stored: Vec<StoredAnswer<'_>> = stored.collect();
        serde_json::to_string(&stored).expect("it has text keys and no floats")
    }

    /// Puts answers of such a text in the place of others, which are returned with the positions of their calls.
    pub(crate) fn restore_answers(&mut self, text: &str) -> Vec<(usize, Option<(usize, Answer)>)> {
        let stored: Vec<StoredAnswer<'_>> = serde_json::from_str(text).unwrap_or_default();
        let restored = stored.into_iter().filter_map(|stored| {
            let position = self.calls.iter().position(|call| call.expected.index().0 == stored.call)?;
            let place = stored.place;
            Some((position, self.calls[position].answer.replace((place, stored.answer()?))))
        });
        restored.collect()
    }

    /// A round that carries nothing, without calls so far.
    pub(crate) fn unsealed(number: u32) -> CallRound {
        let (before, owned) = (CallDigests::default(), OwnedAnswers::default());
        CallRound { number, answered: None, before, owned, calls: Vec::new() }
    }

    pub(crate) fn set_carried(&mut self, carried: CarriedRound) {
        self.answered = Some(carried.answered);
        self.before = carried.before;
    }

    /// The calls that were answered, in the order of their answers.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&IssuedCall, &Answer)> {
        let mut answers: Vec<(usize, &IssuedCall, &Answer)> = self
            .calls
            .iter()
            .filter_map(|call| call.answer.as_ref().map(|(place, answer)| (*place, call, answer)))
            .collect();
        answers.sort_by_key(|(place, ..)| *place);
        answers.into_iter().map(|(_, call, answer)| (call, answer))
    }
}

impl<'a> SentCall<'a> {
    pub(crate) fn of_client(call: &'a IssuedCall, round: u32, outcome: SentOutcome<'a>) -> SentCall<'a> {
        SentCall { call: CallByOwner::Client(call), round, outcome }
    }

    /// A call that the gateway executed.
    pub(crate) fn executed(entry: &'a JournalEntry, round: u32) -> SentCall<'a> {
        SentCall { call: CallByOwner::Gateway(entry), round, outcome: SentOutcome::Answered(&entry.answer) }
    }
}

impl SentCall<'_> {
    /// Position in the order in which the program made its calls.
    pub fn index(&self) -> CallIndex {
        match self.call {
            CallByOwner::Client(call) => call.expected.index(),
            CallByOwner::Gateway(entry) => entry.call,
        }
    }

    /// The name of the tool in journals.
    pub fn tool(&self) -> &str {
        match self.call {
            CallByOwner::Client(call) => &call.tool,
            CallByOwner::Gateway(entry) => &entry.tool,
        }
    }

    /// Whether the gateway executed it.
    pub fn is_owned(&self) -> bool {
        matches!(self.call, CallByOwner::Gateway(_))
    }

    /// The answer that the history has.
    pub fn answer(&self) -> Option<&Answer> {
        match self.call {
            CallByOwner::Client(call) => call.answer.as_ref().map(|(_, answer)| answer),
            CallByOwner::Gateway(entry) => Some(&entry.answer),
        }
    }

    /// The arguments; `None` if the client has changed them in its history.
    pub fn args(&self) -> Option<Cow<'_, Value>> {
        let call = match self.call {
            CallByOwner::Client(call) => call,
            CallByOwner::Gateway(entry) => return entry.args().map(Cow::Owned),
        };
        match &call.expected {
            ExpectedCall::Args(_, args) => Some(Cow::Borrowed(args)),
            ExpectedCall::Digest(expected) => {
                let text = call.arguments.trim();
                let args: Value = serde_json::from_str(if text.is_empty() { "{}" } else { text }).ok()?;
                (ArgsDigest::of_args(&args) == expected.args).then_some(Cow::Owned(args))
            }
        }
    }

    /// The call as later programs may reuse it.
    pub fn recorded(&self, outcome: RecordedOutcome) -> CompletedCall {
        let digest = match self.call {
            CallByOwner::Client(IssuedCall { expected: ExpectedCall::Digest(asked), .. }) => Some(asked.args),
            CallByOwner::Client(_) => None,
            CallByOwner::Gateway(entry) => entry.args_digest(),
        };
        match (self.args(), digest) {
            (None, Some(args)) => CompletedCall::with_args_digest(self.tool(), args, outcome),
            (args, _) => CompletedCall::with_outcome(self.tool(), &args.unwrap_or_default(), outcome),
        }
    }
}

impl ExpectedCall {
    /// Position of the call in the order in which the program makes its calls.
    pub fn index(&self) -> CallIndex {
        match self {
            ExpectedCall::Digest(expected) => expected.call,
            ExpectedCall::Args(index, _) => *index,
        }
    }
}

impl IssuedCall {
    pub(crate) fn unanswered(id: String, tool: String, expected: ExpectedCall, arguments: String) -> IssuedCall {
        IssuedCall { id, tool, expected, arguments, answer: None, attachments: Vec::new() }
    }

    /// Reads an answer, unless the call has one. Returns what an agent appended to it.
    #[must_use = "it may be words of the user, which end the program"]
    pub(crate) fn set_answer(
        &mut self,
        run: RunId,
        place: usize,
        read: impl FnOnce(&str) -> ToolAnswer,
    ) -> Option<String> {
        if self.answer.is_some() {
            return None;
        }
        let ToolAnswer { answer, attachments, appended } = read(&format!("{run}-{}", self.expected.index().0));
        self.answer = Some((place, answer));
        self.attachments = attachments;
        appended
    }

    pub(crate) fn entry(&self, answer: Answer) -> JournalEntry {
        match &self.expected {
            ExpectedCall::Digest(expected) => {
                JournalEntry::with_digest(expected.call, &self.tool, expected.args, answer)
            }
            ExpectedCall::Args(index, args) => JournalEntry::new(*index, &self.tool, Some(args), answer),
        }
    }
}
