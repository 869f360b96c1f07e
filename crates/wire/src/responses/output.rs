//! The output of a response while it is sent: its items, and the events of its stream.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::envelope::RequestEcho;
use super::events::{self, ItemEvent};
use super::{fields, item_ids};
use crate::decoder::ResponseMeta;
use crate::neutral::remove_fields;
use crate::sse::SseEvent;
use crate::turn::Delivery;

const IN_PROGRESS: &str = "response.in_progress";

#[derive(Debug)]
pub(super) struct ResponseOutput {
    delivery: Delivery,
    pub request: RequestEcho,
    meta: Option<ResponseMeta>,
    /// Null for an item that is still open, or whose forwarded events never held it.
    pub items: Vec<Value>,
    /// Events that the caller has not taken yet.
    pending: Vec<SseEvent>,
    /// The next sequence number.
    sequence_number: u64,
    /// Our positions of the items that are forwarded, by the provider's index in the current response.
    positions: BTreeMap<u64, usize>,
    /// New ids of reasoning items, by their positions.
    renamed: BTreeMap<usize, String>,
    /// Number of model responses in this turn.
    responses: usize,
}

impl ResponseOutput {
    pub(super) fn new(delivery: Delivery, request: RequestEcho) -> ResponseOutput {
        ResponseOutput {
            delivery,
            request,
            meta: None,
            items: Vec::new(),
            pending: Vec::new(),
            sequence_number: 0,
            positions: BTreeMap::new(),
            renamed: BTreeMap::new(),
            responses: 0,
        }
    }

    /// A model starts to respond.
    pub(super) fn response_started(&mut self) {
        self.positions.clear();
        self.responses += 1;
    }

    /// The id for reasoning of the current model response.
    pub(super) fn reasoning_id(&self, id: String) -> String {
        if self.responses > 1 { item_ids::later_item(self.responses - 1, &id) } else { id }
    }

    pub(super) fn meta(&mut self, meta: &ResponseMeta) {
        if !self.delivery.is_streamed() || self.meta.is_none() {
            self.meta = Some(meta.clone());
        }
    }

    pub(super) fn response_id(&self) -> &str {
        self.meta.as_ref().map_or("", |meta| meta.id.as_str())
    }

    /// The response with this output; `None` if no model responded.
    pub(super) fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Option<Value> {
        let response = self.request.response(self.meta.as_ref()?);
        Some(with_output(response, status, output, usage))
    }

    /// The whole response, and nothing remains; `None` if no model responded.
    pub(super) fn take_response(&mut self, status: &str, usage: Value) -> Option<Value> {
        let response = std::mem::take(&mut self.request).into_response(self.meta.as_ref()?);
        let output = std::mem::take(&mut self.items).into_iter().filter(|item| !item.is_null()).collect();
        Some(with_output(response, status, output, usage))
    }

    /// Adds an event to a stream.
    pub(super) fn emit(&mut self, (kind, fields): ItemEvent) {
        if !self.delivery.is_streamed() {
            return;
        }
        self.start_stream();
        self.push_event(kind, fields);
    }

    pub(super) fn emit_all(&mut self, events: impl IntoIterator<Item = ItemEvent>) {
        for event in events {
            self.emit(event);
        }
    }

    /// A stream begins with two events that hold the response without output.
    pub(super) fn start_stream(&mut self) {
        if self.sequence_number == 0 {
            self.push_response("response.created");
            self.push_response(IN_PROGRESS);
        }
    }

    /// Says once more that the response is being made, if its stream has begun.
    pub(super) fn in_progress_again(&mut self) {
        if self.sequence_number > 0 {
            self.push_response(IN_PROGRESS);
        }
    }

    fn push_response(&mut self, kind: &str) {
        let response = self.response("in_progress", Vec::new(), Value::Null);
        self.push_event(kind, json!({"response": response}));
    }

    /// Adds an event, without starting the stream.
    pub(super) fn push_event(&mut self, kind: &str, fields: Value) {
        self.pending.push(SseEvent::typed(&events::numbered(kind, fields, self.sequence_number)));
        self.sequence_number += 1;
    }

    pub(super) fn take_events(&mut self) -> Vec<SseEvent> {
        std::mem::take(&mut self.pending)
    }

    /// Adds a complete item.
    pub(super) fn item(&mut self, item: Value) {
        if self.delivery.is_streamed() {
            self.emit_all(events::whole(self.items.len(), &item));
        }
        self.items.push(item);
    }

    /// Forwards an event of the provider's stream, with our position and id of its item.
    pub(super) fn forward(&mut self, mut event: Value) {
        let kind = fields::text_of(&event, "type").to_owned();
        if let Some(index) = event.get("output_index").and_then(Value::as_u64) {
            let next = self.items.len();
            let at = *self.positions.entry(index).or_insert(next);
            if at == next {
                self.items.push(Value::Null);
            }
            if let Some(item) = event.get("item").filter(|item| fields::is_reasoning(item)) {
                let id = self.reasoning_id(fields::text_of(item, "id").to_owned());
                self.renamed.insert(at, id);
            }
            if let Some(id) = self.renamed.get(&at) {
                for pointer in ["/item_id", "/item/id"] {
                    if let Some(known) = event.pointer_mut(pointer) {
                        *known = Value::from(id.as_str());
                    }
                }
            }
            if let Some(item) = event.get("item") {
                self.items[at] = item.clone();
            }
            event["output_index"] = Value::from(at);
        }
        self.start_stream();
        remove_fields(&mut event, &["type", "sequence_number"]);
        self.push_event(&kind, event);
    }
}

fn with_output(mut response: Map<String, Value>, status: &str, output: Vec<Value>, usage: Value) -> Value {
    response.insert("status".to_owned(), Value::from(status));
    response.insert("output".to_owned(), Value::Array(output));
    response.insert("usage".to_owned(), usage);
    Value::Object(response)
}
