//! Server-sent events, with the quirks that concern their framing.

use serde_json::Value;

use crate::message_template::MessageTemplate;
use crate::provider_failure::ProviderFailure;
use crate::quirk::Quirk;
use crate::reply_message::OutgoingMessage;
use crate::script_turn::EarlyEnd;

pub(crate) fn event(name: Option<&str>, data: &str, template: &MessageTemplate) -> String {
    let end = if template.has(Quirk::Crlf) { "\r\n" } else { "\n" };
    let comment = if template.has(Quirk::Comments) { format!(": keep-alive{end}{end}") } else { String::new() };
    let name = name.map_or_else(String::new, |name| format!("event: {name}{end}"));
    format!("{comment}{name}data: {data}{end}{end}")
}

/// Encodes events that are named after their `type`. A turn with `error_after` ends them with its error.
pub(crate) fn named(
    outgoing: &OutgoingMessage<'_>,
    mut events: Vec<Value>,
    failed: impl Fn(&ProviderFailure, usize) -> Value,
) -> Vec<String> {
    if let EarlyEnd::Error(after, failure) = &outgoing.turn.early_end {
        events.pop();
        events.truncate(*after);
        events.push(failed(failure, events.len()));
    } else if outgoing.template.has(Quirk::NoDone) {
        events.pop();
    }
    events.iter().map(|data| event(data["type"].as_str(), &data.to_string(), outgoing.template)).collect()
}
