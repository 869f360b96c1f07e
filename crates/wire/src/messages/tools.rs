//! Entries of `tools`: who executes them, and who may call them.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::fields;
use crate::allowed_callers::{
    AllowedCallers, Extensions, ListContents, ProgramDeclaration, ToolPlace, ToolSplit, Toolsets,
};
use crate::neutral::{ToolDeclaration, ToolInput, field, remove_fields, without_fields};
use crate::prompt::{SEARCH, SEARCH_ALTERNATIVE};
use crate::request::BadRequest;

/// Who executes calls of a tool in code mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolOwner {
    /// The gateway does it instead of the provider.
    Gateway,
    Provider,
    Client(AllowedCallers),
}

/// Fields that concern how the model sees or calls a tool; programs do not need them.
const MODEL_OPTIONS: [&str; 7] =
    ["type", "cache_control", "defer_loading", "allowed_callers", "strict", "eager_input_streaming", "input_examples"];

pub(super) fn entries(body: &Map<String, Value>) -> &[Value] {
    body.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether the client declares the provider's tool that runs programs.
pub(super) fn program_declaration(body: &Map<String, Value>) -> ProgramDeclaration {
    ProgramDeclaration::declared_if(entries(body).iter().any(is_program_tool))
}

/// The version of the provider's tool that runs programs, as the client declares it; otherwise the latest.
pub(super) fn program_type(body: &Map<String, Value>) -> &str {
    entries(body).iter().find(|entry| is_program_tool(entry)).map_or("code_execution_20260120", fields::kind)
}

fn is_program_tool(entry: &Value) -> bool {
    fields::kind(entry).starts_with("code_execution_")
}

fn is_search(entry: &Value) -> bool {
    fields::kind(entry).starts_with("tool_search_tool")
}

/// Whether it declares tools whose names only the provider knows.
fn is_toolset(entry: &Value) -> bool {
    let kind = fields::kind(entry);
    kind.ends_with("_toolset") || kind.contains("_toolset_")
}

/// The name of the search tool that the model has.
pub(super) fn search_name(body: &Map<String, Value>) -> &'static str {
    let programs = program_declaration(body);
    let is_direct = |entry: &Value| callers(entry, programs).is_ok_and(AllowedCallers::allow_model);
    let is_taken = entries(body).iter().any(|entry| fields::name(entry) == SEARCH && is_direct(entry));
    if is_taken { SEARCH_ALTERNATIVE } else { SEARCH }
}

fn is_of_client(entry: &Value) -> bool {
    matches!(field(entry, "type"), None | Some(Value::Null)) || fields::kind(entry) == "custom"
}

/// Whether the model has to search for the tool.
fn is_deferred(entry: &Value) -> bool {
    field(entry, "defer_loading") == Some(&Value::Bool(true))
}

fn callers(entry: &Value, programs: ProgramDeclaration) -> Result<AllowedCallers, String> {
    AllowedCallers::read(field(entry, "allowed_callers"), programs.default_callers())
}

fn owner(entry: &Value, entries: &[Value], programs: ProgramDeclaration) -> Result<ToolOwner, String> {
    if is_of_client(entry) {
        return callers(entry, programs).map(ToolOwner::Client);
    }
    // The gateway's search finds functions for programs. Tools of MCP servers of the provider, and deferred tools that
    // the model calls directly, are found only by the provider's search.
    let is_direct = |entry: &Value| callers(entry, programs).is_ok_and(AllowedCallers::allow_model);
    let is_other = |entry: &Value| match fields::kind(entry) {
        "mcp_toolset" => true,
        _ => is_of_client(entry) && is_deferred(entry) && is_direct(entry),
    };
    let has_others = || entries.iter().any(is_other);
    Ok(if is_program_tool(entry) || is_search(entry) && !has_others() {
        ToolOwner::Gateway
    } else {
        ToolOwner::Provider
    })
}

