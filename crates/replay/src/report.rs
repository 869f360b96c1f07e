//! Failures of programs, with positions in the source that the model wrote.

use std::fmt::Write;

use dacapo_catalog::shorten;
use dacapo_sandbox::{FinalReport, JsPosition, LogLevel};
use dacapo_script::{Diagnostic, SourceMap, SourcePosition, code_frame};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::canonical::canonical;
use crate::hint::Explained;
use crate::journal::{Journal, RecordedArgs};
use crate::limits::{Limit, Limits};
use crate::program::Program;
use crate::run::RunInputs;
use crate::step::{ComparedCall, ErrorKind, LogLine, ProgramFailure};

const VALUE_CHARS_MAX: usize = 300;

/// A thrown value, as `describe` in guest.c reports it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ThrownValue {
    name: String,
    message: String,
    stack: String,
    cause: Option<String>,
    tool: Option<String>,
    /// JSON, cut short when it is long.
    data: Option<String>,
    /// JSON.
    violations: Option<String>,
    /// The value as text, if it is not an `Error`.
    thrown: Option<String>,
}

/// A stack trace with positions in the model's source.
#[derive(Debug, Default)]
struct Stack {
    text: String,
    top: Option<SourcePosition>,
    /// The engine could not load the program at all.
    unloadable: bool,
}

pub(crate) fn ending(ending: FinalReport, inputs: &RunInputs<'_>) -> Result<Box<RawValue>, Box<ProgramFailure>> {
    match ending.outcome {
        Ok(json) if json.len() as u64 > inputs.limits.get(Limit::OutputBytes) => {
            Err(limit(Limit::OutputBytes, &[], inputs))
        }
        Ok(json) => RawValue::from_string(json).map_err(|error| internal(&format!("the result is not JSON: {error}"))),
        Err(described) => Err(exception(&described, ending.memory_refused, inputs)),
    }
}

fn exception(described: &str, memory_refused: bool, inputs: &RunInputs<'_>) -> Box<ProgramFailure> {
    let described: ThrownValue = serde_json::from_str(described).unwrap_or_default();
    let located = described.stack.contains("program:");
    let map = located.then(|| SourceMap::new(&inputs.program.code)).flatten();
    let stack = Stack::of(&described.stack, map.as_ref());
    if let Some(limit) = limit_behind(&described, memory_refused) {
        let mut failure =
            failure(limit_kind(limit, inputs.limits), &described.name, limit_message(limit, inputs.limits));
        failure.stack = stack.text;
        return failure.at(stack.top, inputs.program);
    }
    let kind = if stack.unloadable && described.name == "SyntaxError" {
        ErrorKind::Syntax
    } else {
        let data = described.data.map(|json| serde_json::from_str(&json).unwrap_or(Value::String(json)));
        let violations = described.violations.and_then(|json| serde_json::from_str(&json).ok());
        ErrorKind::Exception { tool: described.tool, data, violations }
    };
    let (name, message) = match described.thrown {
        Some(thrown) => ("Error".to_owned(), thrown),
        None => (described.name, described.message),
    };
    let explained = Explained::of(message, &inputs.program.code, stack.top);
    let mut failure = failure(kind, &name, explained.message);
    failure.hint = explained.hint;
    (failure.stack, failure.cause) = (stack.text, described.cause);
    failure.at(stack.top, inputs.program)
}

/// Exhaustion that the engine reports as an exception which the program might have caught.
fn limit_behind(described: &ThrownValue, memory_refused: bool) -> Option<Limit> {
    match (described.name.as_str(), described.message.as_str()) {
        ("RangeError", "Maximum call stack size exceeded") => Some(Limit::StackBytes),
        ("InternalError", "out of memory" | "out of memory in regexp execution") if memory_refused => {
            Some(Limit::MemoryBytes)
        }
        // There was no memory left to describe the error.
        ("", "") if memory_refused => Some(Limit::MemoryBytes),
        _ => None,
    }
}

pub(crate) fn limit(limit: Limit, places: &[JsPosition], inputs: &RunInputs<'_>) -> Box<ProgramFailure> {
    let map = (!places.is_empty()).then(|| SourceMap::new(&inputs.program.code)).flatten();
    let at = map.and_then(|map| places.iter().find_map(|place| map.original(position(*place))));
    failure(limit_kind(limit, inputs.limits), "LimitError", limit_message(limit, inputs.limits)).at(at, inputs.program)
}

fn limit_kind(limit: Limit, limits: &Limits) -> ErrorKind {
    ErrorKind::Limit { limit, value: limits.get(limit) }
}

fn limit_message(limit: Limit, limits: &Limits) -> String {
    // The model reads this, and only the operator can raise a limit.
    format!("the program exceeded the limit `{limit}` of {}; {}", limits.get(limit), limit.advice())
}

pub(crate) fn syntax(diagnostic: Diagnostic) -> Box<ProgramFailure> {
    let mut failure = failure(ErrorKind::Syntax, "SyntaxError", diagnostic.message);
    (failure.line, failure.column) = (Some(diagnostic.at.line), Some(diagnostic.at.column));
    failure.frame = Some(diagnostic.frame);
    failure
}

