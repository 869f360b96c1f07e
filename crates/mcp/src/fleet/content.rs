//! The result of a tool, as a program sees it.

use dacapo_replay::{Answer, JsonText};
use dacapo_runner::{Attachment, ToolOutput};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::mask::Mask;

/// A `tools/call` result, read leniently.
#[derive(Debug)]
pub(super) struct CallContent {
    structured: Option<Value>,
    blocks: Vec<ContentPart>,
    is_error: bool,
}

#[derive(Debug)]
enum ContentPart {
    Text(String),
    /// An image, sound, a resource, or what later versions of the protocol have.
    Other(Value),
}

impl From<CallToolResult> for CallContent {
    fn from(result: CallToolResult) -> CallContent {
        let blocks = result.content.into_iter().map(|block| match block {
            ContentBlock::Text(text) => ContentPart::Text(text.text),
            other => ContentPart::Other(serde_json::to_value(other).unwrap_or_default()),
        });
        CallContent {
            structured: result.structured_content,
            blocks: blocks.collect(),
            is_error: result.is_error == Some(true),
        }
    }
}

impl CallContent {
    /// Reads a result that does not quite follow the protocol: one unknown block does not cost the others.
    /// Gives back what is no such result.
    pub(super) fn read(mut result: Value) -> Result<CallContent, Value> {
        let has_structured = result.get("structuredContent").is_some();
        let blocks = match result.get_mut("content") {
            Some(Value::Array(blocks)) => std::mem::take(blocks),
            None if has_structured => Vec::new(),
            _ => return Err(result),
        };
        let structured = result.get_mut("structuredContent").map(Value::take);
        let blocks = blocks.into_iter().map(|mut block| {
            let is_text = block["type"] == "text";
            match block.get_mut("text") {
                Some(Value::String(text)) if is_text => ContentPart::Text(std::mem::take(text)),
                _ => ContentPart::Other(block),
            }
        });
        let is_error = result.get("isError") == Some(&Value::Bool(true));
        Ok(CallContent { structured, blocks: blocks.collect(), is_error })
    }

    /// What the call with this key returned. Handles are the same whenever the same call gets the same result.
    pub(super) fn into_output(mut self, key: &str, mask: &Mask) -> ToolOutput {
        if let Some(structured) = &mut self.structured {
            mask.value(structured);
        }
        for block in &mut self.blocks {
            match block {
                ContentPart::Text(text) => *text = mask.text(std::mem::take(text)),
                ContentPart::Other(block) => mask.value(block),
            }
        }
        if self.is_error {
            return ToolOutput { answer: self.error(), attachments: Vec::new() };
        }
        let is_text = self.blocks.iter().all(|block| matches!(block, ContentPart::Text(_)));
        let answer = match self.structured.take() {
            Some(structured) => self.with_handles(structured, key),
            None if is_text => self.text().map_or(Value::Null, Value::from),
            None => Value::Array((self.blocks.iter().enumerate()).map(|(at, block)| block.visible(key, at)).collect()),
        };
        let attachments = self.blocks.into_iter().enumerate().filter_map(|(position, block)| match block {
            ContentPart::Text(_) => None,
            ContentPart::Other(block) => Some(Attachment { handle: Attachment::handle(key, position), block }),
        });
        ToolOutput { answer: Answer::Ok(JsonText::from(&answer)), attachments: attachments.collect() }
    }

    /// Replaces images that some servers repeat in structured content by handles, which are all that a program can use.
    fn with_handles(&self, structured: Value, key: &str) -> Value {
        let repeats = |block: &ContentPart| matches!(block, ContentPart::Other(block) if has_bytes(block) && *block == structured);
        if let Some(position) = self.blocks.iter().position(repeats) {
            return self.blocks[position].visible(key, position);
        }
        match structured {
            Value::Array(items) => items.into_iter().map(|item| self.with_handles(item, key)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, self.with_handles(value, key)));
                Value::Object(fields.collect())
            }
            other => other,
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
                ContentPart::Text(text) => Some(text.as_str()),
                ContentPart::Other(_) => None,
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

impl ContentPart {
    /// What a program sees of a block among others: all that it can read, and a handle for what it cannot.
    fn visible(&self, key: &str, position: usize) -> Value {
        let block = match self {
            ContentPart::Text(text) => return json!({ "type": "text", "text": text }),
            ContentPart::Other(block) => block,
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
        part.insert("handle".to_owned(), Value::from(Attachment::handle(key, position)));
        Value::Object(part)
    }
}

/// Whether the block has content that a program cannot read.
fn has_bytes(block: &Value) -> bool {
    block["data"].is_string() || block["resource"]["blob"].is_string()
}

/// Bytes of an output, attachments included.
pub(super) fn bytes(output: &ToolOutput) -> usize {
    let attached = output.attachments.iter().map(|attachment| string_bytes(&attachment.block));
    output.answer.size() + attached.sum::<usize>()
}

fn string_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(string_bytes).sum(),
        Value::Object(fields) => fields.values().map(string_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}
