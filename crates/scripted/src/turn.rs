//! A turn of the script: when it answers, what, and at which pace.

use std::time::Duration;

use super::conversation::{Conversation, ToolUse};
use super::draft::Draft;
use super::failure::Failure;
use super::file::{Fields, Node};
use super::when::When;
use super::{Ending, Piece, Reply, ScriptError, content_type};

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) line: usize,
    when: When,
    pub(super) answer: Answer,
    pub(super) pace: Pace,
    pub(super) breaks: Break,
}

#[derive(Debug)]
pub(super) enum Answer {
    Message(Box<Draft>),
    Failure(Failure),
    Raw { status: u16, content_type: Option<String>, body: String },
}

/// What ends a response early, after so many chunks.
#[derive(Debug)]
pub(super) enum Break {
    Never,
    Cut(usize),
    Error(usize, Failure),
}

#[derive(Debug)]
pub(super) struct Pace {
    /// Before the first byte.
    pub(super) delay: Duration,
    /// Before each chunk but the first.
    chunk_delay: Duration,
    chunk_chars: Option<usize>,
}

const OTHER_KEYS: [&str; 10] = [
    "when",
    "error",
    "error_after",
    "cut_after",
    "raw",
    "content_type",
    "status",
    "delay_ms",
    "chunk_delay_ms",
    "chunk_chars",
];

/// As many characters of arguments as providers send in one delta.
const ARGUMENT_CHARS: usize = 20;

const DAY_MS: u64 = 86_400_000;

impl Turn {
    pub(super) fn read(node: Node, path: &str) -> Result<Turn, ScriptError> {
        let keys: Vec<_> = Draft::KEYS.into_iter().chain(OTHER_KEYS).collect();
        let mut fields = Fields::read(node, path, &keys)?;
        let when_path = fields.path_of("when");
        let when = fields.take("when").map(|node| When::read(node, &when_path)).transpose()?.unwrap_or_default();
        let pace = Pace::read(&mut fields)?;
        let (answer, breaks) = answer(&mut fields)?;
        Ok(Turn { line: fields.line(), when, answer, pace, breaks })
    }

    /// Why this turn does not answer; empty if it does.
    pub(super) fn misses(&self, conversation: &Conversation<'_>) -> Vec<String> {
        let mut misses = self.when.misses(conversation);
        if let Answer::Message(draft) = &self.answer
            && draft.calls_tools()
            && conversation.tool_use == ToolUse::Forbidden
        {
            misses.push("it calls tools, which 'tool_choice' forbids".into());
        }
        misses
    }

    /// A reply in chunks, with the turn's delays and its cut.
    pub(super) fn paced(&self, status: u16, content: &str, mut chunks: Vec<String>) -> Reply {
        let mut ending = Ending::Complete;
        if let Break::Cut(after) = self.breaks {
            chunks.truncate(after);
            ending = Ending::Cut;
        }
        if chunks.is_empty() && !self.pace.delay.is_zero() {
            chunks.push(String::new());
        }
        let delays = std::iter::once(self.pace.delay).chain(std::iter::repeat(self.pace.chunk_delay));
        let pieces =
            chunks.into_iter().zip(delays).map(|(chunk, delay)| Piece { delay, bytes: chunk.into() }).collect();
        Reply { status, headers: vec![content_type(content)], pieces, ending }
    }
}

