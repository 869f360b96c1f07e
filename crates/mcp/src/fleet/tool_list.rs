//! The tools that one server lists.

use std::collections::BTreeMap;

use dacapo_replay::{Tool, read_tools};
use dacapo_runner::ToolDigest;
use serde_json::{Map, Value};

use super::resources::ResourceFunction;

/// The fields of a tool that are used. Others are dropped, so that a change of them does not count as a change of the list.
const FIELDS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

#[derive(Debug, Clone, Default)]
pub(super) struct ToolList {
    /// As the server listed them, for the cache.
    pub(super) listed: Vec<Value>,
    /// Whether the server declares resources.
    pub(super) has_resources: bool,
    /// Definitions of the functions for its resources, as if the server had listed them.
    functions: Vec<Value>,
    /// Its tools in the order of `listed`, then those of `functions`.
    pub(super) tools: Vec<Tool>,
    /// Positions in `tools`, by name.
    positions: BTreeMap<String, usize>,
}

/// TypeScript types without values, by the tool's name.
pub(super) type Shapes = BTreeMap<String, String>;

impl ToolList {
    /// Reads what a server listed. A tool that cannot be read is left out, and of two with one name the second.
    pub(super) fn read(server: &str, listed: Vec<Value>, has_resources: bool, mut shapes: Shapes) -> ToolList {
        let mut list = ToolList { has_resources, ..ToolList::default() };
        for entry in listed {
            let Value::Object(mut fields) = entry else { continue };
            fields.retain(|name, _| FIELDS.contains(&name.as_str()));
            let mut alone = Value::Array(vec![Value::Object(fields)]);
            let read = read_tools(&alone).ok().and_then(|mut tools| tools.pop());
            let entry = alone[0].take();
            let Some(mut tool) = read.filter(|tool| !list.positions.contains_key(&tool.name)) else {
                tracing::warn!(server, tool = %entry["name"], "a tool is left out: it has no name, the name of another one, or no schema");
                continue;
            };
            tool.server = Some(server.to_owned());
            if tool.description.is_none() {
                let title = entry["title"].as_str().or_else(|| entry["annotations"]["title"].as_str());
                tool.description = title.map(str::to_owned);
            }
            let shape = shapes.remove(&tool.name);
            tool.observed_answer = shape.filter(|shape| tool.output_schema.is_none() && is_shape(shape));
            list.push(tool);
            list.listed.push(entry);
        }
        let functions: Value = list.resource_functions().map(ResourceFunction::definition).collect();
        for mut tool in read_tools(&functions).expect("our own definitions can be read") {
            tool.server = Some(server.to_owned());
            list.push(tool);
        }
        if let Value::Array(functions) = functions {
            list.functions = functions;
        }
        list
    }

    fn push(&mut self, tool: Tool) {
        self.positions.insert(tool.name.clone(), self.tools.len());
        self.tools.push(tool);
    }

    /// What the server says of a tool.
    fn entry(&self, tool: &str) -> Option<&Value> {
        self.listed.iter().chain(&self.functions).nth(*self.positions.get(tool)?)
    }

    /// The annotations of a tool, if it has some.
    pub(super) fn annotations(&self, tool: &str) -> Option<&Map<String, Value>> {
        self.entry(tool)?["annotations"].as_object()
    }

    /// The definition of a tool.
    pub(super) fn definition(&self, tool: &str) -> Option<ToolDigest> {
        self.entry(tool).map(ToolDigest::of)
    }

    /// What answers of tools without an output schema looked like.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tools.iter().filter_map(|tool| Some((tool.name.as_str(), tool.observed_answer.as_deref()?)))
    }

    /// Whether answers of the tool look like something that is not known yet.
    pub(super) fn is_unknown(&self, tool: &str, shape: &str) -> bool {
        let tool = self.positions.get(tool).map(|at| &self.tools[*at]);
        tool.is_some_and(|tool| tool.output_schema.is_none() && tool.observed_answer.is_none()) && is_shape(shape)
    }

    /// Remembers what answers of a tool look like.
    pub(super) fn observe(&mut self, tool: &str, shape: &str) {
        if let Some(at) = self.positions.get(tool) {
            self.tools[*at].observed_answer = Some(shape.to_owned());
        }
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
        let shapes = self.shapes().filter(|(tool, _)| is_as_it_was(tool));
        shapes.map(|(tool, shape)| (tool.to_owned(), shape.to_owned())).collect()
    }
}

/// Whether the text can only be a type. It stands in declarations, and comes from a file that may have been changed.
fn is_shape(text: &str) -> bool {
    text.chars().all(|letter| letter.is_alphanumeric() || "_$-./:@\"{}[]()|;? ".contains(letter))
}
