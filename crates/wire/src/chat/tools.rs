//! Reads the client's tools, and writes tools for the model.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::fields;
use crate::allowed_callers::{AllowedCallers, Extensions, ListContents, ProgramDeclaration, ToolPlace, ToolSplit};
use crate::neutral::{ToolDeclaration, ToolInput, field, remove_fields, without_fields};
use crate::request::BadRequest;

/// Sorts the tools by who may call them.
pub(super) fn split(body: &Map<String, Value>, contents: ListContents) -> Result<ToolSplit<'_>, BadRequest> {
    let entries = match body.get("tools") {
        None | Some(Value::Null) => return Ok(ToolSplit::default()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new("tools", "must be an array")),
    };
    let mut split = ToolSplit::of(entries, contents);
    if contents == ListContents::ForPrograms {
        return Ok(split);
    }
    for (at, entry) in entries.iter().enumerate() {
        let is_function = field(entry, "type").and_then(Value::as_str) == Some("function");
        if !is_function {
            let name = entry.pointer("/custom/name").or_else(|| entry.get("name")).and_then(Value::as_str);
            split.direct.extend(name.map(str::to_owned));
            split.passed.push(entry.clone());
            continue;
        }
        let callers =
            callers(entry).map_err(|message| BadRequest::new(format!("tools[{at}].allowed_callers"), message))?;
        if callers.extensions() == Extensions::Found {
            split.extensions = Extensions::Found;
        }
        if callers.allow_programs() {
            split.push(Cow::Borrowed(entry), ToolPlace { entry: at, member: None });
        }
        if callers.allow_model() {
            split.direct.insert(fields::function_name(entry).to_owned());
            split.passed.push(without_callers(entry));
        }
    }
    Ok(split)
}

/// The tools for a model that writes no programs.
pub(super) fn ordinary(body: &Map<String, Value>) -> Vec<Value> {
    let entries = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_ordinary = |tool: &&Value| callers(tool).is_ok_and(AllowedCallers::are_ordinary);
    entries.iter().filter(is_ordinary).map(without_callers).collect()
}

fn callers(entry: &Value) -> Result<AllowedCallers, String> {
    let callers = field(entry, "allowed_callers").or_else(|| field(field(entry, "function")?, "allowed_callers"));
    AllowedCallers::read(callers, ProgramDeclaration::Undeclared.default_callers())
}

fn without_callers(entry: &Value) -> Value {
    let mut entry = without_fields(entry, &["allowed_callers"]);
    if let Some(function) = entry.get_mut("function") {
        remove_fields(function, &["allowed_callers"]);
    }
    entry
}

pub(super) fn read(entry: &Value) -> Option<ToolDeclaration> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match entry.get("type").and_then(Value::as_str) {
        Some("function") => {
            let function = entry.get("function")?;
            let schema = function.get("parameters").filter(|schema| schema.is_object()).cloned();
            Some(ToolDeclaration {
                name: text(function.get("name"))?,
                description: text(function.get("description")),
                input: ToolInput::Schema(schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}))),
            })
        }
        Some("custom") => {
            let custom = entry.get("custom")?;
            Some(ToolDeclaration {
                name: text(custom.get("name"))?,
                description: text(custom.get("description")),
                input: ToolInput::Text { format: custom.get("format").cloned() },
            })
        }
        _ => None,
    }
}

/// Few servers of this wire have tools that take text, so that they become tools with one text.
pub(super) fn write(tool: ToolDeclaration) -> Value {
    let (name, description, schema) = tool.into_json_tool();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), Value::from(name));
    fields.extend(description.map(|description| ("description".to_owned(), Value::from(description))));
    fields.insert("parameters".to_owned(), schema);
    json!({"type": "function", "function": fields})
}
