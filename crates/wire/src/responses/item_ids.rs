//! Ids of our items. Some clients send back only the id, so it carries what is needed to restore the item.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{ArgsDigest, Call, Catalog};
use serde_json::{Map, Value, json};

use super::fields;
use crate::ids::{RunId, short_id};
use crate::model_message::ModelCall;
use crate::neutral::changed;
use crate::reasoning::Reasoning;
use crate::seal::Sealer;

/// A call of a program. The digest of its arguments, the tool and the call id follow.
const CALL: &str = "fc_dc.";
/// A direct call of the model. The item follows.
const DIRECT: &str = "fc_dcd_";
/// A direct call that is too large for an id.
const LARGE: &str = "fc_dcl_";
const MESSAGE: &str = "msg_dc_";
/// A message. Its text follows.
const TEXT: &str = "msg_dct_";
const REASONING: &str = "rs_dc_";
/// Reasoning of a later model response of a turn. The number of the response and the provider's id follow.
const LATER: &str = "rs_dcn_";
const SEARCH: &str = "tsc_dc_";
const FOUND: &str = "tso_dc_";
/// The tools of a server. The name of the list follows.
const TOOL_LIST: &str = "mcpl_dc_";
/// A call that the gateway executed.
const SERVER_CALL: &str = "mcp_dc_";
/// A question whether a call may be made. Its name follows.
const APPROVAL: &str = "mcpr_dc_";
const PROGRAM: &str = "prog_";
const RESULT: &str = "prog_out_";
const PROGRAM_CALL: &str = "call_prog_";

/// The largest item that an id carries.
const BYTES_MAX: usize = 6 << 10;

/// How the client sends earlier items back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentItems {
    Whole,
    /// Perhaps as a reference, so ids have to carry the items.
    ById,
}

impl SentItems {
    /// With `store: false` a client cannot refer to items.
    pub(super) fn of(body: &Map<String, Value>) -> SentItems {
        if body.get("store") == Some(&Value::Bool(false)) { SentItems::Whole } else { SentItems::ById }
    }
}

/// The id of a program's call.
pub(super) fn call_item(call: &Call, call_id: &str, sent: SentItems) -> String {
    match sent {
        SentItems::Whole => format!("fc_{}", short_id(&call.tool, call_id, 0)),
        SentItems::ById => {
            let digest = u32::from_be_bytes(call.args_digest().0);
            format!("{CALL}{digest:08x}.{}.{call_id}", call.tool)
        }
    }
}

/// The id of a direct call. It carries the whole call, because the model's history needs it.
pub(super) fn direct_item(call: &ModelCall, call_id: &str, sent: SentItems) -> String {
    let short = || short_id(&call.name, call_id, 0);
    if sent == SentItems::Whole {
        return format!("fc_{}", short());
    }
    let item = fields::write_call(call_id, call).to_string();
    if item.len() <= BYTES_MAX {
        format!("{DIRECT}{}", URL_SAFE_NO_PAD.encode(item))
    } else {
        format!("{LARGE}{}", short())
    }
}

/// The digest of the arguments, from the id of a program's call.
pub(super) fn digest(item: &Value) -> Option<ArgsDigest> {
    let (digest, _) = fields::text_of(item, "id").strip_prefix(CALL)?.split_once('.')?;
    Some(ArgsDigest(u32::from_str_radix(digest, 16).ok()?.to_be_bytes()))
}

pub(super) fn message_item(response_id: &str, position: usize) -> String {
    format!("{MESSAGE}{}", short_id(response_id, "message", position))
}

pub(super) fn reasoning_item(response_id: &str, position: usize) -> String {
    format!("{REASONING}{}", short_id(response_id, "reasoning", position))
}

/// The id of reasoning in a model response that is not the first of its turn.
pub(super) fn later_item(response: usize, id: &str) -> String {
    format!("{LATER}{response}_{id}")
}

/// An id that carries the text; `None` if the text is empty or too long.
pub(super) fn text_item(text: &str) -> Option<String> {
    (!text.is_empty() && text.len() <= BYTES_MAX).then(|| format!("{TEXT}{}", URL_SAFE_NO_PAD.encode(text)))
}

/// The text that an id carries.
pub(super) fn text(id: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(id.strip_prefix(TEXT)?).ok()?).ok()
}

pub(super) fn program_item(run: RunId, sealed: &str, sent: SentItems) -> String {
    match sent {
        SentItems::Whole => format!("{PROGRAM}{run}"),
        SentItems::ById => format!("{PROGRAM}{sealed}"),
    }
}

/// Ids of a search and of its result.
pub(super) fn search_items(seed: &str, number: usize) -> (String, String) {
    let id = short_id(seed, "search", number);
    (format!("{SEARCH}{id}"), format!("{FOUND}{id}"))
}

pub(super) fn tool_list_item(name: &str) -> String {
    format!("{TOOL_LIST}{name}")
}

/// The name of a list of a server's tools.
pub(super) fn tool_list(item: &Value) -> Option<&str> {
    fields::text_of(item, "id").strip_prefix(TOOL_LIST)
}

pub(super) fn server_call_item(name: &str) -> String {
    format!("{SERVER_CALL}{name}")
}

pub(super) fn approval_item(name: &str) -> String {
    format!("{APPROVAL}{name}")
}

