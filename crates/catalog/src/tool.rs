use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A function the program may call, as its owner described it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
    /// The namespace the tool lives in; `None` for the client's own tools.
    pub server: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    #[error("expected an array of tools or an object with `tools`, found {found}")]
    NotAList { found: &'static str },

    #[error("{at}: expected {expected}, found {found}")]
    Unexpected { at: String, expected: &'static str, found: &'static str },

    #[error("{at}: `{name}` is already the name of tools[{first}]; give each tool its own name")]
    Duplicate { at: String, name: String, first: usize },
}

/// Reads tools in any shape in use: an array of `OpenAI`, Anthropic or MCP tools, the output of
/// `tools/list`, or the JSON-RPC response around it.
///
/// Keys that are not known are skipped: they belong to whoever wrote the tool. Our own key
/// `server` puts a tool into a namespace.
pub fn read_tools(json: &Value) -> Result<Vec<Tool>, ToolsError> {
    let list = json.get("result").unwrap_or(json).get("tools").unwrap_or(json);
    let Value::Array(entries) = list else {
        return Err(ToolsError::NotAList { found: noun(list) });
    };
    let mut first_places = BTreeMap::new();
    let mut tools = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let (tool, name_at) = read_tool(index, entry)?;
        let key = (tool.server.clone(), tool.name.clone());
        if let Some(&first) = first_places.get(&key) {
            return Err(ToolsError::Duplicate { at: name_at, name: tool.name, first });
        }
        first_places.insert(key, index);
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(index: usize, entry: &Value) -> Result<(Tool, String), ToolsError> {
    let place = format!("tools[{index}]");
    let Value::Object(outer) = entry else {
        return Err(unexpected(place, "an object", Some(entry)));
    };
    let outer = ToolObject { at: place, fields: outer };
    // A tool of another shape may have its own key `function`; only Chat tools have no name beside it.
    let inner = match outer.fields.get("function") {
        Some(Value::Object(function)) if !outer.fields.contains_key("name") => {
            &ToolObject { at: outer.path("function"), fields: function }
        }
        Some(other) if !outer.fields.contains_key("name") => {
            return Err(unexpected(outer.path("function"), "an object", Some(other)));
        }
        _ => &outer,
    };
    let Some(name) = inner.text("name")? else {
        return Err(unexpected(inner.path("name"), "a string", None));
    };
    let input_schema =
        inner.schema(&["parameters", "input_schema", "inputSchema"])?.unwrap_or_else(|| Value::Object(Map::new()));
    let tool = Tool {
        name,
        description: inner.description()?,
        input_schema,
        output_schema: inner.schema(&["output_schema", "outputSchema"])?,
        server: outer.text("server")?,
    };
    Ok((tool, inner.path("name")))
}

/// One object of the list, with the words that lead a reader to it.
struct ToolObject<'a> {
    at: String,
    fields: &'a Map<String, Value>,
}

impl ToolObject<'_> {
    fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.at)
    }

    /// A text that names something, so it may be absent but not empty.
    fn text(&self, key: &str) -> Result<Option<String>, ToolsError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => {
                Err(ToolsError::Unexpected { at: self.path(key), expected: "a name", found: "an empty string" })
            }
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(unexpected(self.path(key), "a string", Some(other))),
        }
    }

    fn description(&self) -> Result<Option<String>, ToolsError> {
        match self.fields.get("description") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(unexpected(self.path("description"), "a string", Some(other))),
        }
    }

    fn schema(&self, keys: &[&str]) -> Result<Option<Value>, ToolsError> {
        for key in keys {
            match self.fields.get(*key) {
                None | Some(Value::Null) => {}
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                    return Ok(Some(schema.clone()));
                }
                Some(other) => {
                    return Err(unexpected(self.path(key), "a JSON Schema", Some(other)));
                }
            }
        }
        Ok(None)
    }
}

fn unexpected(at: String, expected: &'static str, found: Option<&Value>) -> ToolsError {
    ToolsError::Unexpected { at, expected, found: found.map_or("nothing", noun) }
}

/// What kind of JSON this is, for messages.
pub fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
