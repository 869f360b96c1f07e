//! Reads and validates `tools`, as strict as `OpenAI` and with its error messages.

use serde_json::{Map, Value};

use super::fields::unknown;
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::{InputKind, OfferedTool, list};
use crate::strict::{one_of, short, text};

const KINDS: [&str; 18] = [
    "function",
    "custom",
    "namespace",
    "programmatic_tool_calling",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "computer",
    "computer_use_preview",
    "shell",
    "local_shell",
    "apply_patch",
];

/// Fields that only the tools of other APIs have.
const FOREIGN: [&str; 3] = ["function", "input_schema", "cache_control"];

const NAME_CHARS_MAX: usize = 64;

/// The tools of a request. Hosted tools go by their type.
pub(super) fn read(request: &Map<String, Value>) -> Result<Vec<OfferedTool<'_>>, ProviderFailure> {
    match request.get("tools") {
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => return Err(ProviderFailure::wrong_type("tools".into(), "an array of objects", other)),
    }
    let mut tools = Vec::new();
    collect(list(request, "tools"), "tools", &mut tools)?;
    let added = list(request, "input").iter().enumerate().filter(|(_, item)| item["type"] == "additional_tools");
    for (i, item) in added {
        let added = item["tools"].as_array().map_or(&[][..], Vec::as_slice);
        collect(added, &format!("input[{i}].tools"), &mut tools)?;
    }
    Ok(tools)
}

fn collect<'a>(tools: &'a [Value], path: &str, offered: &mut Vec<OfferedTool<'a>>) -> Result<(), ProviderFailure> {
    for (i, tool) in tools.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Value::Object(fields) = tool else {
            return Err(ProviderFailure::wrong_type(path, "an object", tool));
        };
        let kind = text(fields.get("type"), || format!("{path}.type"))?;
        one_of(kind, &KINDS, format!("{path}.type"))?;
        match kind {
            "namespace" => collect(list(fields, "tools"), &format!("{path}.tools"), offered)?,
            "function" | "custom" => {
                let name = name(fields, &path)?;
                if offered.iter().any(|other| other.name == name) {
                    let message = format!("Invalid '{path}.name': '{name}' is taken. Tool names must be unique.");
                    return Err(
                        ProviderFailure::invalid(message, Some("tools".into())).with_code("duplicate_tool_name")
                    );
                }
                if let Some(foreign) = fields.keys().find(|name| FOREIGN.contains(&name.as_str())) {
                    return Err(unknown(format!("{path}.{foreign}")));
                }
                offered.push(OfferedTool {
                    name,
                    input: if kind == "custom" { InputKind::Text } else { InputKind::Json },
                });
            }
            _ => offered.push(OfferedTool { name: kind, input: InputKind::Json }),
        }
    }
    Ok(())
}

fn name<'a>(tool: &'a Map<String, Value>, path: &str) -> Result<&'a str, ProviderFailure> {
    let name = short(tool.get("name"), NAME_CHARS_MAX, || format!("{path}.name"))?;
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Ok(name);
    }
    let path = format!("{path}.name");
    let message = format!(
        "Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    );
    Err(ProviderFailure::invalid(message, Some(path)).with_code("invalid_value"))
}
