//! What the client gets.

use serde_json::{Map, Value, json};

use super::draft::{Draft, reasoning_content, redacted, thinking};
use super::{fields, program};
use crate::carrier;
use crate::ids::short_id;
use crate::said::{Finish, Head, Heard, Said};
use crate::saying::{ModelCall, Saying};
use crate::seal::Sealer;
use crate::speaker::{Announced, CUT, Ended, Handing, Manner, Passed, Searched, Speaker};
use crate::sse::Event;
use crate::usage::Usage;
use crate::wire::Wire;

#[derive(Debug)]
pub(super) struct MessagesSpeaker {
    draft: Draft,
    /// What the client calls the program of the present answer of the model.
    announced: Option<String>,
    /// Its block, until what led to it is told.
    waiting: Option<Value>,
    stop_reason: &'static str,
    /// How the provider says that its message ended.
    ending: Map<String, Value>,
    /// Some of the present answer of the model has gone out.
    has_passed: bool,
    /// Its texts that have, or have begun to.
    texts: usize,
    /// What it said before its searches has.
    has_led: bool,
    /// Searches of the present answer of the model.
    searches: usize,
}

/// Of a message, what speakers make themselves.
const MESSAGE: [&str; 6] = ["id", "type", "role", "model", "content", "usage"];
/// In streams it stands beside the end of the message, not in it.
const BESIDE: &str = "context_management";

impl MessagesSpeaker {
    pub(super) fn new(manner: Manner) -> MessagesSpeaker {
        MessagesSpeaker {
            draft: Draft::new(manner),
            announced: None,
            waiting: None,
            stop_reason: "end_turn",
            ending: Map::new(),
            has_passed: false,
            texts: 0,
            has_led: false,
            searches: 0,
        }
    }

    /// All that the model said, without calls.
    fn said(&self, said: &Said) -> Vec<Value> {
        if self.draft.is_same_wire() {
            return native_content(said)
                .iter()
                .filter(|block| fields::kind(block) != fields::TOOL_USE)
                .cloned()
                .collect();
        }
        let text = said.saying.text.as_deref().map(fields::text_block);
        self.thoughts(said).into_iter().chain(text).collect()
    }

    /// What led to a program: thoughts, and what the provider did itself. Text is in the program's state.
    fn thoughts(&self, said: &Said) -> Vec<Value> {
        if self.draft.is_same_wire() {
            return native_content(said).iter().filter(|block| is_thought_or_deed(block)).cloned().collect();
        }
        foreign_thoughts(&said.reasoning, &said.saying.opaque)
    }

    /// The same, as far as a program's state has it.
    fn thoughts_in(&self, saying: &Saying) -> Vec<Value> {
        if self.draft.is_same_wire() {
            let blocks = saying.opaque.get(fields::BLOCKS).and_then(Value::as_array).into_iter().flatten();
            return blocks.filter(|block| is_thought_or_deed(block)).cloned().collect();
        }
        let text = saying.opaque.get("reasoning_content").and_then(Value::as_str);
        foreign_thoughts(text.unwrap_or_default(), &saying.opaque)
    }

    fn tell(&mut self, blocks: Vec<Value>) -> Vec<Event> {
        blocks.into_iter().flat_map(|block| self.draft.block(block)).collect()
    }

    /// How the message ends, the same in pieces and as a whole.
    fn end(&self, message: &mut Map<String, Value>) {
        message.insert("stop_reason".to_owned(), Value::from(self.stop_reason));
        message.insert("stop_sequence".to_owned(), Value::Null);
        message.extend(self.ending.clone());
        self.draft.contain(message);
    }

    /// Has to be told as a whole.
    fn is_untold(&self) -> bool {
        !self.has_led && (!self.draft.manner.is_stream || !self.has_passed)
    }

    /// What the model said before it searched: no id carries it.
    fn lead_to_searches(&mut self, said: &Said) -> Vec<Event> {
        let mut events = self.draft.close(Some(&said.saying.opaque));
        let mut blocks = self.said(said);
        if !self.is_untold() {
            // Text at the end may have been held back, for what could have been a program.
            blocks = blocks.into_iter().filter(|block| fields::kind(block) == "text").skip(self.texts).collect();
        }
        events.extend(self.tell(blocks));
        self.has_led = true;
        events
    }
}

