//! Validation of `tools` and `tool_choice`, as strict as Anthropic's and with its error messages.

use serde_json::{Map, Value};

use super::refusal;
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::{given, list};

const FIELDS: [&str; 10] = [
    "type",
    "name",
    "description",
    "input_schema",
    "cache_control",
    "strict",
    "defer_loading",
    "allowed_callers",
    "eager_input_streaming",
    "input_examples",
];

/// Types of Anthropic's own tools, without their dates.
const KINDS: [&str; 12] = [
    "advisor_",
    "bash_",
    "browser_toolset_",
    "code_execution_",
    "computer_",
    "mcp_toolset",
    "memory_",
    "text_editor_",
    "tool_search_tool_bm25",
    "tool_search_tool_regex",
    "web_fetch_",
    "web_search_",
];

const NAME_CHARS_MAX: usize = 128;

pub(super) fn check(request: &Map<String, Value>) -> Result<(), ProviderFailure> {
    if given(request, "tools").is_some_and(|tools| !tools.is_array()) {
        return Err(refusal("tools: Input should be a valid list"));
    }
    let tools = list(request, "tools");
    let kind = |tool: &Value| tool.get("type").and_then(Value::as_str).unwrap_or("custom").to_owned();
    let executes = tools.iter().any(|tool| kind(tool).starts_with("code_execution_"));
    let mut names: Vec<&str> = Vec::new();
    for (i, tool) in tools.iter().enumerate() {
        let Value::Object(fields) = tool else {
            return Err(refusal(format!("tools.{i}: Input should be a valid dictionary")));
        };
        let kind = kind(tool);
        if kind == "custom" {
            check_custom(fields, &format!("tools.{i}.custom"))?;
        } else if !KINDS.iter().any(|known| kind.starts_with(known)) {
            let expected = KINDS.iter().map(|kind| format!("'{kind}…'")).collect::<Vec<_>>().join(", ");
            return Err(refusal(format!(
                "tools.{i}: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'custom', {expected}"
            )));
        }
        let direct =
            |callers: &Value| callers.as_array().is_some_and(|callers| callers.iter().all(|by| by == "direct"));
        if !executes && given(fields, "allowed_callers").is_some_and(|callers| !direct(callers)) {
            return Err(refusal(format!(
                "tools.{i}.{kind}.allowed_callers: callers other than 'direct' need a code execution tool in `tools`"
            )));
        }
        if let Some(name) = fields.get("name").and_then(Value::as_str) {
            if names.contains(&name) {
                return Err(refusal("tools: Tool names must be unique."));
            }
            names.push(name);
        }
    }
    check_choice(request, &names)
}

fn check_custom(tool: &Map<String, Value>, path: &str) -> Result<(), ProviderFailure> {
    match tool.get("name").map(Value::as_str) {
        None => return Err(refusal(format!("{path}.name: Field required"))),
        Some(None) => return Err(refusal(format!("{path}.name: Input should be a valid string"))),
        Some(Some(name)) => {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.bytes().all(fits) {
                return Err(refusal(format!(
                    "{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,{NAME_CHARS_MAX}}}$'"
                )));
            }
        }
    }
    match tool.get("input_schema") {
        None => return Err(refusal(format!("{path}.input_schema: Field required"))),
        Some(Value::Object(schema)) => match schema.get("type") {
            None => return Err(refusal(format!("{path}.input_schema.type: Field required"))),
            Some(kind) if kind != "object" => {
                return Err(refusal(format!("{path}.input_schema.type: Input should be 'object'")));
            }
            Some(_) => {}
        },
        Some(_) => return Err(refusal(format!("{path}.input_schema: Input should be a valid dictionary"))),
    }
    match tool.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        Some(extra) => Err(refusal(format!("{path}.{extra}: Extra inputs are not permitted"))),
        None => Ok(()),
    }
}

fn check_choice(request: &Map<String, Value>, names: &[&str]) -> Result<(), ProviderFailure> {
    let Some(choice) = given(request, "tool_choice") else { return Ok(()) };
    let Value::Object(choice) = choice else {
        return Err(refusal("tool_choice: Input should be a valid dictionary or object to extract fields from"));
    };
    let kind = choice.get("type").and_then(Value::as_str).unwrap_or_default();
    if !["auto", "any", "tool", "none"].contains(&kind) {
        let expected = "'auto', 'any', 'tool', 'none'";
        return Err(refusal(format!(
            "tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
        )));
    }
    if list(request, "tools").is_empty() && kind != "none" {
        return Err(refusal("tool_choice: `tool_choice` may only be specified while providing `tools`."));
    }
    if kind != "tool" {
        return Ok(());
    }
    match choice.get("name").and_then(Value::as_str) {
        None => Err(refusal("tool_choice.tool.name: Field required")),
        Some(name) if !names.contains(&name) => Err(refusal(format!("Tool '{name}' not found in provided tools"))),
        Some(_) => Ok(()),
    }
}
