//! Decodes responses of models: whole ones, and streams.

use serde_json::{Map, Value, json};

use super::{fields, params};
use crate::decoder::{
    DeltaKind, FinishReason, ModelResponse, ResponseDecoder, ResponseDelta, ResponseMeta, StreamError, provider_error,
};
use crate::model_message::ModelCall;
use crate::neutral::selected_fields;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::wire::Wire;

/// Fields of a message that are not part of [`ResponseMeta`].
const NOT_META: [&str; 5] = ["content", "usage", "stop_reason", "stop_sequence", "stop_details"];

/// Decodes a response that came whole.
pub(super) fn decode_response(body: Value) -> Result<ModelResponse, String> {
    let Value::Object(mut message) = body else {
        return Err("the model's answer is not a message".to_owned());
    };
    let usage = message.shift_remove("usage").filter(Value::is_object);
    let Some(Value::Array(content)) = message.get("content") else {
        return Err("the model's answer has no content".to_owned());
    };
    let calls = content.iter().filter(|block| is_call(block)).map(fields::model_call).collect();
    Ok(model_response(meta(&message), message, calls, usage))
}

fn is_call(block: &Value) -> bool {
    fields::kind(block) == fields::TOOL_USE
}

fn model_response(
    meta: ResponseMeta,
    message: Map<String, Value>,
    calls: Vec<ModelCall>,
    usage: Option<Value>,
) -> ModelResponse {
    let content = message.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut model_message = fields::model_message(content);
    model_message.calls = calls;
    let thinking = content.iter().filter(|block| fields::kind(block) == fields::THINKING);
    let reasoning_text = thinking.filter_map(|block| block.get("thinking")?.as_str()).collect();
    let finish = match message.get("stop_reason").and_then(Value::as_str) {
        Some("max_tokens" | "model_context_window_exceeded") => FinishReason::Length,
        Some("refusal") => FinishReason::Filter,
        Some("tool_use") => FinishReason::Calls,
        _ => FinishReason::Stop,
    };
    ModelResponse { message: model_message, reasoning_text, finish, usage, meta, native: message }
}

fn meta(message: &Map<String, Value>) -> ResponseMeta {
    let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ResponseMeta {
        id: text("id"),
        created: None,
        model: text("model"),
        context: None,
        wire: Wire::Messages,
        fields: selected_fields(message, |key, _| !NOT_META.contains(&key)),
    }
}

/// Assembles a streamed response.
#[derive(Debug, Default)]
pub(super) struct MessagesDecoder {
    meta: Option<ResponseMeta>,
    message: Map<String, Value>,
    blocks: Vec<PartialBlock>,
    usage: Map<String, Value>,
    /// The provider has sent `message_stop`.
    is_stopped: bool,
}

#[derive(Debug)]
struct PartialBlock {
    index: Option<u64>,
    block: Value,
    /// The input of a call, so far.
    json: String,
}

impl ResponseDecoder for MessagesDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError> {
        let is_error = event.is_error();
        let event = event.json()?;
        let kind = fields::kind(&event).to_owned();
        let index = event.get("index").and_then(Value::as_u64);
        Ok(match kind.as_str() {
            kind if is_error || kind == "error" => return Err(StreamError::Provider(provider_error(event))),
            "" if event.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(StreamError::Provider(provider_error(event)));
            }
            "" | "ping" => ResponseDelta::default(),
            "message_start" => {
                self.start_message(event);
                ResponseDelta::default()
            }
            "content_block_start" => self.start_block(index, event),
            "content_block_delta" => self.block_delta(index, event),
            "content_block_stop" => self.stop_block(index, event),
            "message_delta" => {
                self.message_delta(event);
                ResponseDelta::default()
            }
            "message_stop" => {
                self.is_stopped = true;
                ResponseDelta::default()
            }
            _ => ResponseDelta { native: Some(event), ..ResponseDelta::default() },
        })
    }

    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn is_complete(&self) -> bool {
        self.is_stopped
    }

    fn finish(mut self: Box<Self>) -> Option<ModelResponse> {
        let meta = self.meta.take()?;
        let has_reason = self.message.get("stop_reason").is_some_and(Value::is_string);
        if !has_reason && !self.is_stopped {
            return None;
        }
        for partial in &mut self.blocks {
            partial.parse_input();
        }
        let calls = self.blocks.iter().filter(|partial| is_call(&partial.block)).map(PartialBlock::call).collect();
        let content = self.blocks.into_iter().map(|partial| partial.block).collect();
        self.message.insert("content".to_owned(), content);
        let usage = (!self.usage.is_empty()).then_some(Value::Object(self.usage));
        Some(model_response(meta, self.message, calls, usage))
    }
}

