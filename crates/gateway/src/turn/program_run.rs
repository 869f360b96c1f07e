//! Running a program: with which tools, what it led to, and its result as the model reads it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use dacapo_replay::{
    Answer, Call, CompletedCall, ErrorKind, HandedOutCall, JournalEntry, LogLevel, LogLine, Outcome, Program, Step,
    StepError, StepRequest, StoredValues, ToolShape, Toolbox, handles_in,
};
use dacapo_runner::truncate_json;
use dacapo_wire::ProgramBlock;
use serde_json::{Map, Value, json};

use super::history_replay::HistoryReplay;
use crate::observe::ProgramEnd;

/// What running a program led to.
pub(super) enum ProgramRun {
    Paused {
        calls: Vec<Call>,
        /// What is kept so far.
        stored: StoredValues,
    },
    Finished {
        /// The result as the model reads it.
        shown: Value,
        end: ProgramEnd,
        /// Completed calls that a later program may reuse.
        record: Vec<CompletedCall>,
        /// What is kept for later programs.
        stored: StoredValues,
        /// What answers looked like, for [`show_shapes`].
        shapes: Vec<ToolShape>,
    },
}

/// The tools that a program of the history is run with.
pub(super) struct ReplayTools {
    toolbox: Arc<Toolbox>,
    /// Names of those that the client does not have any more.
    withdrawn: Vec<String>,
    /// What the program was handed out, if its tools have changed.
    handed_out: Vec<HandedOutCall>,
}

impl ReplayTools {
    pub(super) fn has_withdrawn(&self, calls: &[Call]) -> bool {
        calls.iter().any(|call| self.withdrawn.contains(&call.tool))
    }
}

const NO_RESULT: &str = "the program returned no value; `return` what you need to see";
const REUSED: &str = "the calls in `reused` were completed by an earlier program and not executed again; to execute one again, pass {fresh: true} as its second argument";
const CUT: &str = "to see what is missing, return less: filter or count in the program";
/// How much the model reads of what a program wrote and returned.
const OUTPUT_CHARS_MAX: usize = 100_000;
const NOT_RETURNED: &str = "the answers have images or files; to see one, return the object that has its `handle`";

impl HistoryReplay<'_> {
    /// The tools for a program of the history: those of this request, and those that are gone since it was written.
    pub(super) fn tools_of(&self, block: &ProgramBlock) -> ReplayTools {
        let toolbox = self.model_tools.toolbox();
        let catalog = toolbox.catalog();
        let withdrawn: Vec<&str> = block.tool_names().into_iter().filter(|name| catalog.find(name).is_none()).collect();
        let extended = if withdrawn.is_empty() { None } else { toolbox.with_withdrawn(withdrawn.iter().copied()).ok() };
        let is_changed = extended.is_some() || block.state.tools != self.tools_digest;
        ReplayTools {
            toolbox: extended.map_or_else(|| Arc::clone(toolbox), Arc::new),
            withdrawn: withdrawn.into_iter().map(str::to_owned).collect(),
            handed_out: if is_changed { block.handed_out() } else { Vec::new() },
        }
    }

    /// The request for the first step of a program that the model has just written.
    pub(super) fn first_request(
        &self,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        self.trace.program(&program, record, stored);
        let toolbox = Arc::clone(self.model_tools.toolbox());
        let tools = ReplayTools { toolbox, withdrawn: Vec::new(), handed_out: Vec::new() };
        self.request(&tools, program, record, stored)
    }

    /// The request for the first step of a program of the history.
    pub(crate) fn request_of(
        &self,
        block: &ProgramBlock,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        self.request(&self.tools_of(block), program, record, stored)
    }

    pub(super) fn request(
        &self,
        tools: &ReplayTools,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        let mut request = StepRequest::new(program, Arc::clone(&tools.toolbox));
        request.handed_out.clone_from(&tools.handed_out);
        request.stored = stored.clone();
        request.with_reuse(record.to_vec()).with_limits(*self.limits)
    }

    /// Runs a program of the history as far as its journal goes.
    pub(super) fn run(&self, request: &StepRequest) -> Result<ProgramRun, StepError> {
        self.trace.program(&request.program, &request.reuse, &request.stored);
        self.step(request)
    }

    /// The same for any program.
    pub(super) fn step(&self, request: &StepRequest) -> Result<ProgramRun, StepError> {
        // A history may hold many programs, each too short to be interrupted.
        if !(self.should_continue)() {
            return Err(StepError::Interrupted);
        }
        let started = Instant::now();
        let (step, start) = self.stepper.step_from(request, self.should_continue)?;
        self.trace.step(start, started.elapsed(), step.usage.fuel);
        Ok(ProgramRun::from(step))
    }
}

