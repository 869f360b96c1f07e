//! Reads the client's tools, and writes tools for the model.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

use super::fields;
use crate::allowed_callers::{AllowedCallers, LaterTools, ListContents, ProgramDeclaration, ToolPlace, ToolSplit};
use crate::neutral::{ToolDeclaration, ToolInput, field, without_fields};
use crate::request::BadRequest;

/// The tool by which clients declare that the model may write programs.
pub(super) const PROGRAMS: &str = "programmatic_tool_calling";

/// The provider's tool that searches for tools.
const SEARCH: &str = "tool_search";

const CALLERS: &str = "allowed_callers";
const DEFERRED: &str = "defer_loading";

/// A function, in or out of a namespace.
#[derive(PartialEq, Eq)]
pub(super) struct FunctionName<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl<'a> FunctionName<'a> {
    pub(super) fn of(value: &'a Value) -> FunctionName<'a> {
        FunctionName { namespace: fields::text_of(value, "namespace"), name: fields::text_of(value, "name") }
    }
}

impl fmt::Display for FunctionName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(self.name) } else { write!(f, "{}.{}", self.namespace, self.name) }
    }
}

fn entries(body: &Map<String, Value>) -> &[Value] {
    body.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn program_declaration(body: &Map<String, Value>) -> ProgramDeclaration {
    ProgramDeclaration::declared_if(entries(body).iter().any(|entry| fields::kind(entry) == PROGRAMS))
}

/// Whether the model may call the chosen function directly.
pub(super) fn is_direct(body: &Map<String, Value>, choice: &Value) -> bool {
    let default = program_declaration(body).default_callers();
    let is_direct =
        |tool: &Value| AllowedCallers::read(tool.get(CALLERS), default).is_ok_and(AllowedCallers::allow_model);
    let chosen = FunctionName::of(choice);
    entries(body).iter().any(|entry| match fields::kind(entry) {
        "function" => chosen == FunctionName::of(entry) && is_direct(entry),
        "namespace" => {
            let namespace = fields::text_of(entry, "name");
            let is_chosen = |tool: &Value| chosen == FunctionName { namespace, name: fields::text_of(tool, "name") };
            members(entry).iter().any(|tool| is_chosen(tool) && is_direct(tool))
        }
        _ => false,
    })
}

fn members(entry: &Value) -> &[Value] {
    entry.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Sorts the tools by who may call them.
pub(super) fn split(
    body: &Map<String, Value>,
    programs: ProgramDeclaration,
    contents: ListContents,
) -> Result<ToolSplit<'_>, BadRequest> {
    let entries = match body.get("tools") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new("tools", "must be an array")),
    };
    let mut split = ToolSplit::of(entries, contents);
    let mut search = None;
    let unknown = if contents == ListContents::ForPrograms { &[][..] } else { entries };
    for (at, entry) in unknown.iter().enumerate() {
        let place = ToolPlace { entry: at, member: None };
        match fields::kind(entry) {
            "function" => {
                let callers = callers(entry, place, programs)?;
                if callers.allow_programs() {
                    for_programs(Cow::Borrowed(entry), place, &mut split);
                }
                if callers.allow_model() {
                    split.direct.insert(fields::text_of(entry, "name").to_owned());
                    split.passed.push(without_fields(entry, &[CALLERS]));
                }
            }
            "namespace" => namespace(entry, at, programs, &mut split)?,
            PROGRAMS => {}
            SEARCH if fields::text_of(entry, "execution") != "client" => search = Some((split.passed.len(), entry)),
            _ => {
                split.direct.extend(direct_name(entry));
                split.passed.push(without_fields(entry, &[CALLERS]));
            }
        }
    }
    if let Some((at, entry)) = search {
        // The provider searches the tools that the model calls directly; the gateway searches those for programs.
        let is_forwarded = split.passed.iter().any(is_deferred);
        if is_forwarded {
            split.passed.insert(at, entry.clone());
        }
        if !is_forwarded || !split.deferred.is_empty() {
            split.search_tool = Some(SEARCH.to_owned());
        }
    }
    let is_search = |entry: &Value| fields::kind(entry) == SEARCH && fields::text_of(entry, "execution") == "client";
    // The hint has to stand from the first request on, so a search that has found nothing yet counts.
    if unknown.iter().any(is_search) || items(body).any(adds_tools) {
        split.later_tools = LaterTools::Direct;
    }
    for (name, tool) in loaded(body, &split) {
        // Other wires have no namespaces: it is reported that the tool is left out.
        let is_in_namespace = name != fields::text_of(&tool, "name");
        let tool = if is_in_namespace { json!({"type": "namespace", "name": name}) } else { tool };
        if split.direct.insert(name) {
            split.added.push(tool);
        }
    }
    Ok(split)
}

