//! The content blocks of a reply, whole and as deltas.

use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::strict::THINKING;
use crate::reply_message::{OutgoingMessage, ReplyCall};
use crate::script_turn::Pace;
use crate::signatures::Signatures;

pub(super) struct OutputBlock<'a> {
    pub(super) value: Value,
    /// The input as the script has it, which may be invalid JSON.
    arguments: Option<&'a str>,
}

/// Thinking, native blocks, text, calls.
pub(super) fn blocks<'a>(outgoing: &OutgoingMessage<'a>) -> Vec<OutputBlock<'a>> {
    let message = outgoing.message;
    let native = outgoing.template.native.on(Wire::Messages);
    let mut values: Vec<Value> = Vec::new();
    if let Some(text) = message.reasoning.as_deref().filter(|text| !text.is_empty()) {
        let signature = outgoing.template.signature_of(text);
        let shown = if thinking(outgoing, "display") == "omitted" { "" } else { text };
        values.push(json!({"type": "thinking", "thinking": shown, "signature": signature}));
    } else if thinking(outgoing, "type") == "enabled"
        && !message.calls.is_empty()
        && !native.first().is_some_and(|block| THINKING.iter().any(|kind| block["type"] == *kind))
    {
        // With thinking enabled, Anthropic requires that a message with calls starts with a thinking block.
        values.push(json!({"type": "redacted_thinking", "data": Signatures::make("")}));
    }
    values.extend(native.iter().cloned());
    if let Some(text) = message.text.as_deref().filter(|text| !text.is_empty()) {
        values.push(json!({"type": "text", "text": text}));
    }
    let blocks = values.into_iter().map(|value| OutputBlock { value, arguments: None });
    blocks.chain(message.calls.iter().map(call)).collect()
}

/// A field of the parameter `thinking`.
fn thinking<'a>(outgoing: &OutgoingMessage<'a>, name: &str) -> &'a str {
    let thinking = outgoing.conversation.given("thinking");
    thinking.and_then(|thinking| thinking.get(name)?.as_str()).unwrap_or_default()
}

fn call(call: &ReplyCall) -> OutputBlock<'_> {
    let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::from(call.arguments.as_str()));
    let value = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input});
    OutputBlock { value, arguments: Some(&call.arguments) }
}

impl OutputBlock<'_> {
    /// The block in `content_block_start`.
    pub(super) fn opening(&self) -> Value {
        let mut opening = self.value.clone();
        match self.kind() {
            "text" => {
                opening["text"] = "".into();
                if opening.get("citations").is_some() {
                    opening["citations"] = json!([]);
                }
            }
            "thinking" => {
                opening["thinking"] = "".into();
                opening["signature"] = "".into();
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => opening["input"] = json!({}),
            _ => {}
        }
        opening
    }

    /// The deltas of the block. Tool results and encrypted content have none: they come whole.
    pub(super) fn deltas(&self, pace: &Pace) -> Vec<Value> {
        let text = |name: &str| self.value[name].as_str().unwrap_or_default();
        match self.kind() {
            "text" => {
                let texts = pace.split_text(text("text")).into_iter();
                let citations = self.value["citations"].as_array().into_iter().flatten();
                let citations = citations.map(|citation| json!({"type": "citations_delta", "citation": citation}));
                texts.map(|text| json!({"type": "text_delta", "text": text})).chain(citations).collect()
            }
            "thinking" => {
                let texts = pace.split_text(text("thinking")).into_iter();
                let signature = json!({"type": "signature_delta", "signature": text("signature")});
                let thinking = texts.map(|text| json!({"type": "thinking_delta", "thinking": text}));
                thinking.chain([signature]).collect()
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                let input = self.value["input"].to_string();
                let arguments = self.arguments.unwrap_or(&input);
                let parts = [""].into_iter().chain(pace.split_arguments(arguments));
                parts.map(|part| json!({"type": "input_json_delta", "partial_json": part})).collect()
            }
            _ => Vec::new(),
        }
    }

    fn kind(&self) -> &str {
        self.value["type"].as_str().unwrap_or_default()
    }
}
