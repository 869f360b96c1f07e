//! Server-sent events.

use serde_json::Value;

use super::draft::Draft;
use super::failure::Failure;
use super::message::Outgoing;
use super::quirk::Quirk;
use super::turn::Break;

pub(super) fn event(name: Option<&str>, data: &str, draft: &Draft) -> String {
    let end = if draft.has(Quirk::Crlf) { "\r\n" } else { "\n" };
    let comment = if draft.has(Quirk::Comments) { format!(": keep-alive{end}{end}") } else { String::new() };
    let name = name.map_or_else(String::new, |name| format!("event: {name}{end}"));
    format!("{comment}{name}data: {data}{end}{end}")
}

/// Events that have the name of their type, with the failure of the turn, if it has one, after as many of them as it
/// says.
pub(super) fn named(
    outgoing: &Outgoing<'_>,
    mut events: Vec<Value>,
    failed: impl Fn(&Failure, usize) -> Value,
) -> Vec<String> {
    if let Break::Error(after, failure) = &outgoing.turn.breaks {
        events.pop();
        events.truncate(*after);
        events.push(failed(failure, events.len()));
    } else if outgoing.draft.has(Quirk::NoDone) {
        events.pop();
    }
    events.iter().map(|data| event(data["type"].as_str(), &data.to_string(), outgoing.draft)).collect()
}
