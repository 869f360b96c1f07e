//! A message that is being sent to the client: as a stream of events, or as the content of a whole message.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::client::RESPONSE_ID_PREFIX;
use super::{events, fields, params};
use crate::decoder::{ResponseDelta, ResponseMeta};
use crate::encoder::EncoderOptions;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::turn::ProgramMode;
use crate::wire::Wire;

/// Prefix of container ids. Explicit clients expect a container in the response; this one holds nothing.
pub(super) const CONTAINER_PREFIX: &str = "container_dc_";

#[derive(Debug)]
pub(super) struct MessageDraft {
    pub options: EncoderOptions,
    pub meta: Option<ResponseMeta>,
    has_started: bool,
    /// Number of blocks so far.
    blocks: usize,
    /// The block that is being streamed.
    open: Option<OpenContentBlock>,
    open_origin: OpenBlockOrigin,
    /// Our indexes of the blocks that are forwarded, by the provider's index in the current response.
    indexes: BTreeMap<u64, usize>,
    /// Blocks of a message that is not streamed.
    pub content: Vec<Value>,
}

/// Which response of the model the open block belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBlockOrigin {
    CurrentResponse,
    EarlierResponse,
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
            open_origin: OpenBlockOrigin::CurrentResponse,
            indexes: BTreeMap::new(),
            content: Vec::new(),
        }
    }

    /// A model starts to respond. Its blocks are numbered from zero again.
    pub(super) fn response_started(&mut self) {
        self.indexes.clear();
        self.open_origin = OpenBlockOrigin::EarlierResponse;
    }

    pub(super) fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Messages
    }

    /// The message without its content.
    pub(super) fn message(&self) -> Option<Map<String, Value>> {
        let meta = self.meta.as_ref()?;
        let mut fields = Map::new();
        if meta.wire == Wire::Messages && !meta.fields.is_empty() {
            fields.clone_from(&meta.fields);
        } else {
            fields.insert("id".to_owned(), Value::from(meta.prefixed_id(RESPONSE_ID_PREFIX)));
            fields.insert("type".to_owned(), Value::from("message"));
            fields.insert("role".to_owned(), Value::from("assistant"));
            fields.insert("model".to_owned(), Value::from(meta.model.as_str()));
        }
        self.add_container(&mut fields);
        Some(fields)
    }

    /// Adds the container that explicit clients expect their programs to run in.
    pub(super) fn add_container(&self, fields: &mut Map<String, Value>) {
        if let Some(meta) = self.meta.as_ref().filter(|_| self.options.mode == ProgramMode::Explicit)
            && fields.get("container").is_none_or(Value::is_null)
        {
            let name = meta.id.strip_prefix(RESPONSE_ID_PREFIX).unwrap_or(&meta.id);
            let container = json!({"id": format!("{CONTAINER_PREFIX}{name}"), "expires_at": "2099-01-01T00:00:00Z"});
            fields.insert("container".to_owned(), container);
        }
    }

    /// Whether `message_start` has been sent.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Sends `message_start` once.
    pub(super) fn start(&mut self) -> Vec<SseEvent> {
        let message = if self.options.delivery.is_streamed() && !self.has_started { self.message() } else { None };
        let Some(mut message) = message else { return Vec::new() };
        self.has_started = true;
        message.insert("content".to_owned(), json!([]));
        message.insert("stop_reason".to_owned(), Value::Null);
        message.insert("stop_sequence".to_owned(), Value::Null);
        let context = self.meta.as_ref().and_then(|meta| meta.context).unwrap_or_default();
        message.insert("usage".to_owned(), Value::Object(params::write_usage(context.into())));
        vec![SseEvent::typed(&json!({"type": "message_start", "message": message}))]
    }

    /// Closes the open block, and returns the index of the next one.
    fn next_index(&mut self) -> (usize, Vec<SseEvent>) {
        let mut events = self.start();
        events.extend(self.close(None));
        self.blocks += 1;
        (self.blocks - 1, events)
    }

    /// Adds a complete block.
    pub(super) fn block(&mut self, block: Value) -> Vec<SseEvent> {
        if !self.options.delivery.is_streamed() {
            self.content.push(block);
            return Vec::new();
        }
        let (index, mut events) = self.next_index();
        events.extend(events::whole(index, block));
        events
    }

    /// Closes the open block. `reasoning` is the state that the provider of a reasoning block wants back.
    pub(super) fn close(&mut self, reasoning: Option<&Reasoning>) -> Vec<SseEvent> {
        match self.open.take() {
            None => Vec::new(),
            Some(OpenContentBlock::Native { theirs, ours }) => {
                self.indexes.remove(&theirs);
                vec![events::stop(ours)]
            }
            Some(OpenContentBlock::Text(index)) => vec![events::stop(index)],
            Some(OpenContentBlock::Reasoning(index, text)) => {
                let signature = match reasoning.filter(|reasoning| !reasoning.is_empty()) {
                    Some(reasoning) => reasoning.to_carried(),
                    None => Reasoning::from_text(&text).to_carried(),
                };
                vec![events::delta(index, &events::signature_delta(&signature)), events::stop(index)]
            }
        }
    }

    /// Forwards an event of the provider's stream with our index.
    pub(super) fn forward(&mut self, mut event: Value) -> Vec<SseEvent> {
        let index = event.get("index").and_then(Value::as_u64);
        let (mut events, index) = match (fields::kind(&event), index) {
            ("content_block_start", Some(theirs)) => {
                let (ours, events) = self.next_index();
                self.indexes.insert(theirs, ours);
                self.open = Some(OpenContentBlock::Native { theirs, ours });
                (events, Some(ours))
            }
            (_, Some(theirs)) => {
                let Some(ours) = self.indexes.get(&theirs).copied() else { return Vec::new() };
                if fields::kind(&event) == "content_block_stop" {
                    return self.close(None);
                }
                (Vec::new(), Some(ours))
            }
            _ => (self.start(), None),
        };
        if let Some(index) = index {
            event["index"] = json!(index);
        }
        events.push(SseEvent::typed(&event));
        events
    }

    /// Sends a delta of a response from another wire.
    pub(super) fn translate(&mut self, delta: &ResponseDelta) -> Vec<SseEvent> {
        let mut events = match self.open_origin {
            OpenBlockOrigin::EarlierResponse => self.close(None),
            OpenBlockOrigin::CurrentResponse => Vec::new(),
        };
        self.open_origin = OpenBlockOrigin::CurrentResponse;
        if !delta.reasoning_text.is_empty() {
            if !matches!(self.open, Some(OpenContentBlock::Reasoning(..))) {
                let (index, opened) = self.next_index();
                events.extend(opened);
                events.push(events::start(index, &thinking("", "")));
                self.open = Some(OpenContentBlock::Reasoning(index, String::new()));
            }
            if let Some(OpenContentBlock::Reasoning(index, text)) = &mut self.open {
                text.push_str(&delta.reasoning_text);
                events.push(events::delta(*index, &events::thinking_delta(&delta.reasoning_text)));
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
                let (index, opened) = self.next_index();
                events.extend(opened);
                events.push(events::start(index, &fields::text_block("")));
                self.open = Some(OpenContentBlock::Text(index));
            }
            if let Some(OpenContentBlock::Text(index)) = self.open {
                events.push(events::delta(index, &events::text_delta(&delta.text)));
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