/// Sorts the tools by who may call them.
pub(super) fn split(
    body: &Map<String, Value>,
    programs: ProgramDeclaration,
    contents: ListContents,
) -> Result<ToolSplit<'_>, BadRequest> {
    if !matches!(body.get("tools"), None | Some(Value::Null | Value::Array(_))) {
        return Err(BadRequest::new("tools", "must be an array"));
    }
    let entries = entries(body);
    let mut split = ToolSplit::of(entries, contents);
    if contents == ListContents::ForPrograms {
        return Ok(split);
    }
    for (at, entry) in entries.iter().enumerate() {
        let owner = owner(entry, entries, programs)
            .map_err(|message| BadRequest::new(format!("tools[{at}].allowed_callers"), message))?;
        if is_search(entry) {
            split.search_tool = Some(fields::name(entry).to_owned());
        }
        let callers = match owner {
            ToolOwner::Gateway => continue,
            ToolOwner::Provider => {
                if is_toolset(entry) {
                    split.toolsets = Toolsets::Open;
                }
                split.direct.insert(fields::name(entry).to_owned());
                split.passed.push(entry.clone());
                continue;
            }
            ToolOwner::Client(callers) => callers,
        };
        // If the client declares programs, the field is the provider's, and not an extension of the gateway.
        if programs == ProgramDeclaration::Undeclared && callers.extensions() == Extensions::Found {
            split.extensions = Extensions::Found;
        }
        if callers.allow_programs() {
            if is_deferred(entry) {
                split.deferred.insert(split.tools.len());
            }
            split.push(for_programs(entry), ToolPlace { entry: at, member: None });
        }
        if callers.allow_model() {
            split.direct.insert(fields::name(entry).to_owned());
            split.passed.push(without_fields(entry, &["allowed_callers"]));
        }
    }
    Ok(split)
}

/// All tools except those that only programs may call.
pub(super) fn ordinary(body: &Map<String, Value>, programs: ProgramDeclaration) -> Vec<Value> {
    let is_ordinary = |entry: &&Value| {
        let callers = callers(entry, programs);
        !is_of_client(entry) || callers.is_ok_and(AllowedCallers::are_ordinary)
    };
    entries(body).iter().filter(is_ordinary).cloned().collect()
}

fn for_programs(entry: &Value) -> Cow<'_, Value> {
    let is_plain = MODEL_OPTIONS.iter().all(|key| field(entry, key).is_none());
    if is_plain { Cow::Borrowed(entry) } else { Cow::Owned(without_fields(entry, &MODEL_OPTIONS)) }
}

/// Whether the model cannot call the tool directly in code mode.
pub(super) fn is_only_for_programs(body: &Map<String, Value>, name: &str) -> bool {
    let programs = program_declaration(body);
    let of_client = entries(body).iter().filter(|entry| is_of_client(entry));
    let mut named = of_client.filter(|entry| fields::name(entry) == name);
    named.any(|entry| callers(entry, programs).is_ok_and(|callers| !callers.allow_model()))
}

/// Removes what only the gateway understands. A client that declares programs means the provider's.
pub(super) fn without_code_mode(body: &mut Map<String, Value>) {
    if program_declaration(body) == ProgramDeclaration::Declared {
        return;
    }
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        tools.retain(|tool| {
            let callers = callers(tool, ProgramDeclaration::Undeclared);
            !is_of_client(tool) || callers.is_ok_and(AllowedCallers::are_ordinary)
        });
        for tool in tools.iter_mut().filter(|tool| is_of_client(tool)) {
            remove_fields(tool, &["allowed_callers"]);
        }
    }
}

/// Moves a cache breakpoint of a tool that is not sent to the last of our tools, which are first in the list.
pub(super) fn keep_cache_breakpoint(body: &Map<String, Value>, tools: &mut [Value]) {
    let programs = program_declaration(body);
    let entries = entries(body);
    let mut passed = 0;
    let mut breakpoint = None;
    for entry in entries {
        match owner(entry, entries, programs) {
            Ok(ToolOwner::Provider) => passed += 1,
            Ok(ToolOwner::Client(callers)) if callers.allow_model() => passed += 1,
            _ => breakpoint = entry.get("cache_control").filter(|control| !control.is_null()).or(breakpoint),
        }
    }
    let ours = tools.len().saturating_sub(passed);
    if let (Some(breakpoint), Some(last)) = (breakpoint, tools[..ours].last_mut()) {
        last["cache_control"] = breakpoint.clone();
    }
}

/// Reads a tool of the client. `None` for tools of the provider.
pub(super) fn read(entry: &Value) -> Option<ToolDeclaration> {
    if !is_of_client(entry) {
        return None;
    }
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let schema = entry.get("input_schema").filter(|schema| schema.is_object()).cloned();
    Some(ToolDeclaration {
        name: text("name")?,
        description: text("description"),
        input: ToolInput::Schema(schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}))),
    })
}

pub(super) fn write(tool: ToolDeclaration) -> Value {
    let (name, description, schema) = tool.into_json_tool();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), Value::from(name));
    fields.extend(description.map(|description| ("description".to_owned(), Value::from(description))));
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    // Providers accept only objects.
    schema.entry("type").or_insert_with(|| Value::from("object"));
    fields.insert("input_schema".to_owned(), Value::Object(schema));
    Value::Object(fields)
}
