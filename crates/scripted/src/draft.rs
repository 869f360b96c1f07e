//! An assistant message as the script has it: templates not filled, calls without ids.

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use super::ScriptError;
use super::file::{Fields, Node, Tree};
use super::quirk::Quirk;

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) text: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) reasoning_field: String,
    pub(super) details: Option<Value>,
    /// What seals the reasoning, where the format has such a thing.
    pub(super) signature: Option<String>,
    pub(super) native: Native,
    pub(super) searches: Vec<Search>,
    pub(super) programs: Vec<String>,
    pub(super) calls: Vec<DraftCall>,
    pub(super) finish_reason: Option<String>,
    /// What stands in for the counted usage, key by key.
    pub(super) usage: Map<String, Value>,
    pub(super) quirks: Vec<Quirk>,
}

/// Parts of an answer that no other key makes, in the form of their wire.
#[derive(Debug, Default)]
pub(super) struct Native {
    messages: Vec<Value>,
    responses: Vec<Value>,
}

#[derive(Debug)]
pub(super) struct Search {
    pub(super) query: String,
    pub(super) limit: Option<u64>,
}

#[derive(Debug)]
pub(super) struct DraftCall {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) id: Option<String>,
    pub(super) signature: Option<String>,
}

impl Draft {
    /// The keys of a turn that make up a message, those first that are an answer by themselves.
    pub(super) const KEYS: [&str; 12] = [
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

    /// How many of the keys are an answer by themselves.
    pub(super) const ANSWERS: usize = 7;

    pub(super) fn read(fields: &mut Fields) -> Result<Draft, ScriptError> {
        let native = fields.path_of("native");
        let search = fields.path_of("search");
        let calls = fields.path_of("calls");
        let quirks = fields.path_of("quirks");
        let usage = fields.open_table("usage")?;
        Ok(Draft {
            text: fields.text("text")?,
            reasoning: fields.text("reasoning")?,
            reasoning_field: fields.text("reasoning_field")?.unwrap_or_else(|| "reasoning_content".into()),
            details: fields.take("details").map(Node::into_json),
            signature: fields.text("signature")?,
            native: fields.take("native").map(|node| Native::read(node, &native)).transpose()?.unwrap_or_default(),
            searches: fields
                .many("search")
                .into_iter()
                .map(|node| Search::read(node, &search))
                .collect::<Result<_, _>>()?,
            programs: fields.texts("program")?,
            calls: fields
                .many("calls")
                .into_iter()
                .map(|node| DraftCall::read(node, &calls))
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

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    pub(super) fn calls_tools(&self) -> bool {
        !(self.searches.is_empty() && self.programs.is_empty() && self.calls.is_empty())
    }
}

impl Native {
    fn read(node: Node, path: &str) -> Result<Native, ScriptError> {
        if let Tree::Table(_) = node.tree {
            let mut fields = Fields::read(node, path, &["messages", "responses"])?;
            let mut parts = |name: &str| parts(fields.tables(name)?, &fields.path_of(name));
            return Ok(Native { messages: parts("messages")?, responses: parts("responses")? });
        }
        let Tree::List(nodes) = node.tree else {
            return Err(node.wrong(path, "a list of tables, or a table with `messages` and `responses`"));
        };
        let parts = parts(nodes, path)?;
        Ok(Native { messages: parts.clone(), responses: parts })
    }

    pub(super) fn on(&self, wire: Wire) -> &[Value] {
        match wire {
            Wire::Chat => &[],
            Wire::Responses => &self.responses,
            Wire::Messages => &self.messages,
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        self.messages.iter().chain(&self.responses)
    }
}

fn parts(nodes: Vec<Node>, path: &str) -> Result<Vec<Value>, ScriptError> {
    let part = |node: Node| {
        let wrong = node.wrong(path, "a table with `type`");
        let part = node.into_json();
        if part.get("type").is_some_and(Value::is_string) { Ok(part) } else { Err(wrong) }
    };
    nodes.into_iter().map(part).collect()
}

impl Search {
    fn read(node: Node, path: &str) -> Result<Search, ScriptError> {
        if let Tree::Table(_) = node.tree {
            let mut fields = Fields::read(node, path, &["query", "limit"])?;
            return Ok(Search { query: fields.required_text("query")?, limit: fields.whole("limit", 0..=u64::MAX)? });
        }
        Ok(Search { query: node.into_text(path)?, limit: None })
    }
}

impl DraftCall {
    fn read(node: Node, path: &str) -> Result<DraftCall, ScriptError> {
        let mut fields = Fields::read(node, path, &["name", "arguments", "id", "signature"])?;
        let arguments = match fields.take("arguments") {
            None => json!({}).to_string(),
            Some(Node { tree: Tree::Scalar(Value::String(raw)), .. }) => raw,
            Some(node @ Node { tree: Tree::Table(_), .. }) => node.into_json().to_string(),
            Some(node) => return Err(node.wrong(&fields.path_of("arguments"), "a table, or text to send as it is")),
        };
        let name = fields.required_text("name")?;
        Ok(DraftCall { name, arguments, id: fields.text("id")?, signature: fields.text("signature")? })
    }
}