impl Speaker for MessagesSpeaker {
    fn begins(&mut self) {
        self.has_passed = false;
        self.texts = 0;
        self.has_led = false;
        self.searches = 0;
        self.draft.begins();
    }

    fn head(&mut self, head: &Head) {
        if !self.draft.manner.is_stream || self.draft.head.is_none() {
            self.draft.head = Some(head.clone());
        }
    }

    fn pass(&mut self, heard: Heard) -> Vec<Event> {
        self.has_passed = true;
        if self.draft.is_same_wire() {
            let begins = |event: &Value| fields::kind(event) == "content_block_start";
            self.texts += usize::from(heard.is_text && heard.native.as_ref().is_some_and(begins));
            return heard.native.map_or_else(Vec::new, |event| self.draft.adopted(event));
        }
        self.texts = self.texts.max(usize::from(!heard.text.is_empty()));
        self.draft.translated(&heard)
    }

    fn program(&mut self, program: &Announced<'_>) -> Vec<Event> {
        let id = if program.is_finished {
            fields::sealed_program_id(program.sealed)
        } else {
            fields::program_id(program.state.run())
        };
        let block = program::written(&id, &program.state.code);
        self.announced = Some(id);
        let said = program.state.sayings.last();
        let mut events = self.draft.close(said.map(|saying| &saying.opaque));
        if self.is_untold() {
            if !program.is_finished {
                // Its calls come with all that the model said.
                self.waiting = Some(block);
                return events;
            }
            let thoughts = said.map(|saying| self.thoughts_in(saying)).unwrap_or_default();
            events.extend(self.tell(thoughts));
        }
        events.extend(self.draft.block(block));
        events
    }

    fn result(&mut self, ended: &Ended<'_>) -> Vec<Event> {
        let announced = self.announced.take();
        let id = match ended.program {
            "" => announced.unwrap_or_else(|| fields::program_id(ended.state.run())),
            known => known.to_owned(),
        };
        self.draft.block(program::result(&id, ended.shown))
    }

    fn searched(&mut self, searched: &Searched<'_>) -> Vec<Event> {
        let mut events = if self.has_led { Vec::new() } else { self.lead_to_searches(searched.said) };
        let id = fields::search_id(&short_id(searched.seed, searched.query, searched.number), self.searches);
        self.searches += 1;
        let key = if searched.tool.ends_with("regex") { "pattern" } else { "query" };
        let mut input = Map::from_iter([(key.to_owned(), Value::from(searched.query))]);
        input.extend(searched.limit.map(|limit| ("limit".to_owned(), Value::from(limit))));
        let found = searched.found.iter().map(|name| json!({"type": "tool_reference", "tool_name": name}));
        let found: Vec<Value> = found.collect();
        let search = json!({"type": fields::SERVER_TOOL_USE, "id": id, "name": searched.tool, "input": input});
        events.extend(self.draft.block(search));
        let content = json!({"type": "tool_search_tool_search_result", "tool_references": found});
        events.extend(
            self.draft.block(json!({"type": "tool_search_tool_result", "tool_use_id": id, "content": content})),
        );
        events
    }

    fn calls(&mut self, handing: &Handing<'_>) -> Vec<Event> {
        let mut events = self.draft.close(handing.said.map(|said| &said.saying.opaque));
        if let Some(said) = handing.said.filter(|_| self.is_untold()) {
            let thoughts = self.thoughts(said);
            events.extend(self.tell(thoughts));
        }
        let waiting = self.waiting.take();
        events.extend(self.tell(waiting.into_iter().collect()));
        let caller = self.draft.manner.explicit.then(|| {
            let id = match handing.program {
                "" => fields::program_id(handing.state.run()),
                known => known.to_owned(),
            };
            json!({"type": "code_execution_20260120", "tool_id": id})
        });
        if let Some(sealed) = handing.ids.first().filter(|id| caller.is_none() && Sealer::is_sealed(id)) {
            events.extend(self.draft.block(redacted(sealed)));
        }
        for (id, call) in handing.ids.iter().zip(handing.calls) {
            let mut block = json!({"type": fields::TOOL_USE, "id": id, "name": call.tool, "input": call.args});
            if let Some(caller) = &caller {
                block["caller"] = caller.clone();
            }
            events.extend(self.draft.block(block));
        }
        for call in handing.direct {
            events.extend(self.draft.block(direct_call(call)));
        }
        self.stop_reason = "tool_use";
        events
    }

