//! Validation of `messages`, as strict as Anthropic's and with its error messages.

use serde_json::{Map, Value};

use super::history::{InputBlock, InputPart, MergedMessage};
use super::refusal;
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::Role;
use crate::signatures::Signatures;

pub(super) const THINKING: [&str; 2] = ["thinking", "redacted_thinking"];

/// The allowed fields of blocks that clients create or change.
const FIELDS: [(&str, &[&str]); 5] = [
    ("text", &["type", "text", "citations", "cache_control"]),
    ("thinking", &["type", "thinking", "signature"]),
    ("redacted_thinking", &["type", "data"]),
    ("tool_use", &["type", "id", "name", "input", "caller", "cache_control"]),
    ("tool_result", &["type", "tool_use_id", "content", "is_error", "cache_control"]),
];

const OF_BOTH_ROLES: [&str; 5] = ["text", "image", "document", "search_result", "container_upload"];

const OF_ASSISTANTS: [&str; 14] = [
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "advisor_tool_result",
    "compaction",
];

pub(super) fn check(history: &[MergedMessage<'_>], signatures: &Signatures<'_>) -> Result<(), ProviderFailure> {
    let mut call_ids: Vec<&str> = Vec::new();
    for (i, message) in history.iter().enumerate() {
        for part in &message.parts {
            check_part(message.role, part, signatures)?;
        }
        if message.role == Role::User {
            check_results(message, &call_ids)?;
        }
        call_ids = message.blocks("tool_use").filter_map(|(_, call)| call.get("id")?.as_str()).collect();
        let answered = history.get(i + 1).map_or_else(Vec::new, leading_results);
        let open: Vec<_> = call_ids.iter().filter(|id| !answered.contains(id)).copied().collect();
        if !open.is_empty() {
            let ids = open.join(", ");
            return Err(refusal(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
                message.at
            )));
        }
        check_server_tools(message)?;
    }
    match history.last().filter(|last| last.role == Role::Assistant).and_then(|last| last.parts.last()) {
        Some(part) if part.text().is_some_and(|text| text.ends_with(char::is_whitespace)) => {
            Err(refusal("messages: final assistant content cannot end with trailing whitespace"))
        }
        _ => Ok(()),
    }
}

/// The ids of the tool results that a user message begins with.
fn leading_results<'a>(message: &'a MergedMessage<'_>) -> Vec<&'a str> {
    let leading = message.parts.iter().map_while(|part| match &part.block {
        InputBlock::Typed("tool_result", block) => Some(block.get("tool_use_id").and_then(Value::as_str)),
        _ => None,
    });
    leading.flatten().collect()
}

fn check_results(message: &MergedMessage<'_>, call_ids: &[&str]) -> Result<(), ProviderFailure> {
    let mut seen: Vec<&str> = Vec::new();
    for (part, result) in message.blocks("tool_result") {
        let id = result.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
        if !call_ids.contains(&id) {
            return Err(refusal(format!(
                "{}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
                part.path
            )));
        }
        if seen.contains(&id) {
            let message = "each tool_use must have a single result. Found multiple `tool_result` blocks with id";
            return Err(refusal(format!("{}: {message}: {id}", part.path)));
        }
        seen.push(id);
    }
    Ok(())
}

/// A result of a server tool needs its use earlier in the same message.
fn check_server_tools(message: &MergedMessage<'_>) -> Result<(), ProviderFailure> {
    let mut uses: Vec<&str> = Vec::new();
    for part in &message.parts {
        let InputBlock::Typed(kind, block) = &part.block else { continue };
        let id = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        if matches!(*kind, "server_tool_use" | "mcp_tool_use") {
            uses.push(id("id"));
        } else if kind.ends_with("_tool_result") && *kind != "code_execution_tool_result" {
            let id = id("tool_use_id");
            if !uses.contains(&id) {
                return Err(refusal(format!(
                    "{}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. Each `{kind}` block must have a corresponding `server_tool_use` block before it.",
                    part.path
                )));
            }
        }
    }
    Ok(())
}

