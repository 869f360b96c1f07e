//! Listening to a model: whole answers, and streams as providers really send them.

use serde_json::{Map, Value};

use super::fields;
use crate::decoder::{
    DeltaKind, FinishReason, ModelResponse, ResponseDecoder, ResponseDelta, ResponseMeta, StreamError,
};
use crate::model_message::{CallExtra, ModelCall};
use crate::sse::SseEvent;
use crate::wire::Wire;

/// Reads an answer that came whole.
pub(super) fn decode_response(mut body: Value) -> Result<ModelResponse, String> {
    let choice = body.pointer_mut("/choices/0").map(Value::take);
    let Some(Value::Object(mut choice)) = choice else {
        return Err("the model's answer has no choices".to_owned());
    };
    // Some providers tell what their own tools did in messages of their own; the last one is the answer.
    let last = || choice.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
    let message = choice.get("message").filter(|message| message.is_object()).or_else(last);
    let message = message.cloned().ok_or("the model's answer has no message")?;
    let usage = body.get("usage").filter(|usage| usage.is_object()).cloned();
    let model_response = ModelResponse {
        message: fields::model_message(&message),
        reasoning_text: fields::reasoning_text(&message).to_owned(),
        finish: finish(choice.get("finish_reason").and_then(Value::as_str)),
        usage,
        meta: meta(body),
        native: Map::new(),
    };
    choice.insert("message".to_owned(), message);
    Ok(ModelResponse { native: choice, ..model_response })
}

fn meta(body: Value) -> ResponseMeta {
    let mut fields = match body {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.shift_remove("choices");
    fields.shift_remove("usage");
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    ResponseMeta {
        id: text("id"),
        created: fields.get("created").and_then(Value::as_u64),
        model: text("model"),
        wire: Wire::Chat,
        fields,
    }
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        Some("length") => FinishReason::Length,
        Some("content_filter") => FinishReason::Filter,
        Some("tool_calls" | "function_call") => FinishReason::Calls,
        _ => FinishReason::Stop,
    }
}

/// Puts a streamed answer together.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    calls: Vec<PartialCall>,
    finish_reason: Option<String>,
    usage: Option<Value>,
    meta: Option<ResponseMeta>,
    choice: Map<String, Value>,
    /// All that deltas said but calls.
    message: Map<String, Value>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    call: ModelCall,
}

impl ResponseDecoder for ChatDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError> {
        if event.data.trim() == "[DONE]" {
            self.is_over = true;
            return Ok(ResponseDelta::default());
        }
        let chunk: Value =
            serde_json::from_str(&event.data).map_err(|error| StreamError::NotJson(error.to_string()))?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamError::Provider(chunk));
        }
        Ok(self.decode_chunk(chunk))
    }

    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn is_complete(&self) -> bool {
        self.is_over
    }

    fn finish(mut self: Box<Self>) -> Option<ModelResponse> {
        let meta = self.meta?;
        if self.finish_reason.is_none() && !self.is_over {
            return None;
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), Value::Null);
        message.extend(self.message);
        let message = Value::Object(message);
        let mut model_message = fields::model_message(&message);
        model_message.calls = self.calls.into_iter().map(|partial| partial.call).collect();
        let reasoning_text = fields::reasoning_text(&message).to_owned();
        self.choice.insert("message".to_owned(), message);
        let finish = finish(self.finish_reason.as_deref());
        if let Some(reason) = self.finish_reason {
            self.choice.insert("finish_reason".to_owned(), Value::from(reason));
        }
        Some(ModelResponse {
            message: model_message,
            reasoning_text,
            finish,
            usage: self.usage,
            meta,
            native: self.choice,
        })
    }
}

