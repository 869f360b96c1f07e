//! An assistant message as the script file has it: placeholders are not filled, and calls may have no ids.

use std::borrow::Cow;
use std::sync::Arc;

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use crate::ScriptFileError;
use crate::quirk::Quirk;
use crate::script_file::{TomlFields, TomlNode, TomlValue};
use crate::signatures::Signatures;

#[derive(Debug)]
pub(crate) struct MessageTemplate {
    pub(crate) text: Option<String>,
    pub(crate) reasoning: Option<String>,
    pub(crate) reasoning_field: String,
    pub(crate) details: Option<Value>,
    /// Proves the origin of the reasoning, on wires that have signatures or encrypted content.
    pub(crate) signature: Option<String>,
    pub(crate) native: NativeParts,
    pub(crate) searches: Vec<SearchTemplate>,
    pub(crate) programs: Vec<String>,
    pub(crate) calls: Vec<CallTemplate>,
    pub(crate) finish_reason: Option<String>,
    /// Values that replace the counted usage, key by key.
    pub(crate) usage: Map<String, Value>,
    pub(crate) quirks: Vec<Quirk>,
}

/// Content blocks and output items that are sent as they are in the script.
#[derive(Debug, Default)]
pub(crate) struct NativeParts {
    messages: Arc<[Value]>,
    responses: Arc<[Value]>,
}

#[derive(Debug)]
pub(crate) struct SearchTemplate {
    pub(crate) query: String,
    pub(crate) limit: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct CallTemplate {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) id: Option<String>,
    pub(crate) signature: Option<String>,
}

impl MessageTemplate {
    /// The keys of a turn that make up a message. Those that are enough for an answer come first.
    pub(crate) const KEYS: [&str; 12] = [
        "text",
        "reasoning",
        "details",
        "native",
        "program",
        "search",
        "calls",
        "reasoning_field",
        "signature",
        "finish_reason",
        "usage",
        "quirks",
    ];

    /// The number of keys that are enough for an answer.
    pub(crate) const ANSWERS: usize = 7;

    pub(crate) fn read(fields: &mut TomlFields) -> Result<MessageTemplate, ScriptFileError> {
        let native = fields.path_of("native");
        let search = fields.path_of("search");
        let calls = fields.path_of("calls");
        let quirks = fields.path_of("quirks");
        let usage = fields.open_table("usage")?;
        Ok(MessageTemplate {
            text: fields.text("text")?,
            reasoning: fields.text("reasoning")?,
            reasoning_field: fields.text("reasoning_field")?.unwrap_or_else(|| "reasoning_content".into()),
            details: fields.take("details").map(TomlNode::into_json),
            signature: fields.text("signature")?,
            native: fields.take("native").map(|node| NativeParts::read(node, &native)).transpose()?.unwrap_or_default(),
            searches: fields
                .many("search")
                .into_iter()
                .map(|node| SearchTemplate::read(node, &search))
                .collect::<Result<_, _>>()?,
            programs: fields.texts("program")?,
            calls: fields
                .many("calls")
                .into_iter()
                .map(|node| CallTemplate::read(node, &calls))
                .collect::<Result<_, _>>()?,
            finish_reason: fields.text("finish_reason")?,
            usage: usage.into_iter().map(|(_, name, node)| (name, node.into_json())).collect(),
            quirks: fields
                .many("quirks")
                .into_iter()
                .map(|node| Quirk::read(node, &quirks))
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// The signature of the script, or one that is derived from the reasoning.
    pub(crate) fn signature_of(&self, reasoning: &str) -> Cow<'_, str> {
        match &self.signature {
            Some(signature) => Cow::Borrowed(signature),
            None => Cow::Owned(Signatures::make(reasoning)),
        }
    }

    pub(crate) fn calls_tools(&self) -> bool {
        !(self.searches.is_empty() && self.programs.is_empty() && self.calls.is_empty())
    }
}

impl NativeParts {
    fn read(node: TomlNode, path: &str) -> Result<NativeParts, ScriptFileError> {
        if let TomlValue::Table(_) = node.value {
            let mut fields = TomlFields::read(node, path, &["messages", "responses"])?;
            let mut parts = |name: &str| parts(fields.tables(name)?, &fields.path_of(name));
            return Ok(NativeParts { messages: parts("messages")?, responses: parts("responses")? });
        }
        let TomlValue::List(nodes) = node.value else {
            return Err(node.wrong(path, "a list of tables, or a table with `messages` and `responses`"));
        };
        let parts = parts(nodes, path)?;
        Ok(NativeParts { messages: Arc::clone(&parts), responses: parts })
    }

    pub(crate) fn on(&self, wire: Wire) -> &[Value] {
        match wire {
            Wire::Chat => &[],
            Wire::Responses => &self.responses,
            Wire::Messages => &self.messages,
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Value> {
        self.messages.iter().chain(&*self.responses)
    }
}

fn parts(nodes: Vec<TomlNode>, path: &str) -> Result<Arc<[Value]>, ScriptFileError> {
    let part = |node: TomlNode| {
        let wrong = node.wrong(path, "a table with `type`");
        let part = node.into_json();
        if part.get("type").is_some_and(Value::is_string) { Ok(part) } else { Err(wrong) }
    };
    nodes.into_iter().map(part).collect()
}

impl SearchTemplate {
    fn read(node: TomlNode, path: &str) -> Result<SearchTemplate, ScriptFileError> {
        if let TomlValue::Table(_) = node.value {
            let mut fields = TomlFields::read(node, path, &["query", "limit"])?;
            return Ok(SearchTemplate {
                query: fields.required_text("query")?,
                limit: fields.whole("limit", 0..=u64::MAX)?,
            });
        }
        Ok(SearchTemplate { query: node.into_text(path)?, limit: None })
    }
}

impl CallTemplate {
    fn read(node: TomlNode, path: &str) -> Result<CallTemplate, ScriptFileError> {
        let mut fields = TomlFields::read(node, path, &["name", "arguments", "id", "signature"])?;
        let arguments = match fields.take("arguments") {
            None => json!({}).to_string(),
            Some(TomlNode { value: TomlValue::Scalar(Value::String(raw)), .. }) => raw,
            Some(node @ TomlNode { value: TomlValue::Table(_), .. }) => node.into_json().to_string(),
            Some(node) => return Err(node.wrong(&fields.path_of("arguments"), "a table, or text to send as it is")),
        };
        let name = fields.required_text("name")?;
        Ok(CallTemplate { name, arguments, id: fields.text("id")?, signature: fields.text("signature")? })
    }
}
