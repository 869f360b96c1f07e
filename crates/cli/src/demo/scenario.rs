//! A conversation of the demo: the question, the tools and the expected answer.

use serde_json::{Value, json};

use super::{budget, fallback, news, repair, shipping};

pub(crate) struct Scenario {
    /// For `--only`.
    pub name: &'static str,
    pub title: String,
    pub question: String,
    /// As the client sends them.
    pub tools: Vec<Value>,
    /// Executes a call of the client's tool.
    pub execute: Execute,
    /// Computed from the tools' own data.
    pub expected: String,
}

pub(crate) type Execute = Box<dyn Fn(&str, &Value) -> Result<Value, String>>;

impl Scenario {
    pub(crate) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool["function"]["name"] == name)
    }
}

pub(crate) const NAMES: [&str; 6] =
    ["parallel-news", "sequential-news", "shipping", "budget", "failing-tool", "repaired-program"];

pub(crate) fn all() -> [Scenario; 6] {
    [
        news::parallel(NAMES[0]),
        news::sequential(NAMES[1]),
        shipping::scenario(NAMES[2]),
        budget::scenario(NAMES[3]),
        fallback::scenario(NAMES[4]),
        repair::scenario(NAMES[5]),
    ]
}

/// A function tool; all its parameters are required, each a name, a type and what it means.
pub(super) fn tool(name: &str, description: &str, parameters: &[(&str, &str, &str)]) -> Value {
    let names: Vec<&str> = parameters.iter().map(|(name, ..)| *name).collect();
    function(name, description, parameters, &names)
}

/// The same, with the names of those that are required.
pub(super) fn function(name: &str, description: &str, parameters: &[(&str, &str, &str)], required: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> = parameters
        .iter()
        .map(|(name, kind, meaning)| ((*name).to_owned(), json!({"type": kind, "description": meaning})))
        .collect();
    json!({"type": "function", "function": {
        "name": name,
        "description": description,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        },
    }})
}

/// A text argument of a call.
pub(super) fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, String> {
    arguments[name].as_str().ok_or_else(|| format!("{name} is missing"))
}

pub(super) fn unknown(what: &str, name: &str) -> String {
    format!("unknown {what}: {name}")
}

/// Cents as a number of euros.
pub(super) fn euros(cents: i32) -> Value {
    json!(f64::from(cents) / 100.0)
}
