//! The client's tools.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};

use super::fields;
use crate::message::{Input, Tool};
use crate::turn::{BadRequest, Callers, Split};

/// The tool by which clients declare that programs may be written.
pub(super) const PROGRAMS: &str = "programmatic_tool_calling";

/// The provider's search for tools.
const SEARCH: &str = "tool_search";

/// Fields that have no meaning where programs are ours.
const OURS: [&str; 2] = ["allowed_callers", "defer_loading"];

/// A function, in or out of a namespace.
#[derive(PartialEq, Eq)]
pub(super) struct Named<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Named<'a> {
    pub(super) fn of(value: &'a Value) -> Named<'a> {
        Named { namespace: fields::text_of(value, "namespace"), name: fields::text_of(value, "name") }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(self.name) } else { write!(f, "{}.{}", self.namespace, self.name) }
    }
}

fn entries(body: &Map<String, Value>) -> &[Value] {
    body.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn declares_programs(body: &Map<String, Value>) -> bool {
    entries(body).iter().any(|entry| fields::kind(entry) == PROGRAMS)
}

/// Who may call a function that does not say it: where the client declares programs, it says which ones are for them.
fn otherwise(explicit: bool) -> Callers {
    if explicit { Callers::DIRECT } else { Callers::PROGRAMS }
}

/// May the model call the function by itself?
pub(super) fn is_direct(body: &Map<String, Value>, choice: &Value) -> bool {
    let otherwise = otherwise(declares_programs(body));
    let is_direct =
        |tool: &Value| Callers::of(tool.get("allowed_callers"), otherwise).is_ok_and(|callers| callers.direct);
    let wanted = Named::of(choice);
    entries(body).iter().any(|entry| match fields::kind(entry) {
        "function" => wanted == Named::of(entry) && is_direct(entry),
        "namespace" => {
            let namespace = fields::text_of(entry, "name");
            let is_wanted = |tool: &Value| wanted == Named { namespace, name: fields::text_of(tool, "name") };
            members(entry).iter().any(|tool| is_wanted(tool) && is_direct(tool))
        }
        _ => false,
    })
}

fn members(entry: &Value) -> &[Value] {
    entry.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn split(body: &Map<String, Value>, explicit: bool) -> Result<Split<'_>, BadRequest> {
    let mut split = Split::default();
    let entries = match body.get("tools") {
        None | Some(Value::Null) => return Ok(split),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new("tools", "must be an array")),
    };
    for (at, entry) in entries.iter().enumerate() {
        let place = format!("tools[{at}]");
        match fields::kind(entry) {
            "function" => {
                let callers = callers(entry, &place, explicit)?;
                if callers.programs {
                    for_programs(Cow::Borrowed(entry), place, &mut split);
                }
                if callers.direct {
                    split.direct.insert(fields::text_of(entry, "name").to_owned());
                    split.passed.push(without_ours(entry));
                }
            }
            "namespace" => namespace(entry, &place, explicit, &mut split)?,
            PROGRAMS => {}
            SEARCH if fields::text_of(entry, "execution") != "client" => split.search_tool = Some(SEARCH.to_owned()),
            _ => {
                split.direct.extend(direct_name(entry));
                split.passed.push(without_ours(entry));
            }
        }
    }
    Ok(split)
}

/// Its functions are functions of a server of that name, as the catalog sees it.
fn namespace<'a>(entry: &'a Value, place: &str, explicit: bool, split: &mut Split<'a>) -> Result<(), BadRequest> {
    let namespace = fields::text_of(entry, "name");
    if namespace.is_empty() {
        return Err(BadRequest::new(format!("{place}.name"), "a namespace needs a name"));
    }
    let mut direct = Vec::new();
    for (at, tool) in members(entry).iter().enumerate() {
        let place = format!("{place}.tools[{at}]");
        let is_function = fields::kind(tool) == "function";
        let callers = if is_function { callers(tool, &place, explicit)? } else { Callers::DIRECT };
        if callers.programs {
            let mut tool = tool.clone();
            tool["server"] = Value::from(namespace);
            for_programs(Cow::Owned(tool), place, split);
        }
        if callers.direct {
            split.direct.insert(Named { namespace, name: fields::text_of(tool, "name") }.to_string());
            direct.push(without_ours(tool));
        }
    }
    if !direct.is_empty() {
        let mut entry = entry.clone();
        entry["tools"] = Value::Array(direct);
        split.passed.push(entry);
    }
    Ok(())
}

