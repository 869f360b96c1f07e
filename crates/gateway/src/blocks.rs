//! Programs in a history: run again, so that the model is shown what they came to.

use std::collections::BTreeMap;
use std::sync::Arc;

use dacapo_replay::{
    ANSWER_TOKENS_DEFAULT, Call, CompletedCall, ErrorKind, Journal, Limits, LogLine, Outcome, Program, ShouldContinue,
    Step, StepError, StepRequest, Stepper,
};
use dacapo_wire::{Block, Conversation, Gap, Intent, Item, Offer, Response, RunId, Saying, SearchQuery, Transcript};
use serde_json::{Value, json};

/// Runs programs of one turn.
pub(crate) struct Blocks<'a> {
    pub stepper: &'a Stepper,
    pub offer: &'a Offer,
    /// Stands for the tool list.
    pub tools: [u8; 8],
    /// Whether the client takes calls.
    pub calls: Calls,
    pub limits: &'a Limits,
    pub should_continue: ShouldContinue<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    Taken,
    Refused,
}

/// Where a history leaves us.
#[derive(Debug)]
pub(crate) enum Position {
    /// It is the model's turn.
    Model(After),
    /// The last program waits for these calls; its journal stands for the answers so far.
    Waiting { calls: Vec<Call>, answered: [u8; 8] },
}

/// What the next program of the turn inherits from the last one.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// What the last program came to, if its answers have just come, and how many bytes they had.
    pub finished: Option<(Value, usize)>,
    /// The run that failed, whose completed calls are not executed again.
    pub failed: Option<(RunId, Vec<CompletedCall>)>,
}

/// What a program came to.
pub(crate) enum Run {
    Paused(Vec<Call>),
    Finished {
        /// As the model reads it.
        shown: Value,
        is_error: bool,
        record: Vec<CompletedCall>,
    },
}

const NO_RESULT: &str = "the program returned no value; `return` what you need to see";
/// Of the logs, what the model reads.
const LOG_BYTES_SHOWN_MAX: usize = 8 << 10;

