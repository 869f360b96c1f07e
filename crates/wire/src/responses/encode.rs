//! Encodes responses for clients.

use std::sync::Arc;

use dacapo_catalog::SearchText;
use dacapo_replay::{Call, Toolbox, json_text};
use serde_json::{Map, Value, json};

use super::envelope::{self, RequestEcho};
use super::item_ids::SentItems;
use super::output::ResponseOutput;
use super::server_calls::OpenServerCall;
use super::{events, fields, item_ids, server_calls};
use crate::decoder::{ModelResponse, ResponseDelta, ResponseMeta};
use crate::encoder::{
    AnswerParts, CUT_OFF, CallsIssued, EncoderOptions, ItemIds, ProgramFinished, ProgramStarted, ResponseEncoder,
    ServerCall, ServerCallEnd, ToolsSearched,
};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::reasoning::Reasoning;
use crate::server_tools::ServerToolList;
use crate::sse::SseEvent;
use crate::tool_lists::ListText;
use crate::turn::ProgramMode;
use crate::usage::TurnUsage;
use crate::wire::{ClientSide, ProviderSide, Wire};

#[derive(Debug)]
pub(super) struct ResponsesEncoder {
    options: EncoderOptions,
    /// Has the namespaces of tools.
    toolbox: Option<Arc<Toolbox>>,
    sent_items: SentItems,
    out: ResponseOutput,
    open: Option<OpenItem>,
    server_calls: Vec<OpenServerCall>,
    /// Deltas of the current model response have been sent.
    has_streamed: bool,
    incomplete: Option<Value>,
}

/// An item that is being streamed from a model on another wire.
#[derive(Debug)]
struct OpenItem {
    at: usize,
    id: String,
    kind: OpenItemKind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenItemKind {
    Reasoning,
    Message,
}

impl ResponsesEncoder {
    pub(super) fn new(options: EncoderOptions) -> ResponsesEncoder {
        ResponsesEncoder {
            out: ResponseOutput::new(options.delivery, RequestEcho::default()),
            options,
            toolbox: None,
            sent_items: SentItems::Whole,
            open: None,
            server_calls: Vec::new(),
            has_streamed: false,
            incomplete: None,
        }
    }

    /// For the client that sent this request.
    pub(super) fn for_request(
        options: EncoderOptions,
        body: &Map<String, Value>,
        known_tools: Option<Arc<ListText>>,
        toolbox: &Arc<Toolbox>,
    ) -> ResponsesEncoder {
        // A stream repeats them in several events, as values.
        let known_tools = known_tools.filter(|_| !options.delivery.is_streamed());
        ResponsesEncoder {
            out: ResponseOutput::new(options.delivery, RequestEcho::of(body, known_tools)),
            toolbox: Some(Arc::clone(toolbox)),
            sent_items: match options.item_ids {
                ItemIds::Carriers => SentItems::of(body),
                ItemIds::Names => SentItems::Whole,
            },
            ..ResponsesEncoder::new(options)
        }
    }

    fn status(&self) -> &'static str {
        if self.incomplete.is_some() { "incomplete" } else { "completed" }
    }

    fn usage(&self, usage: &TurnUsage) -> Value {
        Value::Object(usage.for_client(ClientSide::RESPONSES, self.options.provider))
    }

    /// Says why a response is not complete.
    fn with_details(&self, mut response: Value) -> Value {
        if let Some(details) = &self.incomplete {
            response["incomplete_details"] = details.clone();
        }
        response
    }

    fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Responses
    }

    /// Streams text of a model on another wire. A new item begins if the kind changes.
    fn stream_text(&mut self, kind: OpenItemKind, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(None);
            let open = self.start_item(kind);
            self.out.items.push(Value::Null);
            self.open = Some(open);
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            let event = match kind {
                OpenItemKind::Reasoning => events::summary_delta(open.at, &open.id, 0, text),
                OpenItemKind::Message => events::text_delta(open.at, &open.id, 0, text),
            };
            self.out.emit(event);
        }
    }

    fn start_item(&mut self, kind: OpenItemKind) -> OpenItem {
        let at = self.out.items.len();
        let id = match kind {
            OpenItemKind::Reasoning => {
                let id = self.out.reasoning_id(item_ids::reasoning_item(self.out.response_id(), at));
                self.out.emit(events::added(at, &json!({"id": id, "type": "reasoning", "summary": []})));
                self.out.emit(events::summary_added(at, &id, 0));
                id
            }
            OpenItemKind::Message => {
                let id = item_ids::message_item(self.out.response_id(), at);
                let item =
                    json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
                self.out.emit(events::added(at, &item));
                self.out.emit_all(events::part_added(at, &id, 0, &events::empty_text()));
                id
            }
        };
        OpenItem { at, id, kind, text: String::new() }
    }

    /// Ends the open item. `state` is what the provider of a reasoning item wants back.
    fn close(&mut self, state: Option<&Reasoning>) {
        let Some(OpenItem { at, id, kind, text }) = self.open.take() else { return };
        let item = match kind {
            OpenItemKind::Reasoning => {
                self.out.emit_all(events::summary_done(at, &id, 0, &text));
                reasoning_item(&id, &text, state)
            }
            OpenItemKind::Message => {
                let item = message(&id, &text);
                self.out.emit_all(events::part_done(at, &id, 0, &item["content"][0]));
                item
            }
        };
        self.out.emit(events::done(at, &item));
        self.out.items[at] = item;
    }

    /// The items of a response that has not been streamed.
    fn items(&self, response: &ModelResponse) -> Vec<Value> {
        if self.is_same_wire() {
            let output = response.native.get("output").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut calls = 0..;
            let item = |item: Value| {
                if !fields::is_call(&item) {
                    return self.with_own_id(item);
                }
                self.direct_call(&fields::model_call(&item), calls.next().unwrap_or_default())
            };
            return output.into_iter().map(item).collect();
        }
        let (id, at) = (response.meta.id.as_str(), self.out.items.len());
        let mut items = Vec::new();
        let state = Some(&response.message.reasoning).filter(|state| !state.is_empty());
        if state.is_some() || !response.reasoning_text.is_empty() {
            let id = self.out.reasoning_id(item_ids::reasoning_item(id, at));
            items.push(reasoning_item(&id, &response.reasoning_text, state));
        }
        if let Some(text) = &response.message.text {
            items.push(self.with_own_id(message(&item_ids::message_item(id, at + items.len()), text)));
        }
        items.extend(self.direct_calls(&response.message.calls));
        items
    }

    /// Text, reasoning and server-tool calls before a program or a search.
    fn preamble_items(&self, response: &ModelResponse) -> Vec<Value> {
        let mut items = self.items(response);
        let is_blank = |item: &Value| fields::is_message(item) && fields::message_text(item).trim().is_empty();
        items.retain(|item| !fields::is_call(item) && !is_blank(item));
        if !self.options.shows_preamble(response) {
            let end = items.iter().rposition(|item| !fields::is_message(item)).map_or(0, |last| last + 1);
            items.truncate(end);
        }
        items
    }

    /// Replaces the id of an item, so that the id alone brings the item back.
    fn with_own_id(&self, mut item: Value) -> Value {
        let id = match fields::kind(&item) {
            "message" if self.sent_items == SentItems::ById => item_ids::text_item(&fields::message_text(&item)),
            "reasoning" => Some(self.out.reasoning_id(fields::text_of(&item, "id").to_owned())),
            _ => None,
        };
        if let Some(id) = id {
            item["id"] = Value::from(id);
        }
        item
    }

    fn direct_calls(&self, calls: &[ModelCall]) -> Vec<Value> {
        calls.iter().enumerate().map(|(number, call)| self.direct_call(call, number)).collect()
    }

    /// A direct call of the model. `number` is its position among the calls of the response.
    fn direct_call(&self, call: &ModelCall, number: usize) -> Value {
        // Some providers give their calls no id, but clients need one.
        let id = match call.id.as_str() {
            "" => {
                let name = format!("{} {}", self.out.response_id(), call.name);
                format!("call_{}", short_id(&name, &call.arguments, number))
            }
            id => id.to_owned(),
        };
        let mut item = if self.is_same_wire() && call.native.is_object() {
            call.native.clone()
        } else {
            fields::write_call(&id, call)
        };
        item["call_id"] = Value::from(id.as_str());
        if self.sent_items == SentItems::ById || fields::text_of(&item, "id").is_empty() {
            item["id"] = Value::from(item_ids::direct_item(call, &id, self.sent_items));
        }
        item["status"] = Value::from("completed");
        item
    }

    /// A call of a program.
    fn program_call(&self, id: &str, call: &Call, caller: Option<&str>) -> Value {
        let catalog = self.toolbox.as_ref().map(|toolbox| toolbox.catalog());
        let (namespace, name) = item_ids::namespace_and_name(&call.tool, catalog);
        let mut item = json!({
            "id": item_ids::call_item(call, id, self.sent_items),
            "type": "function_call",
            "status": "completed",
            "arguments": call.args.to_string(),
            "call_id": id,
            "name": name,
        });
        if let Some(namespace) = namespace {
            item["namespace"] = Value::from(namespace);
        }
        if let Some(caller) = caller {
            item["caller"] = json!({"type": "program", "caller_id": caller});
        }
        item
    }
}

