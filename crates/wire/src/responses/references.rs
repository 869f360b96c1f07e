//! Items in the place of references to them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{fields, item_ids};
use crate::model_message::{CallFormat, ModelCall};
use crate::request::BadRequest;
use crate::seal::Sealer;

const NOT_STORED: &str = "(an earlier answer that the client referred to by its id only; it is not stored here)";
const TOO_LARGE: &str = "the arguments of this call are not stored here, and are too large for its id; set \
`store: false`, so that the whole call is sent";

/// What a call is called of which nothing is known.
const UNKNOWN: &str = "unknown";

/// Items in the place of references to them, each with its place in the request. What nobody can bring back is left
/// out.
pub(super) fn resolved(items: Vec<Value>) -> Result<Vec<(usize, Value)>, BadRequest> {
    let mut resolved = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        if is_reference(&item) && item_ids::is_large(fields::text_of(&item, "id")) {
            return Err(BadRequest::new(format!("input[{at}].id"), TOO_LARGE));
        }
        let item = if is_others_call(&item) { Some(item) } else { resolved_item(item) };
        resolved.extend(item.map(|item| (at, item)));
    }
    Ok(without_overtaken(with_others_calls(resolved)))
}

/// The same for a provider that may know what others refer to.
pub(super) fn resolved_ours(items: Vec<Value>) -> Vec<Value> {
    let is_others = |item: &Value| is_reference(item) && !item_ids::is_ours(item);
    let items = items.into_iter().filter_map(|item| if is_others(&item) { Some(item) } else { resolved_item(item) });
    without_overtaken(items.map(|item| (0, item)).collect()).into_iter().map(|(_, item)| item).collect()
}

fn is_reference(item: &Value) -> bool {
    fields::kind(item) == "item_reference"
}

/// A program's state knows of searches.
fn resolved_item(item: Value) -> Option<Value> {
    if item_ids::is_search(&item) {
        return None;
    }
    if is_reference(&item) { referred_to(fields::text_of(&item, "id")) } else { Some(item) }
}

fn referred_to(id: &str) -> Option<Value> {
    let text = item_ids::text(id);
    let message = || id.starts_with("msg_").then(|| fields::message(text.as_deref().unwrap_or(NOT_STORED)));
    item_ids::call_of(id).or_else(|| item_ids::program_of(id)).or_else(message)
}

/// A reference to a call that did not go through us.
fn is_others_call(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    is_reference(item) && !item_ids::is_ours(item) && ["fc_", "ctc_"].iter().any(|prefix| id.starts_with(prefix))
}

/// No provider takes answers without their calls: those that others made stand where the references were, as far as
/// the answers tell of them.
fn with_others_calls(items: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
    if !items.iter().any(|(_, item)| is_others_call(item)) {
        return items;
    }
    let mut known: BTreeSet<String> = items
        .iter()
        .filter(|(_, item)| fields::is_call(item))
        .map(|(_, item)| fields::call_id(item).to_owned())
        .collect();
    let mut answers: Vec<(usize, Value)> = Vec::new();
    for (at, item) in items.iter().rev() {
        let id = fields::call_id(item);
        let is_ours = Sealer::is_own_id(id) || fields::caller_id(item).is_some();
        if fields::is_output(item) && !is_ours && known.insert(id.to_owned()) {
            answers.push((*at, item.clone()));
        }
    }
    let call = |(at, item): (usize, Value)| {
        if !is_others_call(&item) {
            return Some((at, item));
        }
        let (_, answer) = answers.pop_if(|(of, _)| *of > at)?;
        let (format, arguments) = match fields::kind(&answer) {
            "custom_tool_call_output" => (CallFormat::Text, ""),
            _ => (CallFormat::Json, "{}"),
        };
        let call =
            ModelCall { name: UNKNOWN.to_owned(), arguments: arguments.to_owned(), format, ..ModelCall::default() };
        Some((at, fields::written(fields::call_id(&answer), &call)))
    };
    items.into_iter().filter_map(call).collect()
}

/// Drops thoughts whose answers were for us, with what they led to: a later answer of the same turn has thoughts of
/// its own, and providers want each before what it led to.
fn without_overtaken(items: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
    let mut answer = 0;
    let mut kept = Vec::new();
    for (at, mut item) in items.into_iter().rev() {
        let mut is_overtaken = false;
        if fields::is_reasoning(&item) {
            let (of, id) = item_ids::later(&item).map_or((0, None), |(of, id)| (of, Some(id.to_owned())));
            is_overtaken = of < answer;
            answer = answer.max(of);
            if let Some(id) = id {
                item["id"] = Value::from(id);
            }
        } else if !fields::is_model_output(&item) && !fields::is_call(&item) {
            answer = 0;
        }
        kept.push((at, item, is_overtaken));
    }
    let mut leads = false;
    let is_kept = |(at, item, is_overtaken): (usize, Value, bool)| {
        let is_led_to = fields::is_model_output(&item) && !fields::is_message(&item) && !fields::is_client_call(&item);
        leads = is_overtaken || leads && is_led_to && !fields::is_reasoning(&item);
        (!leads).then_some((at, item))
    };
    kept.into_iter().rev().filter_map(is_kept).collect()
}
