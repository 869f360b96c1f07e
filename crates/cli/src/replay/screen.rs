//! An explanation on a terminal.

use std::borrow::Cow;
use std::io::{self, Write};

use dacapo_gateway::{
    AnsweredWith, BlockExplanation, CallExplanation, ConversationExplanation, Explanation, ItemKind, ReplayStatus,
    UnopenedState,
};
use dacapo_replay::{Outcome, Step};
use serde_json::Value;

use crate::text_style::{TextStyle, TextStyler, bytes, clip, grouped, plural, wrap};

pub(super) struct ReplayScreen<W: Write> {
    pub out: W,
    pub styler: TextStyler,
    /// Whether one program was asked for: then nothing around it is shown.
    pub only: bool,
}

const COLUMNS: usize = 100;
const GUTTER: usize = 9;
const ROOM: usize = COLUMNS - GUTTER;
const ARGS_CHARS: usize = 40;
/// Calls of one tool in one round that have a line each.
const CALLS_SHOWN_MAX: usize = 4;
const ENTRY_LINES_MAX: usize = 6;

impl<W: Write> ReplayScreen<W> {
    pub(super) fn explanation(&mut self, explanation: &Explanation) -> io::Result<()> {
        for (at, conversation) in explanation.conversations.iter().enumerate() {
            if at > 0 {
                writeln!(self.out)?;
            }
            self.conversation(conversation)?;
        }
        Ok(())
    }

    fn conversation(&mut self, conversation: &ConversationExplanation) -> io::Result<()> {
        self.title(conversation)?;
        if let Some(problem) = &conversation.problem {
            return self.line("problem", &self.styler.style(TextStyle::Red, problem));
        }
        for note in &conversation.notes {
            self.wrapped("note", note, None)?;
        }
        self.unopened(&conversation.unopened)?;
        if conversation.items.is_empty() {
            for block in &conversation.blocks {
                self.block(block)?;
            }
        }
        for item in &conversation.items {
            match item.block.and_then(|at| conversation.blocks.get(at)) {
                Some(block) => self.block(block)?,
                None if self.only => {}
                None => {
                    let label = if item.kind == ItemKind::LostCalls { "lost" } else { "" };
                    for entry in &conversation.history[item.client[0]..item.client[1]] {
                        self.entry(label, entry)?;
                    }
                }
            }
        }
        if let (false, Some(context)) = (self.only, &conversation.context) {
            let [code, classic] = [context.code, context.classic].map(|calls| {
                format!("{} reading {} tokens", plural(calls.model_calls as usize, "model call"), grouped(calls.tokens))
            });
            self.line("context", &format!("about {code}; with classic tool calls {classic}"))?;
        }
        Ok(())
    }

    /// Prints states that could not be opened, one line for each reason.
    fn unopened(&mut self, states: &[UnopenedState]) -> io::Result<()> {
        for same in states.chunk_by(|one, other| one.reason == other.reason) {
            let more = if same.len() > 1 { format!(" and {} more", same.len() - 1) } else { String::new() };
            self.wrapped("unopened", &format!("{}{more}: {}", same[0].id, same[0].reason), Some(TextStyle::Red))?;
        }
        Ok(())
    }

    fn title(&mut self, conversation: &ConversationExplanation) -> io::Result<()> {
        let mut parts = Vec::new();
        parts.extend(conversation.line.map(|line| format!("line {line}")));
        parts.push(conversation.wire.unwrap_or("step request").to_owned());
        if !conversation.model.is_empty() {
            parts.push(format!("model {}", conversation.model));
        }
        if conversation.wire.is_some() && conversation.problem.is_none() {
            parts.push(format!("{} mode", conversation.mode));
            parts.push(plural(conversation.history.len(), "entry").replace("entrys", "entries"));
        }
        parts.push(plural(conversation.blocks.len(), "program"));
        let title = self.styler.style(TextStyle::Bold, &parts.join(" · "));
        writeln!(self.out, "{title}")
    }

