//! The tools that one server lists.

use std::collections::{BTreeMap, BTreeSet};

use dacapo_replay::{Tool, read_tools};
use dacapo_runner::ToolDigest;
use serde_json::{Map, Value};

use super::resources::ResourceFunction;

/// The fields of a tool that are used. Others are dropped, so that a change of them does not count as a change of the list.
const FIELDS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

#[derive(Debug, Default)]
pub(super) struct ToolList {
    /// As the server listed them, for the cache.
    pub(super) listed: Vec<Value>,
    /// Whether the server declares resources.
    pub(super) has_resources: bool,
    /// Its tools, and the functions for its resources.
    pub(super) tools: Vec<Tool>,
    pub(super) annotations: BTreeMap<String, Map<String, Value>>,
    /// What answers of tools without an output schema looked like, by the tool's name.
    pub(super) shapes: Shapes,
}

/// TypeScript types without values, by the tool's name.
pub(super) type Shapes = BTreeMap<String, String>;

impl ToolList {
    /// Reads what a server listed. A tool that cannot be read is left out, and of two with one name the second.
    pub(super) fn read(server: &str, listed: Vec<Value>, has_resources: bool, mut shapes: Shapes) -> ToolList {
        let mut list = ToolList { has_resources, ..ToolList::default() };
        let mut names = BTreeSet::new();
        for entry in listed {
            let Value::Object(mut fields) = entry else { continue };
            fields.retain(|name, _| FIELDS.contains(&name.as_str()));
            let mut alone = Value::Array(vec![Value::Object(fields)]);
            let read = read_tools(&alone).ok().and_then(|mut tools| tools.pop());
            let entry = alone[0].take();
            let Some(mut tool) = read.filter(|tool| names.insert(tool.name.clone())) else {
                tracing::warn!(server, tool = %entry["name"], "a tool is left out: it has no name, the name of another one, or no schema");
                continue;
            };
            tool.server = Some(server.to_owned());
            let annotations = entry["annotations"].as_object();
            if tool.description.is_none() {
                let title = entry["title"].as_str().or_else(|| annotations?.get("title")?.as_str());
                tool.description = title.map(str::to_owned);
            }
            let shape = shapes.remove(&tool.name).filter(|shape| tool.output_schema.is_none() && is_shape(shape));
            if let Some(shape) = shape {
                tool.observed_answer = Some(shape.clone());
                list.shapes.insert(tool.name.clone(), shape);
            }
            if let Some(annotations) = annotations {
                list.annotations.insert(tool.name.clone(), annotations.clone());
            }
            list.tools.push(tool);
            list.listed.push(entry);
        }
        let functions: Vec<Value> = list.resource_functions().map(ResourceFunction::definition).collect();
        let mut functions = Value::Array(functions);
        let tools = read_tools(&functions).expect("our own definitions can be read");
        for (at, mut tool) in tools.into_iter().enumerate() {
            tool.server = Some(server.to_owned());
            if let Value::Object(annotations) = functions[at]["annotations"].take() {
                list.annotations.insert(tool.name.clone(), annotations);
            }
            list.tools.push(tool);
        }
        list
    }

    /// The functions for its resources whose names no tool has.
    pub(super) fn resource_functions(&self) -> impl Iterator<Item = ResourceFunction> {
        ResourceFunction::ALL.into_iter().filter(|function| self.offers(*function))
    }

    fn offers(&self, function: ResourceFunction) -> bool {
        let mut names = self.listed.iter().filter_map(|entry| entry["name"].as_str());
        self.has_resources && !names.any(|tool| function.is_named_like(tool))
    }

    /// The function for resources with this name, unless a tool has the name.
    pub(super) fn resource_function(&self, name: &str) -> Option<ResourceFunction> {
        let function = ResourceFunction::ALL.into_iter().find(|function| function.name() == name)?;
        self.offers(function).then_some(function)
    }

    /// The shapes that still hold for tools that the server lists now: of those that are as they were.
    pub(super) fn shapes_for(&self, listed: &[Value]) -> Shapes {
        let is_as_it_was = |tool: &str| {
            let [before, now] = [&self.listed, listed].map(|list| list.iter().find(|entry| entry["name"] == tool));
            FIELDS.iter().all(|field| before.and_then(|tool| tool.get(field)) == now.and_then(|tool| tool.get(field)))
        };
        let shapes = self.shapes.iter().filter(|(tool, _)| is_as_it_was(tool));
        shapes.map(|(tool, shape)| (tool.clone(), shape.clone())).collect()
    }

    /// What the server says of a tool.
    pub(super) fn definition(&self, tool: &str) -> Option<ToolDigest> {
        let listed = self.listed.iter().find(|entry| entry["name"] == tool).map(ToolDigest::of);
        listed.or_else(|| Some(ToolDigest::of(&self.resource_function(tool)?.definition())))
    }
}

/// Whether the text can only be a type. It stands in declarations, and comes from a file that may have been changed.
fn is_shape(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || "_$-./:@\"{}[]()|;? ".contains(letter))
}
