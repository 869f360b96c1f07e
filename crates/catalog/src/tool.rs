//! Tool lists in the formats of all providers.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::effect::Effect;
use crate::tool_schema::ToolSchema;

/// A function the program may call, as its owner described it.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name, unique in its namespace.
    pub name: String,
    /// What it does, in words for a model.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub input_schema: ToolSchema,
    /// JSON Schema of its answers, if its owner gave one.
    pub output_schema: Option<ToolSchema>,
    /// What its answers looked like, as a TypeScript type without values, for a tool without a schema of them.
    pub observed_answer: Option<String>,
    /// The namespace the tool lives in; `None` for the client's own tools.
    pub server: Option<String>,
    /// What calls may do, if configuration or the tool's annotations say it.
    pub effect: Option<Effect>,
}

impl Tool {
    /// What calls of the tool may do: as configured or annotated, or else as its name suggests.
    pub fn effect(&self) -> Effect {
        self.effect.unwrap_or_else(|| Effect::of_name(&self.name))
    }
}

/// What is wrong with a tool list, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{}{problem}", path.as_deref().unwrap_or_default(), if path.is_some() { ": " } else { "" })]
pub struct ToolsError {
    path: Option<String>,
    problem: ToolsProblem,
}

/// The kinds of mistakes in tool lists.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsProblem {
    /// There is no list at all.
    #[error("expected an array of tools or an object with `tools`, found {found}")]
    NotAList {
        /// The kind of JSON that stands there instead.
        found: &'static str,
    },
    /// A part of a tool is of another kind.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// The kind of JSON that belongs there.
        expected: &'static str,
        /// The kind of JSON that stands there instead.
        found: &'static str,
    },
    /// Two tools of one namespace have the same name.
    #[error("`{name}` is already the name of tools[{first}]; give each tool its own name")]
    Duplicate {
        /// The name of both.
        name: String,
        /// Position of the first of them.
        first: usize,
    },
}

impl ToolsError {
    /// Where the mistake is, like `tools[2].name`; `None` for the list as a whole.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// What the mistake is.
    pub fn problem(&self) -> &ToolsProblem {
        &self.problem
    }
}

/// Reads tools in any format in use: an array of `OpenAI`, Anthropic or MCP tools, the output of
/// `tools/list`, or the JSON-RPC response around it.
///
/// Unknown keys are skipped, because providers add their own. The key `server` puts a tool into a namespace.
///
/// ```
/// use dacapo_catalog::read_tools;
/// let chat = serde_json::json!([{"type": "function", "function": {"name": "add", "parameters": {}}}]);
/// let mcp = serde_json::json!({"tools": [{"name": "add", "inputSchema": {}}]});
/// assert_eq!(read_tools(&chat).unwrap(), read_tools(&mcp).unwrap());
/// ```
pub fn read_tools(json: &Value) -> Result<Vec<Tool>, ToolsError> {
    let list = json.get("result").unwrap_or(json).get("tools").unwrap_or(json);
    let Value::Array(entries) = list else {
        return Err(ToolsError { path: None, problem: ToolsProblem::NotAList { found: json_type_name(list) } });
    };
    read_each(entries, |schema| ToolSchema::from(schema.clone()))
}

/// Like [`read_tools`], for a long list whose entries come one by one: only the tools are held, and their schemas as text.
pub fn read_tool_list(entries: impl IntoIterator<Item = Value>) -> Result<Vec<Tool>, ToolsError> {
    read_each(entries, ToolSchema::as_text)
}

fn read_each<V: Borrow<Value>>(
    entries: impl IntoIterator<Item = V>,
    hold: fn(&Value) -> ToolSchema,
) -> Result<Vec<Tool>, ToolsError> {
    let mut first_places = BTreeMap::new();
    let mut tools = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let (tool, name_at) = read_tool(index, entry.borrow(), hold)?;
        let key = (tool.server.clone(), tool.name.clone());
        if let Some(&first) = first_places.get(&key) {
            let problem = ToolsProblem::Duplicate { name: tool.name, first };
            return Err(ToolsError { path: Some(name_at), problem });
        }
        first_places.insert(key, index);
        tools.push(tool);
    }
    Ok(tools)
}

fn read_tool(index: usize, entry: &Value, hold: fn(&Value) -> ToolSchema) -> Result<(Tool, String), ToolsError> {
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
    let input_schema = inner.schema(&["parameters", "input_schema", "inputSchema"])?;
    let output_schema = inner.schema(&["output_schema", "outputSchema"])?.or_else(|| outer.output_of_function());
    let tool = Tool {
        name,
        description: inner.description()?,
        input_schema: input_schema.map_or_else(|| Value::Object(Map::new()).into(), hold),
        output_schema: output_schema.map(hold),
        observed_answer: None,
        server: outer.text("server")?,
        effect: outer.fields.get("annotations").and_then(Effect::of_annotations),
    };
    Ok((tool, inner.path("name")))
}

/// One object of the list, with its path for messages.
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
                let problem = ToolsProblem::Unexpected { expected: "a name", found: "an empty string" };
                Err(ToolsError { path: Some(self.path(key)), problem })
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

    /// The output schema of a Chat tool as `function.output`. Anything else under this key is a provider's own.
    fn output_of_function(&self) -> Option<&Value> {
        let function = self.fields.get("function").filter(|_| !self.fields.contains_key("name"))?;
        function.get("output").filter(|output| output.is_object())
    }

    fn schema(&self, keys: &[&str]) -> Result<Option<&Value>, ToolsError> {
        for key in keys {
            match self.fields.get(*key) {
                None | Some(Value::Null) => {}
                Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
                    return Ok(Some(schema));
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
    let problem = ToolsProblem::Unexpected { expected, found: found.map_or("nothing", json_type_name) };
    ToolsError { path: Some(at), problem }
}

/// The kind of a JSON value with its article, such as `a string`, for messages.
pub fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
