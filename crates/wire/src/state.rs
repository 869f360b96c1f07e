//! The state of a program that a sealed id carries: everything it needs to run again, except its answers.

use std::borrow::Cow;

use dacapo_replay::{ArgsDigest, Call, CallIndex, Program, StoredValues};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::{GivenRecord, RunId, short_id};
use crate::model_message::{ModelCall, ModelMessage};
use crate::owned_answers::OwnedAnswers;
use crate::prompt::EXECUTE;
use crate::usage::ContextTokens;

/// The part of a run's state that is the same in every round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunState {
    /// Seed of the random numbers, for every program of the turn.
    pub seed: String,
    /// Where the program's clock starts, in milliseconds since 1970.
    pub started_at_ms: u64,
    /// A hash of the tool list that the program was written for.
    pub tools: [u8; 8],
    /// Names of the tools in it that the program mentions. A later request may come without them.
    pub mentioned: Vec<String>,
    /// The record of completed calls that the program was given; `None` if it was empty.
    pub record: Option<GivenRecord>,
    /// What earlier programs had stored when it began, if it loads values and there were any.
    pub stored: Option<StoredId>,
    /// What the model had read when it wrote the program, if its provider says so.
    pub context: Option<ContextTokens>,
    /// The model's messages of this turn: searches, mistakes, programs without calls. The last one holds the program
    /// that waits.
    pub model_messages: Vec<ModelMessage>,
    /// Which call of the last message is the program.
    pub at: usize,
    /// What the model wrote.
    pub code: String,
    /// Answers to calls that the gateway executed for earlier programs of this turn, by the number of their message.
    pub earlier_answers: Vec<(usize, OwnedAnswers)>,
}

/// Stands for the values that earlier programs have stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredId(pub(crate) [u8; 8]);

impl StoredId {
    /// For a program with this code: `None` if it loads nothing, or there is nothing to load.
    pub fn of(stored: &StoredValues, code: &str) -> Option<StoredId> {
        let is_used = code.contains("load") && !stored.is_empty();
        is_used.then(|| StoredId(stored.digest().first_chunk().copied().unwrap_or_default()))
    }
}

/// Identifies a call of a program and its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRef {
    /// Its position in the order in which the program makes its calls.
    pub call: CallIndex,
    /// Tells whether a call has the same arguments.
    pub args: ArgsDigest,
}

impl From<&Call> for CallRef {
    fn from(call: &Call) -> CallRef {
        CallRef { call: call.call, args: call.args_digest() }
    }
}

