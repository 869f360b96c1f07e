//! What the client gets.

use std::sync::Arc;

use dacapo_replay::{Call, Toolbox};
use serde_json::{Map, Value, json};

use super::around::{self, Repeated};
use super::output::Output;
use super::{events, fields, marks};
use crate::carrier;
use crate::ids::short_id;
use crate::said::{Head, Heard, Said};
use crate::saying::ModelCall;
use crate::speaker::{Announced, Ended, Handing, Manner, Passed, Searched, Speaker};
use crate::sse::Event;
use crate::usage::Usage;
use crate::wire::Wire;

#[derive(Debug)]
pub(super) struct ResponsesSpeaker {
    manner: Manner,
    /// Knows namespaces.
    toolbox: Option<Arc<Toolbox>>,
    /// The client may send ids in the place of items.
    refers: bool,
    out: Output,
    open: Option<Open>,
    /// Some of the present answer of the model has gone out.
    has_passed: bool,
    incomplete: Option<Value>,
}

/// An item that a model on another wire goes on with.
#[derive(Debug)]
struct Open {
    at: usize,
    id: String,
    is_thought: bool,
    text: String,
}

impl ResponsesSpeaker {
    pub(super) fn new(manner: Manner) -> ResponsesSpeaker {
        ResponsesSpeaker {
            out: Output::new(manner.is_stream, Repeated::default()),
            manner,
            toolbox: None,
            refers: false,
            open: None,
            has_passed: false,
            incomplete: None,
        }
    }

    /// For the client that sent this request.
    pub(super) fn answering(manner: Manner, body: &Map<String, Value>, toolbox: &Arc<Toolbox>) -> ResponsesSpeaker {
        ResponsesSpeaker {
            out: Output::new(manner.is_stream, Repeated::of(body)),
            toolbox: Some(Arc::clone(toolbox)),
            refers: body.get("store") != Some(&Value::Bool(false)),
            ..ResponsesSpeaker::new(manner)
        }
    }

    fn is_same_wire(&self) -> bool {
        self.manner.upstream == Wire::Responses
    }

