//! The resources of a server, as functions beside its tools.
//!
//! A server that declares resources gets three functions, named and shaped like the requests of the protocol. A tool of the
//! server with such a name has the name instead.

use serde_json::{Map, Value, json};

/// A function that sends a request for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResourceFunction {
    Read,
    List,
    ListTemplates,
}

impl ResourceFunction {
    pub(super) const ALL: [ResourceFunction; 3] =
        [ResourceFunction::List, ResourceFunction::ListTemplates, ResourceFunction::Read];

    /// What programs call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            ResourceFunction::Read => "read_resource",
            ResourceFunction::List => "list_resources",
            ResourceFunction::ListTemplates => "list_resource_templates",
        }
    }

    /// Whether a tool has this name, however it is written: `readResource` is `read_resource`.
    pub(super) fn is_named_like(self, tool: &str) -> bool {
        let letters = |name: &str| -> String {
            name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
        };
        letters(tool) == letters(self.name())
    }

    /// The function as a server would list a tool.
    pub(super) fn definition(self) -> Value {
        let (description, input, output) = match self {
            ResourceFunction::Read => (
                "Reads a resource of this server. `text` is there for text; anything else has a `handle`.",
                json!({
                    "type": "object",
                    "properties": { "uri": { "type": "string" } },
                    "required": ["uri"],
                    "additionalProperties": false,
                }),
                json!({
                    "type": "object",
                    "properties": { "contents": list(&json!({
                        "uri": { "type": "string" },
                        "mimeType": { "type": "string" },
                        "text": { "type": "string" },
                        "handle": { "type": "string" },
                    }), &["uri"]) },
                    "required": ["contents"],
                }),
            ),
            ResourceFunction::List => (
                "Lists the resources of this server, for `read_resource`.",
                cursor_input(),
                entries_output("resources", "uri"),
            ),
            ResourceFunction::ListTemplates => (
                "Lists templates (RFC 6570) for URIs of resources of this server.",
                cursor_input(),
                entries_output("resourceTemplates", "uriTemplate"),
            ),
        };
        json!({
            "name": self.name(),
            "description": description,
            "inputSchema": input,
            "outputSchema": output,
            "annotations": { "readOnlyHint": true },
        })
    }

    /// The field of the response that has what was asked for.
    pub(super) fn field(self) -> &'static str {
        match self {
            ResourceFunction::Read => "contents",
            ResourceFunction::List => "resources",
            ResourceFunction::ListTemplates => "resourceTemplates",
        }
    }
}

fn cursor_input() -> Value {
    let cursor = json!({ "type": "string", "description": "The `nextCursor` of a list that was too long." });
    json!({ "type": "object", "properties": { "cursor": cursor }, "additionalProperties": false })
}

fn entries_output(field: &str, identifier: &str) -> Value {
    let mut properties: Map<String, Value> = Map::new();
    for name in [identifier, "name", "title", "description", "mimeType"] {
        properties.insert(name.to_owned(), json!({ "type": "string" }));
    }
    let entries = list(&Value::Object(properties), &[identifier, "name"]);
    json!({ "type": "object", "properties": { field: entries, "nextCursor": { "type": "string" } }, "required": [field] })
}

fn list(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "array", "items": { "type": "object", "properties": properties, "required": required } })
}

/// What was read, in the form of a tool's result: text stays in the structured content, and everything else is also a
/// block of content, for which the program gets a handle.
pub(super) fn as_tool_result(contents: Vec<Value>) -> Value {
    let (mut structured, mut blocks) = (Vec::new(), Vec::new());
    for content in contents {
        if !content["blob"].is_string() {
            structured.push(content);
            continue;
        }
        let kind = content["mimeType"].as_str().and_then(|kind| kind.split_once('/')).map(|(kind, _)| kind.to_owned());
        let block = match kind.as_deref() {
            Some(kind @ ("image" | "audio")) => json!({
                "type": kind,
                "uri": content["uri"],
                "mimeType": content["mimeType"],
                "data": content["blob"],
            }),
            _ => json!({ "type": "resource", "resource": content }),
        };
        structured.push(block.clone());
        blocks.push(block);
    }
    json!({ "structuredContent": { "contents": structured }, "content": blocks })
}