/// The serialised state without the code. The code follows it as plain text, which compresses better than a JSON string.
#[derive(Serialize, Deserialize)]
struct StateHeader<'a> {
    #[serde(rename = "s")]
    seed: Cow<'a, str>,
    #[serde(rename = "d")]
    started_at_ms: u64,
    #[serde(rename = "l")]
    tools: u64,
    #[serde(rename = "f", default, skip_serializing_if = "Vec::is_empty")]
    mentioned: Vec<Cow<'a, str>>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    stored: Option<u64>,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    context: Option<ContextTokens>,
    #[serde(rename = "p", default, skip_serializing_if = "is_zero")]
    at: usize,
    #[serde(rename = "m")]
    model_messages: Vec<Cow<'a, ModelMessage>>,
    #[serde(rename = "j", default, skip_serializing_if = "Vec::is_empty")]
    earlier_answers: Vec<(usize, String)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl RunState {
    /// The clock of a program whose history has no start time: 2026-01-01T00:00:00Z.
    pub(crate) const STARTED_AT_DEFAULT_MS: u64 = 1_767_225_600_000;

    /// For a program that is in a history without a sealed state. Only the model's message is known.
    pub(crate) fn without_seal(id: &str, code: &str, mut model_message: ModelMessage) -> RunState {
        model_message.calls =
            vec![ModelCall { name: EXECUTE.to_owned(), arguments: arguments(code), ..ModelCall::default() }];
        RunState {
            seed: id.to_owned(),
            started_at_ms: RunState::STARTED_AT_DEFAULT_MS,
            model_messages: vec![model_message],
            code: code.to_owned(),
            ..RunState::default()
        }
    }

    /// A short seed for the programs of a response, from its id and its position in the conversation.
    pub fn seed_of(response_id: &str, position: usize) -> String {
        short_id(response_id, "", position)
    }

    /// The program of message `at`. Programs of one turn share their start time, but have different random numbers.
    pub fn program(&self, at: usize, code: &str) -> Program {
        let mut program = Program::new(code);
        program.seed = RunState::program_id(&self.seed, at);
        program.id.clone_from(&program.seed);
        #[expect(clippy::cast_precision_loss, reason = "times have far fewer than 52 bits")]
        let started_at_ms = self.started_at_ms as f64;
        program.started_at_ms = started_at_ms;
        program
    }

    /// The id of the program of message `at`, in a turn with this seed.
    pub fn program_id(seed: &str, at: usize) -> String {
        format!("{seed}.{at}")
    }

    /// The program that waits for answers: that of the last message.
    pub fn waiting(&self) -> Program {
        self.program(self.model_messages.len().saturating_sub(1), &self.code)
    }

    /// The id of the run, a hash of the state.
    pub fn run(&self) -> RunId {
        RunId::of(&self.to_bytes())
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut model_messages: Vec<Cow<'_, ModelMessage>> = self.model_messages.iter().map(Cow::Borrowed).collect();
        if let Some(last) = model_messages.last_mut().filter(|last| last.calls.len() > self.at) {
            // The arguments are the code, which follows the header. An empty name stands for `execute`.
            let call = &mut last.to_mut().calls[self.at];
            call.arguments.clear();
            if call.name == EXECUTE {
                call.name.clear();
            }
        }
        let header = StateHeader {
            seed: Cow::Borrowed(self.seed.as_str()),
            started_at_ms: self.started_at_ms,
            tools: u64::from_le_bytes(self.tools),
            mentioned: self.mentioned.iter().map(|name| Cow::Borrowed(name.as_str())).collect(),
            record: self.record.as_ref().map(GivenRecord::to_string),
            stored: self.stored.map(|StoredId(id)| u64::from_le_bytes(id)),
            context: self.context,
            at: self.at,
            model_messages,
            earlier_answers: self.earlier_answers.iter().map(|(at, answers)| (*at, answers.to_text())).collect(),
        };
        let mut bytes = serde_json::to_vec(&header).expect("it has text keys and finite numbers");
        bytes.push(0);
        bytes.extend_from_slice(self.code.as_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<RunState> {
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let header: StateHeader<'_> = serde_json::from_slice(&bytes[..end]).ok()?;
        let code = String::from_utf8(bytes[end + 1..].to_vec()).ok()?;
        let record = match header.record {
            Some(record) => Some(GivenRecord::parse(&record)?),
            None => None,
        };
        let mut model_messages: Vec<ModelMessage> = header.model_messages.into_iter().map(Cow::into_owned).collect();
        let call = model_messages.last_mut()?.calls.get_mut(header.at)?;
        if call.name.is_empty() {
            EXECUTE.clone_into(&mut call.name);
        }
        call.arguments = arguments(&code);
        let earlier_answers = header.earlier_answers.into_iter();
        let earlier_answers: Option<Vec<(usize, OwnedAnswers)>> =
            earlier_answers.map(|(at, text)| Some((at, OwnedAnswers::from_text(&text)?))).collect();
        Some(RunState {
            seed: header.seed.into_owned(),
            started_at_ms: header.started_at_ms,
            tools: header.tools.to_le_bytes(),
            mentioned: header.mentioned.into_iter().map(Cow::into_owned).collect(),
            record,
            stored: header.stored.map(|id| StoredId(id.to_le_bytes())),
            context: header.context,
            model_messages,
            at: header.at,
            code,
            earlier_answers: earlier_answers?,
        })
    }
}

/// The arguments of an `execute` call with this program.
pub(crate) fn arguments(code: &str) -> String {
    Value::to_string(&json!({"code": code}))
}
