//! Programs in a history: run again, so that the model is shown what they came to.

use std::collections::BTreeMap;

use dacapo_replay::{
    ANSWER_TOKENS_DEFAULT, Call, ErrorKind, Journal, Limits, LogLine, Outcome, Patience, Program, Request, Reused,
    Step, StepError, Stepper,
};
use dacapo_wire::chat::Transcript;
use dacapo_wire::{Block, Conversation, Intent, Item, Offer, Response, RunId, Saying, SearchQuery};
use serde_json::{Value, json};

/// Runs programs of one turn.
pub(crate) struct Blocks<'a> {
    pub stepper: &'a Stepper,
    pub offer: &'a Offer,
    pub limits: &'a Limits,
    pub patience: Patience<'a>,
}

/// Where a history leaves us.
#[derive(Debug)]
pub(crate) enum Position {
    /// It is the model's turn.
    Model(After),
    /// The last program waits for these calls.
    Waiting { calls: Vec<Call> },
}

/// What the next program of the turn inherits from the last one.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// The program that was just finished, with its result.
    pub finished: Option<Value>,
    /// The run that failed, whose completed calls are not executed again.
    pub continues: Option<RunId>,
    pub record: Vec<Reused>,
}

/// What a program came to.
pub(crate) enum Run {
    Paused(Vec<Call>),
    Finished {
        /// As the model reads it.
        told: String,
        result: Value,
        is_error: bool,
        record: Vec<Reused>,
    },
}

/// A divergence in the words of a conversation.
const CHANGED: &str = "an answer in the conversation, or the tools, were changed after the program had gone on, so that its calls are not those that were answered; it was stopped there: write a new program";
const NO_RESULT: &str = "the program returned no value; `return` what you need to see";
/// Of the logs, what the model reads.
const LOG_BYTES_SHOWN_MAX: usize = 8 << 10;

