//! A message on its way to the client: as a stream of events, or as the blocks of a whole.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::client::RESPONSE_ID_PREFIX;
use super::{events, fields};
use crate::decoder::{ResponseDelta, ResponseMeta};
use crate::encoder::EncoderOptions;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::turn::ProgramMode;
use crate::wire::Wire;

/// What the ids of containers begin with. Clients that know about programs expect one; it holds nothing.
pub(super) const CONTAINER_PREFIX: &str = "container_dc_";

#[derive(Debug)]
pub(super) struct MessageDraft {
    pub options: EncoderOptions,
    pub meta: Option<ResponseMeta>,
    has_started: bool,
    /// Blocks so far.
    blocks: usize,
    /// The block that is being streamed.
    open: Option<OpenContentBlock>,
    /// The open block is of an earlier answer of the model.
    is_stale: bool,
    /// Places of the blocks of the present answer of the model that are passed on as they come.
    places: BTreeMap<u64, usize>,
    /// Blocks of a whole answer.
    pub content: Vec<Value>,
}

#[derive(Debug)]
enum OpenContentBlock {
    Native { theirs: u64, ours: usize },
    Text(usize),
    Reasoning(usize, String),
}

impl MessageDraft {
    pub(super) fn new(options: EncoderOptions) -> MessageDraft {
        MessageDraft {
            options,
            meta: None,
            has_started: false,
            blocks: 0,
            open: None,
            is_stale: false,
            places: BTreeMap::new(),
            content: Vec::new(),
        }
    }

    /// A model begins to answer: its blocks are counted anew.
    pub(super) fn response_started(&mut self) {
        self.places.clear();
        self.is_stale = true;
    }

    pub(super) fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Messages
    }

    /// The message without its content.
    pub(super) fn message(&self) -> Option<Map<String, Value>> {
        let meta = self.meta.as_ref()?;
        let is_known = meta.wire == Wire::Messages && !meta.fields.is_empty();
        let mut fields = if is_known { meta.fields.clone() } else { Map::new() };
        if !is_known {
            fields.insert("id".to_owned(), Value::from(meta.prefixed_id(RESPONSE_ID_PREFIX)));
            fields.insert("type".to_owned(), Value::from("message"));
            fields.insert("role".to_owned(), Value::from("assistant"));
            fields.insert("model".to_owned(), Value::from(meta.model.as_str()));
        }
        self.contain(&mut fields);
        Some(fields)
    }

    /// Clients that know about programs look for the container in which they run.
    pub(super) fn contain(&self, fields: &mut Map<String, Value>) {
        if let Some(meta) = self.meta.as_ref().filter(|_| self.options.mode == ProgramMode::Explicit)
            && fields.get("container").is_none_or(Value::is_null)
        {
            let name = meta.id.strip_prefix(RESPONSE_ID_PREFIX).unwrap_or(&meta.id);
            let container = json!({"id": format!("{CONTAINER_PREFIX}{name}"), "expires_at": "2099-01-01T00:00:00Z"});
            fields.insert("container".to_owned(), container);
        }
    }

    pub(super) fn start(&mut self) -> Vec<SseEvent> {
        let message = if self.options.delivery.is_streamed() && !self.has_started { self.message() } else { None };
        let Some(mut message) = message else { return Vec::new() };
        self.has_started = true;
        message.insert("content".to_owned(), json!([]));
        message.insert("stop_reason".to_owned(), Value::Null);
        message.insert("stop_sequence".to_owned(), Value::Null);
        message.insert("usage".to_owned(), json!({"input_tokens": 0, "output_tokens": 0}));
        vec![SseEvent::typed(&json!({"type": "message_start", "message": message}))]
    }

    /// A place for a block, once nothing else is open.
    fn place(&mut self) -> (usize, Vec<SseEvent>) {
        let mut events = self.start();
        events.extend(self.close(None));
        self.blocks += 1;
        (self.blocks - 1, events)
    }

    pub(super) fn block(&mut self, block: Value) -> Vec<SseEvent> {
        if !self.options.delivery.is_streamed() {
            self.content.push(block);
            return Vec::new();
        }
        let (place, mut events) = self.place();
        events.extend(events::whole(place, block));
        events
    }

    pub(super) fn close(&mut self, reasoning: Option<&Reasoning>) -> Vec<SseEvent> {
        match self.open.take() {
            None => Vec::new(),
            Some(OpenContentBlock::Native { theirs, ours }) => {
                self.places.remove(&theirs);
                vec![events::stop(ours)]
            }
            Some(OpenContentBlock::Text(place)) => vec![events::stop(place)],
            Some(OpenContentBlock::Reasoning(place, text)) => {
                let signature = match reasoning.filter(|reasoning| !reasoning.is_empty()) {
                    Some(reasoning) => reasoning.to_carried(),
                    None => Reasoning::from_text(&text).to_carried(),
                };
                vec![events::delta(place, &events::signature_delta(&signature)), events::stop(place)]
            }
        }
    }

    /// An event of the model's, as it came but for its place.
    pub(super) fn adopted(&mut self, mut event: Value) -> Vec<SseEvent> {
        let index = event.get("index").and_then(Value::as_u64);
        let (mut events, place) = match (fields::kind(&event), index) {
            ("content_block_start", Some(theirs)) => {
                let (ours, events) = self.place();
                self.places.insert(theirs, ours);
                self.open = Some(OpenContentBlock::Native { theirs, ours });
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
        events.push(SseEvent::typed(&event));
        events
    }

    /// A piece of an answer from another wire.
    pub(super) fn translated(&mut self, delta: &ResponseDelta) -> Vec<SseEvent> {
        let mut events = if self.is_stale { self.close(None) } else { Vec::new() };
        self.is_stale = false;
        if !delta.reasoning_text.is_empty() {
            if !matches!(self.open, Some(OpenContentBlock::Reasoning(..))) {
                let (place, opened) = self.place();
                events.extend(opened);
                events.push(events::start(place, &thinking("", "")));
                self.open = Some(OpenContentBlock::Reasoning(place, String::new()));
            }
            if let Some(OpenContentBlock::Reasoning(place, text)) = &mut self.open {
                text.push_str(&delta.reasoning_text);
                events.push(events::delta(*place, &events::thinking_delta(&delta.reasoning_text)));
            }
        }
        match &delta.reasoning {
            Some(state) if matches!(self.open, Some(OpenContentBlock::Reasoning(..))) => {
                events.extend(self.close(Some(state)));
            }
            Some(state) if !state.is_empty() => events.extend(self.block(redacted(&state.to_carried()))),
            _ => {}
        }
        if !delta.text.is_empty() {
            if !matches!(self.open, Some(OpenContentBlock::Text(_))) {
                let (place, opened) = self.place();
                events.extend(opened);
                events.push(events::start(place, &fields::text_block("")));
                self.open = Some(OpenContentBlock::Text(place));
            }
            if let Some(OpenContentBlock::Text(place)) = self.open {
                events.push(events::delta(place, &events::text_delta(&delta.text)));
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
