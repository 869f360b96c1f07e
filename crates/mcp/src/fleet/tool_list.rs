//! The tools that one server lists.

use std::collections::{BTreeMap, BTreeSet};

use dacapo_replay::{Tool, read_tools};
use serde_json::{Map, Value};

/// The fields of a listed tool that are used; the others would only change the list when nothing changed.
const FIELDS: [&str; 6] = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"];

#[derive(Debug, Default)]
pub(super) struct ToolList {
    /// As they came, for the cache.
    pub(super) listed: Vec<Value>,
    pub(super) tools: Vec<Tool>,
    pub(super) annotations: BTreeMap<String, Map<String, Value>>,
}

impl ToolList {
    /// Reads what a server listed. A tool that cannot be read costs only itself, and of two with one name the first
    /// counts.
    pub(super) fn read(server: &str, listed: Vec<Value>) -> ToolList {
        let mut list = ToolList::default();
        let mut names = BTreeSet::new();
        for entry in listed {
            let Value::Object(mut fields) = entry else { continue };
            fields.retain(|name, _| FIELDS.contains(&name.as_str()));
            let mut alone = Value::Array(vec![Value::Object(fields)]);
            let read = read_tools(&alone).ok().and_then(|mut tools| tools.pop());
            let entry = alone[0].take();
            let Some(mut tool) = read.filter(|tool| names.insert(tool.name.clone())) else {
                tracing::warn!(server, tool = %entry["name"], "a listed tool has no use: no name, a name twice, or no schema");
                continue;
            };
            tool.server = Some(server.to_owned());
            let annotations = entry["annotations"].as_object();
            if tool.description.is_none() {
                let title = entry["title"].as_str().or_else(|| annotations?.get("title")?.as_str());
                tool.description = title.map(str::to_owned);
            }
            if let Some(annotations) = annotations {
                list.annotations.insert(tool.name.clone(), annotations.clone());
            }
            list.tools.push(tool);
            list.listed.push(entry);
        }
        list
    }
}