pub(crate) fn deadlock() -> Box<ProgramFailure> {
    let message = "the program waits for a promise that nothing will ever settle: no call is open and no timer is set; \
         look for a promise whose resolve is never called";
    failure(ErrorKind::Deadlock, "DeadlockError", message.to_owned())
}

pub(crate) fn internal(what: &str) -> Box<ProgramFailure> {
    let message = format!("the sandbox failed, which is a defect of dacapo and not of the program: {what}");
    failure(ErrorKind::Internal, "InternalError", message)
}

pub(crate) fn diverged(journal: &Journal, entry: usize, actual: Option<ComparedCall>) -> Box<ProgramFailure> {
    let recorded = &journal.entries()[entry];
    let (args, shown) = match &recorded.args {
        RecordedArgs::Canonical(args) => (Some(serde_json::from_str(args).unwrap_or_default()), args.as_str()),
        RecordedArgs::Unknown | RecordedArgs::Digest(_) => (None, "…"),
    };
    let was = show(&recorded.tool, shown);
    let now = match &actual {
        Some(asking) => {
            let args = asking.args.as_ref().unwrap_or(&Value::Null);
            let differs = matches!(recorded.args, RecordedArgs::Digest(_))
                && asking.tool == recorded.tool
                && !recorded.args.match_canonical(&canonical(args));
            let difference = if differs { " with arguments of another digest" } else { "" };
            format!("this run called {}{difference}", show(&asking.tool, &args.to_string()))
        }
        None => "this run never made it".to_owned(),
    };
    let message = format!(
        "{} was recorded as {was}, but {now}; the program, the tools or the engine changed since the journal was written, \
         so start the program anew",
        recorded.call
    );
    let kind = ErrorKind::Diverged {
        path: format!("journal[{entry}]"),
        recorded: ComparedCall { tool: recorded.tool.clone(), args },
        actual,
    };
    failure(kind, "DivergenceError", message)
}

/// Log lines for rejections that the program did not handle.
pub(crate) fn unhandled(described: &[String], program: &Program) -> Vec<LogLine> {
    let map = described.first().and_then(|_| SourceMap::new(&program.code));
    let line = |described: &String| {
        let described: ThrownValue = serde_json::from_str(described).unwrap_or_default();
        let place = match Stack::of(&described.stack, map.as_ref()).top {
            Some(at) => format!(" (line {}, column {})", at.line, at.column),
            None => String::new(),
        };
        let what = match described.thrown {
            Some(thrown) => thrown,
            None => format!("{}: {}", described.name, described.message),
        };
        LogLine {
            level: LogLevel::Error,
            text: format!("unhandled rejection: {}{place}", shorten(&what, VALUE_CHARS_MAX)),
        }
    };
    described.iter().map(line).collect()
}

impl Stack {
    /// Lines read `at name (program:3:7)` or `at program:3:7`.
    fn of(stack: &str, map: Option<&SourceMap>) -> Stack {
        let mut mapped = Stack::default();
        for line in stack.lines() {
            let Some((before, place)) = line.rsplit_once("program:") else { continue };
            let mut numbers = place.trim_end_matches(')').split(':').map_while(|number| number.parse().ok());
            let (Some(line), Some(column)) = (numbers.next(), numbers.next()) else { continue };
            let name = before.trim().trim_start_matches("at").trim().trim_end_matches('(').trim();
            let position = SourcePosition { line, column };
            let at = map.map_or(Some(position), |map| map.original(position));
            mapped.unloadable |= mapped.text.is_empty() && name.is_empty();
            let Some(at) = at else { continue };
            mapped.top = mapped.top.or(Some(at));
            let shown = if name.is_empty() { "<program>" } else { name };
            // Writing to a string cannot fail.
            writeln!(mapped.text, "    at {shown} (line {}, column {})", at.line, at.column).unwrap_or_default();
        }
        mapped.text.truncate(mapped.text.trim_end().len());
        mapped
    }
}

impl ProgramFailure {
    fn at(mut self: Box<Self>, at: Option<SourcePosition>, program: &Program) -> Box<ProgramFailure> {
        if let Some(at) = at {
            (self.line, self.column) = (Some(at.line), Some(at.column));
            self.frame = Some(code_frame(&program.code, at));
        }
        self
    }
}

fn failure(kind: ErrorKind, name: &str, message: String) -> Box<ProgramFailure> {
    Box::new(ProgramFailure {
        kind,
        name: name.to_owned(),
        message,
        hint: None,
        line: None,
        column: None,
        frame: None,
        stack: String::new(),
        cause: None,
        completed: Vec::new(),
        unfinished: Vec::new(),
    })
}

fn position(place: JsPosition) -> SourcePosition {
    SourcePosition { line: place.line, column: place.column }
}

fn show(tool: &str, args: &str) -> String {
    format!("`{tool}({})`", shorten(args, VALUE_CHARS_MAX))
}