    fn answer(&mut self, said: &Said, passed: Passed) -> Vec<Event> {
        let mut events = self.draft.close(Some(&said.saying.opaque));
        if self.is_untold() {
            events.extend(self.tell(self.said(said)));
        }
        let is_silent = said.saying.text.as_deref().is_none_or(|text| text.trim().is_empty());
        if passed == Passed::Text && !said.saying.calls.is_empty() && is_silent {
            // An empty message could not be sent back.
            events.extend(self.draft.block(fields::text_block(CUT)));
        }
        let has_calls = passed == Passed::All && !said.saying.calls.is_empty();
        if has_calls {
            for call in &said.saying.calls {
                events.extend(self.draft.block(direct_call(call)));
            }
        }
        if self.draft.is_same_wire() {
            let ending = said.native.iter().filter(|(key, _)| !MESSAGE.contains(&key.as_str()));
            self.ending = ending.map(|(key, value)| (key.clone(), value.clone())).collect();
            // Calls that are not passed on are no reason.
            let is_true = self.ending.get("stop_reason").is_some_and(|reason| (reason == "tool_use") == has_calls);
            if !is_true {
                self.ending.shift_remove("stop_reason");
            }
        }
        self.stop_reason = if has_calls { "tool_use" } else { stop_reason(said.finish) };
        events
    }

    fn finish(&mut self, usage: &Usage) -> Vec<Event> {
        if self.draft.head.is_none() {
            return Vec::new();
        }
        let mut events = self.draft.start();
        events.extend(self.draft.close(None));
        let mut delta = Map::new();
        self.end(&mut delta);
        let beside = delta.shift_remove(BESIDE);
        let usage = usage.told(Wire::Messages, self.draft.manner.upstream);
        let mut end = json!({"type": "message_delta", "delta": delta, "usage": usage});
        if let Some(beside) = beside {
            end[BESIDE] = beside;
        }
        events.push(Event::typed(&end));
        events.push(Event::typed(&json!({"type": "message_stop"})));
        events
    }

    fn body(&mut self, usage: &Usage) -> Option<Value> {
        let mut message = self.draft.message()?;
        message.insert("content".to_owned(), Value::Array(std::mem::take(&mut self.draft.content)));
        self.end(&mut message);
        message.insert("usage".to_owned(), Value::Object(usage.told(Wire::Messages, self.draft.manner.upstream)));
        Some(Value::Object(message))
    }

    fn fail(&mut self, body: Value) -> Vec<Event> {
        let body = if fields::kind(&body) == "error" {
            body
        } else {
            let message = body.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
            let message = message.unwrap_or_else(|| body.to_string());
            json!({"type": "error", "error": {"type": "api_error", "message": message}})
        };
        vec![Event::typed(&body)]
    }
}

fn native_content(said: &Said) -> &[Value] {
    said.native.get("content").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_thought_or_deed(block: &Value) -> bool {
    !matches!(fields::kind(block), "text" | fields::TOOL_USE)
}

/// Thoughts of a model on another wire.
fn foreign_thoughts(text: &str, opaque: &Map<String, Value>) -> Vec<Value> {
    match (text, opaque.is_empty()) {
        ("", true) => Vec::new(),
        ("", false) => vec![redacted(&carrier::wrap(opaque))],
        (text, true) => vec![thinking(text, &carrier::wrap(&reasoning_content(text)))],
        (text, false) => vec![thinking(text, &carrier::wrap(opaque))],
    }
}

fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::Calls => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Filter => "refusal",
    }
}

/// As it came, if it came on this wire. Some providers give their calls no id, but clients need one.
fn direct_call(call: &ModelCall) -> Value {
    if fields::kind(&call.native) == fields::TOOL_USE {
        return call.native.clone();
    }
    match call.id.as_str() {
        "" => fields::written(&format!("toolu_{}", short_id(&call.name, &call.arguments, 0)), call),
        id => fields::written(id, call),
    }
}