    fn block(&mut self, block: &BlockExplanation) -> io::Result<()> {
        let (style, status) = match block.replay.status {
            ReplayStatus::Exact => (TextStyle::Green, "replayed exactly"),
            ReplayStatus::Stopped => (TextStyle::Blue, block.replay.message.as_str()),
            ReplayStatus::Diverged => (TextStyle::Red, "diverged"),
            ReplayStatus::Edited => (TextStyle::Red, "the history was edited"),
            ReplayStatus::Trimmed => (TextStyle::Red, "the history was trimmed"),
            ReplayStatus::Orphaned => (TextStyle::Red, "cannot go on"),
            ReplayStatus::Interrupted => (TextStyle::Red, "interrupted"),
        };
        let heading = self.styler.style(TextStyle::Bold, &format!("program {}", block.number));
        writeln!(self.out, "{heading}  {}", self.styler.style(style, status))?;
        for attempt in &block.attempts {
            self.code(&attempt.program.code, None)?;
            self.end(attempt.end.as_ref())?;
        }
        let failed_at = block.end.as_ref().and_then(failed_line);
        self.code(&block.program.code, failed_at)?;
        self.calls(&block.calls)?;
        if let Some(end) = &block.end {
            for line in &end.logs {
                self.line("log", &clip(&line.text, ROOM))?;
            }
        }
        self.end(block.end.as_ref())?;
        if !matches!(block.replay.status, ReplayStatus::Exact | ReplayStatus::Stopped) {
            let at = block.replay.call.map_or_else(String::new, |call| format!(" (call {call})"));
            self.wrapped("differs", &format!("{}{at}", block.replay.message), Some(TextStyle::Red))?;
        }
        if let Some(end) = &block.end {
            let answers: usize = block.calls.iter().map(|call| call.bytes).sum();
            let used = format!(
                "{} fuel, {} memory, {} with {}, about {} tokens kept out",
                grouped(end.usage.fuel),
                bytes(end.usage.memory_bytes),
                plural(block.calls.iter().filter(|call| call.answer.is_some()).count(), "answer"),
                bytes(answers),
                grouped(block.tokens.kept_out),
            );
            self.line("used", &self.styler.style(TextStyle::Dim, &used))?;
        }
        Ok(())
    }

    fn code(&mut self, code: &str, failed_at: Option<u32>) -> io::Result<()> {
        for (line, number) in code.lines().zip(1..) {
            let mark =
                if failed_at == Some(number) { self.styler.style(TextStyle::Red, "▸") } else { " ".to_owned() };
            let number = self.styler.style(TextStyle::Dim, &format!("{number:>4} │"));
            writeln!(self.out, "{mark}{number} {}", self.styler.code(line))?;
        }
        Ok(())
    }

    /// Prints calls by round. Many calls of the same tool share a line.
    fn calls(&mut self, calls: &[CallExplanation]) -> io::Result<()> {
        for round in calls.chunk_by(|one, other| one.round == other.round) {
            let mut label = format!("round {}", round[0].round);
            let mut tools: Vec<&str> = Vec::new();
            for call in round {
                if !tools.contains(&call.tool.as_str()) {
                    tools.push(&call.tool);
                }
            }
            for tool in tools {
                let same: Vec<&CallExplanation> = round.iter().filter(|call| call.tool == tool).collect();
                let shown = if same.len() > CALLS_SHOWN_MAX { 1 } else { same.len() };
                for call in &same[..shown] {
                    let count = if shown < same.len() { format!("{} × ", same.len()) } else { String::new() };
                    let size = same.iter().map(|call| call.bytes).sum::<usize>();
                    let size = if shown < same.len() { size } else { call.bytes };
                    self.line(&std::mem::take(&mut label), &self.call(&count, call, size))?;
                }
            }
        }
        Ok(())
    }

    fn call(&self, count: &str, call: &CallExplanation, size: usize) -> String {
        let args = call.args.as_ref().map_or_else(|| "(arguments were changed)".to_owned(), Value::to_string);
        let asked = clip(&format!("{count}{} {args}", call.tool), ARGS_CHARS);
        let (style, answer) = match &call.answer {
            None => (TextStyle::Dim, Cow::Borrowed("waits for its answer")),
            Some(AnsweredWith::Ok(json)) => (TextStyle::Dim, Cow::Owned(as_text(json.get()))),
            Some(AnsweredWith::Error { message, .. }) => (TextStyle::Red, Cow::Borrowed(message.as_str())),
        };
        let size = if call.answer.is_some() { format!("  {}", bytes(size)) } else { String::new() };
        let room = ROOM.saturating_sub(ARGS_CHARS + 3 + size.chars().count());
        format!("{asked:<ARGS_CHARS$} → {}{size}", self.styler.style(style, &clip(&answer, room)))
    }

