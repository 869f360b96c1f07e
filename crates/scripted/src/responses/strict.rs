//! Validation of the items of `input`, as strict as `OpenAI`'s and with its error messages.

use serde_json::{Map, Value};

use super::ItemStorage;
use super::fields::unknown;
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::given;
use crate::signatures::Signatures;
use crate::strict::{one_of, short, text};

/// The maximum length of call ids and item ids.
const ID_CHARS_MAX: usize = 64;

const KINDS: [&str; 29] = [
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "item_reference",
    "program",
    "program_output",
    "additional_tools",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "computer_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "compaction",
];

const PREFIXES: [(&str, &str); 6] = [
    ("message", "msg"),
    ("function_call", "fc"),
    ("custom_tool_call", "ctc"),
    ("reasoning", "rs"),
    ("program", "prog"),
    ("program_output", "prog_out"),
];

/// The allowed fields of items that clients create or change.
const FIELDS: [(&str, &[&str]); 6] = [
    ("message", &["type", "id", "role", "content", "status", "phase"]),
    ("function_call", &["type", "id", "call_id", "name", "arguments", "status", "caller", "namespace", "async"]),
    ("function_call_output", &["type", "id", "call_id", "output", "status", "caller"]),
    ("custom_tool_call", &["type", "id", "call_id", "name", "input", "status", "caller", "namespace"]),
    ("custom_tool_call_output", &["type", "id", "call_id", "output", "status", "caller"]),
    ("reasoning", &["type", "id", "summary", "content", "encrypted_content", "status"]),
];

/// Types of calls and of their outputs, and what error messages call them.
const CALLS: [(&str, &str, &str); 6] = [
    ("function_call", "function_call_output", "function call"),
    ("custom_tool_call", "custom_tool_call_output", "custom tool call"),
    ("computer_call", "computer_call_output", "computer call"),
    ("local_shell_call", "local_shell_call_output", "local shell call"),
    ("shell_call", "shell_call_output", "shell call"),
    ("apply_patch_call", "apply_patch_call_output", "apply patch call"),
];

/// The type of call that an output item answers, and what error messages call it.
pub(super) fn answers(kind: &str) -> Option<(&'static str, &'static str)> {
    CALLS.iter().find(|(_, output, _)| *output == kind).map(|(call, _, name)| (*call, *name))
}

pub(super) fn check(items: &[Value], storage: ItemStorage, signatures: &Signatures<'_>) -> Result<(), ProviderFailure> {
    let mut calls: Vec<(&str, &str)> = Vec::new();
    let mut open: Vec<(&str, &str)> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let kind = check_item(item, &format!("input[{i}]"), storage, signatures)?;
        let call_id = || item["call_id"].as_str().unwrap_or_default();
        if let Some((_, _, name)) = CALLS.iter().find(|(call, _, _)| *call == kind) {
            calls.push((kind, call_id()));
            open.push((name, call_id()));
        } else if let Some((call, name)) = answers(kind) {
            let id = call_id();
            if !calls.contains(&(call, id)) {
                let message = format!("No tool call found for {name} output with call_id {id}.");
                return Err(ProviderFailure::invalid(message, Some("input".into())));
            }
            open.retain(|opened| *opened != (name, id));
        }
        if kind == "reasoning" && !items.get(i + 1).is_some_and(follows_reasoning) {
            let id = item["id"].as_str().unwrap_or_default();
            let message = format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
            return Err(ProviderFailure::invalid(message, Some("input".into())));
        }
    }
    match open.first() {
        None => Ok(()),
        Some((name, id)) => {
            let message = format!("No tool output found for {name} {id}.");
            Err(ProviderFailure::invalid(message, Some("input".into())))
        }
    }
}

/// Whether the item is output of the model, which must follow a reasoning item.
fn follows_reasoning(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind == "message" { item["role"] == "assistant" } else { answers(kind).is_none() }
}

