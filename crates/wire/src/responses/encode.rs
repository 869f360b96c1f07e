//! What the client gets.

use std::sync::Arc;

use dacapo_replay::{Call, Toolbox};
use serde_json::{Map, Value, json};

use super::envelope::{self, RequestEcho};
use super::output::ResponseOutput;
use super::{events, fields, item_ids};
use crate::decoder::{ModelResponse, ResponseDelta, ResponseMeta};
use crate::encoder::{
    AnswerParts, CallsIssued, EncoderOptions, ProgramFinished, ProgramStarted, ResponseEncoder, ToolsSearched,
};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::reasoning::Reasoning;
use crate::sse::SseEvent;
use crate::turn::ProgramMode;
use crate::usage::TurnUsage;
use crate::wire::{ClientSide, Wire};

#[derive(Debug)]
pub(super) struct ResponsesEncoder {
    options: EncoderOptions,
    /// Knows namespaces.
    toolbox: Option<Arc<Toolbox>>,
    /// The client may send ids in the place of items.
    refers: bool,
    out: ResponseOutput,
    open: Option<OpenItem>,
    /// Some of the present answer of the model has gone out.
    has_streamed: bool,
    incomplete: Option<Value>,
}

/// An item that a model on another wire goes on with.
#[derive(Debug)]
struct OpenItem {
    at: usize,
    id: String,
    is_reasoning: bool,
    text: String,
}

impl ResponsesEncoder {
    pub(super) fn new(options: EncoderOptions) -> ResponsesEncoder {
        ResponsesEncoder {
            out: ResponseOutput::new(options.delivery.is_streamed(), RequestEcho::default()),
            options,
            toolbox: None,
            refers: false,
            open: None,
            has_streamed: false,
            incomplete: None,
        }
    }

    /// For the client that sent this request.
    pub(super) fn for_request(
        options: EncoderOptions,
        body: &Map<String, Value>,
        toolbox: &Arc<Toolbox>,
    ) -> ResponsesEncoder {
        ResponsesEncoder {
            out: ResponseOutput::new(options.delivery.is_streamed(), RequestEcho::of(body)),
            toolbox: Some(Arc::clone(toolbox)),
            refers: body.get("store") != Some(&Value::Bool(false)),
            ..ResponsesEncoder::new(options)
        }
    }

    fn is_same_wire(&self) -> bool {
        self.options.provider.wire() == Wire::Responses
    }

