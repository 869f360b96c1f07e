//! Replaying the programs of a history, so that the model is shown their results.

use std::collections::BTreeMap;
use std::sync::Arc;

use dacapo_replay::{
    ANSWER_TOKENS_DEFAULT, Call, CompletedCall, ErrorKind, Journal, Limits, LogLevel, LogLine, Outcome, Program,
    ShouldContinue, Step, StepError, StepRequest, Stepper,
};
use dacapo_wire::{
    CallReply, Conversation, ConversationItem, HistoryGap, Intent, ModelHistory, ModelMessage, ModelTools, Predecessor,
    ProgramBlock, RunId, SearchQuery,
};
use serde_json::{Value, json};

use crate::observe::ProgramEnd;

/// Runs the programs of one turn.
pub(super) struct HistoryReplay<'a> {
    pub stepper: &'a Stepper,
    pub model_tools: &'a ModelTools,
    /// A hash of the tool list.
    pub tools_digest: [u8; 8],
    pub client_calls: ClientCalls,
    pub limits: &'a Limits,
    pub should_continue: ShouldContinue<'a>,
}

/// Whether the client takes tool calls (`tool_choice`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCalls {
    Taken,
    Refused,
}

/// Who continues after a history.
#[derive(Debug)]
pub(super) enum HistoryEnd {
    Model(Inherited),
    /// The last program waits for these calls; `answered` is the fingerprint of the answers so far.
    Waiting {
        calls: Vec<Call>,
        answered: [u8; 8],
    },
}

/// What the rest of the turn needs to know of the last program.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Set if the last program has just finished, with answers of this request.
    pub finished: Option<FinishedProgram>,
    /// The run that failed, and its completed calls, which the next program does not execute again.
    pub failed: Option<(RunId, Vec<CompletedCall>)>,
}

#[derive(Debug)]
pub(super) struct FinishedProgram {
    /// The result as the model reads it.
    pub shown: Value,
    /// Size of all answers that the program got.
    pub answer_bytes: usize,
}

/// What running a program led to.
pub(super) enum ProgramRun {
    Paused(Vec<Call>),
    Finished {
        /// The result as the model reads it.
        shown: Value,
        end: ProgramEnd,
        /// Completed calls that a later program may reuse.
        record: Vec<CompletedCall>,
    },
}

const NO_RESULT: &str = "the program returned no value; `return` what you need to see";
/// How much of the logs the model reads.
const LOG_BYTES_SHOWN_MAX: usize = 8 << 10;
const TOO_SLOW: &str = "running it again took too long";

