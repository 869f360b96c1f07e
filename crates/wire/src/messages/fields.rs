//! Reads and writes the fields of messages and their blocks.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::translate;
use crate::ids::RunId;
use crate::model_message::{CallFormat, ModelCall, ModelMessage};
use crate::neutral::{ToolStatus, field};
use crate::reasoning::Reasoning;
use crate::remarks::{Beside, MediaBeside, classify, is_titled_as_user_words};
use crate::seal::Sealer;
use crate::tool_answer::ToolAnswer;

pub(super) const TOOL_USE: &str = "tool_use";
pub(super) const TOOL_RESULT: &str = "tool_result";
pub(super) const THINKING: &str = "thinking";
pub(super) const REDACTED: &str = "redacted_thinking";
pub(super) const SERVER_TOOL_USE: &str = "server_tool_use";
pub(super) const PROGRAM_RESULT: &str = "code_execution_tool_result";
/// The name of the provider's tool that runs programs. Explicit clients see our programs as its calls.
pub(super) const PROGRAM: &str = "code_execution";

pub(super) const MCP_TOOL_USE: &str = "mcp_tool_use";

const SERVER_PREFIX: &str = "srvtoolu_";
/// Prefix of the ids of calls that the gateway executed.
const SERVER_CALL_PREFIX: &str = "mcptoolu_dc_";
/// Prefix of the ids of tool searches that the gateway answered.
const SEARCH_PREFIX: &str = "srvtoolu_dcs_";

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    field(value, key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn role(message: &Value) -> &str {
    text_of(message, "role")
}

pub(super) fn kind(block: &Value) -> &str {
    text_of(block, "type")
}

pub(super) fn id(block: &Value) -> &str {
    text_of(block, "id")
}

pub(super) fn name(block: &Value) -> &str {
    text_of(block, "name")
}

/// The id of the call that a result belongs to.
pub(super) fn tool_use_id(block: &Value) -> &str {
    text_of(block, "tool_use_id")
}

/// The id of the question that an answer belongs to.
pub(super) fn approval_request_id(block: &Value) -> &str {
    text_of(block, "approval_request_id")
}

/// The blocks of a message. Content that is a string has none; see [`content`].
pub(super) fn blocks(message: &Value) -> &[Value] {
    field(message, "content").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The blocks of a message. Content that is a string becomes a text block.
pub(super) fn content(message: &Value) -> Cow<'_, [Value]> {
    match message.get("content") {
        Some(Value::String(text)) if text.is_empty() => Cow::Borrowed(&[]),
        Some(Value::String(text)) => Cow::Owned(vec![text_block(text)]),
        _ => Cow::Borrowed(blocks(message)),
    }
}

pub(super) fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Whether it is a text block without text, which providers refuse.
pub(super) fn is_blank(block: &Value) -> bool {
    kind(block) == "text" && text_of(block, "text").trim().is_empty()
}

pub(super) fn answer(block: &Value, key: &str) -> ToolAnswer {
    let status = ToolStatus::of_flag(block.get("is_error"));
    ToolAnswer::read(block.get("content"), status, &translate::BLOCKS, key)
}

pub(super) fn is_reasoning(block: &Value) -> bool {
    matches!(kind(block), THINKING | REDACTED)
}

/// Reasoning of a model on another wire, in a block that the gateway made.
pub(super) fn foreign_reasoning(block: &Value) -> Option<Reasoning> {
    match kind(block) {
        THINKING => Reasoning::from_carried(text_of(block, "signature")),
        REDACTED => Reasoning::from_carried(text_of(block, "data")),
        _ => None,
    }
}

/// The sealed state of a program, in a block beside the calls. Some clients change the ids of calls.
pub(super) fn carried_state(block: &Value) -> Option<&str> {
    let data = Some(text_of(block, "data")).filter(|_| kind(block) == REDACTED);
    data.filter(|data| Sealer::is_own_id(data))
}

/// Whether the gateway made the block to carry state. No provider understands such blocks.
pub(super) fn is_carrier(block: &Value) -> bool {
    carried_state(block).is_some() || foreign_reasoning(block).is_some()
}

/// Whether it is a program, of the gateway or of the provider. Some clients change the block to an ordinary call.
pub(super) fn is_program(block: &Value) -> bool {
    let is_server = kind(block) == SERVER_TOOL_USE || kind(block) == TOOL_USE && is_server_id(id(block));
    is_server && name(block) == PROGRAM
}

pub(super) fn is_server_id(id: &str) -> bool {
    id.starts_with(SERVER_PREFIX)
}

/// The client's id of a program that waits for answers.
pub(super) fn program_id(run: RunId) -> String {
    format!("{SERVER_PREFIX}{run}")
}

/// The client's id of a program that finished without calls. It carries the state, as there are no call ids.
pub(super) fn sealed_program_id(sealed: &str) -> String {
    format!("{SERVER_PREFIX}{sealed}")
}

/// The state in an id that [`sealed_program_id`] made.
pub(super) fn sealed_in(program_id: &str) -> Option<&str> {
    program_id.strip_prefix(SERVER_PREFIX).filter(|rest| Sealer::is_own_id(rest))
}

/// Whether the gateway made this id of a program.
pub(super) fn is_our_program_id(id: &str) -> bool {
    sealed_in(id).is_some() || id.strip_prefix(SERVER_PREFIX).and_then(RunId::parse).is_some()
}

/// Whether it is a program that the gateway ran, or its result.
pub(super) fn is_our_program(block: &Value) -> bool {
    is_program(block) && is_our_program_id(id(block))
        || matches!(kind(block), PROGRAM_RESULT | TOOL_RESULT) && is_our_program_id(tool_use_id(block))
}

/// The client's id of a search that the gateway answers; `number` counts the searches of a model's message.
pub(super) fn search_id(search: &str, number: usize) -> String {
    if number == 0 { format!("{SEARCH_PREFIX}{search}") } else { format!("{SEARCH_PREFIX}{search}_{number}") }
}

/// Whether another search of the same model message precedes this one.
pub(super) fn is_further_search(id: &str) -> bool {
    id.strip_prefix(SEARCH_PREFIX).is_some_and(|search| search.contains('_'))
}

/// Whether it is a search that the gateway answered, or its result.
pub(super) fn is_our_search(block: &Value) -> bool {
    id(block).starts_with(SEARCH_PREFIX) || tool_use_id(block).starts_with(SEARCH_PREFIX)
}

/// The client's id of a call that the gateway executes.
pub(super) fn server_call_id(name: &str) -> String {
    format!("{SERVER_CALL_PREFIX}{name}")
}

/// Whether it is a call that the gateway executed, or its result. The store holds what programs need of them.
pub(super) fn is_our_server_call(block: &Value) -> bool {
    id(block).starts_with(SERVER_CALL_PREFIX) || tool_use_id(block).starts_with(SERVER_CALL_PREFIX)
}

/// Whether the block's `caller` is a program.
pub(super) fn is_called_by_program(block: &Value) -> bool {
    block.get("caller").is_some_and(|caller| kind(caller).starts_with(PROGRAM))
}

/// Whether a program made the call, by its id or its `caller`.
pub(super) fn is_of_program(call: &Value) -> bool {
    Sealer::is_own_id(id(call)) || is_called_by_program(call)
}

pub(super) fn model_call(block: &Value) -> ModelCall {
    let arguments = match block.get("input") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(input) => input.to_string(),
    };
    ModelCall {
        name: name(block).to_owned(),
        arguments,
        id: id(block).to_owned(),
        native: block.clone(),
        ..ModelCall::default()
    }
}