    /// Continues what the model on another wire says or thinks.
    fn go_on(&mut self, is_reasoning: bool, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.is_reasoning != is_reasoning) {
            self.close(None);
            let at = self.out.items.len();
            let id = if is_reasoning {
                self.out.reasoning_id(item_ids::reasoning_item(self.out.answer_id(), at))
            } else {
                item_ids::message_item(self.out.answer_id(), at)
            };
            if is_reasoning {
                self.out.tell(events::added(at, &json!({"id": id, "type": "reasoning", "summary": []})));
                self.out.tell(events::summary_opens(at, &id, 0));
            } else {
                let item =
                    json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
                self.out.tell(events::added(at, &item));
                self.out.tell_all(events::part_opens(at, &id, 0, &events::empty_text()));
            }
            self.out.items.push(Value::Null);
            self.open = Some(OpenItem { at, id, is_reasoning, text: String::new() });
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            let told = if is_reasoning {
                events::summary_delta(open.at, &open.id, 0, text)
            } else {
                events::text_delta(open.at, &open.id, 0, text)
            };
            self.out.tell(told);
        }
    }

    /// Ends the item that is open; `state` is what a thought's provider wants back.
    fn close(&mut self, state: Option<&Reasoning>) {
        let Some(OpenItem { at, id, is_reasoning, text }) = self.open.take() else { return };
        let item = if is_reasoning {
            self.out.tell_all(events::summary_ends(at, &id, 0, &text));
            reasoning_item(&id, &text, state)
        } else {
            let item = message(&id, &text);
            self.out.tell_all(events::part_ends(at, &id, 0, &item["content"][0]));
            item
        };
        self.out.tell(events::done(at, &item));
        self.out.items[at] = item;
    }

    /// The items of an answer that has not been passed on in pieces.
    fn items(&self, response: &ModelResponse) -> Vec<Value> {
        if self.is_same_wire() {
            let output = response.native.get("output").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut calls = 0..;
            let own = |item: Value| {
                if !fields::is_call(&item) {
                    return self.own(item);
                }
                self.direct(&fields::model_call(&item), calls.next().unwrap_or_default())
            };
            return output.into_iter().map(own).collect();
        }
        let (id, place) = (response.meta.id.as_str(), self.out.items.len());
        let mut items = Vec::new();
        let state = Some(&response.message.reasoning).filter(|state| !state.is_empty());
        if state.is_some() || !response.reasoning_text.is_empty() {
            let id = self.out.reasoning_id(item_ids::reasoning_item(id, place));
            items.push(reasoning_item(&id, &response.reasoning_text, state));
        }
        if let Some(text) = &response.message.text {
            items.push(self.own(message(&item_ids::message_item(id, place + items.len()), text)));
        }
        items.extend(self.direct_calls(&response.message.calls));
        items
    }

    /// What led to a program, or to calls that we answer. What the model said aloud right before them is not the
    /// answer.
    fn preamble_items(&self, response: &ModelResponse) -> Vec<Value> {
        let mut items = self.items(response);
        items.retain(|item| !fields::is_call(item));
        let end = items.iter().rposition(|item| !fields::is_message(item)).map_or(0, |last| last + 1);
        items.truncate(end);
        items
    }

    /// Puts into an item's id what a client needs that sends nothing else back.
    fn own(&self, mut item: Value) -> Value {
        let id = match fields::kind(&item) {
            "message" if self.refers => item_ids::text_item(&fields::message_text(&item)),
            "reasoning" => Some(self.out.reasoning_id(fields::text_of(&item, "id").to_owned())),
            _ => None,
        };
        if let Some(id) = id {
            item["id"] = Value::from(id);
        }
        item
    }

    fn direct_calls(&self, calls: &[ModelCall]) -> Vec<Value> {
        calls.iter().enumerate().map(|(number, call)| self.direct(call, number)).collect()
    }

    /// A call that the model made itself, with its number among those of the answer.
    fn direct(&self, call: &ModelCall, number: usize) -> Value {
        // Some providers give their calls no id, but clients need one.
        let id = match call.id.as_str() {
            "" => {
                let of = format!("{} {}", self.out.answer_id(), call.name);
                format!("call_{}", short_id(&of, &call.arguments, number))
            }
            id => id.to_owned(),
        };
        let mut item = if self.is_same_wire() && call.native.is_object() {
            call.native.clone()
        } else {
            fields::written(&id, call)
        };
        item["call_id"] = Value::from(id.as_str());
        if self.refers || fields::text_of(&item, "id").is_empty() {
            item["id"] = Value::from(item_ids::direct_item(call, &id, self.refers));
        }
        item["status"] = Value::from("completed");
        item
    }

    /// A call of a program.
    fn call(&self, id: &str, call: &Call, caller: Option<&str>) -> Value {
        let catalog = self.toolbox.as_ref().map(|toolbox| toolbox.catalog());
        let (namespace, name) = item_ids::namespace_and_name(&call.tool, catalog);
        let mut item = json!({
            "id": item_ids::call_item(call, id, self.refers),
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
    fn response_started(&mut self) {
        self.has_streamed = false;
        self.out.response_started();
    }

    fn meta(&mut self, meta: &ResponseMeta) {
        self.out.meta(meta);
    }

    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent> {
        if !self.has_streamed {
            self.close(None);
        }
        self.has_streamed = true;
        if self.is_same_wire() {
            delta.native.into_iter().for_each(|event| self.out.adopt(event));
            return self.out.taken();
        }
        if !delta.reasoning_text.is_empty() {
            self.go_on(true, &delta.reasoning_text);
        }
        if let Some(state) = &delta.reasoning {
            if self.open.as_ref().is_some_and(|open| open.is_reasoning) {
                self.close(Some(state));
            } else {
                // A thought that nobody can read.
                self.close(None);
                let id = self.out.reasoning_id(item_ids::reasoning_item(self.out.answer_id(), self.out.items.len()));
                self.out.item(reasoning_item(&id, "", Some(state)));
            }
        }
        if !delta.text.is_empty() {
            self.go_on(false, &delta.text);
        }
        self.out.taken()
    }

    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent> {
        self.close(None);
        let run = program.state.run();
        self.out.item(json!({
            "id": item_ids::program_item(run, program.sealed, self.refers),
            "type": "program",
            "call_id": item_ids::program_call(run),
            "code": program.state.code,
            "fingerprint": program.sealed,
        }));
        self.out.taken()
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
        self.out.taken()
    }

    fn preamble(&mut self, response: &ModelResponse) -> Vec<SseEvent> {
        self.close(None);
        if !self.has_streamed {
            self.preamble_items(response).into_iter().for_each(|item| self.out.item(item));
        }
        self.has_streamed = true;
        self.out.taken()
    }

    fn tools_searched(&mut self, searched: &ToolsSearched<'_>) -> Vec<SseEvent> {
        let mut events = self.preamble(searched.response);
        let (call, found) = item_ids::search_items(searched.seed, searched.number);
        let tools = self.out.repeated.functions(searched.found);
        let item =
            |id, kind| json!({"id": id, "type": kind, "execution": "server", "call_id": null, "status": "completed"});
        let mut search = item(call, "tool_search_call");
        search["arguments"] = json!({"query": searched.query});
        let mut output = item(found, "tool_search_output");
        output["tools"] = Value::Array(tools);
        self.out.item(search);
        self.out.item(output);
        events.extend(self.out.taken());
        events
    }

    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent> {
        self.close(None);
        if let Some(response) = issued.response.filter(|_| !self.has_streamed) {
            self.preamble_items(response).into_iter().for_each(|item| self.out.item(item));
        }
        let caller = issued.program.or_else(|| item_ids::program_call(issued.state.run()));
        let is_explicit = self.options.mode == ProgramMode::Explicit;
        let caller = is_explicit.then_some(caller.as_str());
        for (id, call) in issued.ids.iter().zip(issued.calls) {
            self.out.item(self.call(id, call, caller));
        }
        for item in self.direct_calls(issued.direct) {
            self.out.item(item);
        }
        self.out.taken()
    }

    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent> {
        self.close(None);
        let items = if self.has_streamed { self.direct_calls(&response.message.calls) } else { self.items(response) };
        for item in items.into_iter().filter(|item| parts == AnswerParts::All || !fields::is_call(item)) {
            self.out.item(item);
        }
        self.incomplete = envelope::incomplete(response);
        self.out.taken()
    }

    fn finish(&mut self, usage: &TurnUsage) -> Vec<SseEvent> {
        let kind = if self.incomplete.is_some() { "response.incomplete" } else { "response.completed" };
        let response = self.body(usage);
        self.out.tell((kind, json!({"response": response})));
        self.out.taken()
    }

    fn body(&mut self, usage: &TurnUsage) -> Option<Value> {
        self.close(None);
        let status = if self.incomplete.is_some() { "incomplete" } else { "completed" };
        let output = self.out.items.iter().filter(|item| !item.is_null()).cloned().collect();
        let usage = Value::Object(usage.for_client(ClientSide::RESPONSES, self.options.provider));
        let mut response = self.out.response(status, output, usage)?;
        if let Some(details) = &self.incomplete {
            response["incomplete_details"] = details.clone();
        }
        Some(response)
    }

    fn error(&mut self, body: Value) -> Vec<SseEvent> {
        self.out.number("error", envelope::error(&body));
        self.out.taken()
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
