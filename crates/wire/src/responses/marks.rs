//! What our items say in their ids: some clients send nothing else of them back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::Catalog;
use serde_json::{Value, json};

use super::fields;
use crate::carrier;
use crate::ids::{RunId, short_id};
use crate::seal::Sealer;

const CALL: &str = "fc_dc.";
const MESSAGE: &str = "msg_dc_";
/// The text itself follows.
const TEXT: &str = "msg_dct_";
const REASONING: &str = "rs_dc_";
/// The number of the answer in its turn follows, and what the thought was called.
const LATER: &str = "rs_dcn_";
const SEARCH: &str = "tsc_dc_";
const FOUND: &str = "tso_dc_";
const PROGRAM: &str = "prog_";
const RESULT: &str = "prog_out_";
const PROGRAM_CALL: &str = "call_prog_";

/// Beyond this, a text is not put into an id.
const TEXT_BYTES_MAX: usize = 6 << 10;
const NOT_STORED: &str = "(an earlier answer that the client referred to by its id only; it is not stored here)";

/// Says name and id of the call, if the client may send only this back.
pub(super) fn call_item(name: &str, call_id: &str, is_referred_to: bool) -> String {
    if is_referred_to { format!("{CALL}{name}.{call_id}") } else { format!("fc_{}", short_id(name, call_id, 0)) }
}

pub(super) fn message_item(answer_id: &str, place: usize) -> String {
    format!("{MESSAGE}{}", short_id(answer_id, "message", place))
}

pub(super) fn reasoning_item(answer_id: &str, place: usize) -> String {
    format!("{REASONING}{}", short_id(answer_id, "reasoning", place))
}

/// The id of a thought in an answer that is not the first of its turn.
pub(super) fn later_item(answer: usize, id: &str) -> String {
    format!("{LATER}{answer}_{id}")
}

/// Number of the answer, and the id as it was.
fn later(item: &Value) -> Option<(usize, &str)> {
    let (answer, id) = fields::text_of(item, "id").strip_prefix(LATER)?.split_once('_')?;
    Some((answer.parse().ok()?, id))
}

/// Drops thoughts whose answers were for us: a later answer of the same turn has thoughts of its own, and providers
/// want each before what it led to.
fn without_overtaken(items: Vec<(usize, Value)>) -> Vec<(usize, Value)> {
    let mut answer = 0;
    let mut kept = Vec::new();
    for (at, mut item) in items.into_iter().rev() {
        if fields::is_reasoning(&item) {
            let (of, id) = later(&item).map_or((0, None), |(of, id)| (of, Some(id.to_owned())));
            if of < answer {
                continue;
            }
            answer = of;
            if let Some(id) = id {
                item["id"] = Value::from(id);
            }
        } else if !fields::is_said(&item) && !fields::is_call(&item) {
            answer = 0;
        }
        kept.push((at, item));
    }
    kept.reverse();
    kept
}

/// An id that brings the text back; `None` if it is too long.
pub(super) fn text_item(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= TEXT_BYTES_MAX).then(|| format!("{TEXT}{}", URL_SAFE_NO_PAD.encode(text)))
}

pub(super) fn program_item(run: RunId, sealed: &str, is_referred_to: bool) -> String {
    if is_referred_to { format!("{PROGRAM}{sealed}") } else { format!("{PROGRAM}{run}") }
}

/// Ids of a search and of what it found.
pub(super) fn search_items(seed: &str, number: usize) -> (String, String) {
    let id = short_id(seed, "search", number);
    (format!("{SEARCH}{id}"), format!("{FOUND}{id}"))
}

fn is_search(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    id.starts_with(SEARCH) || id.starts_with(FOUND)
}

pub(super) fn program_call(run: RunId) -> String {
    format!("{PROGRAM_CALL}{run}")
}

pub(super) fn result_item(program: &str) -> String {
    format!("{RESULT}{}", program.strip_prefix(PROGRAM_CALL).unwrap_or(program))
}

/// Items in the place of references to them, each with its place in the request. What nobody can bring back is left
/// out.
pub(super) fn resolved(items: Vec<Value>) -> Vec<(usize, Value)> {
    let items = items.into_iter().enumerate().filter_map(|(at, item)| Some((at, resolved_item(item)?)));
    without_overtaken(items.collect())
}

