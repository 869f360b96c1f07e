//! A response as it grows: its items, and the events that tell of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::envelope::RequestEcho;
use super::events::{self, ItemEvent};
use super::{fields, item_ids};
use crate::decoder::ResponseMeta;
use crate::sse::SseEvent;

#[derive(Debug)]
pub(super) struct ResponseOutput {
    is_stream: bool,
    pub repeated: RequestEcho,
    meta: Option<ResponseMeta>,
    /// Null where one was not announced.
    pub items: Vec<Value>,
    /// On their way.
    told: Vec<SseEvent>,
    events: u64,
    /// Where the items of the present answer of the model stand in ours.
    places: BTreeMap<u64, usize>,
    /// Thoughts that are called otherwise here, by their places.
    renamed: BTreeMap<usize, String>,
    /// Answers of the model in this turn.
    answers: usize,
}

impl ResponseOutput {
    pub(super) fn new(is_stream: bool, repeated: RequestEcho) -> ResponseOutput {
        ResponseOutput {
            is_stream,
            repeated,
            meta: None,
            items: Vec::new(),
            told: Vec::new(),
            events: 0,
            places: BTreeMap::new(),
            renamed: BTreeMap::new(),
            answers: 0,
        }
    }

    /// A model begins to answer.
    pub(super) fn response_started(&mut self) {
        self.places.clear();
        self.answers += 1;
    }

    /// What a thought of the present answer is called.
    pub(super) fn reasoning_id(&self, id: String) -> String {
        if self.answers > 1 { item_ids::later_item(self.answers - 1, &id) } else { id }
    }

    pub(super) fn meta(&mut self, meta: &ResponseMeta) {
        if !self.is_stream || self.meta.is_none() {
            self.meta = Some(meta.clone());
        }
    }

    pub(super) fn answer_id(&self) -> &str {
        self.meta.as_ref().map_or("", |meta| meta.id.as_str())
    }

    pub(super) fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Option<Value> {
        let mut response = self.repeated.response(self.meta.as_ref()?);
        response.insert("status".to_owned(), Value::from(status));
        response.insert("output".to_owned(), Value::Array(output));
        response.insert("usage".to_owned(), usage);
        Some(Value::Object(response))
    }

    pub(super) fn tell(&mut self, (kind, fields): ItemEvent) {
        if !self.is_stream {
            return;
        }
        self.begin();
        self.number(kind, fields);
    }

    pub(super) fn tell_all(&mut self, told: impl IntoIterator<Item = ItemEvent>) {
        for told in told {
            self.tell(told);
        }
    }

    /// A stream begins with what is known of the response.
    fn begin(&mut self) {
        if self.events > 0 {
            return;
        }
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", Vec::new(), Value::Null);
            self.number(kind, json!({"response": response}));
        }
    }

    pub(super) fn number(&mut self, kind: &str, fields: Value) {
        self.told.push(SseEvent::typed(&events::numbered(kind, fields, self.events)));
        self.events += 1;
    }

    pub(super) fn taken(&mut self) -> Vec<SseEvent> {
        std::mem::take(&mut self.told)
    }

    /// An item that is whole.
    pub(super) fn item(&mut self, item: Value) {
        if self.is_stream {
            self.tell_all(events::of(self.items.len(), &item));
        }
        self.items.push(item);
    }

    /// An event of the model's, as it came but for its place.
    pub(super) fn adopt(&mut self, mut event: Value) {
        let kind = fields::text_of(&event, "type").to_owned();
        if let Some(index) = event.get("output_index").and_then(Value::as_u64) {
            let next = self.items.len();
            let place = *self.places.entry(index).or_insert(next);
            if place == next {
                self.items.push(Value::Null);
            }
            if let Some(item) = event.get("item").filter(|item| fields::is_reasoning(item)) {
                let id = self.reasoning_id(fields::text_of(item, "id").to_owned());
                self.renamed.insert(place, id);
            }
            if let Some(id) = self.renamed.get(&place) {
                for pointer in ["/item_id", "/item/id"] {
                    if let Some(known) = event.pointer_mut(pointer) {
                        *known = Value::from(id.as_str());
                    }
                }
            }
            if let Some(item) = event.get("item") {
                self.items[place] = item.clone();
            }
            event["output_index"] = Value::from(place);
        }
        self.begin();
        if let Some(fields) = event.as_object_mut() {
            fields.shift_remove("type");
            fields.shift_remove("sequence_number");
        }
        self.number(&kind, event);
    }
}