impl Blocks<'_> {
    /// Writes the history for the model, and says where it ends.
    pub(crate) fn tell(&self, conversation: &Conversation, transcript: &mut Transcript) -> Result<Position, StepError> {
        let mut records = BTreeMap::new();
        let last = conversation.items.len().saturating_sub(1);
        for (at, item) in conversation.items.iter().enumerate() {
            match item {
                Item::Message(message) => transcript.message(message.clone()),
                Item::Lost(calls) => transcript.lost(calls),
                Item::Block(block) => {
                    let place = if at == last && block.result.is_none() { Place::Last } else { Place::Earlier };
                    match self.tell_block(block, place, &mut records, transcript)? {
                        Position::Model(after) if at == last => return Ok(Position::Model(after)),
                        Position::Model(_) => {}
                        waiting @ Position::Waiting { .. } => return Ok(waiting),
                    }
                }
            }
        }
        Ok(Position::Model(After::default()))
    }

    fn tell_block(
        &self,
        block: &Block,
        place: Place,
        records: &mut BTreeMap<RunId, Vec<Reused>>,
        transcript: &mut Transcript,
    ) -> Result<Position, StepError> {
        let state = &block.state;
        let inherited = state.continues.map_or(Some(Vec::new()), |run| records.get(&run).cloned());
        let mut record = inherited.clone().unwrap_or_default();
        let (waiting, before) =
            state.sayings.split_last().map_or((None, &[][..]), |(last, before)| (Some(last), before));
        for (at, saying) in before.iter().enumerate() {
            let told = self.respond(saying, |code| {
                let run = self.run(state.program(at, code), &Journal::default(), &record)?;
                Ok(match run {
                    Run::Paused(_) => note("its calls are not in the conversation any more"),
                    Run::Finished { told, is_error, record: completed, .. } => {
                        record = if is_error { completed } else { Vec::new() };
                        told
                    }
                })
            })?;
            transcript.saying(saying, &told, &[]);
        }
        let Some(saying) = waiting else { return Ok(Position::Model(After::default())) };
        let mut after = After::default();
        let told = if let Some(result) = &block.result {
            // Only what a later program may have inherited makes it worth running again.
            let run = if result["status"] == "error" { self.replay(block, &record).ok() } else { None };
            if let Some(Run::Finished { record, .. }) = run {
                records.insert(block.run, record);
            }
            shown(result)
        } else if inherited.is_none() {
            note("the program before it, whose calls it relied on, is not in the conversation any more")
        } else if !block.is_whole() {
            note(&format!("answers to its calls are not in the conversation any more{}", completed(block)))
        } else {
            match self.replay(block, &record)? {
                Run::Paused(calls) if place == Place::Last => return Ok(Position::Waiting { calls }),
                Run::Paused(_) => {
                    note(&format!("the conversation went on before all its calls were answered{}", completed(block)))
                }
                Run::Finished { told, result, is_error, record } => {
                    after.finished = Some(result);
                    if is_error {
                        after.continues = Some(block.run);
                        after.record.clone_from(&record);
                        records.insert(block.run, record);
                    }
                    told
                }
            }
        };
        let told = self.respond(saying, |_| Ok(told.clone()))?;
        transcript.saying(saying, &told, &block.direct);
        Ok(Position::Model(after))
    }

    fn replay(&self, block: &Block, record: &[Reused]) -> Result<Run, StepError> {
        self.run(block.state.waiting(), &block.journal(), record)
    }

    /// The answers to a message's calls that we give, with the program's filled in.
    pub(crate) fn respond(
        &self,
        saying: &Saying,
        mut program: impl FnMut(&str) -> Result<String, StepError>,
    ) -> Result<Vec<String>, StepError> {
        let code = match saying.intent(self.offer) {
            Intent::Program { code, .. } => code,
            _ => String::new(),
        };
        let responses = saying.responses(self.offer, &|query| self.search(query));
        responses
            .into_iter()
            .map(|response| match response {
                Response::Now(told) => Ok(told),
                Response::Program => program(&code),
            })
            .collect()
    }

    fn search(&self, query: &SearchQuery) -> String {
        self.offer.toolbox().search(&query.query, query.limit, ANSWER_TOKENS_DEFAULT).1.text
    }

    pub(crate) fn run(&self, program: Program, journal: &Journal, record: &[Reused]) -> Result<Run, StepError> {
        let mut request = Request::new(program, std::sync::Arc::clone(self.offer.toolbox()));
        request.journal = journal.clone();
        request.reuse = record.to_vec();
        request.limits = self.limits.clone();
        let step = self.stepper.step(&request, self.patience)?;
        Ok(run(step))
    }
}

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
    let mut told = match result {
        Ok(data) => json!({"status": "success", "data": data}),
        Err(failure) => {
            let mut told = json!({"status": "error", "error": failure});
            if let ErrorKind::Diverged { .. } = failure.kind {
                told["error"]["message"] = json!(CHANGED);
            }
            told
        }
    };
    let result = told.clone();
    if told.get("data") == Some(&Value::Null) {
        told["note"] = json!(NO_RESULT);
    }
    if let Some(logs) = logs(&step.logs) {
        told["logs"] = logs;
    }
    Run::Finished { told: shown(&told), result, is_error, record: step.record }
}

/// A result as the model reads it: the stack says nothing that the frame does not show.
fn shown(result: &Value) -> String {
    let mut result = result.clone();
    if let Some(error) = result.get_mut("error").and_then(Value::as_object_mut)
        && error.contains_key("frame")
    {
        error.shift_remove("stack");
    }
    result.to_string()
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
            dacapo_replay::Level::Warn => json!(format!("warning: {}", line.text)),
            dacapo_replay::Level::Error => json!(format!("error: {}", line.text)),
            _ => json!(line.text),
        });
    }
    (!shown.is_empty()).then_some(Value::Array(shown))
}

/// The result of a program that will never finish.
fn note(reason: &str) -> String {
    json!({"status": "error", "error": {"kind": "abandoned", "message": format!("the program did not finish: {reason}")}})
        .to_string()
}

fn completed(block: &Block) -> String {
    let journal = block.journal();
    let tools: Vec<&str> = journal.entries().iter().map(|entry| entry.tool.as_str()).collect();
    if tools.is_empty() {
        "; no call was completed".to_owned()
    } else {
        format!("; completed calls: {}", tools.join(", "))
    }
}
