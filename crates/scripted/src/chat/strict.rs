//! Validation of Chat Completions requests, as strict as `OpenAI`'s and with its error messages.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Messages, tool_name};
use crate::provider_failure::ProviderFailure;
use crate::scripted_conversation::list;
use crate::strict::{one_of, short, text};

const ID_CHARS_MAX: usize = 40;

const ROLES: [&str; 6] = ["system", "assistant", "user", "function", "tool", "developer"];

/// The calls of the last assistant message, and which of them have no tool message yet.
#[derive(Default)]
struct PendingCalls<'a> {
    at: usize,
    ids: Vec<&'a str>,
    open: Vec<&'a str>,
}

pub(super) fn check(request: &Map<String, Value>, messages: &Messages<'_>) -> Result<(), ProviderFailure> {
    check_tools(request)?;
    let mut pending = PendingCalls::default();
    for (i, message) in messages.iter().enumerate() {
        match role(message, i)? {
            "tool" => pending.answer(message, i)?,
            "assistant" => {
                pending.close()?;
                pending = PendingCalls { at: i, ids: call_ids(message, i)?, open: Vec::new() };
                pending.open.clone_from(&pending.ids);
            }
            _ => {
                pending.close()?;
                pending = PendingCalls::default();
            }
        }
    }
    pending.close()
}

fn check_tools(request: &Map<String, Value>) -> Result<(), ProviderFailure> {
    match request.get("tools") {
        None | Some(Value::Null | Value::Array(_)) => {}
        Some(other) => return Err(ProviderFailure::wrong_type("tools".into(), "an array of objects", other)),
    }
    let mut names = BTreeMap::new();
    for (i, tool) in list(request, "tools").iter().enumerate() {
        let Some(name) = tool_name(tool) else { continue };
        if let Some(first) = names.insert(name, i) {
            let message = format!(
                "Invalid 'tools[{i}].function.name': '{name}' is the name of 'tools[{first}]' already. Tool names must be unique."
            );
            return Err(ProviderFailure::invalid(message, Some("tools".into())).with_code("duplicate_tool_name"));
        }
    }
    Ok(())
}

fn role(message: &Map<String, Value>, i: usize) -> Result<&str, ProviderFailure> {
    let role = text(message.get("role"), || format!("messages[{i}].role"))?;
    one_of(role, &ROLES, format!("messages[{i}].role"))?;
    Ok(role)
}

fn call_ids(message: &Map<String, Value>, i: usize) -> Result<Vec<&str>, ProviderFailure> {
    let path = || format!("messages[{i}].tool_calls");
    match message.get("tool_calls") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(calls)) if calls.is_empty() => Err(ProviderFailure::empty_array(path())),
        Some(Value::Array(calls)) => {
            calls.iter().enumerate().map(|(j, call)| call_id(call, &format!("{}[{j}]", path()))).collect()
        }
        Some(other) => Err(ProviderFailure::wrong_type(path(), "an array of objects", other)),
    }
}

fn call_id<'a>(call: &'a Value, path: &str) -> Result<&'a str, ProviderFailure> {
    let id = short(call.get("id"), ID_CHARS_MAX, || format!("{path}.id"))?;
    if let Some(function) = call.get("function") {
        text(function.get("name"), || format!("{path}.function.name"))?;
        text(function.get("arguments"), || format!("{path}.function.arguments"))?;
    }
    Ok(id)
}

impl<'a> PendingCalls<'a> {
    fn answer(&mut self, message: &'a Map<String, Value>, i: usize) -> Result<(), ProviderFailure> {
        let id = short(message.get("tool_call_id"), ID_CHARS_MAX, || format!("messages[{i}].tool_call_id"))?;
        if self.ids.is_empty() {
            // The spelling is OpenAI's.
            let message = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
            return Err(ProviderFailure::invalid(message, Some(format!("messages.[{i}].role"))));
        }
        if !self.ids.contains(&id) {
            let message =
                format!("Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.");
            return Err(ProviderFailure::invalid(message, Some(format!("messages.[{i}].tool_call_id"))));
        }
        self.open.retain(|open| *open != id);
        Ok(())
    }

    fn close(&self) -> Result<(), ProviderFailure> {
        if self.open.is_empty() {
            return Ok(());
        }
        let message = format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            self.open.join(", ")
        );
        Err(ProviderFailure::invalid(message, Some(format!("messages.[{}].role", self.at))))
    }
}