/// The client's answer to a question whether a call may be made, with the name of the question.
pub(super) fn approval_answer(item: &Value) -> Option<(&str, bool)> {
    let id = fields::text_of(item, "approval_request_id").strip_prefix(APPROVAL)?;
    (fields::kind(item) == "mcp_approval_response").then(|| (id, item["approve"] == true))
}

/// Whether it only shows the client what the gateway did, or refers to such an item: a search, the tools of a server, or a
/// call that the gateway executed. States and stores hold what is needed of it.
pub(super) fn is_shown_only(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    [SEARCH, FOUND, TOOL_LIST, SERVER_CALL, APPROVAL].iter().any(|prefix| id.starts_with(prefix))
        || approval_answer(item).is_some()
}

pub(super) fn program_call(run: RunId) -> String {
    format!("{PROGRAM_CALL}{run}")
}

pub(super) fn result_item(program: &str) -> String {
    format!("{RESULT}{}", program.strip_prefix(PROGRAM_CALL).unwrap_or(program))
}

/// Number of the response that reasoning belongs to, and the provider's id.
pub(super) fn later(item: &Value) -> Option<(usize, &str)> {
    let (response, id) = fields::text_of(item, "id").strip_prefix(LATER)?.split_once('_')?;
    Some((response.parse().ok()?, id))
}

/// The call that an id carries. A program's call has no arguments then; their digest is enough to match the answer.
pub(super) fn call_of(id: &str) -> Option<Value> {
    if let Some(item) = id.strip_prefix(DIRECT) {
        let item = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(item).ok()?).ok();
        return item.filter(fields::is_call);
    }
    let (_, call) = id.strip_prefix(CALL)?.split_once('.')?;
    let (name, call_id) = call.rsplit_once('.')?;
    let call = ModelCall { name: name.to_owned(), arguments: "{}".to_owned(), ..ModelCall::default() };
    let mut item = fields::write_call(call_id, &call);
    item["id"] = Value::from(id);
    Some(item)
}

/// Whether the call was too large for its id.
pub(super) fn is_large(id: &str) -> bool {
    id.starts_with(LARGE)
}

/// The program, or its result, that an id carries.
pub(super) fn program_of(id: &str) -> Option<Value> {
    if let Some(run) = id.strip_prefix(RESULT) {
        return Some(json!({"type": "program_output", "id": id, "call_id": format!("{PROGRAM_CALL}{run}")}));
    }
    let sealed = id.strip_prefix(PROGRAM).filter(|sealed| Sealer::is_own_id(sealed))?;
    Some(json!({"type": "program", "id": id, "fingerprint": sealed}))
}

/// Whether it is a call of a program, or its answer.
pub(super) fn is_sealed(item: &Value) -> bool {
    Sealer::is_own_id(fields::call_id(item))
        || call_of(fields::text_of(item, "id")).is_some_and(|call| Sealer::is_own_id(fields::call_id(&call)))
}

/// Whether it is a program, its result, or a reference to one.
pub(super) fn is_program(item: &Value) -> bool {
    match fields::kind(item) {
        "program" | "program_output" => true,
        "item_reference" => fields::text_of(item, "id").strip_prefix(PROGRAM).is_some_and(Sealer::is_own_id),
        _ => false,
    }
}

/// Whether it has ids or fields of the gateway, which no provider understands.
pub(super) fn is_ours(item: &Value) -> bool {
    let id = fields::text_of(item, "id");
    [CALL, DIRECT, LARGE, MESSAGE, TEXT, REASONING, LATER].iter().any(|prefix| id.starts_with(prefix))
        || Reasoning::from_carried(fields::text_of(item, "encrypted_content")).is_some()
        || Sealer::is_own_id(fields::text_of(item, "fingerprint"))
        || id.strip_prefix(PROGRAM).is_some_and(Sealer::is_own_id)
        || is_shown_only(item)
}

/// An item for a provider, which refuses ids that it did not make and reasoning that it cannot read.
pub(super) fn cleaned(item: &Value) -> Option<Cow<'_, Value>> {
    if fields::is_reasoning(item) && (!fields::is_complete_reasoning(item) || is_ours(item)) {
        return None;
    }
    let mut item = Cow::Borrowed(item);
    if is_ours(&item)
        && let Some(fields) = item.to_mut().as_object_mut()
    {
        fields.shift_remove("id");
        if fields.get("type").is_some_and(|kind| kind == "message") {
            fields.shift_remove("status");
        }
    }
    Some(item)
}

/// The same for a request without code mode: our programs are removed, and their calls become ordinary calls.
pub(super) fn without_programs(mut item: Value) -> Option<Value> {
    let is_ours = |id: &str| id.strip_prefix(PROGRAM_CALL).is_some_and(|run| RunId::parse(run).is_some());
    match fields::kind(&item) {
        "program" if Sealer::is_own_id(fields::text_of(&item, "fingerprint")) => return None,
        "program_output" if is_ours(fields::call_id(&item)) => return None,
        _ => {}
    }
    if fields::caller_id(&item).is_some_and(is_ours)
        && let Some(fields) = item.as_object_mut()
    {
        fields.shift_remove("caller");
    }
    changed(item, cleaned)
}

/// Namespace and name of a tool that a program calls.
pub(super) fn namespace_and_name<'a>(tool: &'a str, catalog: Option<&'a Catalog>) -> (Option<&'a str>, &'a str) {
    let found = catalog.and_then(|catalog| Some(&catalog.tools()[catalog.find(tool)?.0 as usize]));
    found.map_or((None, tool), |tool| (tool.server.as_deref(), tool.name.as_str()))
}
