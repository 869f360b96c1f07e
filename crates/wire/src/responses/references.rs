//! Replaces references by the items that they refer to.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{fields, item_ids};
use crate::model_message::{CallFormat, ModelCall};
use crate::request::BadRequest;
use crate::seal::Sealer;

const NOT_STORED: &str = "(an earlier answer that the client referred to by its id only; it is not stored here)";
const TOO_LARGE: &str = "the arguments of this call are not stored here, and are too large for its id; set \
`store: false`, so that the whole call is sent";

/// The name of a call of which only the answer is known.
const UNKNOWN: &str = "unknown";

/// Replaces references by items. Each item has its position in the request. References to items that cannot be restored
/// are left out.
pub(super) fn resolve(items: Vec<Value>) -> Result<Vec<(usize, Value)>, BadRequest> {
    let mut resolved = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        if is_reference(&item) && item_ids::is_large(fields::text_of(&item, "id")) {
            return Err(BadRequest::new(format!("input[{at}].id"), TOO_LARGE));
        }
        let item = if is_foreign_call_reference(&item) { Some(item) } else { resolve_item(item) };
        resolved.extend(item.map(|item| (at, item)));
    }
    Ok(without_superseded_reasoning(with_foreign_calls(resolved)))
}

/// Replaces only references to items of the gateway. The provider may have stored the others.
pub(super) fn resolve_own(items: Vec<Value>) -> Vec<Value> {
    let is_foreign = |item: &Value| is_reference(item) && !item_ids::is_ours(item);
    let items = items.into_iter().filter_map(|item| if is_foreign(&item) { Some(item) } else { resolve_item(item) });
    without_superseded_reasoning(items.map(|item| (0, item)).collect()).into_iter().map(|(_, item)| item).collect()
}

fn is_reference(item: &Value) -> bool {
    fields::kind(item) == "item_reference"
}

/// What only shows the client something is left out.
fn resolve_item(item: Value) -> Option<Value> {
    if item_ids::is_shown_only(&item) {
        return None;
    }
    if is_reference(&item) { referred_to(fields::text_of(&item, "id")) } else { Some(item) }
}

fn referred_to(id: &str) -> Option<Value> {
    let text = item_ids::text(id);
    let message = || id.starts_with("msg_").then(|| fields::message(text.as_deref().unwrap_or(NOT_STORED)));
    item_ids::call_of(id).or_else(|| item_ids::program_of(id)).or_else(message)
}

/// Whether it is a reference to a call that the gateway did not send.
fn is_foreign_call_reference(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    is_reference(item) && !item_ids::is_ours(item) && ["fc_", "ctc_"].iter().any(|prefix| id.starts_with(prefix))
}

/// Replaces references to calls that the gateway did not send by calls made up from their answers, because providers
/// refuse answers without their calls.
fn with_foreign_calls(items: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
    if !items.iter().any(|(_, item)| is_foreign_call_reference(item)) {
        return items;
    }
    let mut known: BTreeSet<String> = items
        .iter()
        .filter(|(_, item)| fields::is_call(item))
        .map(|(_, item)| fields::call_id(item).to_owned())
        .collect();
    // Where they stand, and what their calls have to look like.
    let mut answers: Vec<(usize, CallFormat, String)> = Vec::new();
    for (at, item) in items.iter().rev() {
        let id = fields::call_id(item);
        let is_ours = Sealer::is_own_id(id) || fields::caller_id(item).is_some();
        if fields::is_output(item) && !is_ours && known.insert(id.to_owned()) {
            let format = match fields::kind(item) {
                "custom_tool_call_output" => CallFormat::Text,
                _ => CallFormat::Json,
            };
            answers.push((*at, format, id.to_owned()));
        }
    }
    let call = |(at, item): (usize, Value)| {
        if !is_foreign_call_reference(&item) {
            return Some((at, item));
        }
        let (_, format, id) = answers.pop_if(|(of, ..)| *of > at)?;
        let arguments = match format {
            CallFormat::Text => "",
            CallFormat::Json => "{}",
        };
        let call =
            ModelCall { name: UNKNOWN.to_owned(), arguments: arguments.to_owned(), format, ..ModelCall::default() };
        Some((at, fields::write_call(&id, &call)))
    };
    items.into_iter().filter_map(call).collect()
}

/// Drops the reasoning of earlier model responses of a turn, with the server-tool calls that follow it. The gateway
/// replied to those responses itself. The last response of the turn has its own reasoning, and providers require each
/// reasoning item right before the item that it belongs to.
fn without_superseded_reasoning(items: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
    let mut last_response = 0;
    let mut superseded = BTreeSet::new();
    let mut items = items;
    for (position, (_, item)) in items.iter_mut().enumerate().rev() {
        if fields::is_reasoning(item) {
            let later = item_ids::later(item).map(|(response, id)| (response, id.to_owned()));
            let response = later.as_ref().map_or(0, |(response, _)| *response);
            if response < last_response {
                superseded.insert(position);
            }
            last_response = last_response.max(response);
            if let Some((_, id)) = later {
                item["id"] = Value::from(id);
            }
        } else if !fields::is_model_output(item) && !fields::is_call(item) {
            last_response = 0;
        }
    }
    let mut drops = false;
    let retained = items.into_iter().enumerate().filter_map(|(position, (at, item))| {
        let is_server_tool =
            fields::is_model_output(&item) && !fields::is_message(&item) && !fields::is_client_call(&item);
        drops = superseded.contains(&position) || drops && is_server_tool && !fields::is_reasoning(&item);
        (!drops).then_some((at, item))
    });
    retained.collect()
}
