//! What a client brings back of a program's message that no id carries.

use serde_json::Value;

use super::fields;
use crate::conversation::ProgramBlock;
use crate::model_message::ModelMessage;

/// Where clients want their provider to cache.
pub(super) const CACHE_CONTROL: &str = "cache_control";

/// Thoughts, and what the provider did itself, that were too large for an id are where the client has put them.
/// `is_last`: all of it is of the last message of the model.
pub(super) fn take_back(block: &mut ProgramBlock, content: &[Value], is_last: bool) {
    let Some((model_message, before)) = block.state.model_messages.split_last_mut() else { return };
    if model_message.client_echo.blocks.is_some() {
        return;
    }
    let is_of_model = |block: &&Value| fields::kind(block) != fields::TOOL_USE && !fields::is_carrier(block);
    let content: Vec<&Value> = content.iter().filter(is_of_model).collect();
    let content = if is_last { &content[..] } else { after(&content, before) };
    let blocks = match model_message.reasoning.blocks() {
        Some(kept) => completed(kept, content),
        None => with_text(content, model_message.text.as_deref()),
    };
    let has_more = blocks.iter().any(|block| !is_text(block));
    if has_more && model_message.reasoning.blocks() != Some(&blocks) {
        model_message.client_echo.blocks = Some(blocks);
    }
}

/// The last place where the client wants its provider to cache, among blocks that the model is shown otherwise.
pub(super) fn keep_cached<'a>(block: &mut ProgramBlock, blocks: impl Iterator<Item = &'a Value>) {
    let direct = |id: &str| !id.is_empty() && block.direct.iter().any(|given| fields::id(&given.call) == id);
    let rewritten = blocks.filter(|block| !direct(fields::id(block)) && !direct(fields::tool_use_id(block)));
    let places = rewritten.flat_map(|block| fields::blocks(block).iter().chain([block]));
    let cached = places.filter_map(|block| block.get(CACHE_CONTROL).filter(|cached| !cached.is_null())).last();
    if let (Some(cached), Some(model_message)) = (cached.cloned(), block.state.model_messages.last_mut()) {
        model_message.client_echo.cache_control = Some(cached);
    }
}

fn is_text(block: &Value) -> bool {
    fields::kind(block) == "text"
}

/// What is surely not of the messages before.
fn after<'a, 'b>(content: &'b [&'a Value], before: &[ModelMessage]) -> &'b [&'a Value] {
    if before.is_empty() {
        return content;
    }
    let known = || before.iter().filter_map(|message| message.reasoning.blocks()).flatten();
    let is_known = |block: &&&Value| known().any(|known| is_same(known, block));
    if let Some(last) = content.iter().rposition(|block| is_known(&block)) {
        return &content[last + 1..];
    }
    let last_thought = content.iter().rposition(|block| fields::is_reasoning(block));
    &content[last_thought.unwrap_or_default()..]
}

/// The same block, though a client may have put something to it.
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

/// What an id carries, with what the provider did itself. Thoughts are carried all or not at all.
fn completed(kept: &[Value], content: &[&Value]) -> Vec<Value> {
    let mut blocks = Vec::new();
    let mut next = 0;
    for block in content {
        if let Some(at) = kept[next..].iter().position(|kept| is_same(kept, block)) {
            blocks.extend_from_slice(&kept[next..=next + at]);
            next += at + 1;
        } else if !is_text(block) && !fields::is_reasoning(block) && !kept.iter().any(|kept| is_same(kept, block)) {
            blocks.push(uncached(block));
        }
    }
    blocks.extend_from_slice(&kept[next..]);
    blocks
}

/// Blocks that the client has, with text that it may have been told only in part.
fn with_text(content: &[&Value], text: Option<&str>) -> Vec<Value> {
    let text = text.unwrap_or_default();
    let told: String =
        content.iter().filter_map(|block| block.get("text").filter(|_| is_text(block))?.as_str()).collect();
    let rest = text.strip_prefix(&told);
    let blocks = content.iter().filter(|block| !fields::is_blank(block) && (rest.is_some() || !is_text(block)));
    let mut blocks: Vec<Value> = blocks.map(|block| uncached(block)).collect();
    blocks.extend(Some(fields::text_block(rest.unwrap_or(text))).filter(|block| !fields::is_blank(block)));
    blocks
}

fn uncached(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(fields) = block.as_object_mut() {
        fields.shift_remove(CACHE_CONTROL);
    }
    block
}
