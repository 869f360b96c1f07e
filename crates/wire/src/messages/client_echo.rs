//! Parts of a program's message that the client's history holds, but no id carries.

use serde_json::Value;

use super::fields;
use crate::conversation::ProgramBlock;
use crate::model_message::ModelMessage;
use crate::neutral::without_fields;

/// Where clients want their provider to cache.
pub(super) const CACHE_CONTROL: &str = "cache_control";

/// Which messages of the model the content before a program belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentOrigin {
    /// Only to the one with the program.
    LastMessage,
    /// Perhaps also to earlier ones of the same turn.
    AnyMessage,
}

/// Restores reasoning and server-tool calls that were too large for an id, from the blocks that the client sent back.
pub(super) fn restore_blocks(block: &mut ProgramBlock, content: &[Value], origin: ContentOrigin) {
    let Some((model_message, before)) = block.state.model_messages.split_last_mut() else { return };
    if model_message.client_echo.blocks.is_some() {
        return;
    }
    let is_model_output = |block: &&Value| fields::kind(block) != fields::TOOL_USE && !fields::is_carrier(block);
    let content: Vec<&Value> = content.iter().filter(is_model_output).collect();
    let content = match origin {
        ContentOrigin::LastMessage => &content[..],
        ContentOrigin::AnyMessage => after_messages(&content, before),
    };
    let blocks = match model_message.reasoning.blocks() {
        Some(stored) => with_server_tools(stored, content),
        None => with_text(content, model_message.text.as_deref()),
    };
    let has_more = blocks.iter().any(|block| !is_text(block));
    if has_more && model_message.reasoning.blocks() != Some(&blocks) {
        model_message.client_echo.blocks = Some(blocks);
    }
}

/// Keeps the last cache breakpoint among blocks that the model sees in another form.
pub(super) fn keep_cache_breakpoint<'a>(block: &mut ProgramBlock, blocks: impl Iterator<Item = &'a Value>) {
    let is_direct = |id: &str| !id.is_empty() && block.direct.iter().any(|call| fields::id(&call.call) == id);
    let rewritten = blocks.filter(|block| !is_direct(fields::id(block)) && !is_direct(fields::tool_use_id(block)));
    let with_inner = rewritten.flat_map(|block| fields::blocks(block).iter().chain([block]));
    let breakpoints = with_inner.filter_map(|block| block.get(CACHE_CONTROL).filter(|control| !control.is_null()));
    let last = breakpoints.last();
    if let (Some(breakpoint), Some(model_message)) = (last.cloned(), block.state.model_messages.last_mut()) {
        model_message.client_echo.cache_control = Some(breakpoint);
    }
}

fn is_text(block: &Value) -> bool {
    fields::kind(block) == "text"
}

/// The blocks that follow those of the earlier messages. If none of these is known, the blocks from the last reasoning
/// on.
fn after_messages<'a, 'b>(content: &'b [&'a Value], before: &[ModelMessage]) -> &'b [&'a Value] {
    if before.is_empty() {
        return content;
    }
    let known = || before.iter().filter_map(|message| message.reasoning.blocks()).flatten();
    let is_known = |block: &&&Value| known().any(|known| is_same(known, block));
    if let Some(last) = content.iter().rposition(|block| is_known(&block)) {
        return &content[last + 1..];
    }
    let last_reasoning = content.iter().rposition(|block| fields::is_reasoning(block));
    &content[last_reasoning.unwrap_or_default()..]
}

/// Whether it is the same block. Clients may add fields to blocks.
fn is_same(one: &Value, other: &Value) -> bool {
    let keys: &[&str] = match fields::kind(one) {
        "text" => &["text"],
        fields::THINKING => &["signature"],
        fields::REDACTED => &["data"],
        _ if !fields::id(one).is_empty() => &["id"],
        _ if !fields::tool_use_id(one).is_empty() => &["tool_use_id"],
        _ => return one == other,
    };
    fields::kind(one) == fields::kind(other) && keys.iter().all(|key| one.get(key) == other.get(key))
}

/// The blocks that an id carried, with the server-tool calls between them. An id carries all reasoning or none.
fn with_server_tools(stored: &[Value], content: &[&Value]) -> Vec<Value> {
    let mut blocks = Vec::new();
    let mut next = 0;
    for block in content {
        let is_stored = |stored: &Value| is_same(stored, block);
        if let Some(at) = stored[next..].iter().position(is_stored) {
            blocks.extend_from_slice(&stored[next..=next + at]);
            next += at + 1;
        } else if !is_text(block) && !fields::is_reasoning(block) && !stored.iter().any(is_stored) {
            blocks.push(uncached(block));
        }
    }
    blocks.extend_from_slice(&stored[next..]);
    blocks
}

/// The client's blocks, and the text that is missing from them: the end of the text may not have been streamed.
fn with_text(content: &[&Value], text: Option<&str>) -> Vec<Value> {
    let text = text.unwrap_or_default();
    let sent: String =
        content.iter().filter_map(|block| block.get("text").filter(|_| is_text(block))?.as_str()).collect();
    let rest = text.strip_prefix(&sent);
    let blocks = content.iter().filter(|block| !fields::is_blank(block) && (rest.is_some() || !is_text(block)));
    let mut blocks: Vec<Value> = blocks.map(|block| uncached(block)).collect();
    blocks.extend(Some(fields::text_block(rest.unwrap_or(text))).filter(|block| !fields::is_blank(block)));
    blocks
}

fn uncached(block: &Value) -> Value {
    without_fields(block, &[CACHE_CONTROL])
}