    /// Continues what the model on another wire says or thinks.
    fn go_on(&mut self, is_thought: bool, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.is_thought != is_thought) {
            self.close(None);
            let at = self.out.items.len();
            let id = if is_thought {
                self.out.thought_id(marks::reasoning_item(self.out.answer_id(), at))
            } else {
                marks::message_item(self.out.answer_id(), at)
            };
            if is_thought {
                self.out.tell(events::added(at, &json!({"id": id, "type": "reasoning", "summary": []})));
                self.out.tell(events::summary_opens(at, &id, 0));
            } else {
                let item =
                    json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
                self.out.tell(events::added(at, &item));
                self.out.tell_all(events::part_opens(at, &id, 0, &events::empty_text()));
            }
            self.out.items.push(Value::Null);
            self.open = Some(Open { at, id, is_thought, text: String::new() });
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            let told = if is_thought {
                events::thought(open.at, &open.id, 0, text)
            } else {
                events::text_delta(open.at, &open.id, 0, text)
            };
            self.out.tell(told);
        }
    }

    /// Ends the item that is open; `opaque` is what a thought's provider wants back.
    fn close(&mut self, opaque: Option<&Map<String, Value>>) {
        let Some(Open { at, id, is_thought, text }) = self.open.take() else { return };
        let item = if is_thought {
            self.out.tell_all(events::summary_ends(at, &id, 0, &text));
            thought(&id, &text, opaque)
        } else {
            let item = message(&id, &text);
            self.out.tell_all(events::part_ends(at, &id, 0, &item["content"][0]));
            item
        };
        self.out.tell(events::done(at, &item));
        self.out.items[at] = item;
    }

    /// The items of an answer that has not been passed on in pieces.
    fn items(&self, said: &Said) -> Vec<Value> {
        if self.is_same_wire() {
            let output = said.native.get("output").and_then(Value::as_array).cloned().unwrap_or_default();
            let mut calls = 0..;
            let own = |item: Value| {
                if !fields::is_call(&item) {
                    return self.own(item);
                }
                self.direct(&fields::model_call(&item), calls.next().unwrap_or_default())
            };
            return output.into_iter().map(own).collect();
        }
        let (id, place) = (said.head.id.as_str(), self.out.items.len());
        let mut items = Vec::new();
        let opaque = Some(&said.saying.opaque).filter(|opaque| !opaque.is_empty());
        if opaque.is_some() || !said.reasoning.is_empty() {
            let id = self.out.thought_id(marks::reasoning_item(id, place));
            items.push(thought(&id, &said.reasoning, opaque));
        }
        if let Some(text) = &said.saying.text {
            items.push(self.own(message(&marks::message_item(id, place + items.len()), text)));
        }
        items.extend(self.direct_calls(&said.saying.calls));
        items
    }

    /// What led to a program, or to calls that we answer. What the model said aloud right before them is not the
    /// answer.
    fn led_to(&self, said: &Said) -> Vec<Value> {
        let mut items = self.items(said);
        items.retain(|item| !fields::is_call(item));
        let end = items.iter().rposition(|item| !fields::is_message(item)).map_or(0, |last| last + 1);
        items.truncate(end);
        items
    }

    /// Puts into an item's id what a client needs that sends nothing else back.
    fn own(&self, mut item: Value) -> Value {
        let id = match fields::kind(&item) {
            "message" if self.refers => marks::text_item(&fields::said_text(&item)),
            "reasoning" => Some(self.out.thought_id(fields::text_of(&item, "id").to_owned())),
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
            item["id"] = Value::from(marks::direct_item(call, &id, self.refers));
        }
        item["status"] = Value::from("completed");
        item
    }

    /// A call of a program.
    fn call(&self, id: &str, call: &Call, caller: Option<&str>) -> Value {
        let catalog = self.toolbox.as_ref().map(|toolbox| toolbox.catalog());
        let (namespace, name) = marks::namespace_and_name(&call.tool, catalog);
        let mut item = json!({
            "id": marks::call_item(call, id, self.refers),
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

impl Speaker for ResponsesSpeaker {
    fn begins(&mut self) {
        self.has_passed = false;
        self.out.begins();
    }

    fn head(&mut self, head: &Head) {
        self.out.head(head);
    }

    fn pass(&mut self, heard: Heard) -> Vec<Event> {
        if !self.has_passed {
            self.close(None);
        }
        self.has_passed = true;
        if self.is_same_wire() {
            heard.native.into_iter().for_each(|event| self.out.adopt(event));
            return self.out.taken();
        }
        if !heard.reasoning.is_empty() {
            self.go_on(true, &heard.reasoning);
        }
        if let Some(opaque) = &heard.opaque {
            if self.open.as_ref().is_some_and(|open| open.is_thought) {
                self.close(Some(opaque));
            } else {
                // A thought that nobody can read.
                self.close(None);
                let id = self.out.thought_id(marks::reasoning_item(self.out.answer_id(), self.out.items.len()));
                self.out.item(thought(&id, "", Some(opaque)));
            }
        }
        if !heard.text.is_empty() {
            self.go_on(false, &heard.text);
        }
        self.out.taken()
    }

    fn program(&mut self, program: &Announced<'_>) -> Vec<Event> {
        self.close(None);
        let run = program.state.run();
        self.out.item(json!({
            "id": marks::program_item(run, program.sealed, self.refers),
            "type": "program",
            "call_id": marks::program_call(run),
            "code": program.state.code,
            "fingerprint": program.sealed,
        }));
        self.out.taken()
    }

    fn result(&mut self, ended: &Ended<'_>) -> Vec<Event> {
        self.close(None);
        let program = match ended.program {
            "" => marks::program_call(ended.state.run()),
            known => known.to_owned(),
        };
        let status = if ended.shown["status"] == "error" { "incomplete" } else { "completed" };
        self.out.item(json!({
            "id": marks::result_item(&program),
            "type": "program_output",
            "call_id": program,
            "result": ended.shown.to_string(),
            "status": status,
        }));
        self.out.taken()
    }

    fn aside(&mut self, said: &Said) -> Vec<Event> {
        self.close(None);
        if !self.has_passed {
            self.led_to(said).into_iter().for_each(|item| self.out.item(item));
        }
        self.has_passed = true;
        self.out.taken()
    }

    fn searched(&mut self, searched: &Searched<'_>) -> Vec<Event> {
        let mut events = self.aside(searched.said);
        let (call, found) = marks::search_items(searched.seed, searched.number);
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

    fn calls(&mut self, handing: &Handing<'_>) -> Vec<Event> {
        self.close(None);
        if let Some(said) = handing.said.filter(|_| !self.has_passed) {
            self.led_to(said).into_iter().for_each(|item| self.out.item(item));
        }
        let caller = match handing.program {
            "" => marks::program_call(handing.state.run()),
            known => known.to_owned(),
        };
        let caller = self.manner.explicit.then_some(caller.as_str());
        for (id, call) in handing.ids.iter().zip(handing.calls) {
            self.out.item(self.call(id, call, caller));
        }
        for item in self.direct_calls(handing.direct) {
            self.out.item(item);
        }
        self.out.taken()
    }

    fn answer(&mut self, said: &Said, passed: Passed) -> Vec<Event> {
        self.close(None);
        let items = if self.has_passed { self.direct_calls(&said.saying.calls) } else { self.items(said) };
        for item in items.into_iter().filter(|item| passed == Passed::All || !fields::is_call(item)) {
            self.out.item(item);
        }
        self.incomplete = around::incomplete(said);
        self.out.taken()
    }

    fn finish(&mut self, usage: &Usage) -> Vec<Event> {
        let kind = if self.incomplete.is_some() { "response.incomplete" } else { "response.completed" };
        let response = self.body(usage);
        self.out.tell((kind, json!({"response": response})));
        self.out.taken()
    }

    fn body(&mut self, usage: &Usage) -> Option<Value> {
        self.close(None);
        let status = if self.incomplete.is_some() { "incomplete" } else { "completed" };
        let output = self.out.items.iter().filter(|item| !item.is_null()).cloned().collect();
        let usage = Value::Object(usage.told(Wire::Responses, self.manner.upstream));
        let mut response = self.out.response(status, output, usage)?;
        if let Some(details) = &self.incomplete {
            response["incomplete_details"] = details.clone();
        }
        Some(response)
    }

    fn fail(&mut self, body: Value) -> Vec<Event> {
        self.out.number("error", around::error(&body));
        self.out.taken()
    }
}

fn thought(id: &str, text: &str, opaque: Option<&Map<String, Value>>) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": text}]) };
    let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
    if let Some(opaque) = opaque {
        item["encrypted_content"] = Value::from(carrier::wrap(opaque));
    }
    item
}

fn message(id: &str, text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant", "content": [part]})
}
