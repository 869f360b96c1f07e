//! `search` and `describe`: functions with which a program looks up its own tools.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use dacapo_catalog::{Catalog, SearchText, ToolIndex, read_tools};
use serde::Serialize;
use serde_json::{Value, json};

use crate::json_text::JsonText;
use crate::toolbox::Toolbox;

const LIMIT_DEFAULT: u64 = 5;
const LIMIT_MAX: u64 = 50;

const FUEL_PER_LOOKUP: u64 = 50_000;
const FUEL_PER_TOOL: u64 = 100;
/// Every word of a query is looked up in all tools, so fuel grows with both.
const BYTES_PER_FUEL_AND_TOOL: u64 = 64;

/// A call that the host answers at once, from the toolbox alone.
#[derive(Debug)]
pub(crate) enum Lookup {
    Search { text: SearchText, limit: usize },
    Describe { name: String },
}

/// One tool as a program sees it.
#[derive(Serialize)]
struct ToolDescription<'a> {
    name: String,
    description: &'a str,
    declaration: &'a str,
}

/// The functions as tools, so that their arguments are checked like those of any other.
static FUNCTIONS: LazyLock<Catalog> = LazyLock::new(|| {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX });
    let [search, describe] = Lookup::FUNCTIONS;
    let queries =
        json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": SearchText::QUERIES_MAX });
    let functions = json!([
        { "name": search, "input_schema": { "type": "object", "additionalProperties": false,
            "properties": { "query": { "type": "string" }, "queries": queries, "limit": limit } } },
        { "name": describe, "input_schema": { "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": { "name": { "type": "string" } } } },
    ]);
    Catalog::new(read_tools(&functions).expect("it is a tool list"))
});
const SEARCH: ToolIndex = ToolIndex(0);
const DESCRIBE: ToolIndex = ToolIndex(1);

impl Lookup {
    /// Names of the functions, in the order of their numbers.
    pub(crate) const FUNCTIONS: [&str; 2] = ["search", "describe"];

    /// Reads the arguments of a call; `Err` says what is wrong with them.
    pub(crate) fn read(function: u32, list: &Value) -> Result<Lookup, String> {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        let checked = |function, args: Value| match FUNCTIONS.check(function, &args) {
            Ok(()) => Ok(args),
            Err(invalid) => Err(invalid.to_string()),
        };
        if ToolIndex(function) == DESCRIBE {
            let args = match list {
                [Value::String(name), ..] => json!({ "name": name }),
                _ => list.first().cloned().unwrap_or_else(|| json!({})),
            };
            let args = checked(DESCRIBE, args)?;
            return Ok(Lookup::Describe { name: text(&args["name"]) });
        }
        let key = |asked: &Value| if asked.is_array() { "queries" } else { "query" };
        let args = match list {
            [asked @ (Value::String(_) | Value::Array(_))]
            | [asked @ (Value::String(_) | Value::Array(_)), Value::Null] => json!({ key(asked): asked }),
            [asked @ (Value::String(_) | Value::Array(_)), Value::Object(options)] => {
                let mut args = options.clone();
                args.insert(key(asked).to_owned(), asked.clone());
                Value::Object(args)
            }
            [Value::String(_) | Value::Array(_), other] | [other, ..] => other.clone(),
            [] => json!({}),
        };
        let args = checked(SEARCH, args)?;
        let limit = args["limit"].as_u64().unwrap_or(LIMIT_DEFAULT) as usize;
        let queries = args["queries"].as_array().into_iter().flatten().map(text).collect();
        let query = args.get("query").map(text);
        let text = SearchText::new(query, queries).map_err(|error| error.to_string())?;
        Ok(Lookup::Search { limit: text.hits(limit), text })
    }

    /// Fuel that one answer is charged.
    pub(crate) fn fuel(toolbox: &Toolbox, args_bytes: usize) -> u64 {
        let tools = toolbox.catalog().tools().len() as u64;
        FUEL_PER_LOOKUP + tools * (FUEL_PER_TOOL + args_bytes as u64 / BYTES_PER_FUEL_AND_TOOL)
    }

    /// `ALL_TOOLS` of other systems.
    pub(crate) fn all_tools(toolbox: &Toolbox) -> String {
        let functions = toolbox.catalog().functions().iter();
        let tools = functions.map(|function| {
            let description = toolbox.catalog().tools()[function.tool.0 as usize].description.as_deref();
            json!({ "name": function.expression(), "description": description.unwrap_or_default() })
        });
        tools.collect::<Value>().to_string()
    }

    pub(crate) fn name(&self) -> &'static str {
        let [search, describe] = Lookup::FUNCTIONS;
        match self {
            Lookup::Search { .. } => search,
            Lookup::Describe { .. } => describe,
        }
    }

    /// `Err` with the name that no tool has.
    pub(crate) fn answer(&self, toolbox: &Toolbox) -> Result<JsonText, &str> {
        match self {
            Lookup::Search { text, limit } => {
                let mut hits = toolbox.index().search(text, *limit).hits;
                if let SearchText::Queries(_) = text {
                    // The best of each query come first; here in the order of the queries.
                    let answered: BTreeSet<usize> = hits.iter().map(|hit| hit.need).collect();
                    hits[..answered.len()].sort_by_key(|hit| hit.need);
                }
                let found: Vec<ToolDescription<'_>> =
                    hits.iter().map(|hit| ToolDescription::new(toolbox, hit.tool)).collect();
                Ok(json_text(&found))
            }
            Lookup::Describe { name } => {
                let tool = toolbox.catalog().find_written(name).ok_or(name.as_str())?;
                Ok(json_text(&ToolDescription::new(toolbox, tool)))
            }
        }
    }
}

impl<'a> ToolDescription<'a> {
    fn new(toolbox: &'a Toolbox, tool: ToolIndex) -> ToolDescription<'a> {
        let at = tool.0 as usize;
        ToolDescription {
            name: toolbox.catalog().functions()[at].expression(),
            description: toolbox.catalog().tools()[at].description.as_deref().unwrap_or_default(),
            declaration: toolbox.declarations().of(tool).trim_end(),
        }
    }
}

fn text(checked: &Value) -> String {
    checked.as_str().unwrap_or_default().to_owned()
}

fn json_text(value: &impl Serialize) -> JsonText {
    let json = serde_json::value::to_raw_value(value).expect("texts and lists are JSON");
    JsonText::from(&*json)
}
