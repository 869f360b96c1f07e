//! The beginning of a long history, which nobody has to read: it leaves as the text that it came as.

use std::sync::Arc;

use serde_json::{Deserializer, Value};

use crate::client_wire::{Body, ClientWire};
use crate::json_fields::{JsonFields, NotAnObject};
use crate::neutral::field;
use crate::object_scan::ScannedObject;
use crate::request::BadRequest;

/// Shorter histories are parsed in less time than it takes to see how much of them has to be.
const BYTES_MIN: usize = 16 << 10;
/// So many entries are tried as the first one that is read.
const TRIED_MAX: usize = 64;

/// The first entries of a history, up to a message of the user. They hold nothing of the gateway, and reading what follows
/// does not depend on them. On another wire than the client's they have to be read after all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadEntries {
    /// Objects, with commas between them.
    text: Arc<str>,
    count: usize,
}

/// A history, as far as it was parsed.
pub(crate) struct OutlinedHistory {
    pub unread: Option<UnreadEntries>,
    /// All other entries, or whatever stands in place of a history.
    pub read: Value,
}

impl OutlinedHistory {
    /// Reads the value that follows in a body of this client.
    pub(crate) fn of(client: &dyn ClientWire, fields: &mut JsonFields<'_>) -> Result<OutlinedHistory, NotAnObject> {
        let text = fields.rest();
        if text.len() < BYTES_MIN || !text.starts_with(b"[") {
            return Ok(OutlinedHistory { unread: None, read: fields.value()? });
        }
        let offset = |fields: &JsonFields<'_>| text.len() - fields.rest().len();
        let starts = unmarked_entries(client, text, &mut fields.clone())?;
        fields.open_array()?;
        let mut tried = starts.iter().enumerate().skip(1).rev().take(TRIED_MAX);
        let unread = match tried.find(|(_, start)| begins_with_user_text(&text[**start..])) {
            Some((count, first_read)) => {
                fields.skip(first_read - offset(fields));
                // What is not parsed is not checked either.
                let text = std::str::from_utf8(&text[starts[0]..*first_read]).ok().ok_or(NotAnObject)?;
                Some(UnreadEntries { text: text.trim_end().trim_end_matches(',').into(), count })
            }
            None => None,
        };
        let mut read = Vec::new();
        while fields.next_element()? {
            read.push(fields.value()?);
        }
        Ok(OutlinedHistory { unread, read: Value::Array(read) })
    }
}

/// Where the entries of a history begin that hold nothing of the gateway and nothing that links them with others, and the
/// first one that does.
fn unmarked_entries(
    client: &dyn ClientWire,
    text: &[u8],
    fields: &mut JsonFields<'_>,
) -> Result<Vec<usize>, NotAnObject> {
    let words = client.capabilities().linking_words;
    let mut starts = Vec::new();
    fields.open_array()?;
    while fields.next_element()? {
        starts.push(text.len() - fields.rest().len());
        match ScannedObject::of(fields.rest(), words)? {
            ScannedObject::Unmarked { bytes, has_role: true } => fields.skip(bytes),
            // What is no message may be a reference to one.
            ScannedObject::Unmarked { has_role: false, .. } | ScannedObject::Marked => break,
        }
    }
    Ok(starts)
}

/// Whether a text begins with a message of the user, and not with results of tools in such a message.
fn begins_with_user_text(text: &[u8]) -> bool {
    let Some(Ok(entry)) = Deserializer::from_slice(text).into_iter::<Value>().next() else { return false };
    let is_result = |block: &Value| field(block, "type").is_some_and(|kind| kind == "tool_result");
    let has_results =
        field(&entry, "content").and_then(Value::as_array).is_some_and(|blocks| blocks.iter().any(is_result));
    field(&entry, "role").is_some_and(|role| role == "user") && !has_results
}

impl UnreadEntries {
    /// The entries as they came, with commas between them.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// How many there are; at least one.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The entries, parsed.
    pub(crate) fn parse(&self) -> serde_json::Result<Vec<Value>> {
        serde_json::from_str(&format!("[{}]", self.text))
    }

    /// Puts the entries back before those of a body that were read, for whoever needs the whole history.
    pub(crate) fn put_back(unread: Option<UnreadEntries>, body: &mut Body, history: &str) -> Result<(), BadRequest> {
        let Some(unread) = unread else { return Ok(()) };
        let mut entries = unread.parse().map_err(|error| BadRequest::new("body", format!("is not JSON: {error}")))?;
        if let Some(Value::Array(read)) = body.get_mut(history) {
            entries.append(read);
            *read = entries;
        }
        Ok(())
    }
}
