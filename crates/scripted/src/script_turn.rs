//! A `[[turn]]` of the script file: which requests it answers, with what, and with which delays.

use std::time::Duration;

use crate::conditions::Conditions;
use crate::message_template::MessageTemplate;
use crate::provider_failure::ProviderFailure;
use crate::script_file::{TomlFields, TomlNode};
use crate::scripted_conversation::{ScriptedConversation, ToolUse};
use crate::{BodyChunk, ReplyEnding, ScriptFileError, ScriptedReply, content_type};

#[derive(Debug)]
pub(crate) struct ScriptTurn {
    pub(crate) line: usize,
    when: Conditions,
    pub(crate) answer: TurnAnswer,
    pub(crate) pace: Pace,
    pub(crate) early_end: EarlyEnd,
}

#[derive(Debug)]
pub(crate) enum TurnAnswer {
    Message(Box<MessageTemplate>),
    Failure(ProviderFailure),
    /// A body that is sent unchanged.
    Raw {
        status: u16,
        content_type: Option<String>,
        body: String,
    },
}

/// What ends a response early, and after how many chunks.
#[derive(Debug)]
pub(crate) enum EarlyEnd {
    Never,
    /// The connection is closed.
    Cut(usize),
    Error(usize, ProviderFailure),
}

#[derive(Debug)]
pub(crate) struct Pace {
    /// Before the first byte.
    pub(crate) delay: Duration,
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

/// Characters of arguments in one delta, about as many as providers send.
const ARGUMENT_CHARS: usize = 20;

const DAY_MS: u64 = 86_400_000;

impl ScriptTurn {
    pub(crate) fn read(node: TomlNode, path: &str) -> Result<ScriptTurn, ScriptFileError> {
        let keys: Vec<_> = MessageTemplate::KEYS.into_iter().chain(OTHER_KEYS).collect();
        let mut fields = TomlFields::read(node, path, &keys)?;
        let when_path = fields.path_of("when");
        let when = fields.take("when").map(|node| Conditions::read(node, &when_path)).transpose()?.unwrap_or_default();
        let pace = Pace::read(&mut fields)?;
        let (answer, early_end) = answer(&mut fields)?;
        Ok(ScriptTurn { line: fields.line(), when, answer, pace, early_end })
    }

    /// The conditions that the request does not meet. Empty if this turn answers it.
    pub(crate) fn unmet(&self, conversation: &ScriptedConversation<'_>) -> Vec<String> {
        let mut unmet = self.when.unmet(conversation);
        if let TurnAnswer::Message(template) = &self.answer
            && template.calls_tools()
            && conversation.tool_use == ToolUse::Forbidden
        {
            unmet.push("it calls tools, which 'tool_choice' forbids".into());
        }
        unmet
    }