impl HistoryReplay<'_> {
    /// Writes a conversation into the model's history, and says who continues.
    pub(super) fn write(
        &self,
        conversation: &Conversation,
        history: &mut ModelHistory,
    ) -> Result<HistoryEnd, StepError> {
        let mut records = BTreeMap::new();
        let mut inherited = Inherited::default();
        let last = conversation.items.len().saturating_sub(1);
        for (at, item) in conversation.items.iter().enumerate() {
            inherited.finished = None;
            match item {
                ConversationItem::Entry(entry) => {
                    // After a new message of the user, the same call may be meant to be executed once more.
                    if entry["role"] == "user" {
                        inherited.failed = None;
                    }
                    history.push_entry(entry.clone());
                }
                ConversationItem::LostCalls(calls) => history.push_lost_calls(calls),
                ConversationItem::Search(message) => {
                    history.push_model_message(message, &self.replies(message, |_| String::new()), &[]);
                }
                ConversationItem::Program(block) => {
                    let position = if at == last && !block.is_closed() { Position::Last } else { Position::Earlier };
                    match self.write_program(block, position, &mut records, history)? {
                        HistoryEnd::Model(of_program) => inherited = of_program,
                        waiting @ HistoryEnd::Waiting { .. } => return Ok(waiting),
                    }
                }
            }
        }
        Ok(HistoryEnd::Model(inherited))
    }

    fn write_program(
        &self,
        block: &ProgramBlock,
        position: Position,
        records: &mut BTreeMap<RunId, Vec<CompletedCall>>,
        history: &mut ModelHistory,
    ) -> Result<HistoryEnd, StepError> {
        let state = &block.state;
        let Some((waiting, before)) = state.model_messages.split_last() else {
            return Ok(HistoryEnd::Model(Inherited::default()));
        };
        // `None`: the failed program that this one continues is not in the history.
        let predecessor = state.continues.map_or(Some(Vec::new()), |run| records.get(&run).cloned());
        let is_orphan = predecessor.is_none() || block.predecessor == Predecessor::Missing;
        let mut record = predecessor.unwrap_or_default();
        for (at, message) in before.iter().enumerate() {
            let replies = self.replies(message, |code| {
                let (shown, completed) = match self.run(state.program(at, code), &Journal::default(), &record) {
                    Ok(ProgramRun::Finished { shown, record, end: ProgramEnd::Failed }) => (shown, record),
                    Ok(ProgramRun::Finished { shown, .. }) => (shown, Vec::new()),
                    Ok(ProgramRun::Paused(_)) => {
                        (abandoned("it now makes calls that it did not make then"), Vec::new())
                    }
                    Err(_) => (abandoned(TOO_SLOW), Vec::new()),
                };
                record = completed;
                shown.to_string()
            });
            history.push_model_message(message, &replies, &[]);
        }
        let replayed = match (&block.result, block.journal()) {
            (Some(result), journal) => {
                let journal = journal.ok().filter(|_| !is_orphan);
                self.recorded_result(block, result, journal, &record)
            }
            (None, _) if is_orphan => {
                block_abandoned(block, "the program before it, whose calls it relied on, is not there any more")
            }
            (None, Err(HistoryGap::Trimmed)) => {
                block_abandoned(block, "answers to its calls are not in the conversation any more")
            }
            (None, Err(HistoryGap::Edited)) => {
                block_abandoned(block, "an answer to one of its calls was changed in the conversation")
            }
            (None, Ok(journal)) => match (self.run(state.waiting(), &journal, &record), position) {
                (Ok(ProgramRun::Paused(calls)), Position::Last) if self.client_calls == ClientCalls::Taken => {
                    return Ok(HistoryEnd::Waiting { calls, answered: journal.fingerprint() });
                }
                (Ok(ProgramRun::Paused(_)), Position::Last) => block_abandoned(block, "the client takes no more calls"),
                (Ok(ProgramRun::Paused(_)), Position::Earlier) => {
                    block_abandoned(block, "the conversation went on before all its calls were answered")
                }
                (Ok(ProgramRun::Finished { shown, end, record }), _) => {
                    let shown = self.with_divergence_explained(shown, block);
                    Replayed {
                        shown,
                        answer_bytes: journal.bytes(),
                        failed: (end == ProgramEnd::Failed).then_some(record),
                    }
                }
                (Err(error), Position::Last) => return Err(error),
                (Err(_), Position::Earlier) => block_abandoned(block, TOO_SLOW),
            },
        };
        let Replayed { shown, answer_bytes, failed } = replayed;
        let mut inherited = Inherited::default();
        if let Some(record) = failed {
            records.insert(block.run, record.clone());
            inherited.failed = Some((block.run, record));
        }
        let mut replies = self.replies(waiting, |_| String::new());
        if let Some(result) = replies.get_mut(state.at) {
            *result = shown.to_string();
        }
        history.push_model_message(waiting, &replies, &block.direct);
        for remark in &block.remarks {
            history.push_entry(remark.clone());
        }
        if position == Position::Last {
            inherited.finished = Some(FinishedProgram { shown, answer_bytes });
        }
        Ok(HistoryEnd::Model(inherited))
    }

    /// The result as the history holds it. A program that failed is run again, because later ones may reuse its calls.
    fn recorded_result(
        &self,
        block: &ProgramBlock,
        result: &Value,
        journal: Option<Journal>,
        record: &[CompletedCall],
    ) -> Replayed {
        let failed = (result["status"] == "error").then(|| {
            let run = journal.and_then(|journal| self.run(block.state.waiting(), &journal, record).ok());
            match run {
                Some(ProgramRun::Finished { record, .. }) => record,
                _ => Vec::new(),
            }
        });
        Replayed { shown: result.clone(), answer_bytes: 0, failed }
    }

    /// Says in the terms of the conversation why a replayed program diverged.
    fn with_divergence_explained(&self, mut shown: Value, block: &ProgramBlock) -> Value {
        if shown["error"]["kind"] == "diverged" {
            let reason = if block.state.tools == self.tools_digest {
                "an answer in the conversation was changed after the program had gone on"
            } else {
                "the tools were changed while the program waited"
            };
            shown["error"]["message"] =
                json!(format!("{reason}, so that its calls are not those that were answered; write a new program"));
        }
        shown
    }

    /// The results of a message's calls that the gateway answers; `program` gives that of a program.
    pub(super) fn replies(&self, message: &ModelMessage, mut program: impl FnMut(&str) -> String) -> Vec<String> {
        let code = match message.intent(self.model_tools) {
            Intent::Program { code, .. } => code,
            _ => String::new(),
        };
        let replies = message.replies(self.model_tools, &|query| self.search(query));
        let replies = replies.into_iter().map(|reply| match reply {
            CallReply::Text(text) => text,
            CallReply::Program => program(&code),
        });
        replies.collect()
    }

    fn search(&self, query: &SearchQuery) -> String {
        self.model_tools.toolbox().search(&query.query, query.limit(), ANSWER_TOKENS_DEFAULT).1.text
    }

    pub(super) fn run(
        &self,
        program: Program,
        journal: &Journal,
        record: &[CompletedCall],
    ) -> Result<ProgramRun, StepError> {
        let mut request = StepRequest::new(program, Arc::clone(self.model_tools.toolbox()));
        request.journal = journal.clone();
        request.reuse = record.to_vec();
        request.limits = self.limits.clone();
        let step = self.stepper.step(&request, self.should_continue)?;
        Ok(program_run(step))
    }
}

