//! Decodes responses of models: whole ones, and streams with the deviations that providers show.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields;
use crate::decoder::{
    DeltaKind, FinishReason, ModelResponse, ResponseDecoder, ResponseDelta, ResponseMeta, StreamError, error_message,
};
use crate::model_message::{ModelCall, ModelMessage};
use crate::neutral::selected_fields;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::wire::Wire;

/// Decodes a response that came whole.
pub(super) fn decode_response(body: Value) -> Result<ModelResponse, String> {
    let Value::Object(mut response) = body else {
        return Err("the model's answer is no object".to_owned());
    };
    if response.get("status").is_some_and(|status| status == "failed") {
        let message = response.get("error").and_then(error_message).unwrap_or_default();
        return Err(format!("the model's answer failed: {message}"));
    }
    let Some(Value::Array(output)) = response.shift_remove("output") else {
        return Err("the model's answer has no output".to_owned());
    };
    let meta = meta(&response);
    Ok(model_response(response, output, meta))
}

/// Separates the messages of one response, which are one text on other wires.
const MESSAGE_SEPARATOR: &str = "\n\n";

/// Fields of a response that are not part of [`ResponseMeta`].
const NOT_META: [&str; 6] = ["output", "usage", "status", "error", "incomplete_details", "completed_at"];

fn meta(response: &Map<String, Value>) -> ResponseMeta {
    let fields = selected_fields(response, |key, _| !NOT_META.contains(&key));
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let created = fields.get("created_at");
    #[expect(clippy::cast_sign_loss, reason = "a time before 1970 is not a real one")]
    let created = created.and_then(|created| created.as_u64().or_else(|| created.as_f64().map(|time| time as u64)));
    ResponseMeta { id: text("id"), created, model: text("model"), context: None, wire: Wire::Responses, fields }
}

fn model_response(mut response: Map<String, Value>, output: Vec<Value>, meta: ResponseMeta) -> ModelResponse {
    let calls: Vec<ModelCall> = output.iter().filter(|item| fields::is_call(item)).map(fields::model_call).collect();
    let messages = || output.iter().filter(|item| fields::is_message(item));
    let texts: Vec<String> = messages().map(fields::message_text).filter(|text| !text.is_empty()).collect();
    let text = texts.join(MESSAGE_SEPARATOR);
    let reasoning = Reasoning::from_items(items_to_return(&output));
    let texts = output.iter().filter(|item| fields::is_reasoning(item)).map(fields::reasoning_text);
    let reasoning_text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
    let reason = response.get("incomplete_details").map(|details| fields::text_of(details, "reason"));
    let is_incomplete = response.get("status").is_some_and(|status| status == "incomplete");
    let finish = match reason {
        Some("content_filter") => FinishReason::Filter,
        _ if is_incomplete => FinishReason::Length,
        _ if calls.is_empty() => FinishReason::Stop,
        _ => FinishReason::Calls,
    };
    let usage = response.get("usage").filter(|usage| usage.is_object()).cloned();
    response.insert("output".to_owned(), Value::Array(output));
    let text = Some(text).filter(|text| !text.is_empty());
    let message = ModelMessage { text, reasoning, calls, ..ModelMessage::default() };
    ModelResponse { message, reasoning_text, finish, usage, meta, native: response }
}

/// Items that the provider wants back as they came: reasoning, and calls of its own tools. A message can be written again
/// from its text, unless there are several, or it has more than text.
fn items_to_return(output: &[Value]) -> Vec<Value> {
    let is_returned = |item: &&Value| {
        fields::is_model_output(item)
            && !fields::is_client_call(item)
            && (!fields::is_reasoning(item) || fields::is_complete_reasoning(item))
    };
    let mut items: Vec<Value> = output.iter().filter(is_returned).cloned().collect();
    let messages: Vec<&Value> = items.iter().filter(|item| fields::is_message(item)).collect();
    let is_last = items.iter().rposition(|item| !fields::is_message(item)) < items.iter().position(fields::is_message);
    if messages.len() <= 1 && messages.into_iter().all(is_plain_text) && is_last {
        items.retain(|item| !fields::is_message(item));
    }
    items
}

fn is_plain_text(message: &Value) -> bool {
    let is_empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    };
    let is_plain = |part: &Value| {
        part["type"] == "output_text" && is_empty(part.get("annotations")) && is_empty(part.get("logprobs"))
    };
    is_empty(message.get("phase")) && message["content"].as_array().is_some_and(|parts| parts.iter().all(is_plain))
}

/// Assembles a streamed response.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    meta: Option<ResponseMeta>,
    kinds: BTreeMap<u64, StreamedItemKind>,
    /// Indexes of items, by their ids: some servers send only these.
    indexes: BTreeMap<String, u64>,
    /// Index of the message that the last text delta belonged to.
    last_message: Option<u64>,
    /// Items that are complete.
    items: BTreeMap<u64, Value>,
    /// The response in the last event.
    response: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamedItemKind {
    Call,
    Text,
    Other,
}

impl StreamedItemKind {
    fn of(item: &Value) -> StreamedItemKind {
        match item {
            item if fields::is_call(item) => StreamedItemKind::Call,
            item if fields::is_message(item) => StreamedItemKind::Text,
            _ => StreamedItemKind::Other,
        }
    }

    fn delta_kind(self) -> DeltaKind {
        if self == StreamedItemKind::Text { DeltaKind::Text } else { DeltaKind::Other }
    }