/// All but what only programs may call, and what only we understand.
pub(super) fn ordinary(body: &Map<String, Value>, explicit: bool) -> Vec<Value> {
    let is_ordinary = |tool: &&Value| {
        let callers = Callers::of(tool.get("allowed_callers"), otherwise(explicit));
        callers.is_ok_and(|callers| callers.direct || !callers.are_given)
    };
    let entry = |entry: &Value| match fields::kind(entry) {
        "function" => is_ordinary(&entry).then(|| without_ours(entry)),
        "namespace" => {
            let tools: Vec<Value> = members(entry).iter().filter(is_ordinary).map(without_ours).collect();
            let mut entry = entry.clone();
            let is_left = !tools.is_empty();
            entry["tools"] = Value::Array(tools);
            is_left.then_some(entry)
        }
        PROGRAMS => None,
        SEARCH if fields::text_of(entry, "execution") != "client" => None,
        _ => Some(entry.clone()),
    };
    entries(body).iter().filter_map(entry).collect()
}

fn for_programs<'a>(tool: Cow<'a, Value>, place: String, split: &mut Split<'a>) {
    if tool.get("defer_loading") == Some(&Value::Bool(true)) {
        split.deferred.insert(split.tools.len());
    }
    split.tools.push(tool);
    split.places.push(place);
}

/// The functions of a request, by the names under which programs know them.
pub(super) fn functions(tools: &Value) -> impl Iterator<Item = (String, &Value)> {
    let entries = tools.as_array().map_or(&[][..], Vec::as_slice);
    entries.iter().flat_map(|entry| match fields::kind(entry) {
        "namespace" => {
            let name = |tool| Named { namespace: fields::text_of(entry, "name"), name: fields::text_of(tool, "name") };
            members(entry).iter().map(|tool| (name(tool).to_string(), tool)).collect()
        }
        _ => vec![(fields::text_of(entry, "name").to_owned(), entry)],
    })
}

fn callers(entry: &Value, place: &str, explicit: bool) -> Result<Callers, BadRequest> {
    let callers = Callers::of(entry.get("allowed_callers"), otherwise(explicit));
    callers.map_err(|message| BadRequest::new(format!("{place}.allowed_callers"), message))
}

fn direct_name(entry: &Value) -> BTreeSet<String> {
    entry.get("name").and_then(Value::as_str).map(str::to_owned).into_iter().collect()
}

fn without_ours(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        for key in OURS {
            fields.shift_remove(key);
        }
    }
    entry
}

pub(super) fn read(entry: &Value) -> Option<Tool> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let input = match fields::kind(entry) {
        "function" => {
            let schema = entry.get("parameters").filter(|schema| schema.is_object()).cloned();
            Input::Schema(schema.unwrap_or_else(|| json!({"type": "object", "properties": {}})))
        }
        "custom" => Input::Text { format: entry.get("format").map(nested) },
        _ => return None,
    };
    Some(Tool { name: text("name")?, description: text("description"), input })
}

pub(super) fn write(tool: &Tool) -> Value {
    let mut fields = Map::new();
    let kind = if matches!(tool.input, Input::Schema(_)) { "function" } else { "custom" };
    fields.insert("type".to_owned(), Value::from(kind));
    fields.insert("name".to_owned(), Value::from(tool.name.as_str()));
    if let Some(description) = &tool.description {
        fields.insert("description".to_owned(), Value::from(description.as_str()));
    }
    match &tool.input {
        Input::Schema(schema) => {
            fields.insert("parameters".to_owned(), schema.clone());
            // Without it providers make schemas strict that are not meant to be.
            fields.insert("strict".to_owned(), Value::Bool(false));
        }
        Input::Text { format } => fields.extend(format.as_ref().map(|format| ("format".to_owned(), flat(format)))),
    }
    Value::Object(fields)
}

/// Elsewhere a grammar is an object of its own.
fn nested(format: &Value) -> Value {
    match fields::text_of(format, "type") {
        "grammar" => {
            let grammar = json!({"syntax": format["syntax"], "definition": format["definition"]});
            json!({"type": "grammar", "grammar": grammar})
        }
        _ => format.clone(),
    }
}

fn flat(format: &Value) -> Value {
    match format.get("grammar") {
        Some(grammar) => {
            json!({"type": "grammar", "syntax": grammar["syntax"], "definition": grammar["definition"]})
        }
        None => format.clone(),
    }
}
