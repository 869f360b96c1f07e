//! What the client gets.

use serde_json::{Map, Value, json};

use super::client::RESPONSE_ID_PREFIX;
use super::{fields, programs};
use crate::decoder::{FinishReason, ModelResponse, ResponseDelta, ResponseMeta};
use crate::encoder::{
    AnswerParts, CUT_OFF, CallDeltas, CallsIssued, EncoderOptions, ProgramFinished, ProgramStarted, ResponseEncoder,
};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::sse::SseEvent;
use crate::turn::{ProgramMode, StreamUsage};
use crate::usage::TurnUsage;
use crate::wire::{ClientSide, Wire};

#[derive(Debug)]
pub(super) struct ChatEncoder {
    options: EncoderOptions,
    meta: Option<ResponseMeta>,
    /// New messages, in order; the last one is what every client reads.
    messages: Vec<Value>,
    /// Of the choice around the message: log probabilities and the like.
    choice: Map<String, Value>,
    finish_reason: String,
    has_role: bool,
    /// Some of the present answer of the model has gone out.
    has_streamed: bool,
}

impl ChatEncoder {
    pub(super) fn new(options: EncoderOptions) -> ChatEncoder {
        ChatEncoder {
            options,
            meta: None,
            messages: Vec::new(),
            choice: Map::new(),
            finish_reason: String::new(),
            has_role: false,
            has_streamed: false,
        }
    }

    fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Chat
    }

    /// A message that is new to the client.
    fn message(&mut self, message: Value) -> Vec<SseEvent> {
        let events = match self.options.mode {
            ProgramMode::Explicit => self.chunk(&json!({"message": message}), None),
            ProgramMode::Plain => Vec::new(),
        };
        self.messages.push(message);
        events
    }

    fn role(&mut self) -> Vec<SseEvent> {
        if std::mem::replace(&mut self.has_role, true) {
            return Vec::new();
        }
        self.chunk(&json!({"role": "assistant", "content": null}), None)
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Vec<SseEvent> {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        self.envelope(vec![choice], "chat.completion.chunk").into_iter().map(|chunk| SseEvent::data(&chunk)).collect()
    }

    fn envelope(&self, choices: Vec<Value>, object: &str) -> Option<Value> {
        let meta = self.meta.as_ref()?;
        let mut fields = Map::new();
        if meta.wire == Wire::Chat && !meta.fields.is_empty() {
            fields.clone_from(&meta.fields);
            fields.insert("object".to_owned(), Value::from(object));
        } else {
            fields.insert("id".to_owned(), Value::from(meta.prefixed_id(RESPONSE_ID_PREFIX)));
            fields.insert("object".to_owned(), Value::from(object));
            fields.insert("created".to_owned(), Value::from(meta.created.unwrap_or_default()));
            fields.insert("model".to_owned(), Value::from(meta.model.as_str()));
        }
        fields.insert("choices".to_owned(), Value::Array(choices));
        Some(Value::Object(fields))
    }

    fn usage(&self, usage: &TurnUsage) -> Value {
        Value::Object(usage.for_client(ClientSide::CHAT, self.options.provider))
    }

    /// A chunk of the model's, as it came but for what makes it part of this turn.
    fn adopted(&mut self, mut chunk: Value) -> Vec<SseEvent> {
        if let (Some(fields), Some(meta)) = (chunk.as_object_mut(), &self.meta) {
            for key in ["id", "created", "model"] {
                if let Some(value) = meta.fields.get(key) {
                    fields.insert(key.to_owned(), value.clone());
                }
            }
        }
        if let Some(delta) = chunk.pointer_mut("/choices/0/delta").and_then(Value::as_object_mut)
            && delta.contains_key("role")
            && std::mem::replace(&mut self.has_role, true)
        {
            delta.shift_remove("role");
            if delta.values().all(|value| value.is_null() || value.as_str() == Some("")) {
                return Vec::new();
            }
        }
        vec![SseEvent::data(&chunk)]
    }

    /// The assistant message of a response, without calls.
    fn assistant_message(&self, response: &ModelResponse) -> Map<String, Value> {
        if let (true, Some(Value::Object(message))) = (self.is_same_wire(), response.native.get("message")) {
            let mut message = message.clone();
            message.shift_remove("tool_calls");
            return message;
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), response.message.text.as_deref().map_or(Value::Null, Value::from));
        if !response.reasoning_text.is_empty() {
            message.insert("reasoning_content".to_owned(), Value::from(response.reasoning_text.as_str()));
        }
        message
    }

    fn hand_out(&mut self, mut message: Map<String, Value>, calls: Vec<Value>) -> Vec<SseEvent> {
        let mut events = self.role();
        for (index, call) in calls.iter().enumerate() {
            for piece in pieces(self.options.call_deltas, index, call.clone()) {
                events.extend(self.chunk(&json!({"tool_calls": [piece]}), None));
            }
        }
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("tool_calls".to_owned(), Value::Array(calls));
        events.extend(self.message(Value::Object(message)));
        "tool_calls".clone_into(&mut self.finish_reason);
        events
    }
}

impl ResponseEncoder for ChatEncoder {
    fn response_started(&mut self) {
        self.has_streamed = false;
    }