impl ChatDecoder {
    fn decode_chunk(&mut self, mut chunk: Value) -> ResponseDelta {
        if let Some(fields) = chunk.as_object_mut()
            && let Some(usage) = fields.shift_remove("usage").filter(Value::is_object)
        {
            self.usage = Some(usage);
        }
        // Some providers begin with a chunk that says nothing, not even who they are.
        let is_named = chunk.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        if self.meta.is_none() && (is_named || chunk.pointer("/choices/0").is_some()) {
            self.meta = Some(meta(chunk.clone()));
        }
        let Some(choice) = chunk.pointer_mut("/choices/0").and_then(Value::as_object_mut) else {
            return ResponseDelta::default();
        };
        if let Some(reason) = choice.get_mut("finish_reason").map(Value::take)
            && let Some(reason) = reason.as_str()
        {
            self.finish_reason = Some(reason.to_owned());
        }
        let mut update = ResponseDelta::default();
        let mut is_left = false;
        if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
            for key in ["tool_calls", "toolCalls"] {
                if let Some(Value::Array(calls)) = delta.shift_remove(key) {
                    for call in &calls {
                        self.add_call_piece(call);
                    }
                }
            }
            update.text = fields::message_text(delta.get("content"));
            update.text.push_str(delta.get("refusal").and_then(Value::as_str).unwrap_or_default());
            if !update.text.is_empty() {
                update.kind = DeltaKind::Text;
            }
            let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|key| delta.get(*key)?.as_str());
            reasoning.unwrap_or_default().clone_into(&mut update.reasoning_text);
            for (key, piece) in delta.iter().filter(|(key, piece)| *key != "role" && !piece.is_null()) {
                join(self.message.entry(key).or_insert(Value::Null), piece);
            }
            is_left = delta.iter().any(|(_, value)| !value.is_null() && value.as_str() != Some(""));
        }
        for (key, value) in
            choice.iter().filter(|(key, _)| !matches!(key.as_str(), "delta" | "index" | "finish_reason"))
        {
            is_left |= !value.is_null();
            self.choice.insert(key.clone(), value.clone());
        }
        update.native = is_left.then_some(chunk);
        update
    }

    /// A piece of a call belongs to the call with its index; where providers leave the index out, or give all calls
    /// the same, a new id begins a new call.
    fn add_call_piece(&mut self, piece: &Value) {
        let index = piece.get("index").and_then(Value::as_u64);
        let update = fields::model_call(piece);
        let is_new =
            |known: &PartialCall| !update.id.is_empty() && !known.call.id.is_empty() && known.call.id != update.id;
        let found = match index {
            Some(_) => self.calls.iter_mut().rev().find(|known| known.index == index),
            None if update.id.is_empty() => self.calls.last_mut(),
            None => self.calls.iter_mut().rev().find(|known| known.call.id == update.id),
        };
        match found.filter(|known| !is_new(known)) {
            Some(known) => {
                known.call.arguments.push_str(&update.arguments);
                if update.extra != CallExtra::None {
                    known.call.extra = update.extra;
                }
                if known.call.name.is_empty() {
                    known.call.name = update.name;
                }
                if known.call.id.is_empty() {
                    known.call.id = update.id;
                }
            }
            None => self.calls.push(PartialCall { index, call: update }),
        }
    }
}

/// Text is appended to text; pieces of a list are merged where they have the same index.
fn join(whole: &mut Value, piece: &Value) {
    match (whole, piece) {
        (Value::String(whole), Value::String(piece)) => whole.push_str(piece),
        (Value::Array(whole), Value::Array(pieces)) => {
            for piece in pieces {
                let index = piece.get("index").filter(|index| !index.is_null());
                let same = whole.iter_mut().find(|known| {
                    index.is_some() && known.get("index") == index && known.get("type") == piece.get("type")
                });
                match (same, piece) {
                    (Some(Value::Object(known)), Value::Object(piece)) => merge(known, piece),
                    _ => whole.push(piece.clone()),
                }
            }
        }
        (whole, piece) => *whole = piece.clone(),
    }
}

fn merge(known: &mut Map<String, Value>, piece: &Map<String, Value>) {
    for (key, value) in piece {
        match (known.get_mut(key), value) {
            (Some(Value::String(known)), Value::String(more))
                if matches!(key.as_str(), "text" | "summary" | "data") =>
            {
                known.push_str(more);
            }
            (_, Value::Null) => {}
            _ => _ = known.insert(key.clone(), value.clone()),
        }
    }
}