/// Whether the model has to search for the tool, or for one of the namespace.
fn is_deferred(entry: &Value) -> bool {
    entry.get(DEFERRED) == Some(&Value::Bool(true)) || members(entry).iter().any(is_deferred)
}

/// Functions that the client added in the middle of the conversation, with their names. Programs cannot call them.
fn loaded(body: &Map<String, Value>, split: &ToolSplit<'_>) -> Vec<(String, Value)> {
    let mut loads = items(body).filter(|item| adds_tools(item)).peekable();
    if loads.peek().is_none() {
        return Vec::new();
    }
    let of_programs: BTreeSet<String> = split
        .tools
        .iter()
        .map(|tool| FunctionName { namespace: fields::text_of(tool, "server"), ..FunctionName::of(tool) }.to_string())
        .collect();
    let tools = loads.filter_map(|item| item.get("tools")).flat_map(functions);
    let is_direct = |tool: &Value| {
        AllowedCallers::read(tool.get(CALLERS), AllowedCallers::MODEL).is_ok_and(AllowedCallers::allow_model)
    };
    let tools = tools.filter(|(name, tool)| is_direct(tool) && !of_programs.contains(name));
    let tools = tools.filter(|(name, _)| !name.is_empty());
    tools.map(|(name, tool)| (name, without_fields(tool, &OURS))).collect()
}

fn items(body: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    body.get("input").and_then(Value::as_array).into_iter().flatten()
}

/// Whether an item adds tools to the conversation.
fn adds_tools(item: &Value) -> bool {
    match fields::kind(item) {
        "additional_tools" => true,
        "tool_search_output" => fields::text_of(item, "execution") == "client",
        _ => false,
    }
}

/// Refuses tools that only programs may call, but that are no functions.
pub(super) fn check_callers(body: &Map<String, Value>) -> Result<(), BadRequest> {
    let check = |entry: &Value, place: ToolPlace| {
        let wrong = |message: &str| Err(BadRequest::new(format!("{place}.{CALLERS}"), message));
        match AllowedCallers::read(field(entry, CALLERS), AllowedCallers::MODEL) {
            _ if matches!(fields::kind(entry), "function" | "namespace") => Ok(()),
            Ok(callers) if callers.allow_model() => Ok(()),
            Ok(_) => wrong("only functions can be called by programs here; use [\"direct\"]"),
            Err(message) => wrong(&message),
        }
    };
    for (at, entry) in entries(body).iter().enumerate() {
        check(entry, ToolPlace { entry: at, member: None })?;
        for (member, tool) in members(entry).iter().enumerate().filter(|_| fields::kind(entry) == "namespace") {
            check(tool, ToolPlace { entry: at, member: Some(member) })?;
        }
    }
    Ok(())
}

/// Adds a namespace. In the catalog its functions are those of a server with its name.
fn namespace<'a>(
    entry: &'a Value,
    at: usize,
    programs: ProgramDeclaration,
    split: &mut ToolSplit<'a>,
) -> Result<(), BadRequest> {
    let namespace = fields::text_of(entry, "name");
    if namespace.is_empty() {
        return Err(BadRequest::new(format!("tools[{at}].name"), "a namespace needs a name"));
    }
    let mut direct = Vec::new();
    for (member, tool) in members(entry).iter().enumerate() {
        let place = ToolPlace { entry: at, member: Some(member) };
        let is_function = fields::kind(tool) == "function";
        let callers = if is_function { callers(tool, place, programs)? } else { AllowedCallers::MODEL };
        if callers.allow_programs() {
            let mut tool = tool.clone();
            tool["server"] = Value::from(namespace);
            for_programs(Cow::Owned(tool), place, split);
        }
        if callers.allow_model() {
            split.direct.insert(FunctionName { namespace, name: fields::text_of(tool, "name") }.to_string());
            direct.push(without_fields(tool, &[CALLERS]));
        }
    }
    if !direct.is_empty() {
        split.passed.push(fields::with_field(entry, "tools", Value::Array(direct)));
    }
    Ok(())
}