impl MessagesDecoder {
    fn start_message(&mut self, mut event: Value) {
        let Some(Value::Object(mut message)) = event.get_mut("message").map(Value::take) else { return };
        if let Some(usage) = message.shift_remove("usage") {
            self.update_usage(usage);
        }
        let context = (!self.usage.is_empty()).then(|| params::read_usage(&self.usage).into());
        self.meta = Some(ResponseMeta { context, ..meta(&message) });
        self.message = message;
    }

    fn message_delta(&mut self, event: Value) {
        let Value::Object(event) = event else { return };
        for (key, value) in event {
            match (key.as_str(), value) {
                ("type", _) => {}
                ("usage", usage) => self.update_usage(usage),
                ("delta", Value::Object(delta)) => self.message.extend(delta),
                (_, value) => _ = self.message.insert(key, value),
            }
        }
    }

    /// Figures are totals of the message, so later ones replace earlier ones.
    fn update_usage(&mut self, usage: Value) {
        if let Value::Object(usage) = usage {
            self.usage.extend(usage.into_iter().filter(|(_, value)| !value.is_null()));
        }
    }

    fn start_block(&mut self, index: Option<u64>, event: Value) -> ResponseDelta {
        let block = event.get("content_block").filter(|block| block.is_object());
        let block = block.cloned().unwrap_or_else(|| json!({}));
        let update = update(&block, event, Some("content_block"));
        self.blocks.push(PartialBlock { index, block, json: String::new() });
        update
    }

    fn block_delta(&mut self, index: Option<u64>, event: Value) -> ResponseDelta {
        let Some(partial) = self.block(index) else { return ResponseDelta::default() };
        if let Some(delta) = event.get("delta") {
            partial.add(delta);
        }
        update(&partial.block, event, Some("delta"))
    }

    fn stop_block(&mut self, index: Option<u64>, event: Value) -> ResponseDelta {
        let Some(partial) = self.block(index) else { return ResponseDelta::default() };
        partial.parse_input();
        let block = &partial.block;
        let mut update = update(block, event, None);
        if fields::is_reasoning(block) {
            update.reasoning = Some(Reasoning::from_blocks(vec![block.clone()]));
        }
        update
    }

    fn block(&mut self, index: Option<u64>) -> Option<&mut PartialBlock> {
        match index {
            Some(_) => self.blocks.iter_mut().rev().find(|partial| partial.index == index),
            None => self.blocks.last_mut(),
        }
    }
}

/// The delta for a part of a block. Calls are left out: they go to the client only when they are complete.
/// `part` names the field of the event that holds it, if it has any.
fn update(block: &Value, event: Value, part: Option<&str>) -> ResponseDelta {
    if is_call(block) {
        return ResponseDelta::default();
    }
    let text = |key: &str| {
        let text = part.and_then(|part| event.get(part)?.get(key)?.as_str());
        text.unwrap_or_default().to_owned()
    };
    let is_text = fields::kind(block) == "text";
    let is_reasoning = fields::kind(block) == fields::THINKING;
    ResponseDelta {
        text: if is_text { text("text") } else { String::new() },
        reasoning_text: if is_reasoning { text("thinking") } else { String::new() },
        reasoning: None,
        kind: if is_text { DeltaKind::Text } else { DeltaKind::Other },
        native: Some(event),
    }
}

impl PartialBlock {
    fn add(&mut self, delta: &Value) {
        let (Some(block), Some(delta)) = (self.block.as_object_mut(), delta.as_object()) else { return };
        for (key, piece) in delta.iter().filter(|(key, _)| *key != "type") {
            match (key.as_str(), block.get_mut(key), piece) {
                ("partial_json", _, Value::String(piece)) => self.json.push_str(piece),
                ("citation", ..) => match block.get_mut("citations") {
                    Some(Value::Array(known)) => known.push(piece.clone()),
                    _ => _ = block.insert("citations".to_owned(), json!([piece])),
                },
                (_, Some(Value::String(known)), Value::String(piece)) => known.push_str(piece),
                _ => _ = block.insert(key.clone(), piece.clone()),
            }
        }
    }

    fn parse_input(&mut self) {
        if let (Ok(input), Some(block)) = (serde_json::from_str(&self.json), self.block.as_object_mut()) {
            block.insert("input".to_owned(), input);
        }
    }

    fn call(&self) -> ModelCall {
        let mut call = fields::model_call(&self.block);
        if !self.json.trim().is_empty() {
            call.arguments.clone_from(&self.json);
        }
        call
    }
}