fn check_item<'a>(
    item: &'a Value,
    path: &str,
    storage: ItemStorage,
    signatures: &Signatures<'_>,
) -> Result<&'a str, ProviderFailure> {
    let Value::Object(fields) = item else {
        return Err(ProviderFailure::wrong_type(path.into(), "an object", item));
    };
    let kind = if fields.contains_key("type") || !fields.contains_key("role") {
        text(fields.get("type"), || format!("{path}.type"))?
    } else {
        "message"
    };
    one_of(kind, &KINDS, format!("{path}.type"))?;
    if kind == "item_reference" {
        return Err(missing_item(text(fields.get("id"), || format!("{path}.id"))?, storage));
    }
    check_id(fields, kind, path)?;
    if let Some((_, known)) = FIELDS.iter().find(|(known, _)| *known == kind)
        && let Some(extra) = fields.keys().find(|name| !known.contains(&name.as_str()))
    {
        return Err(unknown(format!("{path}.{extra}")));
    }
    if answers(kind).is_some() || CALLS.iter().any(|(call, _, _)| *call == kind) {
        short(fields.get("call_id"), ID_CHARS_MAX, || format!("{path}.call_id"))?;
    }
    match kind {
        "message" => check_message(fields, path)?,
        "reasoning" => check_reasoning(fields, path, storage, signatures)?,
        "function_call" => {
            text(fields.get("name"), || format!("{path}.name"))?;
            text(fields.get("arguments"), || format!("{path}.arguments"))?;
        }
        "custom_tool_call" => {
            text(fields.get("name"), || format!("{path}.name"))?;
            text(fields.get("input"), || format!("{path}.input"))?;
        }
        "function_call_output" | "custom_tool_call_output" => match fields.get("output") {
            None | Some(Value::Null) => return Err(ProviderFailure::missing(format!("{path}.output"))),
            Some(Value::String(_) | Value::Array(_)) => {}
            Some(other) => {
                let expected = "one of a string or array of input content";
                return Err(ProviderFailure::wrong_type(format!("{path}.output"), expected, other));
            }
        },
        _ => {}
    }
    Ok(kind)
}

fn check_id(fields: &Map<String, Value>, kind: &str, path: &str) -> Result<(), ProviderFailure> {
    if given(fields, "id").is_none() {
        return Ok(());
    }
    let id = short(fields.get("id"), ID_CHARS_MAX, || format!("{path}.id"))?;
    let path = format!("{path}.id");
    match PREFIXES.iter().find(|(known, _)| *known == kind) {
        Some((_, prefix)) if !id.starts_with(prefix) => {
            let message = format!("Invalid '{path}': '{id}'. Expected an ID that begins with '{prefix}'.");
            Err(ProviderFailure::invalid(message, Some(path)).with_code("invalid_value"))
        }
        _ => Ok(()),
    }
}

fn check_message(message: &Map<String, Value>, path: &str) -> Result<(), ProviderFailure> {
    let role = text(message.get("role"), || format!("{path}.role"))?;
    one_of(role, &["assistant", "system", "developer", "user"], format!("{path}.role"))?;
    let parts = match message.get("content") {
        None | Some(Value::Null) => return Err(ProviderFailure::missing(format!("{path}.content"))),
        Some(Value::String(_)) => return Ok(()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let expected = "one of an array of objects or string";
            return Err(ProviderFailure::wrong_type(format!("{path}.content"), expected, other));
        }
    };
    let known: &[&str] =
        if role == "assistant" { &["output_text", "refusal"] } else { &["input_text", "input_image", "input_file"] };
    for (i, part) in parts.iter().enumerate() {
        let path = format!("{path}.content[{i}]");
        let kind = text(part.get("type"), || format!("{path}.type"))?;
        one_of(kind, known, format!("{path}.type"))?;
        if part.get("cache_control").is_some() {
            return Err(unknown(format!("{path}.cache_control")));
        }
    }
    Ok(())
}

fn check_reasoning(
    item: &Map<String, Value>,
    path: &str,
    storage: ItemStorage,
    signatures: &Signatures<'_>,
) -> Result<(), ProviderFailure> {
    let summary = match item.get("summary") {
        None | Some(Value::Null) => return Err(ProviderFailure::missing(format!("{path}.summary"))),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<String>(),
        Some(other) => {
            return Err(ProviderFailure::wrong_type(format!("{path}.summary"), "an array of objects", other));
        }
    };
    let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
    if given(item, "encrypted_content").is_none() {
        return Err(missing_item(id, storage));
    }
    let content = text(item.get("encrypted_content"), || format!("{path}.encrypted_content"))?;
    if signatures.is_valid(&summary, content) {
        return Ok(());
    }
    let message = format!("The encrypted content for item {id} could not be verified.");
    Err(ProviderFailure::invalid(message, None).with_code("invalid_encrypted_content"))
}

fn missing_item(id: &str, storage: ItemStorage) -> ProviderFailure {
    let mut message = format!("Item with id '{id}' not found.");
    if storage == ItemStorage::NotStored {
        message += " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.";
    }
    ProviderFailure::invalid(message, Some("input".into())).with_status(404)
}