/// Fields that have no meaning without programs and searches.
const OURS: [&str; 2] = [CALLERS, DEFERRED];

/// All tools except those that only programs may call, without the fields of the gateway.
pub(super) fn ordinary(body: &Map<String, Value>, programs: ProgramDeclaration) -> Vec<Value> {
    let is_ordinary = |tool: &&Value| {
        let callers = AllowedCallers::read(tool.get(CALLERS), programs.default_callers());
        callers.is_ok_and(AllowedCallers::are_ordinary)
    };
    let entry = |entry: &Value| match fields::kind(entry) {
        "function" => is_ordinary(&entry).then(|| without_fields(entry, &OURS)),
        "namespace" => {
            let tools: Vec<Value> =
                members(entry).iter().filter(is_ordinary).map(|tool| without_fields(tool, &OURS)).collect();
            (!tools.is_empty()).then(|| fields::with_field(entry, "tools", Value::Array(tools)))
        }
        PROGRAMS => None,
        SEARCH if fields::text_of(entry, "execution") != "client" => None,
        _ => Some(entry.clone()),
    };
    entries(body).iter().filter_map(entry).collect()
}

fn for_programs<'a>(tool: Cow<'a, Value>, place: ToolPlace, split: &mut ToolSplit<'a>) {
    if field(&tool, DEFERRED) == Some(&Value::Bool(true)) {
        split.deferred.insert(split.tools.len());
    }
    split.push(tool, place);
}

/// The functions of a request, by the names under which programs know them.
pub(super) fn functions(tools: &Value) -> impl Iterator<Item = (String, &Value)> {
    let entries = tools.as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().flat_map(|entry| match fields::kind(entry) {
        "namespace" => {
            let name =
                |tool| FunctionName { namespace: fields::text_of(entry, "name"), name: fields::text_of(tool, "name") };
            members(entry).iter().map(|tool| (name(tool).to_string(), tool)).collect()
        }
        _ => vec![(fields::text_of(entry, "name").to_owned(), entry)],
    })
}

fn callers(entry: &Value, place: ToolPlace, programs: ProgramDeclaration) -> Result<AllowedCallers, BadRequest> {
    let callers = AllowedCallers::read(field(entry, CALLERS), programs.default_callers());
    callers.map_err(|message| BadRequest::new(format!("{place}.{CALLERS}"), message))
}

fn direct_name(entry: &Value) -> BTreeSet<String> {
    entry.get("name").and_then(Value::as_str).map(str::to_owned).into_iter().collect()
}

pub(super) fn read(entry: &Value) -> Option<ToolDeclaration> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let input = match fields::kind(entry) {
        "function" => {
            let schema = entry.get("parameters").filter(|schema| schema.is_object()).cloned();
            ToolInput::Schema(schema.unwrap_or_else(|| json!({"type": "object", "properties": {}})))
        }
        "custom" => ToolInput::Text { format: entry.get("format").map(nested) },
        _ => return None,
    };
    Some(ToolDeclaration { name: text("name")?, description: text("description"), input })
}

pub(super) fn write(tool: ToolDeclaration) -> Value {
    let mut fields = Map::new();
    let kind = if matches!(tool.input, ToolInput::Schema(_)) { "function" } else { "custom" };
    fields.insert("type".to_owned(), Value::from(kind));
    fields.insert("name".to_owned(), Value::from(tool.name));
    fields.extend(tool.description.map(|description| ("description".to_owned(), Value::from(description))));
    match tool.input {
        ToolInput::Schema(schema) => {
            fields.insert("parameters".to_owned(), schema);
            // Without it, providers treat the schema as strict.
            fields.insert("strict".to_owned(), Value::Bool(false));
        }
        ToolInput::Text { format } => fields.extend(format.map(|format| ("format".to_owned(), flat(format)))),
    }
    Value::Object(fields)
}

/// Chat Completions has the grammar in an object of its own.
fn nested(format: &Value) -> Value {
    match fields::text_of(format, "type") {
        "grammar" => {
            let grammar = json!({"syntax": format["syntax"], "definition": format["definition"]});
            json!({"type": "grammar", "grammar": grammar})
        }
        _ => format.clone(),
    }
}

fn flat(format: Value) -> Value {
    match format.get("grammar") {
        Some(grammar) => {
            json!({"type": "grammar", "syntax": grammar["syntax"], "definition": grammar["definition"]})
        }
        None => format,
    }
}
