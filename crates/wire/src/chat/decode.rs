//! Decodes responses of models: whole ones, and streams with the deviations that providers show.

use serde_json::{Map, Value};

use super::fields;
use crate::decoder::{
    DeltaKind, FinishReason, ModelResponse, ResponseDecoder, ResponseDelta, ResponseMeta, StreamError, provider_error,
};
use crate::model_message::{CallExtra, ModelCall};
use crate::neutral::selected_fields;
use crate::sse::SseEvent;
use crate::wire::Wire;

/// Decodes a response that came whole.
pub(super) fn decode_response(mut body: Value) -> Result<ModelResponse, String> {
    let choice = body.pointer_mut("/choices/0").map(Value::take);
    let Some(Value::Object(mut choice)) = choice else {
        return Err("the model's answer has no choices".to_owned());
    };
    if !choice.get("message").is_some_and(Value::is_object) {
        // Some providers report the calls of their own tools in `messages`; the last message is the answer.
        let last = choice.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
        let last = last.cloned().ok_or("the model's answer has no message")?;
        choice.insert("message".to_owned(), last);
    }
    let message = &choice["message"];
    Ok(ModelResponse {
        message: fields::model_message(message),
        reasoning_text: fields::reasoning_text(message).to_owned(),
        finish: finish(choice.get("finish_reason").and_then(Value::as_str)),
        usage: body.get_mut("usage").map(Value::take).filter(Value::is_object),
        meta: meta(body),
        native: choice,
    })
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
        context: None,
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

/// Assembles a streamed response.
#[derive(Debug, Default)]
pub(super) struct ChatDecoder {
    calls: Vec<PartialCall>,
    finish_reason: Option<String>,
    usage: Option<Value>,
    meta: Option<ResponseMeta>,
    choice: Map<String, Value>,
    /// The fields of all deltas, joined, without the calls.
    message: Map<String, Value>,
    /// The provider has sent `[DONE]`.
    is_done: bool,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    call: ModelCall,
}

impl ResponseDecoder for ChatDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError> {
        if event.data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(ResponseDelta::default());
        }
        let chunk = event.json()?;
        if event.is_error() || chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamError::Provider(provider_error(chunk)));
        }
        Ok(self.decode_chunk(chunk))
    }

    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn is_complete(&self) -> bool {
        self.is_done
    }

    fn finish(mut self: Box<Self>) -> Option<ModelResponse> {
        let meta = self.meta?;
        if self.finish_reason.is_none() && !self.is_done {
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
        // Some providers begin with a chunk that has neither an id nor content.
        let has_id = chunk.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        if let Some(fields) = chunk.as_object()
            && self.meta.is_none()
            && (has_id || chunk.pointer("/choices/0").is_some())
        {
            self.meta = Some(meta(Value::Object(selected_fields(fields, |key, _| key != "choices"))));
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
        let mut has_content = false;
        if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
            self.decode_delta(delta, &mut update);
            has_content = delta.iter().any(|(_, value)| !value.is_null() && value.as_str() != Some(""));
        }
        let other = selected_fields(choice, |key, _| !matches!(key, "delta" | "index" | "finish_reason"));
        has_content |= other.values().any(|value| !value.is_null());
        self.choice.extend(other);
        update.native = has_content.then_some(chunk);
        update
    }

    /// Takes the calls out of the delta, and reads the rest.
    fn decode_delta(&mut self, delta: &mut Map<String, Value>, update: &mut ResponseDelta) {
        for key in ["tool_calls", "toolCalls"] {
            if let Some(Value::Array(calls)) = delta.shift_remove(key) {
                for call in &calls {
                    self.add_call_delta(call);
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
    }

    /// A delta belongs to the call with its index. Some providers leave the index out, or give all calls the same; then
    /// a new id begins a new call.
    fn add_call_delta(&mut self, delta: &Value) {
        let index = delta.get("index").and_then(Value::as_u64);
        let update = fields::model_call(delta);
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

/// Appends text to text. Elements of lists are merged if they have the same index.
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
