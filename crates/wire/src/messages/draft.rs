//! A message on its way to the client: as a stream of events, or as the blocks of a whole.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::request::CONTAINER_PREFIX;
use super::{fields, stream};
use crate::carrier;
use crate::said::{Head, Heard};
use crate::speaker::Manner;
use crate::sse::Event;
use crate::wire::Wire;

#[derive(Debug)]
pub(super) struct Draft {
    pub manner: Manner,
    pub head: Option<Head>,
    has_started: bool,
    /// Blocks so far.
    blocks: usize,
    /// The block that is being streamed.
    open: Option<Open>,
    /// The open block is of an earlier answer of the model.
    is_stale: bool,
    /// Places of the blocks of the present answer of the model that are passed on as they come.
    places: BTreeMap<u64, usize>,
    /// Blocks of a whole answer.
    pub content: Vec<Value>,
}

#[derive(Debug)]
enum Open {
    Native { theirs: u64, ours: usize },
    Text(usize),
    Thought(usize, String),
}

impl Draft {
    pub(super) fn new(manner: Manner) -> Draft {
        Draft {
            manner,
            head: None,
            has_started: false,
            blocks: 0,
            open: None,
            is_stale: false,
            places: BTreeMap::new(),
            content: Vec::new(),
        }
    }

    /// A model begins to answer: its blocks are counted anew.
    pub(super) fn begins(&mut self) {
        self.places.clear();
        self.is_stale = true;
    }

    pub(super) fn is_same_wire(&self) -> bool {
        self.manner.upstream == Wire::Messages
    }

    /// The message without its content.
    pub(super) fn message(&self) -> Option<Map<String, Value>> {
        let head = self.head.as_ref()?;
        let is_known = head.wire == Wire::Messages && !head.fields.is_empty();
        let mut fields = if is_known { head.fields.clone() } else { Map::new() };
        if !is_known {
            let prefix = Wire::Messages.answer_prefix();
            let id = if head.id.starts_with(prefix) { head.id.clone() } else { format!("{prefix}{}", head.id) };
            fields.insert("id".to_owned(), Value::from(id));
            fields.insert("type".to_owned(), Value::from("message"));
            fields.insert("role".to_owned(), Value::from("assistant"));
            fields.insert("model".to_owned(), Value::from(head.model.as_str()));
        }
        self.contain(&mut fields);
        Some(fields)
    }

    /// Clients that know about programs look for the container in which they run.
    pub(super) fn contain(&self, fields: &mut Map<String, Value>) {
        if let Some(head) = self.head.as_ref().filter(|_| self.manner.explicit)
            && fields.get("container").is_none_or(Value::is_null)
        {
            let name = head.id.strip_prefix(Wire::Messages.answer_prefix()).unwrap_or(&head.id);
            let container = json!({"id": format!("{CONTAINER_PREFIX}{name}"), "expires_at": "2099-01-01T00:00:00Z"});
            fields.insert("container".to_owned(), container);
        }
    }

    pub(super) fn start(&mut self) -> Vec<Event> {
        let message = if self.manner.is_stream && !self.has_started { self.message() } else { None };
        let Some(mut message) = message else { return Vec::new() };
        self.has_started = true;
        message.insert("content".to_owned(), json!([]));
        message.insert("stop_reason".to_owned(), Value::Null);
        message.insert("stop_sequence".to_owned(), Value::Null);
        message.insert("usage".to_owned(), json!({"input_tokens": 0, "output_tokens": 0}));
        vec![Event::typed(&json!({"type": "message_start", "message": message}))]
    }

    /// A place for a block, once nothing else is open.
    fn place(&mut self) -> (usize, Vec<Event>) {
        let mut events = self.start();
        events.extend(self.close(None));
        self.blocks += 1;
        (self.blocks - 1, events)
    }

    pub(super) fn block(&mut self, block: Value) -> Vec<Event> {
        if !self.manner.is_stream {
            self.content.push(block);
            return Vec::new();
        }
        let (place, mut events) = self.place();
        events.extend(stream::whole(place, block));
        events
    }

    pub(super) fn close(&mut self, reasoning: Option<&Map<String, Value>>) -> Vec<Event> {
        match self.open.take() {
            None => Vec::new(),
            Some(Open::Native { theirs, ours }) => {
                self.places.remove(&theirs);
                vec![stream::stop(ours)]
            }
            Some(Open::Text(place)) => vec![stream::stop(place)],
            Some(Open::Thought(place, text)) => {
                let signature = match reasoning.filter(|reasoning| !reasoning.is_empty()) {
                    Some(reasoning) => carrier::wrap(reasoning),
                    None => carrier::wrap(&reasoning_content(&text)),
                };
                vec![stream::delta(place, &stream::signature_delta(&signature)), stream::stop(place)]
            }
        }
    }

    /// An event of the model's, as it came but for its place.
    pub(super) fn adopted(&mut self, mut event: Value) -> Vec<Event> {
        let index = event.get("index").and_then(Value::as_u64);
        let (mut events, place) = match (fields::kind(&event), index) {
            ("content_block_start", Some(theirs)) => {
                let (ours, events) = self.place();
                self.places.insert(theirs, ours);
                self.open = Some(Open::Native { theirs, ours });
                (events, Some(ours))
            }
            (_, Some(theirs)) => {
                let Some(ours) = self.places.get(&theirs).copied() else { return Vec::new() };
                if fields::kind(&event) == "content_block_stop" {
                    return self.close(None);
                }
                (Vec::new(), Some(ours))
            }
            _ => (self.start(), None),
        };
        if let Some(place) = place {
            event["index"] = json!(place);
        }
        events.push(Event::typed(&event));
        events
    }

    /// A piece of an answer from another wire.
    pub(super) fn translated(&mut self, heard: &Heard) -> Vec<Event> {
        let mut events = if self.is_stale { self.close(None) } else { Vec::new() };
        self.is_stale = false;
        if !heard.reasoning.is_empty() {
            if !matches!(self.open, Some(Open::Thought(..))) {
                let (place, opened) = self.place();
                events.extend(opened);
                events.push(stream::start(place, &thinking("", "")));
                self.open = Some(Open::Thought(place, String::new()));
            }
            if let Some(Open::Thought(place, text)) = &mut self.open {
                text.push_str(&heard.reasoning);
                events.push(stream::delta(*place, &stream::thinking_delta(&heard.reasoning)));
            }
        }
        match &heard.opaque {
            Some(opaque) if matches!(self.open, Some(Open::Thought(..))) => events.extend(self.close(Some(opaque))),
            Some(opaque) if !opaque.is_empty() => events.extend(self.block(redacted(&carrier::wrap(opaque)))),
            _ => {}
        }
        if !heard.text.is_empty() {
            if !matches!(self.open, Some(Open::Text(_))) {
                let (place, opened) = self.place();
                events.extend(opened);
                events.push(stream::start(place, &fields::text_block("")));
                self.open = Some(Open::Text(place));
            }
            if let Some(Open::Text(place)) = self.open {
                events.push(stream::delta(place, &stream::text_delta(&heard.text)));
            }
        }
        events
    }
}

pub(super) fn thinking(text: &str, signature: &str) -> Value {
    json!({"type": fields::THINKING, "thinking": text, "signature": signature})
}

pub(super) fn redacted(data: &str) -> Value {
    json!({"type": fields::REDACTED, "data": data})
}

/// Reasoning that is known by its text alone.
pub(super) fn reasoning_content(text: &str) -> Map<String, Value> {
    Map::from_iter([("reasoning_content".to_owned(), Value::from(text))])
}
