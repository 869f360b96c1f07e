//! Encodes responses for clients.

use serde_json::{Map, Value, json};

use super::client::RESPONSE_ID_PREFIX;
use super::{fields, programs};
use crate::decoder::{FinishReason, ModelResponse, ResponseDelta, ResponseMeta};
use crate::encoder::{
    AnswerParts, CUT_OFF, CallDeltas, CallsIssued, EncoderOptions, ProgramFinished, ProgramStarted, ResponseEncoder,
    ServerCall, ServerCallEnd,
};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::neutral::selected_fields;
use crate::sse::SseEvent;
use crate::turn::{ProgramMode, StreamUsage};
use crate::usage::TurnUsage;
use crate::wire::{ClientSide, ProviderSide, Wire};

#[derive(Debug)]
pub(super) struct ChatEncoder {
    options: EncoderOptions,
    meta: Option<ResponseMeta>,
    /// New messages, in order. Plain clients get only the last one.
    messages: Vec<Value>,
    /// The `code` message of a program that runs. It lists the calls that the gateway executes for it.
    code: Option<Value>,
    /// Calls that the gateway has executed since the last message.
    server_calls: Vec<Value>,
    /// Fields of the choice beside the message, such as log probabilities.
    choice: Map<String, Value>,
    finish_reason: String,
    /// The stream has had a delta with the role.
    has_role: bool,
    /// Deltas of the current model response have been sent.
    has_streamed: bool,
    /// Texts of the model before its last message. A whole response of plain mode has all text in one message.
    preambles: Vec<String>,
    preamble_use: PreambleUse,
    separator: Separator,
}

/// Whether a whole response begins with what the model wrote before its last message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreambleUse {
    Shown,
    /// The client parses the text of the answer.
    LeftOut,
}

/// Whether text needs an empty line before it, because text of an earlier model response stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// No text was sent.
    NoText,
    /// Text of the current response was sent.
    Sent,
    Due,
}

const EMPTY_LINE: &str = "\n\n";

impl ChatEncoder {
    pub(super) fn new(options: EncoderOptions, preamble_use: PreambleUse) -> ChatEncoder {
        ChatEncoder {
            options,
            preambles: Vec::new(),
            preamble_use,
            separator: Separator::NoText,
            meta: None,
            messages: Vec::new(),
            code: None,
            server_calls: Vec::new(),
            choice: Map::new(),
            finish_reason: String::new(),
            has_role: false,
            has_streamed: false,
        }
    }

    fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Chat
    }

    /// Adds a message. Explicit clients get it in a chunk of its own.
    fn message(&mut self, message: Value) -> Vec<SseEvent> {
        let events = match self.options.mode {
            ProgramMode::Explicit => self.chunk(json!({"message": message}), None),
            ProgramMode::Plain => Vec::new(),
        };
        self.messages.push(message);
        events
    }

    /// Adds the `code` message of the program that runs, if it has not been sent.
    fn code_message(&mut self) -> Vec<SseEvent> {
        self.code.take().map(|code| self.program_message(code)).unwrap_or_default()
    }

    /// Adds a message of a program, with the calls that the gateway has executed since the one before.
    fn program_message(&mut self, mut message: Value) -> Vec<SseEvent> {
        if !self.server_calls.is_empty() {
            message["calls"] = Value::Array(std::mem::take(&mut self.server_calls));
        }
        self.message(message)
    }

    fn role(&mut self) -> Vec<SseEvent> {
        if std::mem::replace(&mut self.has_role, true) {
            return Vec::new();
        }
        self.chunk(json!({"role": "assistant", "content": null}), None)
    }

    /// Only streams have chunks.
    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Vec<SseEvent> {
        if !self.options.delivery.is_streamed() {
            return Vec::new();
        }
        let fields = [("index", json!(0)), ("delta", delta), ("finish_reason", json!(finish_reason))];
        let chunk = self.envelope(vec![object(fields)], "chat.completion.chunk");
        chunk.iter().map(SseEvent::data).collect()
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

    /// Forwards a chunk of the provider's stream. Id, time and model are those of the first response, and the role is
    /// sent once, because a stream may hold several responses of the model.
    fn forward(&mut self, mut chunk: Value) -> Vec<SseEvent> {
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
            return selected_fields(message, |key, _| key != "tool_calls");
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), response.message.text.as_deref().map_or(Value::Null, Value::from));
        if !response.reasoning_text.is_empty() {
            message.insert("reasoning_content".to_owned(), Value::from(response.reasoning_text.as_str()));
        }
        message
    }

    /// The text of a whole message with what the model wrote before it.
    fn add_preambles(&mut self, content: &mut Value) {
        let mut texts = std::mem::take(&mut self.preambles);
        if !texts.is_empty() && (content.is_null() || content.is_string()) {
            texts.extend(content.as_str().filter(|text| !text.is_empty()).map(str::to_owned));
            *content = Value::from(texts.join(EMPTY_LINE));
        }
    }

    /// Comes before text in a stream.
    fn separate(&mut self) -> Vec<SseEvent> {
        match std::mem::replace(&mut self.separator, Separator::Sent) {
            Separator::Due => self.chunk(json!({"content": EMPTY_LINE}), None),
            Separator::NoText | Separator::Sent => Vec::new(),
        }
    }

    /// Ends the response with tool calls.
    fn send_calls(&mut self, mut message: Map<String, Value>, calls: Vec<Value>) -> Vec<SseEvent> {
        let mut events = self.code_message();
        events.extend(self.role());
        let streamed = if self.options.delivery.is_streamed() { calls.as_slice() } else { &[] };
        for (index, call) in streamed.iter().enumerate() {
            for delta in call_deltas(self.options.call_deltas, index, call) {
                events.extend(self.chunk(object([("tool_calls", Value::Array(vec![delta]))]), None));
            }
        }
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("tool_calls".to_owned(), Value::Array(calls));
        events.extend(self.program_message(Value::Object(message)));
        "tool_calls".clone_into(&mut self.finish_reason);
        events
    }
}