impl ResponseEncoder for ResponsesEncoder {
    fn provider_changed(&mut self, provider: ProviderSide) {
        self.options.provider = provider;
    }

    fn response_started(&mut self) {
        self.has_streamed = false;
        self.out.response_started();
    }

    fn meta(&mut self, meta: &ResponseMeta) {
        self.out.meta(meta);
    }

    fn open(&mut self) -> Vec<SseEvent> {
        self.out.start_stream();
        self.out.take_events()
    }

    fn keep_alive(&mut self) -> Option<SseEvent> {
        self.out.in_progress_again();
        self.out.take_events().pop()
    }

    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent> {
        if !self.has_streamed {
            self.close(None);
        }
        self.has_streamed = true;
        if self.is_same_wire() {
            delta.native.into_iter().for_each(|event| self.out.forward(event));
            return self.out.take_events();
        }
        if !delta.reasoning_text.is_empty() {
            self.stream_text(OpenItemKind::Reasoning, &delta.reasoning_text);
        }
        if let Some(state) = &delta.reasoning {
            if self.open.as_ref().is_some_and(|open| open.kind == OpenItemKind::Reasoning) {
                self.close(Some(state));
            } else {
                // Reasoning without readable text.
                self.close(None);
                let id = self.out.reasoning_id(item_ids::reasoning_item(self.out.response_id(), self.out.items.len()));
                self.out.item(reasoning_item(&id, "", Some(state)));
            }
        }
        if !delta.text.is_empty() {
            self.stream_text(OpenItemKind::Message, &delta.text);
        }
        self.out.take_events()
    }

    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent> {
        self.close(None);
        let run = program.state.run();
        self.out.item(json!({
            "id": item_ids::program_item(run, program.sealed, self.sent_items),
            "type": "program",
            "call_id": item_ids::program_call(run),
            "code": program.state.code,
            "fingerprint": program.sealed,
        }));
        self.out.take_events()
    }

    fn tools_listed(&mut self, list: &ServerToolList<'_>) -> Vec<SseEvent> {
        let item = server_calls::list_item(list);
        self.out.emit_all(server_calls::list_events(self.out.items.len(), &item));
        self.out.items.push(item);
        self.out.take_events()
    }

