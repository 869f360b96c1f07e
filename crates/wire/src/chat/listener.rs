//! Listening to a model: whole answers, and streams as providers really send them.

use serde_json::{Map, Value};

use super::fields;
use super::reply::Head;
use crate::saying::{ModelCall, Saying};

/// What a model said, and around it.
#[derive(Debug, Clone)]
pub struct Said {
    pub saying: Saying,
    pub finish_reason: Option<String>,
    pub usage: Option<Value>,
    pub head: Head,
    /// The choice around it, with the message: what the client gets if this is the answer.
    pub choice: Map<String, Value>,
}

impl Said {
    /// Reads an answer that came whole.
    pub fn read(mut body: Value) -> Result<Said, String> {
        let choice = body.pointer_mut("/choices/0").map(Value::take);
        let Some(Value::Object(choice)) = choice else {
            return Err("the model's answer has no choices".to_owned());
        };
        let saying = choice.get("message").map(fields::saying).ok_or("the model's answer has no message")?;
        let finish_reason = choice.get("finish_reason").and_then(Value::as_str).map(str::to_owned);
        let usage = body.get("usage").filter(|usage| usage.is_object()).cloned();
        Ok(Said { saying, finish_reason, usage, head: Head::of(body), choice })
    }

    /// The message was cut by a limit on its length, so its calls mean nothing.
    pub fn is_cut(&self) -> bool {
        matches!(self.finish_reason.as_deref(), Some("length" | "content_filter"))
    }
}

/// Puts a streamed answer together.
#[derive(Debug, Default)]
pub struct Listener {
    calls: Vec<Partial>,
    finish_reason: Option<String>,
    usage: Option<Value>,
    head: Option<Head>,
    choice: Map<String, Value>,
    /// All that deltas said but calls.
    message: Map<String, Value>,
}

#[derive(Debug, Default)]
struct Partial {
    index: Option<u64>,
    call: ModelCall,
}

/// What of a chunk the client may get.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// The chunk without calls, finish reason and usage; `None` if nothing is left of it.
    pub chunk: Option<Value>,
    /// Characters of the answer's text in it.
    pub text_chars: usize,
}

impl Listener {
    pub fn hear(&mut self, mut chunk: Value) -> Heard {
        if let Some(fields) = chunk.as_object_mut()
            && let Some(usage) = fields.shift_remove("usage").filter(Value::is_object)
        {
            self.usage = Some(usage);
        }
        // Some providers begin with a chunk that says nothing, not even who they are.
        let is_named = chunk.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        if self.head.is_none() && (is_named || chunk.pointer("/choices/0").is_some()) {
            self.head = Some(Head::of(chunk.clone()));
        }
        let Some(choice) = chunk.pointer_mut("/choices/0").and_then(Value::as_object_mut) else {
            return Heard { chunk: None, text_chars: 0 };
        };
        if let Some(reason) = choice.get_mut("finish_reason").map(Value::take)
            && let Some(reason) = reason.as_str()
        {
            self.finish_reason = Some(reason.to_owned());
        }
        let mut text_chars = 0;
        let mut is_left = false;
        if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
            for key in ["tool_calls", "toolCalls"] {
                if let Some(Value::Array(calls)) = delta.shift_remove(key) {
                    for call in &calls {
                        self.hear_call(call);
                    }
                }
            }
            text_chars = fields::said_text(delta.get("content")).chars().count();
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
        Heard { chunk: is_left.then_some(chunk), text_chars }
    }

    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// A piece of a call belongs to the call with its index; where providers leave the index out, or give all calls
    /// the same, a new id begins a new call.
    fn hear_call(&mut self, piece: &Value) {
        let index = piece.get("index").and_then(Value::as_u64);
        let heard = fields::model_call(piece);
        let is_new = |known: &Partial| !heard.id.is_empty() && !known.call.id.is_empty() && known.call.id != heard.id;
        let found = match index {
            Some(_) => self.calls.iter_mut().rev().find(|known| known.index == index),
            None if heard.id.is_empty() => self.calls.last_mut(),
            None => self.calls.iter_mut().rev().find(|known| known.call.id == heard.id),
        };
        match found.filter(|known| !is_new(known)) {
            Some(known) => {
                known.call.arguments.push_str(&heard.arguments);
                known.call.opaque.extend(heard.opaque);
                if known.call.name.is_empty() {
                    known.call.name = heard.name;
                }
                if known.call.id.is_empty() {
                    known.call.id = heard.id;
                }
            }
            None => self.calls.push(Partial { index, call: heard }),
        }
    }

    /// The stream is over, and said so or not. `None` if it ended before the model did.
    pub fn finish(mut self, was_told: bool) -> Option<Said> {
        let head = self.head?;
        if self.finish_reason.is_none() && !was_told {
            return None;
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        message.insert("content".to_owned(), Value::Null);
        message.extend(self.message);
        let mut saying = fields::saying(&Value::Object(message.clone()));
        saying.calls = self.calls.into_iter().map(|partial| partial.call).collect();
        self.choice.insert("message".to_owned(), Value::Object(message));
        Some(Said { saying, finish_reason: self.finish_reason, usage: self.usage, head, choice: self.choice })
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