fn check_part(role: Role, part: &InputPart<'_>, signatures: &Signatures<'_>) -> Result<(), ProviderFailure> {
    match part.text() {
        Some("") => return Err(refusal("messages: text content blocks must be non-empty")),
        Some(text) if text.trim().is_empty() => {
            return Err(refusal("messages: text content blocks must contain non-whitespace text"));
        }
        _ => {}
    }
    let InputBlock::Typed(kind, block) = part.block else { return Ok(()) };
    let own: &[&str] = if role == Role::Assistant { &OF_ASSISTANTS } else { &["tool_result"] };
    if !OF_BOTH_ROLES.contains(&kind) && !own.contains(&kind) {
        let expected = OF_BOTH_ROLES.iter().chain(own).map(|kind| format!("'{kind}'")).collect::<Vec<_>>().join(", ");
        return Err(refusal(format!(
            "{}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}",
            part.path
        )));
    }
    let path = format!("{}.{kind}", part.path);
    if let Some((_, known)) = FIELDS.iter().find(|(known, _)| *known == kind)
        && let Some(extra) = block.keys().find(|name| !known.contains(&name.as_str()))
    {
        return Err(refusal(format!("{path}.{extra}: Extra inputs are not permitted")));
    }
    match kind {
        "text" => text(block, "text", &path).map(drop),
        "tool_use" => {
            id(block, "id", &path)?;
            text(block, "name", &path)?;
            match block.get("input") {
                None => Err(refusal(format!("{path}.input: Field required"))),
                Some(Value::Object(_)) => Ok(()),
                Some(_) => Err(refusal(format!("{path}.input: Input should be a valid dictionary"))),
            }
        }
        "tool_result" => id(block, "tool_use_id", &path).and_then(|()| check_result(block, &path)),
        "thinking" => {
            let (thinking, signature) = (text(block, "thinking", &path)?, text(block, "signature", &path)?);
            if signatures.is_valid(thinking, signature) {
                return Ok(());
            }
            Err(refusal(format!("{}: Invalid `signature` in `thinking` block", part.path)))
        }
        "redacted_thinking" if !signatures.is_valid("", text(block, "data", &path)?) => {
            Err(refusal(format!("{}: Invalid `data` in `redacted_thinking` block", part.path)))
        }
        _ => Ok(()),
    }
}

fn check_result(result: &Map<String, Value>, path: &str) -> Result<(), ProviderFailure> {
    let blocks = match result.get("content") {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(blocks)) => blocks,
        Some(_) => return Err(refusal(format!("{path}.content: Input should be a valid list"))),
    };
    for (i, block) in blocks.iter().enumerate() {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        if !["text", "image", "document", "search_result", "tool_reference"].contains(&kind) {
            let expected = "'document', 'image', 'search_result', 'text', 'tool_reference'";
            return Err(refusal(format!(
                "{path}.content.{i}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
            )));
        }
        if kind == "text" && block["text"] == "" {
            return Err(refusal("messages: text content blocks must be non-empty"));
        }
    }
    Ok(())
}

/// With thinking enabled, the calls that the client now answers must come with their thinking.
pub(super) fn check_thinking(
    request: &Map<String, Value>,
    history: &[MergedMessage<'_>],
) -> Result<(), ProviderFailure> {
    let Some(thinking) = request.get("thinking").filter(|thinking| thinking["type"] == "enabled") else {
        return Ok(());
    };
    if let (Some(max), Some(budget)) = (request.get("max_tokens"), thinking.get("budget_tokens"))
        && max.as_u64() <= budget.as_u64()
    {
        return Err(refusal("`max_tokens` must be greater than `thinking.budget_tokens`."));
    }
    let forced = |choice: &Value| choice["type"] == "any" || choice["type"] == "tool";
    if request.get("tool_choice").is_some_and(forced) {
        return Err(refusal("Thinking may not be enabled when tool_choice forces tool use."));
    }
    let [.., calls, results] = history else { return Ok(()) };
    if calls.role != Role::Assistant || results.blocks("tool_result").next().is_none() {
        return Ok(());
    }
    match calls.parts.first() {
        Some(InputPart { block: InputBlock::Typed(kind, _), .. }) if THINKING.contains(kind) => Ok(()),
        Some(part) => {
            let kind = if let InputBlock::Typed(kind, _) = part.block { kind } else { "text" };
            Err(refusal(format!(
                "{}.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`.",
                part.path
            )))
        }
        None => Ok(()),
    }
}

impl InputPart<'_> {
    fn text(&self) -> Option<&str> {
        match &self.block {
            InputBlock::Text(text) => Some(text),
            InputBlock::Typed("text", block) => block.get("text").and_then(Value::as_str),
            InputBlock::Typed(..) => None,
        }
    }
}

fn text<'a>(block: &'a Map<String, Value>, name: &str, path: &str) -> Result<&'a str, ProviderFailure> {
    match block.get(name) {
        None => Err(refusal(format!("{path}.{name}: Field required"))),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(refusal(format!("{path}.{name}: Input should be a valid string"))),
    }
}

fn id(block: &Map<String, Value>, name: &str, path: &str) -> Result<(), ProviderFailure> {
    let id = text(block, name, path)?;
    if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Ok(());
    }
    Err(refusal(format!("{path}.{name}: String should match pattern '^[a-zA-Z0-9_-]+$'")))
}