/// A `tool_use` block.
pub(super) fn write_call(id: &str, call: &ModelCall) -> Value {
    let input = match serde_json::from_str(&call.arguments) {
        _ if call.format == CallFormat::Text => json!({"input": call.arguments}),
        Ok(Value::Object(input)) => Value::Object(input),
        // Providers accept only objects.
        _ if call.arguments.trim().is_empty() => json!({}),
        Ok(other) => json!({"input": other}),
        Err(_) => json!({"input": call.arguments}),
    };
    json!({"type": TOOL_USE, "id": plain_id(id), "name": call.name, "input": input})
}

/// An id of another wire, without the characters that this one refuses.
pub(super) fn plain_id(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    if id.is_empty() { "_".to_owned() } else { id.chars().map(plain).collect() }
}

/// Reads a message of the model without its calls. If it has more than one text block, all its blocks are retained.
pub(super) fn model_message(content: &[Value]) -> ModelMessage {
    let is_output = |block: &&Value| kind(block) != TOOL_USE && !is_blank(block) && !is_carrier(block);
    let output: Vec<&Value> = content.iter().filter(is_output).collect();
    let texts: String =
        output.iter().filter(|block| kind(block) == "text").map(|block| text_of(block, "text")).collect();
    let mut reasoning = Reasoning::default();
    for block in content {
        reasoning.extend(foreign_reasoning(block).unwrap_or_default());
    }
    if output.len() > 1 || output.iter().any(|block| kind(block) != "text") {
        reasoning.extend(Reasoning::from_blocks(output.into_iter().cloned().collect()));
    }
    ModelMessage { text: Some(texts).filter(|text| !text.is_empty()), reasoning, ..ModelMessage::default() }
}

/// Whether a message beside tool results is a remark: text of the application, or of an agent on its own.
pub(super) fn is_remark(message: &Value) -> bool {
    let content = content(message);
    if role(message) == "system" {
        return !content.iter().any(|block| is_titled_as_user_words(text_of(block, "text")));
    }
    let is_text = |block: &&Value| kind(block) == "text";
    let texts = content.iter().filter(is_text).map(|block| text_of(block, "text"));
    let media = MediaBeside::attached_if(content.iter().any(|block| !is_text(&block)));
    classify(texts, media) == Beside::Remark
}
