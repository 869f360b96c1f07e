//! What a tool said, as a program sees it.

use dacapo_replay::{Answer, JsonText};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::ask::{Attachment, Told};
use crate::mask::Mask;

/// A `tools/call` result, read as leniently as it can be understood.
#[derive(Debug)]
pub(super) struct Content {
    structured: Option<Value>,
    blocks: Vec<Block>,
    is_error: bool,
}

#[derive(Debug)]
enum Block {
    Text(String),
    /// An image, sound, a resource, or what later versions of the protocol have.
    Other(Value),
}

impl From<CallToolResult> for Content {
    fn from(result: CallToolResult) -> Content {
        let blocks = result.content.into_iter().map(|block| match block {
            ContentBlock::Text(text) => Block::Text(text.text),
            other => Block::Other(serde_json::to_value(other).unwrap_or_default()),
        });
        Content {
            structured: result.structured_content,
            blocks: blocks.collect(),
            is_error: result.is_error == Some(true),
        }
    }
}

impl Content {
    /// Reads a result that is not quite as it should be: one odd block does not cost the others.
    pub(super) fn read(result: Value) -> Option<Content> {
        let Value::Object(mut fields) = result else { return None };
        let structured = fields.remove("structuredContent");
        let blocks = match fields.remove("content") {
            Some(Value::Array(blocks)) => blocks,
            None if structured.is_some() => Vec::new(),
            _ => return None,
        };
        let blocks = blocks.into_iter().map(|block| match (&block["type"], &block["text"]) {
            (Value::String(kind), Value::String(text)) if kind == "text" => Block::Text(text.clone()),
            _ => Block::Other(block),
        });
        let is_error = fields.get("isError") == Some(&Value::Bool(true));
        Some(Content { structured, blocks: blocks.collect(), is_error })
    }

    /// The answer to the call with this key. Handles are the same whenever the same call gets the same answer.
    pub(super) fn told(mut self, key: &str, mask: &Mask) -> Told {
        if let Some(structured) = &mut self.structured {
            mask.value(structured);
        }
        for block in &mut self.blocks {
            match block {
                Block::Text(text) => *text = mask.text(std::mem::take(text)),
                Block::Other(block) => mask.value(block),
            }
        }
        if self.is_error {
            return Told { answer: self.error(), attachments: Vec::new() };
        }
        let attachments: Vec<Attachment> = (self.blocks.iter().enumerate())
            .filter_map(|(position, block)| match block {
                Block::Text(_) => None,
                Block::Other(block) => Some(Attachment { handle: handle(key, position), block: block.clone() }),
            })
            .collect();
        let answer = match &self.structured {
            Some(structured) => self.with_handles(structured, key),
            None if attachments.is_empty() => self.text().map_or(Value::Null, Value::from),
            None => Value::Array((self.blocks.iter().enumerate()).map(|(at, block)| block.part(key, at)).collect()),
        };
        Told { answer: Answer::Ok(JsonText::from(&answer)), attachments }
    }

    /// Some servers say their images twice, the second time as structured content: a handle serves a program better.
    fn with_handles(&self, structured: &Value, key: &str) -> Value {
        let repeats = |block: &Block| matches!(block, Block::Other(block) if has_bytes(block) && block == structured);
        if let Some(position) = self.blocks.iter().position(repeats) {
            return self.blocks[position].part(key, position);
        }
        match structured {
            Value::Array(items) => items.iter().map(|item| self.with_handles(item, key)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), self.with_handles(value, key)));
                Value::Object(fields.collect())
            }
            other => other.clone(),
        }
    }

    fn error(&self) -> Answer {
        let message = self.text().filter(|text| !text.trim().is_empty());
        Answer::Error {
            message: message.unwrap_or_else(|| "the tool failed and did not say why".to_owned()),
            data: self.structured.as_ref().map(JsonText::from),
        }
    }

    /// All its texts, a line each; `None` if it has none.
    fn text(&self) -> Option<String> {
        let texts: Vec<&str> = (self.blocks.iter())
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                Block::Other(_) => None,
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

impl Block {
    /// What a program sees of a block among others: all that it can read, and a handle for what it cannot.
    fn part(&self, key: &str, position: usize) -> Value {
        let block = match self {
            Block::Text(text) => return json!({ "type": "text", "text": text }),
            Block::Other(block) => block,
        };
        let mut part = Map::new();
        let resource = &block["resource"];
        for (name, value) in [
            ("type", &block["type"]),
            ("uri", &block["uri"]),
            ("name", &block["name"]),
            ("title", &block["title"]),
            ("description", &block["description"]),
            ("mimeType", &block["mimeType"]),
            ("uri", &resource["uri"]),
            ("mimeType", &resource["mimeType"]),
            ("text", &resource["text"]),
        ] {
            if !value.is_null() {
                part.insert(name.to_owned(), value.clone());
            }
        }
        part.insert("handle".to_owned(), Value::from(handle(key, position)));
        Value::Object(part)
    }
}

/// Is there something in the block that no program can read?
fn has_bytes(block: &Value) -> bool {
    block["data"].is_string() || block["resource"]["blob"].is_string()
}

fn handle(key: &str, position: usize) -> String {
    format!("attachment:{key}/{position}")
}

/// Bytes of an answer, attachments included.
pub(super) fn bytes(told: &Told) -> usize {
    let answer = match &told.answer {
        Answer::Ok(json) => json.as_str().len(),
        Answer::Error { message, data } => message.len() + data.as_ref().map_or(0, |data| data.as_str().len()),
    };
    let attached = told.attachments.iter().map(|attachment| string_bytes(&attachment.block));
    answer + attached.sum::<usize>()
}

fn string_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(string_bytes).sum(),
        Value::Object(fields) => fields.values().map(string_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
