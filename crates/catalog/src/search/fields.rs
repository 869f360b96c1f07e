//! The words of a tool, by the part of the tool they stand in.

use serde_json::{Map, Value};

use super::words::{WordPlace, for_each_word};
use crate::Tool;
use crate::text::prefix;

/// The part of a tool a word was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolField {
    /// Its name.
    Name,
    /// The name of its server.
    Server,
    /// Its description.
    Description,
    /// The names of the parameters.
    Parameter,
    /// The descriptions of the parameters, and the values that they may have.
    ParameterText,
    /// Names in the answer, and their descriptions.
    Output,
}

impl ToolField {
    /// All fields.
    pub const ALL: [ToolField; 6] = [
        ToolField::Name,
        ToolField::Server,
        ToolField::Description,
        ToolField::Parameter,
        ToolField::ParameterText,
        ToolField::Output,
    ];
}

/// A schema with more nodes than this is read as far as it goes.
const SCHEMA_NODES_MAX: u32 = 2_000;
const SCHEMA_DEPTH_MAX: u32 = 32;
/// A longer text is read as far as it goes.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Calls `each` with every word of the tool.
pub(super) fn for_each_word_of(tool: &Tool, each: &mut impl FnMut(ToolField, &str, WordPlace)) {
    for_each_word(clipped(&tool.name), |word, place| each(ToolField::Name, word, place));
    if let Some(server) = &tool.server {
        for_each_word(clipped(server), |word, place| each(ToolField::Server, word, place));
    }
    if let Some(description) = &tool.description {
        for_each_word(clipped(description), |word, place| each(ToolField::Description, word, place));
    }
    let mut walk =
        Walk { nodes_left: SCHEMA_NODES_MAX, names: ToolField::Parameter, texts: ToolField::ParameterText, each };
    walk.schema(&tool.input_schema.passing(), 0);
    if let Some(schema) = &tool.output_schema {
        let mut walk =
            Walk { nodes_left: SCHEMA_NODES_MAX, names: ToolField::Output, texts: ToolField::Output, each: walk.each };
        walk.schema(&schema.passing(), 0);
    }
}

pub(super) fn clipped(text: &str) -> &str {
    prefix(text, TEXT_BYTES_MAX)
}

struct Walk<'e, E> {
    nodes_left: u32,
    names: ToolField,
    texts: ToolField,
    each: &'e mut E,
}

impl<E: FnMut(ToolField, &str, WordPlace)> Walk<'_, E> {
    fn schema(&mut self, schema: &Value, depth: u32) {
        if depth > SCHEMA_DEPTH_MAX || self.nodes_left == 0 {
            return;
        }
        self.nodes_left -= 1;
        match schema {
            Value::Object(fields) => {
                for (keyword, value) in fields {
                    self.keyword(keyword, value, depth);
                }
            }
            Value::Array(schemas) => {
                for inner in schemas {
                    self.schema(inner, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn keyword(&mut self, keyword: &str, value: &Value, depth: u32) {
        match (keyword, value) {
            ("properties", Value::Object(properties)) => self.properties(properties, depth),
            ("description" | "title", Value::String(text)) => self.text(text),
            ("enum" | "examples", Value::Array(values)) => {
                for value in values {
                    self.value(value);
                }
            }
            ("const" | "default", value) => self.value(value),
            ("required" | "type" | "format" | "pattern" | "$ref" | "$schema" | "$id" | "$comment", _) => {}
            ("$defs" | "definitions" | "patternProperties", Value::Object(named)) => {
                for inner in named.values() {
                    self.schema(inner, depth + 1);
                }
            }
            _ => self.schema(value, depth + 1),
        }
    }

    fn properties(&mut self, properties: &Map<String, Value>, depth: u32) {
        // Names at the top level say what the tool does; deeper ones only how its arguments are structured.
        let field = if depth <= 1 { self.names } else { self.texts };
        for (name, inner) in properties {
            if self.nodes_left == 0 {
                return;
            }
            for_each_word(clipped(name), |word, place| (self.each)(field, word, place));
            self.schema(inner, depth + 1);
        }
    }

    fn value(&mut self, value: &Value) {
        if let Value::String(text) = value
            && self.nodes_left > 0
        {
            self.nodes_left -= 1;
            self.text(text);
        }
    }

    fn text(&mut self, text: &str) {
        for_each_word(clipped(text), |word, place| (self.each)(self.texts, word, place));
    }
}