fn answer(fields: &mut Fields) -> Result<(Answer, Break), ScriptError> {
    let cut_after = fields.whole("cut_after", 0..=u64::MAX)?;
    let error_after = fields.whole("error_after", 0..=u64::MAX)?;
    let error_path = fields.path_of("error");
    let error = fields.take("error").map(|node| Failure::read(node, &error_path)).transpose()?;
    let refuse = |fields: &Fields, message: &str| Err(fields.error(message));

    if let Some(body) = fields.text("raw")? {
        if let Some(other) = fields.any_of(&Draft::KEYS) {
            return refuse(fields, &format!("`raw` is the whole answer; remove it or `{other}`"));
        }
        if error.is_some() || error_after.is_some() {
            return refuse(fields, "`raw` is the whole answer; remove it or `error` (`status` goes with `raw`)");
        }
        let status = fields.whole("status", 200..=599)?.map_or(200, |status| status as u16);
        let content_type = header(fields, "content_type")?;
        return Ok((Answer::Raw { status, content_type, body }, cut(cut_after)));
    }
    if let Some(other) = fields.any_of(&["content_type", "status"]) {
        return refuse(fields, &format!("`{other}` goes with `raw`; add it or remove `{other}`"));
    }
    let breaks = match (error, error_after) {
        (None, Some(_)) => return refuse(fields, "`error_after` says when an error comes; add `error`"),
        (Some(_), _) if cut_after.is_some() => {
            return refuse(fields, "a response is cut or has an error; remove `cut_after` or `error`");
        }
        (Some(failure), None) => {
            return match fields.any_of(&Draft::KEYS) {
                None => Ok((Answer::Failure(failure), Break::Never)),
                Some(other) => {
                    refuse(fields, &format!("`error` comes instead of `{other}`; remove one or add `error_after`"))
                }
            };
        }
        (Some(failure), Some(after)) => Break::Error(after as usize, failure),
        (None, None) => cut(cut_after),
    };
    if matches!(breaks, Break::Never) && fields.any_of(&Draft::KEYS[..Draft::ANSWERS]).is_none() {
        return refuse(fields, "has no answer; add `text`, `program`, `search`, `calls`, `native`, `error` or `raw`");
    }
    Ok((Answer::Message(Box::new(Draft::read(fields)?)), breaks))
}

fn cut(after: Option<u64>) -> Break {
    after.map_or(Break::Never, |after| Break::Cut(after as usize))
}

/// Text that may stand in a header.
fn header(fields: &mut Fields, name: &str) -> Result<Option<String>, ScriptError> {
    let Some(node) = fields.take(name) else { return Ok(None) };
    let path = fields.path_of(name);
    header_value(node, &path).map(Some)
}

pub(super) fn header_value(node: Node, path: &str) -> Result<String, ScriptError> {
    let wrong = node.wrong(path, "text of visible ASCII characters, as headers have");
    let text = node.into_text(path)?;
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) { Ok(text) } else { Err(wrong) }
}

impl Pace {
    fn read(fields: &mut Fields) -> Result<Pace, ScriptError> {
        let ms = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or(0));
        Ok(Pace {
            delay: ms(fields.whole("delay_ms", 0..=DAY_MS)?),
            chunk_delay: ms(fields.whole("chunk_delay_ms", 0..=DAY_MS)?),
            chunk_chars: fields.whole("chunk_chars", 1..=u64::from(u32::MAX))?.map(|chars| chars as usize),
        })
    }

    /// Words, each with the space before it.
    pub(super) fn split_text<'a>(&self, text: &'a str) -> Vec<&'a str> {
        match self.chunk_chars {
            Some(chars) => every(chars, text),
            None => between(text, word_ends(text)),
        }
    }

    pub(super) fn split_arguments<'a>(&self, arguments: &'a str) -> Vec<&'a str> {
        every(self.chunk_chars.unwrap_or(ARGUMENT_CHARS), arguments)
    }

    pub(super) fn split_raw(&self, body: &str) -> Vec<String> {
        let pieces = self.chunk_chars.map_or_else(|| vec![body], |chars| every(chars, body));
        pieces.into_iter().map(str::to_owned).collect()
    }
}

/// Where words end, so that a text is its words with the space before each; the last end is the text's.
pub(super) fn word_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut in_word = false;
    for (at, character) in text.char_indices() {
        if character.is_whitespace() && in_word {
            ends.push(at);
        }
        in_word = !character.is_whitespace();
    }
    if !text.is_empty() {
        ends.push(text.len());
    }
    ends
}

fn every(chars: usize, text: &str) -> Vec<&str> {
    let starts = text.char_indices().step_by(chars).skip(1).map(|(at, _)| at);
    let end = if text.is_empty() { None } else { Some(text.len()) };
    between(text, starts.chain(end))
}

fn between(text: &str, ends: impl IntoIterator<Item = usize>) -> Vec<&str> {
    let mut start = 0;
    let piece = |end| {
        let piece = &text[start..end];
        start = end;
        piece
    };
    ends.into_iter().map(piece).collect()
}