impl ResponseEncoder for ChatEncoder {
    fn provider_changed(&mut self, provider: ProviderSide) {
        self.options.provider = provider;
    }

    fn response_started(&mut self) {
        self.has_streamed = false;
        if self.separator == Separator::Sent {
            self.separator = Separator::Due;
        }
    }

    fn meta(&mut self, meta: &ResponseMeta) {
        if !self.options.delivery.is_streamed() || self.meta.is_none() {
            self.meta = Some(meta.clone());
        }
    }

    fn open(&mut self) -> Vec<SseEvent> {
        // On the same wire the provider's first chunk has the role.
        if self.is_same_wire() { Vec::new() } else { self.role() }
    }

    fn keep_alive(&mut self) -> Option<SseEvent> {
        None
    }

    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent> {
        self.has_streamed = true;
        let separator = if delta.text.is_empty() { Vec::new() } else { self.separate() };
        if self.is_same_wire() {
            let chunk = delta.native.map_or_else(Vec::new, |chunk| self.forward(chunk));
            return separator.into_iter().chain(chunk).collect();
        }
        let mut events = self.role();
        events.extend(separator);
        if !delta.reasoning_text.is_empty() {
            events.extend(self.chunk(json!({"reasoning_content": delta.reasoning_text}), None));
        }
        if !delta.text.is_empty() {
            events.extend(self.chunk(json!({"content": delta.text}), None));
        }
        events
    }

    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent> {
        self.code = Some(programs::code(program.state));
        Vec::new()
    }

    fn server_call_started(&mut self, _: &ServerCall<'_>) -> Vec<SseEvent> {
        Vec::new()
    }