impl From<Step> for ProgramRun {
    fn from(step: Step) -> ProgramRun {
        let result = match step.outcome {
            Outcome::Paused { calls } => return ProgramRun::Paused { calls, stored: step.stored },
            Outcome::Finished { result } => result,
        };
        let end = if result.is_err() { ProgramEnd::Failed } else { ProgramEnd::Success };
        let mut shown = json!({"status": if result.is_ok() { "success" } else { "error" }});
        let logs = shown_logs(&step.logs);
        let mut notes = Vec::new();
        match result {
            Ok(data) => {
                let mut output = Map::new();
                let data = json!(data);
                let has_logs = !logs.is_empty();
                if has_logs {
                    output.insert("logs".to_owned(), Value::Array(logs));
                }
                // What a program wrote is its result where it returns nothing.
                if !(has_logs && data.is_null()) {
                    if data.is_null() {
                        notes.push(NO_RESULT.to_owned());
                    }
                    output.insert("data".to_owned(), data);
                }
                let cut = truncate_json("", Value::Object(output), OUTPUT_CHARS_MAX);
                let places = |omitted: String| omitted.trim_start_matches('.').replace("; .", "; ");
                notes.extend(cut.omitted.map(|omitted| format!("too long: {}; {CUT}", places(omitted))));
                if let (Some(shown), Value::Object(output)) = (shown.as_object_mut(), cut.value) {
                    shown.extend(output);
                }
            }
            Err(failure) => {
                if matches!(failure.kind, ErrorKind::Internal) {
                    tracing::error!(message = failure.message, "the sandbox failed");
                }
                if !logs.is_empty() {
                    let cut = truncate_json("logs", Value::Array(logs), OUTPUT_CHARS_MAX / 4);
                    shown["logs"] = cut.value;
                    notes.extend(cut.omitted.map(|omitted| format!("too long: {omitted}")));
                }
                let mut error = json!(failure);
                if let Some(fields) = error.as_object_mut().filter(|fields| fields.contains_key("frame")) {
                    // The frame shows the same place.
                    fields.shift_remove("stack");
                }
                shown["error"] = error;
            }
        }
        if !step.reused.is_empty() {
            shown["reused"] = json!(step.reused);
            notes.push(REUSED.to_owned());
        }
        if !notes.is_empty() {
            shown["note"] = json!(notes.join("; "));
        }
        ProgramRun::Finished { shown, end, record: step.record, stored: step.stored, shapes: step.shapes }
    }
}

/// Tells the model how it sees images that a program did not return.
pub(super) fn note_attachments(shown: &mut Value) {
    if shown["status"] == "success" && handles_in(&shown.to_string()).is_empty() {
        let note = match shown["note"].as_str() {
            Some(note) => format!("{note}; {NOT_RETURNED}"),
            None => NOT_RETURNED.to_owned(),
        };
        shown["note"] = json!(note);
    }
}

/// The same, if these answers have images or files.
pub(super) fn note_attachments_in(shown: &mut Value, entries: &[JournalEntry]) {
    if entries.iter().any(|entry| !entry.answer.handles().is_empty()) {
        note_attachments(shown);
    }
}

/// The functions whose shapes stand in a result that the history holds.
pub(super) fn functions_with_shapes(shown: &Value) -> impl Iterator<Item = String> {
    let lines = shown["shapes"].as_array().into_iter().flatten();
    lines.filter_map(|line| line.as_str()?.split_once(" returns ")).map(|(function, _)| function.to_owned())
}

/// Tells the model what answers of tools without an output schema look like: of all that a failed program had, and else
/// of those that it has not been shown.
pub(super) fn show_shapes(shown: &mut Value, shapes: &[ToolShape], end: ProgramEnd, known: &mut BTreeSet<String>) {
    let lines = ToolShape::lines(shapes, end == ProgramEnd::Failed, known);
    if !lines.is_empty() {
        shown["shapes"] = json!(lines);
    }
}

/// What the program wrote, line by line.
fn shown_logs(lines: &[LogLine]) -> Vec<Value> {
    let line = |line: &LogLine| match line.level {
        LogLevel::Warn => json!(format!("warning: {}", line.text)),
        LogLevel::Error => json!(format!("error: {}", line.text)),
        _ => json!(line.text),
    };
    lines.iter().map(line).collect()
}

/// Adds an answer to a call that the model reads about, within what is left of a budget.
pub(super) fn show_answer(call: &mut Value, answer: &Answer, bytes_left: &mut usize) {
    let (key, text) = match answer {
        Answer::Ok(json) => ("answer", json.as_str()),
        Answer::Error { message, .. } => ("error", message.as_str()),
    };
    if text.len() > *bytes_left {
        call[key] = json!(format!("({} bytes, too long to be shown here)", text.len()));
        return;
    }
    *bytes_left -= text.len();
    call[key] = match answer {
        Answer::Ok(json) => serde_json::from_str(json.as_str()).unwrap_or(Value::Null),
        Answer::Error { message, .. } => Value::from(message.as_str()),
    };
}

/// The result of a program that will never finish.
pub(super) fn abandoned(reason: &str) -> Value {
    json!({"status": "error", "error": {"kind": "abandoned", "message": format!("the program did not finish: {reason}")}})
}