    /// A reply in chunks, with the delays of the turn. `cut_after` is applied.
    pub(crate) fn paced(&self, status: u16, content: &str, mut chunks: Vec<String>) -> ScriptedReply {
        let mut ending = ReplyEnding::Complete;
        if let EarlyEnd::Cut(after) = self.early_end {
            chunks.truncate(after);
            ending = ReplyEnding::Cut;
        }
        if chunks.is_empty() && !self.pace.delay.is_zero() {
            chunks.push(String::new());
        }
        let delays = std::iter::once(self.pace.delay).chain(std::iter::repeat(self.pace.chunk_delay));
        let chunks =
            chunks.into_iter().zip(delays).map(|(chunk, delay)| BodyChunk { delay, bytes: chunk.into() }).collect();
        ScriptedReply { status, headers: vec![content_type(content)], chunks, ending }
    }
}

fn answer(fields: &mut TomlFields) -> Result<(TurnAnswer, EarlyEnd), ScriptFileError> {
    let cut_after = fields.whole("cut_after", 0..=u64::MAX)?;
    let error_after = fields.whole("error_after", 0..=u64::MAX)?;
    let error_path = fields.path_of("error");
    let error = fields.take("error").map(|node| ProviderFailure::read(node, &error_path)).transpose()?;
    let refuse = |fields: &TomlFields, message: &str| Err(fields.error(message));

    if let Some(body) = fields.text("raw")? {
        if let Some(other) = fields.any_of(&MessageTemplate::KEYS) {
            return refuse(fields, &format!("`raw` is the whole answer; remove it or `{other}`"));
        }
        if error.is_some() || error_after.is_some() {
            return refuse(fields, "`raw` is the whole answer; remove it or `error` (`status` goes with `raw`)");
        }
        let status = fields.whole("status", 200..=599)?.map_or(200, |status| status as u16);
        let content_type = header(fields, "content_type")?;
        return Ok((TurnAnswer::Raw { status, content_type, body }, cut(cut_after)));
    }
    if let Some(other) = fields.any_of(&["content_type", "status"]) {
        return refuse(fields, &format!("`{other}` goes with `raw`; add it or remove `{other}`"));
    }
    let early_end = match (error, error_after) {
        (None, Some(_)) => return refuse(fields, "`error_after` says when an error comes; add `error`"),
        (Some(_), _) if cut_after.is_some() => {
            return refuse(fields, "a response is cut or has an error; remove `cut_after` or `error`");
        }
        (Some(failure), None) => {
            return match fields.any_of(&MessageTemplate::KEYS) {
                None => Ok((TurnAnswer::Failure(failure), EarlyEnd::Never)),
                Some(other) => {
                    refuse(fields, &format!("`error` comes instead of `{other}`; remove one or add `error_after`"))
                }
            };
        }
        (Some(failure), Some(after)) => EarlyEnd::Error(after as usize, failure),
        (None, None) => cut(cut_after),
    };
    if matches!(early_end, EarlyEnd::Never)
        && fields.any_of(&MessageTemplate::KEYS[..MessageTemplate::ANSWERS]).is_none()
    {
        return refuse(fields, "has no answer; add `text`, `program`, `search`, `calls`, `native`, `error` or `raw`");
    }
    Ok((TurnAnswer::Message(Box::new(MessageTemplate::read(fields)?)), early_end))
}

fn cut(after: Option<u64>) -> EarlyEnd {
    after.map_or(EarlyEnd::Never, |after| EarlyEnd::Cut(after as usize))
}

/// Reads a text that is valid as the value of a header.
fn header(fields: &mut TomlFields, name: &str) -> Result<Option<String>, ScriptFileError> {
    let Some(node) = fields.take(name) else { return Ok(None) };
    let path = fields.path_of(name);
    header_value(node, &path).map(Some)
}

pub(crate) fn header_value(node: TomlNode, path: &str) -> Result<String, ScriptFileError> {
    let wrong = node.wrong(path, "text of visible ASCII characters, as headers have");
    let text = node.into_text(path)?;
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) { Ok(text) } else { Err(wrong) }
}

impl Pace {
    fn read(fields: &mut TomlFields) -> Result<Pace, ScriptFileError> {
        let ms = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or(0));
        Ok(Pace {
            delay: ms(fields.whole("delay_ms", 0..=DAY_MS)?),
            chunk_delay: ms(fields.whole("chunk_delay_ms", 0..=DAY_MS)?),
            chunk_chars: fields.whole("chunk_chars", 1..=u64::from(u32::MAX))?.map(|chars| chars as usize),
        })
    }

    /// Splits text into words, each with the space before it, unless `chunk_chars` is set.
    pub(crate) fn split_text<'a>(&self, text: &'a str) -> Vec<&'a str> {
        match self.chunk_chars {
            Some(chars) => split_every(chars, text),
            None => split_at_ends(text, word_ends(text)),
        }
    }

    pub(crate) fn split_arguments<'a>(&self, arguments: &'a str) -> Vec<&'a str> {
        split_every(self.chunk_chars.unwrap_or(ARGUMENT_CHARS), arguments)
    }

    pub(crate) fn split_raw(&self, body: &str) -> Vec<String> {
        let chunks = self.chunk_chars.map_or_else(|| vec![body], |chars| split_every(chars, body));
        chunks.into_iter().map(str::to_owned).collect()
    }
}

/// Offsets at which words end. The last one is the end of the text, so that the slices between them are the whole text.
pub(crate) fn word_ends(text: &str) -> Vec<usize> {
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

fn split_every(chars: usize, text: &str) -> Vec<&str> {
    let starts = text.char_indices().step_by(chars).skip(1).map(|(at, _)| at);
    let end = if text.is_empty() { None } else { Some(text.len()) };
    split_at_ends(text, starts.chain(end))
}

fn split_at_ends(text: &str, ends: impl IntoIterator<Item = usize>) -> Vec<&str> {
    let mut start = 0;
    let piece = |end| {
        let piece = &text[start..end];
        start = end;
        piece
    };
    ends.into_iter().map(piece).collect()
}