/// Where a program stands in a history. Only the last one can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Last,
    Earlier,
}

/// A program of the history that does not continue.
struct Replayed {
    shown: Value,
    answer_bytes: usize,
    /// Completed calls that a later program may reuse, if the program failed.
    failed: Option<Vec<CompletedCall>>,
}

fn program_run(step: Step) -> ProgramRun {
    let result = match step.outcome {
        Outcome::Paused { calls } => return ProgramRun::Paused(calls),
        Outcome::Finished { result } => result,
    };
    let end = if result.is_err() { ProgramEnd::Failed } else { ProgramEnd::Success };
    let mut shown = match result {
        Ok(data) => json!({"status": "success", "data": data}),
        Err(failure) => {
            if matches!(failure.kind, ErrorKind::Internal) {
                tracing::error!(message = failure.message, "the sandbox failed");
            }
            let mut error = json!(failure);
            if let Some(fields) = error.as_object_mut().filter(|fields| fields.contains_key("frame")) {
                // The frame shows the same place.
                fields.shift_remove("stack");
            }
            json!({"status": "error", "error": error})
        }
    };
    if shown.get("data") == Some(&Value::Null) {
        shown["note"] = json!(NO_RESULT);
    }
    if let Some(logs) = shown_logs(&step.logs) {
        shown["logs"] = logs;
    }
    ProgramRun::Finished { shown, end, record: step.record }
}

fn shown_logs(lines: &[LogLine]) -> Option<Value> {
    let mut bytes_left = LOG_BYTES_SHOWN_MAX;
    let mut shown = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.text.len() > bytes_left {
            let more = lines.len() - at;
            shown.push(json!(format!("({more} more lines are not shown)")));
            break;
        }
        bytes_left -= line.text.len();
        shown.push(match line.level {
            LogLevel::Warn => json!(format!("warning: {}", line.text)),
            LogLevel::Error => json!(format!("error: {}", line.text)),
            _ => json!(line.text),
        });
    }
    (!shown.is_empty()).then_some(Value::Array(shown))
}

/// The result of a program that will never finish, with the tools whose calls were answered.
fn block_abandoned(block: &ProgramBlock, reason: &str) -> Replayed {
    let mut shown = abandoned(reason);
    shown["error"]["completed"] = block.answered_tools().map(|tool| json!({"tool": tool})).collect();
    Replayed { shown, answer_bytes: 0, failed: None }
}

fn abandoned(reason: &str) -> Value {
    json!({"status": "error", "error": {"kind": "abandoned", "message": format!("the program did not finish: {reason}")}})
}
