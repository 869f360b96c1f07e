//! What the client gets.

use serde_json::{Map, Value, json};

use super::{explicit, fields};
use crate::ids::short_id;
use crate::said::{Finish, Head, Heard, Said};
use crate::saying::ModelCall;
use crate::speaker::{Announced, CUT, CallDeltas, Ended, Handing, Manner, Passed, Speaker};
use crate::sse::Event;
use crate::usage::Usage;
use crate::wire::Wire;

#[derive(Debug)]
pub(super) struct ChatSpeaker {
    manner: Manner,
    head: Option<Head>,
    /// New messages, in order; the last one is what every client reads.
    messages: Vec<Value>,
    /// Of the choice around the message: log probabilities and the like.
    choice: Map<String, Value>,
    finish_reason: String,
    has_role: bool,
    /// Some of the present answer of the model has gone out.
    has_passed: bool,
}

impl ChatSpeaker {
    pub(super) fn new(manner: Manner) -> ChatSpeaker {
        ChatSpeaker {
            manner,
            head: None,
            messages: Vec::new(),
            choice: Map::new(),
            finish_reason: String::new(),
            has_role: false,
            has_passed: false,
        }
    }

    fn is_same_wire(&self) -> bool {
        self.manner.upstream == Wire::Chat
    }

    /// A message that is new to the client.
    fn message(&mut self, message: Value) -> Vec<Event> {
        let told = if self.manner.explicit { self.delta(&json!({"message": message}), None) } else { Vec::new() };
        self.messages.push(message);
        told
    }

    fn role(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.has_role, true) {
            return Vec::new();
        }
        self.delta(&json!({"role": "assistant", "content": null}), None)
    }

    fn delta(&self, delta: &Value, finish_reason: Option<&str>) -> Vec<Event> {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        self.around(vec![choice], "chat.completion.chunk").into_iter().map(|chunk| Event::data(&chunk)).collect()
    }

    fn around(&self, choices: Vec<Value>, object: &str) -> Option<Value> {
        let head = self.head.as_ref()?;
        let mut fields = Map::new();
        if head.wire == Wire::Chat && !head.fields.is_empty() {
            fields.clone_from(&head.fields);
            fields.insert("object".to_owned(), Value::from(object));
        } else {
            let prefix = Wire::Chat.answer_prefix();
            let id = if head.id.starts_with(prefix) { head.id.clone() } else { format!("{prefix}{}", head.id) };
            fields.insert("id".to_owned(), Value::from(id));
            fields.insert("object".to_owned(), Value::from(object));
            fields.insert("created".to_owned(), Value::from(head.created.unwrap_or_default()));
            fields.insert("model".to_owned(), Value::from(head.model.as_str()));
        }
        fields.insert("choices".to_owned(), Value::Array(choices));
        Some(Value::Object(fields))
    }

    fn usage(&self, usage: &Usage) -> Value {
        Value::Object(usage.told(Wire::Chat, self.manner.upstream))
    }

    /// A chunk of the model's, as it came but for what makes it part of this turn.
    fn adopted(&mut self, mut chunk: Value) -> Vec<Event> {
        if let (Some(fields), Some(head)) = (chunk.as_object_mut(), &self.head) {
            for key in ["id", "created", "model"] {
                if let Some(value) = head.fields.get(key) {
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
        vec![Event::data(&chunk)]
    }

    /// The message that the model's answer makes, without calls.
    fn said(&self, said: &Said) -> Map<String, Value> {
        if let (true, Some(Value::Object(message))) = (self.is_same_wire(), said.native.get("message")) {
            let mut message = message.clone();
            message.shift_remove("tool_calls");
            return message;
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), said.saying.text.as_deref().map_or(Value::Null, Value::from));
        if !said.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), Value::from(said.reasoning.as_str()));
        }
        message
    }

    fn hand_out(&mut self, mut message: Map<String, Value>, calls: Vec<Value>) -> Vec<Event> {
        let mut events = self.role();
        for (index, call) in calls.iter().enumerate() {
            for piece in pieces(self.manner.deltas, index, call.clone()) {
                events.extend(self.delta(&json!({"tool_calls": [piece]}), None));
            }
        }
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("tool_calls".to_owned(), Value::Array(calls));
        events.extend(self.message(Value::Object(message)));
        "tool_calls".clone_into(&mut self.finish_reason);
        events
    }
}

impl Speaker for ChatSpeaker {
    fn begins(&mut self) {
        self.has_passed = false;
    }

    fn head(&mut self, head: &Head) {
        if !self.manner.is_stream || self.head.is_none() {
            self.head = Some(head.clone());
        }
    }

