//! Answers to the calls of a program, from a file or from stdin.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use dacapo_replay::{Answer, Call, JournalEntry, JsonText, canonical_args};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One recorded answer, in a file or on a line of input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerInFile {
    call: Option<u32>,
    tool: Option<String>,
    args: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    ok: Option<Box<RawValue>>,
    error: Option<ErrorInFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorInFile {
    message: String,
    #[serde(default, deserialize_with = "present")]
    data: Option<Box<RawValue>>,
}

/// `null` is an answer; only a missing field is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

/// Where answers come from.
pub(crate) enum AnswerSource {
    File { path: PathBuf, given: Vec<Option<AnswerInFile>> },
    StdinAnswers(StdinAnswers),
}

/// Answers that are typed or piped, one per line.
pub(crate) struct StdinAnswers {
    pub json: bool,
}

impl AnswerSource {
    /// A JSON array like `[{"tool": "webSearch", "args": {…}, "ok": […]}, {"tool": "send", "error": {"message": "…"}}]`.
    pub(crate) fn from_file(path: &Path) -> anyhow::Result<AnswerSource> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the answers in {}", path.display()))?;
        let given: Vec<AnswerInFile> = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a list of answers like {{\"tool\": …, \"ok\": …}}", path.display()))?;
        for (at, given) in given.iter().enumerate() {
            given.check().with_context(|| format!("{}: answer {at}", path.display()))?;
            if given.call.is_none() && given.tool.is_none() {
                bail!("{}: answer {at} needs `tool` or `call`", path.display());
            }
        }
        Ok(AnswerSource::File { path: path.to_path_buf(), given: given.into_iter().map(Some).collect() })
    }

    /// Tools that the answers name.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        let given = match self {
            AnswerSource::File { given, .. } => given.as_slice(),
            AnswerSource::StdinAnswers(_) => &[],
        };
        given.iter().flatten().filter_map(|given| given.tool.as_deref())
    }

    /// At least one answer to one of these calls.
    pub(crate) fn next(&mut self, calls: &[Call]) -> anyhow::Result<Vec<JournalEntry>> {
        match self {
            AnswerSource::StdinAnswers(input) => input.next(calls),
            AnswerSource::File { path, given } => {
                let found: Vec<JournalEntry> = calls.iter().filter_map(|call| take(given, call)).collect();
                if let (true, Some(call)) = (found.is_empty(), calls.first()) {
                    bail!("{} has no answer for {}: {}({}); add one", path.display(), call.call, call.tool, call.args);
                }
                Ok(found)
            }
        }
    }
}

/// The first unused answer for a call. Answers that name a call belong to it alone.
fn take(given: &mut [Option<AnswerInFile>], call: &Call) -> Option<JournalEntry> {
    let slot = given.iter_mut().find(|slot| slot.as_ref().is_some_and(|given| given.fits(call)))?;
    slot.take().map(|given| given.into_entry(call))
}

impl AnswerInFile {
    fn check(&self) -> anyhow::Result<()> {
        match (&self.ok, &self.error) {
            (Some(_), None) | (None, Some(_)) => Ok(()),
            _ => bail!("needs either `ok` or `error`"),
        }
    }

    fn fits(&self, call: &Call) -> bool {
        self.call.is_none_or(|index| index == call.call.0)
            && self.tool.as_ref().is_none_or(|tool| *tool == call.tool)
            && self.args.as_ref().is_none_or(|args| canonical_args(args) == canonical_args(&call.args))
    }

    fn into_entry(self, call: &Call) -> JournalEntry {
        let answer = match (self.ok, self.error) {
            (_, Some(error)) => {
                Answer::Error { message: error.message, data: error.data.as_deref().map(JsonText::from) }
            }
            (Some(ok), None) => Answer::Ok(JsonText::from(&*ok)),
            (None, None) => Answer::Ok(JsonText::from(&Value::Null)),
        };
        JournalEntry::answering(call, answer)
    }
}

impl StdinAnswers {
    /// Asks for every call of the round, in order; a line may also name another call of the round.
    fn next(&mut self, calls: &[Call]) -> anyhow::Result<Vec<JournalEntry>> {
        let mut open: VecDeque<&Call> = calls.iter().collect();
        let mut entries = Vec::new();
        while let Some(call) = open.front().copied() {
            self.ask(call)?;
            let mut line = String::new();
            if io::stdin().lock().read_line(&mut line)? == 0 {
                bail!("the input ended while {} waits for an answer: {}({})", call.call, call.tool, call.args);
            }
            let line = line.trim_end_matches(['\n', '\r']);
            match serde_json::from_str::<AnswerInFile>(line) {
                Ok(given) if given.check().is_ok() => {
                    let at = open.iter().position(|call| given.fits(call));
                    let Some(call) = at.and_then(|at| open.remove(at)) else {
                        bail!("this answers no open call of the round: {line}");
                    };
                    entries.push(given.into_entry(call));
                }
                _ => {
                    open.pop_front();
                    entries.push(JournalEntry::answering(call, typed_answer(line)));
                }
            }
        }
        Ok(entries)
    }

    fn ask(&self, call: &Call) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let mut err = io::stderr().lock();
        write!(err, "{}: {}({})\n> ", call.call, call.tool, call.args)?;
        err.flush()
    }
}

/// A line that is not JSON is text; `!` in front makes it an error.
fn typed_answer(line: &str) -> Answer {
    if let Some(message) = line.strip_prefix('!') {
        return Answer::Error { message: message.trim().to_owned(), data: None };
    }
    Answer::Ok(JsonText::parse(line).unwrap_or_else(|| JsonText::from(&Value::from(line))))
}