    fn approval_requested(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent> {
        let mut events = self.code_message();
        events.extend(self.program_message(programs::approval_request(call)));
        events
    }

    fn server_call_ended(&mut self, call: &ServerCall<'_>, end: ServerCallEnd<'_>) -> Vec<SseEvent> {
        let key = if end.status() == "completed" { "output" } else { "error" };
        self.server_calls.push(json!({
            "id": format!("call_{}", call.id()),
            "server": call.server,
            "name": call.tool,
            "arguments": call.call.args.to_string(),
            "status": end.status(),
            key: end.text(),
        }));
        Vec::new()
    }

    fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Vec<SseEvent> {
        let id = finished.program.or_else(|| programs::code_id(finished.state.run()));
        let mut events = self.code_message();
        events.extend(self.program_message(programs::code_result(&id, finished.shown)));
        events
    }

    fn preamble(&mut self, response: &ModelResponse) -> Vec<SseEvent> {
        // Explicit clients read it in the `code` message.
        let is_plain = self.options.mode == ProgramMode::Plain;
        let text = response.message.text.as_ref().filter(|text| is_plain && !text.trim().is_empty());
        let Some(text) = text.filter(|_| self.options.shows_preamble(response)) else { return Vec::new() };
        if !self.options.delivery.is_streamed() {
            self.preambles.push(text.clone());
            return Vec::new();
        }
        if std::mem::replace(&mut self.has_streamed, true) {
            return Vec::new();
        }
        let mut events = self.role();
        events.extend(self.separate());
        events.extend(self.chunk(json!({"content": text}), None));
        events
    }

    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent> {
        if !issued.has_calls() {
            // The program waits for nothing but approvals, and the last message asks for one.
            "stop".clone_into(&mut self.finish_reason);
            return Vec::new();
        }
        let of_program = issued
            .ids
            .iter()
            .zip(issued.calls)
            .map(|(id, call)| fields::function_call(id, &call.tool, &call.args.to_string()));
        let calls: Vec<Value> = of_program.chain(issued.direct.iter().enumerate().map(direct_call)).collect();
        let mut message = issued.response.map(|response| self.assistant_message(response)).unwrap_or_default();
        let mut content = Value::Null;
        self.add_preambles(&mut content);
        message.insert("content".to_owned(), content);
        self.send_calls(message, calls)
    }

    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent> {
        let mut message = self.assistant_message(response);
        if self.preamble_use == PreambleUse::Shown
            && let Some(content) = message.get_mut("content")
        {
            self.add_preambles(content);
        }
        let has_calls = !response.message.calls.is_empty();
        // The provider sent a whole response, although a stream was requested.
        let is_unsent = self.options.delivery.is_streamed() && !self.has_streamed;
        if parts == AnswerParts::All && has_calls {
            let calls = response.message.calls.iter().enumerate().map(direct_call).collect();
            let mut events = Vec::new();
            if is_unsent && response.message.text.is_some() {
                events = self.separate();
                self.has_role = true;
                events.extend(self.chunk(json!(message), None));
            }
            events.extend(self.send_calls(message, calls));
            return events;
        }
        let mut events = Vec::new();
        if parts == AnswerParts::Text && has_calls && response.message.text.is_none() {
            // Clients cannot send an empty message back.
            message.insert("content".to_owned(), Value::from(CUT_OFF));
            if self.has_streamed {
                events = self.separate();
                events.extend(self.chunk(json!({"content": CUT_OFF}), None));
            }
        }
        if is_unsent {
            events = self.separate();
            self.has_role = true;
            events.extend(self.chunk(json!(message), None));
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
        let mut events = self.chunk(json!({}), Some(&self.finish_reason));
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
        if self.options.mode == ProgramMode::Explicit {
            choice.insert("message".to_owned(), self.messages.last().cloned().unwrap_or(Value::Null));
            choice.insert("messages".to_owned(), Value::Array(std::mem::take(&mut self.messages)));
        } else {
            choice.insert("message".to_owned(), self.messages.pop().unwrap_or(Value::Null));
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

/// Like `json!`, which copies what it is given.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        // Calls that the client does not get are not its reason.
        FinishReason::Stop | FinishReason::Calls => "stop",
        FinishReason::Length => "length",
        FinishReason::Filter => "content_filter",
    }
}

/// Some providers give their calls no id, but clients need one.
fn direct_call((at, call): (usize, &ModelCall)) -> Value {
    match call.id.as_str() {
        "" => fields::write_call(&format!("call_{}", short_id(&call.name, &call.arguments, at)), call),
        id => fields::write_call(id, call),
    }
}

/// The deltas in which a whole call is streamed.
fn call_deltas(deltas: CallDeltas, index: usize, call: &Value) -> Vec<Value> {
    let Some(fields) = call.as_object() else { return Vec::new() };
    let mut delta = Map::from_iter([("index".to_owned(), json!(index))]);
    delta.extend(fields.clone());
    let arguments = delta.get_mut("function").and_then(|function| function.get_mut("arguments"));
    match (deltas, arguments) {
        (CallDeltas::Opened, Some(arguments)) => {
            let arguments = std::mem::replace(arguments, json!(""));
            vec![Value::Object(delta), json!({"index": index, "function": {"arguments": arguments}})]
        }
        _ => vec![Value::Object(delta)],
    }
}