/// The same for a provider that may know what others refer to.
pub(super) fn resolved_ours(items: Vec<Value>) -> Vec<Value> {
    let is_others = |item: &Value| fields::kind(item) == "item_reference" && !is_ours(item);
    let items = items.into_iter().filter_map(|item| if is_others(&item) { Some(item) } else { resolved_item(item) });
    without_overtaken(items.map(|item| (0, item)).collect()).into_iter().map(|(_, item)| item).collect()
}

/// A program's state knows of searches.
fn resolved_item(item: Value) -> Option<Value> {
    match fields::kind(&item) {
        _ if is_search(&item) => None,
        "item_reference" => referred_to(fields::text_of(&item, "id")),
        _ => Some(item),
    }
}

fn referred_to(id: &str) -> Option<Value> {
    if let Some(item) = call_of(id) {
        return Some(item);
    }
    if let Some(run) = id.strip_prefix(RESULT) {
        return Some(json!({"type": "program_output", "id": id, "call_id": format!("{PROGRAM_CALL}{run}")}));
    }
    if let Some(sealed) = id.strip_prefix(PROGRAM).filter(|sealed| Sealer::claims(sealed)) {
        return Some(json!({"type": "program", "id": id, "fingerprint": sealed}));
    }
    if let Some(text) = id.strip_prefix(TEXT) {
        let text = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return Some(fields::message(text.as_deref().unwrap_or(NOT_STORED)));
    }
    id.starts_with("msg_").then(|| fields::message(NOT_STORED))
}

/// Arguments are not needed where an answer is.
fn call_of(id: &str) -> Option<Value> {
    let (name, call_id) = id.strip_prefix(CALL)?.rsplit_once('.')?;
    let mut item = json!({"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"});
    if let Some((namespace, name)) = name.split_once('.') {
        item["namespace"] = Value::from(namespace);
        item["name"] = Value::from(name);
    }
    Some(item)
}

/// Is it a call of a program, or its answer?
pub(super) fn is_sealed(item: &Value) -> bool {
    Sealer::claims(fields::call_id(item))
        || call_of(fields::text_of(item, "id")).is_some_and(|call| Sealer::claims(fields::call_id(&call)))
}

/// Is it a program, its result, or a reference to one?
pub(super) fn is_program(item: &Value) -> bool {
    match fields::kind(item) {
        "program" | "program_output" => true,
        "item_reference" => fields::text_of(item, "id").strip_prefix(PROGRAM).is_some_and(Sealer::claims),
        _ => false,
    }
}

/// Does it have something that no provider understands?
pub(super) fn is_ours(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    [CALL, MESSAGE, TEXT, REASONING, LATER].iter().any(|prefix| id.starts_with(prefix))
        || carrier::unwrap(fields::text_of(item, "encrypted_content")).is_some()
        || Sealer::claims(fields::text_of(item, "fingerprint"))
        || id.strip_prefix(PROGRAM).is_some_and(Sealer::claims)
        || is_search(item)
}

/// An item for a provider. It wants no ids that it did not give, and no thoughts that it cannot read.
pub(super) fn cleaned(mut item: Value) -> Option<Value> {
    if fields::is_reasoning(&item) && (!fields::is_whole_thought(&item) || is_ours(&item)) {
        return None;
    }
    if is_ours(&item)
        && let Some(fields) = item.as_object_mut()
    {
        fields.shift_remove("id");
        if fields.get("type").is_some_and(|kind| kind == "message") {
            fields.shift_remove("status");
        }
    }
    Some(item)
}

/// The same for a provider that is not told of our programs: what they called are calls like others.
pub(super) fn without_programs(mut item: Value) -> Option<Value> {
    let is_ours = |id: &str| id.strip_prefix(PROGRAM_CALL).is_some_and(|run| RunId::parse(run).is_some());
    match fields::kind(&item) {
        "program" if Sealer::claims(fields::text_of(&item, "fingerprint")) => return None,
        "program_output" if is_ours(fields::call_id(&item)) => return None,
        _ => {}
    }
    if fields::caller_id(&item).is_some_and(is_ours)
        && let Some(fields) = item.as_object_mut()
    {
        fields.shift_remove("caller");
    }
    cleaned(item)
}

/// Namespace and name of a tool that a program calls.
pub(super) fn namespace_and_name<'a>(tool: &'a str, catalog: Option<&'a Catalog>) -> (Option<&'a str>, &'a str) {
    let found = catalog.and_then(|catalog| Some(&catalog.tools()[catalog.find(tool)?.0 as usize]));
    found.map_or((None, tool), |tool| (tool.server.as_deref(), tool.name.as_str()))
}
