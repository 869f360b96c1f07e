//! Questions to explicit clients whether a call may be made, and their answers, as blocks of messages.
//!
//! The provider has no such blocks. These have the names of the Responses API, and the fields of `mcp_tool_use`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fields;
use crate::encoder::ServerCall;
use crate::request::BadRequest;

const REQUEST: &str = "mcp_approval_request";
const RESPONSE: &str = "mcp_approval_response";
/// Prefix of the ids of our questions.
const PREFIX: &str = "mcpr_dc_";

/// The block that asks about a call.
pub(super) fn request_block(call: &ServerCall<'_>) -> Value {
    json!({
        "type": REQUEST,
        "id": format!("{PREFIX}{}", call.approval_id()),
        "name": call.tool,
        "input": call.call.args,
        "server_name": call.server,
    })
}

/// Whether a block is one of our questions, or the answer to one.
pub(super) fn is_ours(block: &Value) -> bool {
    let id = match fields::kind(block) {
        REQUEST => fields::id(block),
        RESPONSE => fields::approval_request_id(block),
        _ => return false,
    };
    id.starts_with(PREFIX)
}

/// Takes our questions and their answers out of a history. Returns the answers, by the call that was asked about.
pub(super) fn take(messages: &mut Vec<Value>) -> Result<BTreeMap<String, bool>, BadRequest> {
    let mut answers = BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        for (position, block) in fields::blocks(message).iter().enumerate() {
            if fields::kind(block) == RESPONSE
                && let Some(call) = fields::approval_request_id(block).strip_prefix(PREFIX)
            {
                let approve = block.get("approve").and_then(Value::as_bool).ok_or_else(|| BadRequest {
                    param: format!("messages[{at}].content[{position}].approve"),
                    message: "must be true or false".to_owned(),
                })?;
                answers.insert(call.to_owned(), approve);
            }
        }
    }
    if messages.iter().flat_map(fields::blocks).any(is_ours) {
        messages.retain_mut(|message| {
            let Some(content) = message.get_mut("content").and_then(Value::as_array_mut) else { return true };
            let had_blocks = !content.is_empty();
            content.retain(|block| !is_ours(block));
            !(had_blocks && content.is_empty())
        });
    }
    Ok(answers)
}