    fn meta(&mut self, meta: &ResponseMeta) {
        if !self.options.delivery.is_streamed() || self.meta.is_none() {
            self.meta = Some(meta.clone());
        }
    }

    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent> {
        self.has_streamed = true;
        if self.is_same_wire() {
            return delta.native.map_or_else(Vec::new, |chunk| self.adopted(chunk));
        }
        let mut events = self.role();
        if !delta.reasoning_text.is_empty() {
            events.extend(self.chunk(&json!({"reasoning_content": delta.reasoning_text}), None));
        }
        if !delta.text.is_empty() {
            events.extend(self.chunk(&json!({"content": delta.text}), None));
        }
        events
    }

    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent> {
        self.message(programs::code(program.state))
    }

    fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Vec<SseEvent> {
        let id = finished.program.or_else(|| programs::code_id(finished.state.run()));
        self.message(programs::code_result(&id, finished.shown))
    }

    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent> {
        let of_program = issued.ids.iter().zip(issued.calls).map(|(id, call)| {
            let function =
                ModelCall { name: call.tool.clone(), arguments: call.args.to_string(), ..ModelCall::default() };
            fields::written(id, &function)
        });
        let calls: Vec<Value> = of_program.chain(issued.direct.iter().enumerate().map(direct_call)).collect();
        let mut message = issued.response.map(|response| self.assistant_message(response)).unwrap_or_default();
        message.insert("content".to_owned(), Value::Null);
        self.hand_out(message, calls)
    }

    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent> {
        let mut message = self.assistant_message(response);
        let mut cut = Vec::new();
        if parts == AnswerParts::Text && !response.message.calls.is_empty() && response.message.text.is_none() {
            // An empty message could not be sent back.
            message.insert("content".to_owned(), Value::from(CUT_OFF));
            if self.has_streamed {
                cut = self.chunk(&json!({"content": CUT_OFF}), None);
            }
        }
        if parts == AnswerParts::All && !response.message.calls.is_empty() {
            let calls = response.message.calls.iter().enumerate().map(direct_call).collect();
            let mut events = Vec::new();
            if self.options.delivery.is_streamed() && !self.has_streamed && response.message.text.is_some() {
                self.has_role = true;
                events = self.chunk(&Value::Object(message.clone()), None);
            }
            events.extend(self.hand_out(message, calls));
            return events;
        }
        let mut events = cut;
        if self.options.delivery.is_streamed() && !self.has_streamed {
            // It came whole, although a stream was asked for.
            self.has_role = true;
            events = self.chunk(&Value::Object(message.clone()), None);
        }
        events.extend(self.message(Value::Object(message)));
        let native = response.native.get("finish_reason").and_then(Value::as_str);
        let native = native.filter(|reason| self.is_same_wire() && *reason != "tool_calls");
        self.finish_reason = native.map_or_else(|| finish_reason(response.finish).to_owned(), str::to_owned);
        if self.is_same_wire() {
            self.choice.clone_from(&response.native);
            self.choice.shift_remove("finish_reason");
            self.choice.shift_remove("message");
        }
        events
    }

    fn finish(&mut self, usage: &TurnUsage) -> Vec<SseEvent> {
        let mut events = self.chunk(&json!({}), Some(&self.finish_reason));
        if self.options.stream_usage == StreamUsage::Included {
            let chunk = self.envelope(Vec::new(), "chat.completion.chunk");
            events.extend(chunk.map(|mut chunk| {
                chunk["usage"] = self.usage(usage);
                SseEvent::data(&chunk)
            }));
        }
        events.push(SseEvent { name: None, data: "[DONE]".to_owned() });
        events
    }

    fn body(&mut self, usage: &TurnUsage) -> Option<Value> {
        let mut choice = std::mem::take(&mut self.choice);
        choice.insert("index".to_owned(), json!(0));
        choice.insert("message".to_owned(), self.messages.last().cloned().unwrap_or(Value::Null));
        if self.options.mode == ProgramMode::Explicit {
            choice.insert("messages".to_owned(), Value::Array(std::mem::take(&mut self.messages)));
        }
        choice.insert("finish_reason".to_owned(), Value::from(self.finish_reason.as_str()));
        let mut body = self.envelope(vec![Value::Object(choice)], "chat.completion")?;
        body["usage"] = self.usage(usage);
        Some(body)
    }

    fn error(&mut self, body: Value) -> Vec<SseEvent> {
        vec![SseEvent::data(&body)]
    }
}

fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        // Calls that are not passed on are no reason.
        FinishReason::Stop | FinishReason::Calls => "stop",
        FinishReason::Length => "length",
        FinishReason::Filter => "content_filter",
    }
}

/// Some providers give their calls no id, but clients need one.
fn direct_call((at, call): (usize, &ModelCall)) -> Value {
    match call.id.as_str() {
        "" => fields::written(&format!("call_{}", short_id(&call.name, &call.arguments, at)), call),
        id => fields::written(id, call),
    }
}

fn pieces(deltas: CallDeltas, index: usize, mut call: Value) -> Vec<Value> {
    let Some(fields) = call.as_object_mut() else { return Vec::new() };
    fields.shift_insert(0, "index".to_owned(), json!(index));
    let arguments = fields.get_mut("function").and_then(|function| function.get_mut("arguments"));
    match (deltas, arguments) {
        (CallDeltas::Opened, Some(arguments)) => {
            let arguments = std::mem::replace(arguments, json!(""));
            vec![call, json!({"index": index, "function": {"arguments": arguments}})]
        }
        _ => vec![call],
    }
}