    fn pass(&mut self, heard: Heard) -> Vec<Event> {
        self.has_passed = true;
        if self.is_same_wire() {
            return heard.native.map_or_else(Vec::new, |chunk| self.adopted(chunk));
        }
        let mut events = self.role();
        if !heard.reasoning.is_empty() {
            events.extend(self.delta(&json!({"reasoning_content": heard.reasoning}), None));
        }
        if !heard.text.is_empty() {
            events.extend(self.delta(&json!({"content": heard.text}), None));
        }
        events
    }

    fn program(&mut self, program: &Announced<'_>) -> Vec<Event> {
        self.message(explicit::code(program.state))
    }

    fn result(&mut self, ended: &Ended<'_>) -> Vec<Event> {
        let id = match ended.program {
            "" => explicit::code_id(ended.state.run()),
            known => known.to_owned(),
        };
        self.message(explicit::code_result(&id, ended.shown))
    }

    fn calls(&mut self, handing: &Handing<'_>) -> Vec<Event> {
        let of_program = handing.ids.iter().zip(handing.calls).map(|(id, call)| {
            let function =
                ModelCall { name: call.tool.clone(), arguments: call.args.to_string(), ..ModelCall::default() };
            fields::written(id, &function)
        });
        let calls: Vec<Value> = of_program.chain(handing.direct.iter().enumerate().map(direct_call)).collect();
        let mut message = handing.said.map(|said| self.said(said)).unwrap_or_default();
        message.insert("content".to_owned(), Value::Null);
        self.hand_out(message, calls)
    }

    fn answer(&mut self, said: &Said, passed: Passed) -> Vec<Event> {
        let mut message = self.said(said);
        let mut cut = Vec::new();
        if passed == Passed::Text && !said.saying.calls.is_empty() && said.saying.text.is_none() {
            // An empty message could not be sent back.
            message.insert("content".to_owned(), Value::from(CUT));
            if self.has_passed {
                cut = self.delta(&json!({"content": CUT}), None);
            }
        }
        if passed == Passed::All && !said.saying.calls.is_empty() {
            let calls = said.saying.calls.iter().enumerate().map(direct_call).collect();
            let mut events = Vec::new();
            if self.manner.is_stream && !self.has_passed && said.saying.text.is_some() {
                self.has_role = true;
                events = self.delta(&Value::Object(message.clone()), None);
            }
            events.extend(self.hand_out(message, calls));
            return events;
        }
        let mut events = cut;
        if self.manner.is_stream && !self.has_passed {
            // It came whole, although a stream was asked for.
            self.has_role = true;
            events = self.delta(&Value::Object(message.clone()), None);
        }
        events.extend(self.message(Value::Object(message)));
        let native = said.native.get("finish_reason").and_then(Value::as_str);
        let native = native.filter(|reason| self.is_same_wire() && *reason != "tool_calls");
        self.finish_reason = native.map_or_else(|| finish_reason(said.finish).to_owned(), str::to_owned);
        if self.is_same_wire() {
            self.choice.clone_from(&said.native);
            self.choice.shift_remove("finish_reason");
            self.choice.shift_remove("message");
        }
        events
    }

    fn finish(&mut self, usage: &Usage) -> Vec<Event> {
        let mut events = self.delta(&json!({}), Some(&self.finish_reason));
        if self.manner.include_usage {
            let chunk = self.around(Vec::new(), "chat.completion.chunk");
            events.extend(chunk.map(|mut chunk| {
                chunk["usage"] = self.usage(usage);
                Event::data(&chunk)
            }));
        }
        events.push(Event { name: None, data: "[DONE]".to_owned() });
        events
    }

    fn body(&mut self, usage: &Usage) -> Option<Value> {
        let mut choice = std::mem::take(&mut self.choice);
        choice.insert("index".to_owned(), json!(0));
        choice.insert("message".to_owned(), self.messages.last().cloned().unwrap_or(Value::Null));
        if self.manner.explicit {
            choice.insert("messages".to_owned(), Value::Array(std::mem::take(&mut self.messages)));
        }
        choice.insert("finish_reason".to_owned(), Value::from(self.finish_reason.as_str()));
        let mut body = self.around(vec![Value::Object(choice)], "chat.completion")?;
        body["usage"] = self.usage(usage);
        Some(body)
    }

    fn fail(&mut self, body: Value) -> Vec<Event> {
        vec![Event::data(&body)]
    }
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        // Calls that are not passed on are no reason.
        Finish::Stop | Finish::Calls => "stop",
        Finish::Length => "length",
        Finish::Filter => "content_filter",
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