impl Blocks<'_> {
    /// Writes the history for the model, and says where it ends.
    pub(crate) fn tell(&self, conversation: &Conversation, transcript: &mut Transcript) -> Result<Position, StepError> {
        let mut records = BTreeMap::new();
        let mut after = After::default();
        let last = conversation.items.len().saturating_sub(1);
        for (at, item) in conversation.items.iter().enumerate() {
            after.finished = None;
            match item {
                Item::Message(message) => {
                    // Who asks for something new may want it done once more.
                    if message["role"] == "user" {
                        after.failed = None;
                    }
                    transcript.message(message.clone());
                }
                Item::Lost(calls) => transcript.lost(calls),
                Item::Search(saying) => {
                    let told = self.respond(saying, |_| String::new());
                    transcript.saying(saying, &told, &[]);
                }
                Item::Block(block) => {
                    let place = if at == last && !block.is_closed { Place::Last } else { Place::Earlier };
                    match self.tell_block(block, place, &mut records, transcript)? {
                        Position::Model(told) => after = told,
                        waiting @ Position::Waiting { .. } => return Ok(waiting),
                    }
                }
            }
        }
        Ok(Position::Model(after))
    }

    fn tell_block(
        &self,
        block: &Block,
        place: Place,
        records: &mut BTreeMap<RunId, Vec<CompletedCall>>,
        transcript: &mut Transcript,
    ) -> Result<Position, StepError> {
        let state = &block.state;
        let inherited = state.continues.map_or(Some(Vec::new()), |run| records.get(&run).cloned());
        let mut record = inherited.clone().unwrap_or_default();
        let Some((waiting, before)) = state.sayings.split_last() else {
            return Ok(Position::Model(After::default()));
        };
        for (at, saying) in before.iter().enumerate() {
            let told = self.respond(saying, |code| {
                let (shown, completed) = match self.run(state.program(at, code), &Journal::default(), &record) {
                    Ok(Run::Finished { shown, record, is_error }) => {
                        (shown, if is_error { record } else { Vec::new() })
                    }
                    Ok(Run::Paused(_)) => (note("it now makes calls that it did not make then"), Vec::new()),
                    Err(_) => (note(TOO_SLOW), Vec::new()),
                };
                record = completed;
                shown.to_string()
            });
            transcript.saying(saying, &told, &[]);
        }
        let mut after = After::default();
        let is_lost = inherited.is_none() || block.is_orphan;
        let run = match (&block.result, block.journal()) {
            (Some(result), journal) => {
                // Only what a later program may have inherited makes it worth running again.
                let is_error = result["status"] == "error";
                let run = journal.ok().filter(|_| is_error && !is_lost);
                let run = run.and_then(|journal| self.run(state.waiting(), &journal, &record).ok());
                let record = match run {
                    Some(Run::Finished { record, .. }) => record,
                    _ => Vec::new(),
                };
                Ok((Run::Finished { shown: result.clone(), is_error, record }, 0))
            }
            (None, _) if is_lost => Err(note("the program before it, whose calls it relied on, is not there any more")),
            (None, Err(Gap::Trimmed)) => Err(note("answers to its calls are not in the conversation any more")),
            (None, Err(Gap::Edited)) => Err(note("an answer to one of its calls was changed in the conversation")),
            (None, Ok(journal)) => match self.run(state.waiting(), &journal, &record) {
                Ok(Run::Paused(calls)) if place == Place::Last && self.calls == Calls::Taken => {
                    return Ok(Position::Waiting { calls, answered: journal.fingerprint() });
                }
                Ok(Run::Paused(_)) if place == Place::Last => Err(note("the client takes no more calls")),
                Ok(Run::Paused(_)) => Err(note("the conversation went on before all its calls were answered")),
                Ok(finished @ Run::Finished { .. }) => Ok((self.explained(finished, block), journal.bytes())),
                Err(error) if place == Place::Last => return Err(error),
                Err(_) => Err(note(TOO_SLOW)),
            },
        };
        let (shown, bytes) = match run {
            Ok((Run::Finished { shown, is_error, record }, bytes)) => {
                if is_error {
                    records.insert(block.run, record.clone());
                    after.failed = Some((block.run, record));
                }
                (shown, bytes)
            }
            Ok((Run::Paused(_), _)) => (note(TOO_SLOW), 0),
            Err(mut note) => {
                note["error"]["completed"] = block.answered_tools().map(|tool| json!({"tool": tool})).collect();
                (note, 0)
            }
        };
        let mut told = self.respond(waiting, |_| String::new());
        if let Some(result) = told.get_mut(state.at) {
            *result = shown.to_string();
        }
        transcript.saying(waiting, &told, &block.direct);
        for remark in &block.remarks {
            transcript.message(remark.clone());
        }
        if place == Place::Last {
            after.finished = Some((shown, bytes));
        }
        Ok(Position::Model(after))
    }

    /// A divergence in the words of a conversation.
    fn explained(&self, run: Run, block: &Block) -> Run {
        match run {
            Run::Finished { mut shown, is_error, record } if shown["error"]["kind"] == "diverged" => {
                let reason = if block.state.tools == self.tools {
                    "an answer in the conversation was changed after the program had gone on"
                } else {
                    "the tools were changed while the program waited"
                };
                shown["error"]["message"] =
                    json!(format!("{reason}, so that its calls are not those that were answered; write a new program"));
                Run::Finished { shown, is_error, record }
            }
            run => run,
        }
    }

    /// The answers to a message's calls that we give, with the program's filled in.
    pub(crate) fn respond(&self, saying: &Saying, mut program: impl FnMut(&str) -> String) -> Vec<String> {
        let code = match saying.intent(self.offer) {
            Intent::Program { code, .. } => code,
            _ => String::new(),
        };
        let responses = saying.responses(self.offer, &|query| self.search(query));
        let responses = responses.into_iter().map(|response| match response {
            Response::Now(told) => told,
            Response::Program => program(&code),
        });
        responses.collect()
    }

    fn search(&self, query: &SearchQuery) -> String {
        self.offer.toolbox().search(&query.query, query.limit(), ANSWER_TOKENS_DEFAULT).1.text
    }

    pub(crate) fn run(&self, program: Program, journal: &Journal, record: &[CompletedCall]) -> Result<Run, StepError> {
        let mut request = StepRequest::new(program, Arc::clone(self.offer.toolbox()));
        request.journal = journal.clone();
        request.reuse = record.to_vec();
        request.limits = self.limits.clone();
        let step = self.stepper.step(&request, self.should_continue)?;
        Ok(run(step))
    }
}

const TOO_SLOW: &str = "running it again took too long";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Last,
    Earlier,
}

fn run(step: Step) -> Run {
    let result = match step.outcome {
        Outcome::Paused { calls } => return Run::Paused(calls),
        Outcome::Finished { result } => result,
    };
    let is_error = result.is_err();
    let mut shown = match result {
        Ok(data) => json!({"status": "success", "data": data}),
        Err(failure) => {
            let is_internal = matches!(failure.kind, ErrorKind::Internal);
            if is_internal {
                tracing::error!(message = failure.message, "the guest died");
            }
            let mut error = json!(failure);
            if let Some(fields) = error.as_object_mut().filter(|fields| fields.contains_key("frame")) {
                // It says nothing that the frame does not show.
                fields.shift_remove("stack");
            }
            json!({"status": "error", "error": error})
        }
    };
    if shown.get("data") == Some(&Value::Null) {
        shown["note"] = json!(NO_RESULT);
    }
    if let Some(logs) = logs(&step.logs) {
        shown["logs"] = logs;
    }
    Run::Finished { shown, is_error, record: step.record }
}

fn logs(lines: &[LogLine]) -> Option<Value> {
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
            dacapo_replay::LogLevel::Warn => json!(format!("warning: {}", line.text)),
            dacapo_replay::LogLevel::Error => json!(format!("error: {}", line.text)),
            _ => json!(line.text),
        });
    }
    (!shown.is_empty()).then_some(Value::Array(shown))
}

/// The result of a program that will never finish.
fn note(reason: &str) -> Value {
    json!({"status": "error", "error": {"kind": "abandoned", "message": format!("the program did not finish: {reason}")}})
}