    fn end(&mut self, end: Option<&Step>) -> io::Result<()> {
        match end.map(|end| &end.outcome) {
            None => self.line("end", "it was not run to its end"),
            Some(Outcome::Paused { calls }) => self.line("waits", &format!("for {}", plural(calls.len(), "answer"))),
            Some(Outcome::Finished { result: Ok(data) }) => {
                self.wrapped("result", &clip(data.get(), ROOM * ENTRY_LINES_MAX), None)
            }
            Some(Outcome::Finished { result: Err(failure) }) => {
                self.wrapped("error", &failure.to_string(), Some(TextStyle::Red))
            }
        }
    }

    fn entry(&mut self, label: &str, entry: &Value) -> io::Result<()> {
        let author = match entry["role"].as_str().or_else(|| entry["type"].as_str()) {
            Some("assistant") => "model",
            Some("function_call_output") => "answer",
            Some(other) => other,
            None => "entry",
        };
        let label = if label.is_empty() { author } else { label };
        self.wrapped(&clip(label, GUTTER - 1), &entry_text(entry), None)
    }

    fn wrapped(&mut self, label: &str, text: &str, style: Option<TextStyle>) -> io::Result<()> {
        let lines: Vec<String> = wrap(text, ROOM).iter().flat_map(|line| broken(line)).collect();
        for (at, line) in lines.iter().take(ENTRY_LINES_MAX).enumerate() {
            let line = style.map_or(Cow::Borrowed(line), |style| Cow::Owned(self.styler.style(style, line)));
            self.line(if at == 0 { label } else { "" }, &line)?;
        }
        if lines.len() > ENTRY_LINES_MAX {
            let more = plural(lines.len() - ENTRY_LINES_MAX, "more line");
            self.line("", &self.styler.style(TextStyle::Dim, &format!("… {more}; --json shows all")))?;
        }
        Ok(())
    }

    fn line(&mut self, label: &str, text: &str) -> io::Result<()> {
        let label = format!("{label:<GUTTER$}");
        writeln!(self.out, "{}{text}", self.styler.style(TextStyle::Blue, &label))
    }
}

fn failed_line(end: &Step) -> Option<u32> {
    match &end.outcome {
        Outcome::Finished { result: Err(failure) } => failure.line,
        _ => None,
    }
}

/// A JSON text is shown as it is; many tools answer with JSON in text.
fn as_text(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned())
}

/// A line, broken where a word is too long for it.
fn broken(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    letters.chunks(ROOM).map(|part| part.iter().collect()).collect()
}

/// The text of an entry of any wire and the calls in it, or its JSON.
fn entry_text(entry: &Value) -> String {
    let parts = match &entry["content"] {
        Value::Array(parts) => parts.as_slice(),
        _ => &[],
    };
    let text = |part: &Value| match part["type"].as_str() {
        Some("tool_use") => Some(call_text(&part["name"], &part["input"])),
        Some("tool_result") => Some(entry_text(part)),
        _ => part["text"].as_str().map(str::to_owned),
    };
    let mut texts: Vec<String> = entry["content"].as_str().map(str::to_owned).into_iter().collect();
    texts.extend(parts.iter().filter_map(text));
    for call in entry["tool_calls"].as_array().into_iter().flatten() {
        texts.push(call_text(&call["function"]["name"], &call["function"]["arguments"]));
    }
    if entry["type"] == "function_call" {
        texts.push(call_text(&entry["name"], &entry["arguments"]));
    }
    texts.extend(entry["output"].as_str().map(str::to_owned));
    if texts.is_empty() { entry.to_string() } else { texts.join(" ") }
}

fn call_text(name: &Value, arguments: &Value) -> String {
    let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    format!("{}({arguments})", name.as_str().unwrap_or("?"))
}