    fn server_call_started(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent> {
        self.close(None);
        let (at, item) = (self.out.items.len(), server_calls::call_item(call));
        self.out.emit_all(server_calls::start_events(at, &item));
        self.out.items.push(Value::Null);
        self.server_calls.push(OpenServerCall { at, item });
        self.out.take_events()
    }

    fn approval_requested(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent> {
        self.close(None);
        self.out.item(server_calls::approval_item(call));
        self.out.take_events()
    }

    fn server_call_ended(&mut self, call: &ServerCall<'_>, end: ServerCallEnd<'_>) -> Vec<SseEvent> {
        let id = item_ids::server_call_item(&call.id());
        let open = self.server_calls.iter_mut().find(|open| fields::text_of(&open.item, "id") == id);
        if let Some(open) = open {
            open.end(end);
        }
        // Clients expect items to end in their order.
        let count = self.server_calls.iter().take_while(|open| open.has_ended()).count();
        for open in self.server_calls.drain(..count) {
            self.out.emit_all(open.end_events());
            self.out.items[open.at] = open.item;
        }
        self.out.take_events()
    }

    fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Vec<SseEvent> {
        self.close(None);
        let program = finished.program.or_else(|| item_ids::program_call(finished.state.run()));
        let status = if finished.shown["status"] == "error" { "incomplete" } else { "completed" };
        self.out.item(json!({
            "id": item_ids::result_item(&program),
            "type": "program_output",
            "call_id": program,
            "result": finished.shown.to_string(),
            "status": status,
        }));
        self.out.take_events()
    }

    fn preamble(&mut self, response: &ModelResponse) -> Vec<SseEvent> {
        self.close(None);
        if !self.has_streamed {
            self.preamble_items(response).into_iter().for_each(|item| self.out.item(item));
        }
        self.has_streamed = true;
        self.out.take_events()
    }

    fn tools_searched(&mut self, searched: &ToolsSearched<'_>) -> Vec<SseEvent> {
        let mut events = self.preamble(searched.response);
        let (call, found) = item_ids::search_items(searched.seed, searched.number);
        let tools = self.out.request.functions(searched.found);
        let item =
            |id, kind| json!({"id": id, "type": kind, "execution": "server", "call_id": null, "status": "completed"});
        let mut search = item(call, "tool_search_call");
        search["arguments"] = match searched.text {
            SearchText::Query(query) => json!({"query": query}),
            SearchText::Queries(queries) => json!({"queries": queries}),
        };
        let mut output = item(found, "tool_search_output");
        output["tools"] = Value::Array(tools);
        self.out.item(search);
        self.out.item(output);
        events.extend(self.out.take_events());
        events
    }

    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent> {
        self.close(None);
        let caller = issued.program.or_else(|| item_ids::program_call(issued.state.run()));
        let is_explicit = self.options.mode == ProgramMode::Explicit;
        let caller = is_explicit.then_some(caller.as_str());
        for (id, call) in issued.ids.iter().zip(issued.calls) {
            self.out.item(self.program_call(id, call, caller));
        }
        for item in self.direct_calls(issued.direct) {
            self.out.item(item);
        }
        self.out.take_events()
    }

    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent> {
        self.close(None);
        let items = if self.has_streamed { self.direct_calls(&response.message.calls) } else { self.items(response) };
        for item in items.into_iter().filter(|item| parts == AnswerParts::All || !fields::is_call(item)) {
            self.out.item(item);
        }
        let has_no_text = response.message.text.as_deref().is_none_or(|text| text.trim().is_empty());
        if parts == AnswerParts::Text && !response.message.calls.is_empty() && has_no_text {
            let id = item_ids::message_item(self.out.response_id(), self.out.items.len());
            self.out.item(self.with_own_id(message(&id, CUT_OFF)));
        }
        self.incomplete = envelope::incomplete(response);
        self.out.take_events()
    }

    fn finish(&mut self, usage: &TurnUsage) -> Vec<SseEvent> {
        let kind = if self.incomplete.is_some() { "response.incomplete" } else { "response.completed" };
        self.close(None);
        let output = self.out.items.iter().filter(|item| !item.is_null()).cloned().collect();
        let response = self.out.response(self.status(), output, self.usage(usage));
        let response = response.map(|response| self.with_details(response));
        self.out.emit((kind, json!({"response": response})));
        self.out.take_events()
    }

    fn body(&mut self, usage: &TurnUsage) -> Option<Value> {
        self.close(None);
        let usage = self.usage(usage);
        let response = self.out.take_response(self.status(), usage);
        response.map(|response| self.with_details(response))
    }

    fn body_text(&mut self, usage: &TurnUsage) -> Option<String> {
        let known_tools = self.out.request.take_known_tools();
        let body = self.body(usage)?;
        Some(match known_tools {
            Some(tools) => envelope::json_text_with_tools(&body, &tools),
            None => json_text(&body),
        })
    }

    fn error(&mut self, body: Value) -> Vec<SseEvent> {
        self.out.push_event("error", envelope::error(&body));
        self.out.take_events()
    }
}

fn reasoning_item(id: &str, text: &str, state: Option<&Reasoning>) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": text}]) };
    let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
    if let Some(state) = state {
        item["encrypted_content"] = Value::from(state.to_carried());
    }
    item
}

fn message(id: &str, text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part]})
}