    /// The kind of an item without an event that adds it, from the name of another event.
    fn guessed(event: &str) -> StreamedItemKind {
        if event.contains("function_call_arguments") || event.contains("custom_tool_call_input") {
            StreamedItemKind::Call
        } else if ["output_text", "refusal", "content_part"].iter().any(|part| event.contains(part)) {
            StreamedItemKind::Text
        } else {
            StreamedItemKind::Other
        }
    }
}

impl ResponseDecoder for ResponsesDecoder {
    fn decode_event(&mut self, event: &SseEvent) -> Result<ResponseDelta, StreamError> {
        if event.data.trim() == "[DONE]" {
            return Ok(ResponseDelta::default());
        }
        let mut data = event.json()?;
        let kind = match fields::text_of(&data, "type") {
            "" => event.name.clone().unwrap_or_default(),
            kind => kind.to_owned(),
        };
        if kind == "error" || data.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamError::Provider(error(&data)));
        }
        match kind.as_str() {
            "response.failed" => Err(StreamError::Provider(error(&data["response"]))),
            "response.completed" | "response.incomplete" => {
                if let Some(Value::Object(response)) = data.get_mut("response").map(Value::take) {
                    self.meta.get_or_insert_with(|| meta(&response));
                    self.response = Some(response);
                }
                Ok(ResponseDelta::default())
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = data.get("response").and_then(Value::as_object) {
                    self.meta.get_or_insert_with(|| meta(response));
                }
                Ok(ResponseDelta::default())
            }
            _ => Ok(self.decode_item(&kind, data)),
        }
    }

    fn meta(&self) -> Option<&ResponseMeta> {
        self.meta.as_ref()
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }

    fn finish(self: Box<Self>) -> Option<ModelResponse> {
        let mut response = self.response?;
        let output = match response.shift_remove("output") {
            Some(Value::Array(output)) if !output.is_empty() => output,
            // Some providers leave the output out of the last event.
            _ => self.items.into_values().collect(),
        };
        let mut meta = self.meta?;
        if meta.model.is_empty() {
            response.get("model").and_then(Value::as_str).unwrap_or_default().clone_into(&mut meta.model);
        }
        Some(model_response(response, output, meta))
    }
}

impl ResponsesDecoder {
    /// The index of the item that an event belongs to. Servers such as llama.cpp leave it out; it is added then.
    fn index(&mut self, event: &str, data: &mut Value) -> Option<u64> {
        if let Some(index) = data.get("output_index").and_then(Value::as_u64) {
            return Some(index);
        }
        let item = data.get("item").unwrap_or(&Value::Null);
        let ids = [fields::text_of(item, "id"), fields::call_id(item), fields::text_of(data, "item_id")];
        let id = ids.into_iter().find(|id| !id.is_empty())?.to_owned();
        let next = self.kinds.last_key_value().map_or(0, |(last, _)| last + 1);
        let index = *self.indexes.entry(id).or_insert(next);
        data["output_index"] = Value::from(index);
        let inner = if event.contains("summary") { "summary_index" } else { "content_index" };
        if !event.starts_with("response.output_item") && data.get(inner).is_none() {
            data[inner] = Value::from(0);
        }
        Some(index)
    }

    fn decode_item(&mut self, event: &str, mut data: Value) -> ResponseDelta {
        let Some(index) = self.index(event, &mut data) else {
            return ResponseDelta { native: Some(data), ..ResponseDelta::default() };
        };
        let item = data.get("item");
        let kind = *self
            .kinds
            .entry(index)
            .or_insert_with(|| item.map_or_else(|| StreamedItemKind::guessed(event), StreamedItemKind::of));
        let mut update = ResponseDelta { kind: kind.delta_kind(), ..ResponseDelta::default() };
        let delta = || fields::text_of(&data, "delta").to_owned();
        match event {
            "response.output_item.done" => {
                if let Some(item) = item {
                    self.items.insert(index, item.clone());
                    if fields::is_reasoning(item) && fields::is_complete_reasoning(item) {
                        update.reasoning = Some(Reasoning::from_items(vec![item.clone()]));
                    }
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                update.text = delta();
                if !update.text.is_empty() && self.last_message.replace(index).is_some_and(|before| before != index) {
                    update.text.insert_str(0, MESSAGE_SEPARATOR);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                update.reasoning_text = delta();
            }
            "response.reasoning_summary_part.added" if data["summary_index"] != 0 => {
                "\n\n".clone_into(&mut update.reasoning_text);
            }
            _ => {}
        }
        if kind == StreamedItemKind::Call {
            return ResponseDelta::default();
        }
        update.native = Some(data);
        update
    }
}

/// An error in the form in which it would have come instead of a stream.
fn error(data: &Value) -> Value {
    let error = data.get("error").filter(|error| error.is_object()).unwrap_or(data);
    let text = |key: &str| error.get(key).filter(|value| value.is_string());
    let message = error_message(data).unwrap_or_else(|| "the model's answer failed".to_owned());
    let kind = text("type").filter(|kind| *kind != "error").or_else(|| text("code")).cloned();
    json!({"error": {
        "message": message,
        "type": kind.unwrap_or_else(|| Value::from("server_error")),
        "param": text("param"),
        "code": error.get("code").filter(|code| code.is_string() || code.is_number()),
    }})
}
