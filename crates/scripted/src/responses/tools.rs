//! The tools of a request, and what `OpenAI` refuses in them, in its words.

use serde_json::{Map, Value};

use super::super::conversation::{Input, Offered, list};
use super::super::failure::Failure;
use super::super::strict::{one_of, short, text};
use super::fields::unknown;

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

/// What only the tools of other formats have.
const FOREIGN: [&str; 3] = ["function", "input_schema", "cache_control"];

const NAME_CHARS_MAX: usize = 64;

/// Tools by name; those of the provider by type.
pub(super) fn read(request: &Map<String, Value>) -> Result<Vec<Offered<'_>>, Failure> {
    match request.get("tools") {
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => return Err(Failure::wrong_type("tools".into(), "an array of objects", other)),
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

fn collect<'a>(tools: &'a [Value], path: &str, offered: &mut Vec<Offered<'a>>) -> Result<(), Failure> {
    for (i, tool) in tools.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let Value::Object(fields) = tool else {
            return Err(Failure::wrong_type(path, "an object", tool));
        };
        let kind = text(fields.get("type"), || format!("{path}.type"))?;
        one_of(kind, &KINDS, format!("{path}.type"))?;
        match kind {
            "namespace" => collect(list(fields, "tools"), &format!("{path}.tools"), offered)?,
            "function" | "custom" => {
                let name = name(fields, &path)?;
                if offered.iter().any(|other| other.name == name) {
                    let message = format!("Invalid '{path}.name': '{name}' is taken. Tool names must be unique.");
                    return Err(Failure::invalid(message, Some("tools".into())).with_code("duplicate_tool_name"));
                }
                if let Some(foreign) = fields.keys().find(|name| FOREIGN.contains(&name.as_str())) {
                    return Err(unknown(format!("{path}.{foreign}")));
                }
                offered.push(Offered { name, input: if kind == "custom" { Input::Text } else { Input::Json } });
            }
            _ => offered.push(Offered { name: kind, input: Input::Json }),
        }
    }
    Ok(())
}

fn name<'a>(tool: &'a Map<String, Value>, path: &str) -> Result<&'a str, Failure> {
    let path = format!("{path}.name");
    let name = short(tool.get("name"), NAME_CHARS_MAX, || path.clone())?;
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Ok(name);
    }
    let message = format!(
        "Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    );
    Err(Failure::invalid(message, Some(path)).with_code("invalid_value"))
}
