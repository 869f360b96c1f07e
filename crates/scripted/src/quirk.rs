//! Deviations from the wire format that real providers have.

use crate::ScriptFileError;
use crate::script_file::TomlNode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// Deltas of tool calls have no `index`.
    NoIndex,
    /// Every delta of a tool call has its id.
    RepeatId,
    /// Every delta of a tool call has its name.
    RepeatName,
    /// Lines end with CR LF.
    Crlf,
    /// A comment goes before every chunk.
    Comments,
    /// No `[DONE]` at the end.
    NoDone,
    /// Usage is inside the choice that has the finish reason (Kimi).
    UsageInLastChoice,
    /// Usage is in the chunk that has the finish reason (`DeepSeek`, Mistral).
    UsageInLastChunk,
    /// Arguments are a JSON value, not a string that holds JSON.
    ObjectArguments,
    /// `finish_reason` stays null.
    NoFinishReason,
    /// All tool calls come whole in one delta.
    ManyCallsInOneDelta,
    /// The stream begins with a chunk that has no choices (Azure).
    EmptyFirstChoice,
    /// `role` is in every delta.
    RoleInEveryDelta,
    /// Deltas without text have `content: null`.
    NullContent,
}

const NAMES: [(&str, Quirk); 14] = [
    ("no_index", Quirk::NoIndex),
    ("repeat_id", Quirk::RepeatId),
    ("repeat_name", Quirk::RepeatName),
    ("crlf", Quirk::Crlf),
    ("comments", Quirk::Comments),
    ("no_done", Quirk::NoDone),
    ("usage_in_last_choice", Quirk::UsageInLastChoice),
    ("usage_in_last_chunk", Quirk::UsageInLastChunk),
    ("object_arguments", Quirk::ObjectArguments),
    ("no_finish_reason", Quirk::NoFinishReason),
    ("many_calls_in_one_delta", Quirk::ManyCallsInOneDelta),
    ("empty_first_choice", Quirk::EmptyFirstChoice),
    ("role_in_every_delta", Quirk::RoleInEveryDelta),
    ("null_content", Quirk::NullContent),
];

impl Quirk {
    pub(crate) fn read(node: TomlNode, path: &str) -> Result<Quirk, ScriptFileError> {
        let line = node.line;
        let text = node.into_text(path)?;
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, quirk)| *quirk).ok_or_else(|| {
            let names: Vec<_> = NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
            ScriptFileError::new(line, format!("{path}: `{text}` is not known; the quirks are {}", names.join(", ")))
        })
    }
}
