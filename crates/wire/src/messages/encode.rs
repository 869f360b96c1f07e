//! Encodes responses for clients.

use dacapo_catalog::SearchText;
use serde_json::{Map, Value, json};

use super::draft::{MessageDraft, redacted, thinking};
use super::{approvals, fields, programs};
use crate::decoder::{DeltaKind, FinishReason, ModelResponse, ResponseDelta, ResponseMeta};
use crate::encoder::{
    AnswerParts, CUT_OFF, CallsIssued, EncoderOptions, ProgramFinished, ProgramProgress, ProgramStarted,
    ResponseEncoder, ServerCall, ServerCallEnd, ToolsSearched,
};
use crate::ids::short_id;
use crate::model_message::ModelCall;
use crate::neutral::selected_fields;
use crate::reasoning::Reasoning;
use crate::seal::Sealer;
use crate::sse::SseEvent;
use crate::turn::ProgramMode;
use crate::usage::TurnUsage;
use crate::wire::{ClientSide, ProviderSide};

#[derive(Debug)]
pub(super) struct MessagesEncoder {
    draft: MessageDraft,
    /// The `type` of the `caller` of a program's calls: the version of `code_execution_*` that the client declared.
    caller: String,
    /// The client's id of the program in the current model response.
    program_id: Option<String>,
    stop_reason: &'static str,
    /// The provider's fields about the end of its message.
    ending: Map<String, Value>,
    /// Deltas of the current model response have been sent.
    has_streamed: bool,
    /// How many of its text blocks have been sent, at least in part.
    texts: usize,
    /// All of its content has been sent.
    has_sent_preamble: bool,
    /// Number of searches in the current model response.
    searches: usize,
}

/// Fields of a message that the encoder writes itself.
const MESSAGE: [&str; 6] = ["id", "type", "role", "model", "content", "usage"];
/// In streams this field is beside the delta that ends the message, not in it.
const CONTEXT_MANAGEMENT: &str = "context_management";

impl MessagesEncoder {
    /// `caller` is the type of the tool by which the client declared programs.
    pub(super) fn new(options: EncoderOptions, caller: &str) -> MessagesEncoder {
        MessagesEncoder {
            caller: caller.to_owned(),
            draft: MessageDraft::new(options),
            program_id: None,
            stop_reason: "end_turn",
            ending: Map::new(),
            has_streamed: false,
            texts: 0,
            has_sent_preamble: false,
            searches: 0,
        }
    }

    /// The content of a response, without calls.
    fn content(&self, response: &ModelResponse) -> Vec<Value> {
        if self.draft.is_same_wire() {
            let is_content = |block: &&Value| fields::kind(block) != fields::TOOL_USE;
            return native_content(response).iter().filter(is_content).cloned().collect();
        }
        let reasoning = foreign_reasoning_blocks(&response.reasoning_text, &response.message.reasoning);
        let text = response.message.text.as_deref().map(fields::text_block);
        reasoning.into_iter().chain(text).collect()
    }

    fn send_blocks(&mut self, blocks: Vec<Value>) -> Vec<SseEvent> {
        blocks.into_iter().flat_map(|block| self.draft.block(block)).collect()
    }

    /// Adds the fields that end the message, which are the same for streams and whole messages.
    fn end_message(&self, message: &mut Map<String, Value>) {
        message.insert("stop_reason".to_owned(), Value::from(self.stop_reason));
        message.insert("stop_sequence".to_owned(), Value::Null);
        message.extend(self.ending.clone());
        self.draft.add_container(message);
    }

    /// Whether nothing of the current model response has been sent.
    fn is_unsent(&self) -> bool {
        !self.has_sent_preamble && (!self.draft.options.delivery.is_streamed() || !self.has_streamed)
    }

    /// Sends the content before searches and programs, as far as it has not been streamed.
    fn send_preamble(&mut self, response: &ModelResponse, texts: HeldTexts) -> Vec<SseEvent> {
        if self.has_sent_preamble {
            return Vec::new();
        }
        let mut events = self.draft.close(Some(&response.message.reasoning));
        let mut blocks = self.content(response);
        if !self.is_unsent() {
            // Text at the end may have been held back, because a program could have followed it.
            blocks = blocks.into_iter().filter(is_text).skip(self.texts).collect();
        }
        blocks.retain(|block| !is_text(block) || texts == HeldTexts::Sent && !fields::is_blank(block));
        events.extend(self.send_blocks(blocks));
        self.has_sent_preamble = true;
        events
    }
}

/// What becomes of text that was not streamed, when it turns out that it is not the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldTexts {
    Sent,
    LeftOut,
}

impl ResponseEncoder for MessagesEncoder {
    fn provider_changed(&mut self, provider: ProviderSide) {
        self.draft.options.provider = provider;
    }

    fn response_started(&mut self) {
        self.has_streamed = false;
        self.texts = 0;
        self.has_sent_preamble = false;
        self.searches = 0;
        self.draft.response_started();
    }

    fn meta(&mut self, meta: &ResponseMeta) {
        if !self.draft.options.delivery.is_streamed() || self.draft.meta.is_none() {
            self.draft.meta = Some(meta.clone());
        }
    }

    fn open(&mut self) -> Vec<SseEvent> {
        self.draft.start()
    }

    fn keep_alive(&mut self) -> Option<SseEvent> {
        self.draft.has_started().then(|| SseEvent::typed(&json!({"type": "ping"})))
    }

    fn delta(&mut self, delta: ResponseDelta) -> Vec<SseEvent> {
        self.has_streamed = true;
        if self.draft.is_same_wire() {
            let starts_block = |event: &Value| fields::kind(event) == "content_block_start";
            let starts_text = delta.kind == DeltaKind::Text && delta.native.as_ref().is_some_and(starts_block);
            self.texts += usize::from(starts_text);
            return delta.native.map_or_else(Vec::new, |event| self.draft.forward(event));
        }
        self.texts = self.texts.max(usize::from(!delta.text.is_empty()));
        self.draft.translate(&delta)
    }

    fn program_started(&mut self, program: &ProgramStarted<'_>) -> Vec<SseEvent> {
        let id = match program.progress {
            ProgramProgress::Finished | ProgramProgress::Running => fields::sealed_program_id(program.sealed),
            ProgramProgress::Waiting => fields::program_id(program.state.run()),
        };
        let block = programs::program_block(&id, &program.state.code);
        self.program_id = Some(id);
        self.draft.block(block)
    }

    fn server_call_started(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent> {
        let id = fields::server_call_id(&call.id());
        self.draft.block(json!({
            "type": fields::MCP_TOOL_USE,
            "id": id,
            "name": call.tool,
            "input": call.call.args,
            "server_name": call.server,
        }))
    }

    fn approval_requested(&mut self, call: &ServerCall<'_>) -> Vec<SseEvent> {
        self.draft.block(approvals::request_block(call))
    }

    fn server_call_ended(&mut self, call: &ServerCall<'_>, end: ServerCallEnd<'_>) -> Vec<SseEvent> {
        self.draft.block(json!({
            "type": "mcp_tool_result",
            "tool_use_id": fields::server_call_id(&call.id()),
            "is_error": end.status() != "completed",
            "content": [fields::text_block(&end.text())],
        }))
    }

    fn program_finished(&mut self, finished: &ProgramFinished<'_>) -> Vec<SseEvent> {
        let new_id = self.program_id.take();
        let id = finished.program.or_else(|| new_id.unwrap_or_else(|| fields::program_id(finished.state.run())));
        self.draft.block(programs::result_block(&id, finished.shown))
    }

    fn tools_searched(&mut self, searched: &ToolsSearched<'_>) -> Vec<SseEvent> {
        // The client's history holds the search, and what stands before it belongs to it.
        let mut events = self.send_preamble(searched.response, HeldTexts::Sent);
        // The provider's tool has one text; the list beside it is what the search is made of again.
        let query = searched.text.texts().join("; ");
        let id = fields::search_id(&short_id(searched.seed, &query, searched.number), self.searches);
        self.searches += 1;
        let key = if searched.tool.ends_with("regex") { "pattern" } else { "query" };
        let mut input = Map::from_iter([(key.to_owned(), Value::from(query))]);
        if let SearchText::Queries(queries) = searched.text {
            input.insert("queries".to_owned(), json!(queries));
        }
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

    fn preamble(&mut self, response: &ModelResponse) -> Vec<SseEvent> {
        let is_shown = self.draft.options.shows_preamble(response);
        self.send_preamble(response, if is_shown { HeldTexts::Sent } else { HeldTexts::LeftOut })
    }

    fn calls_issued(&mut self, issued: &CallsIssued<'_>) -> Vec<SseEvent> {
        let mut events = self.draft.close(None);
        let caller = (self.draft.options.mode == ProgramMode::Explicit).then(|| {
            let new_id = || self.program_id.clone().unwrap_or_else(|| fields::program_id(issued.state.run()));
            json!({"type": self.caller, "tool_id": issued.program.or_else(new_id)})
        });
        if let Some(sealed) = issued.ids.first().filter(|id| caller.is_none() && Sealer::is_sealed(id)) {
            events.extend(self.draft.block(redacted(sealed)));
        }
        for (id, call) in issued.ids.iter().zip(issued.calls) {
            let mut block = json!({"type": fields::TOOL_USE, "id": id, "name": call.tool, "input": call.args});
            if let Some(caller) = &caller {
                block["caller"] = caller.clone();
            }
            events.extend(self.draft.block(block));
        }
        for call in issued.direct {
            events.extend(self.draft.block(direct_call(call)));
        }
        // A program may wait for nothing but approvals.
        self.stop_reason = if issued.has_calls() { "tool_use" } else { "end_turn" };
        events
    }

    fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Vec<SseEvent> {
        let mut events = self.draft.close(Some(&response.message.reasoning));
        if self.is_unsent() {
            events.extend(self.send_blocks(self.content(response)));
        }
        let has_no_text = response.message.text.as_deref().is_none_or(|text| text.trim().is_empty());
        if parts == AnswerParts::Text && !response.message.calls.is_empty() && has_no_text {
            // Clients cannot send an empty message back.
            events.extend(self.draft.block(fields::text_block(CUT_OFF)));
        }
        let has_calls = parts == AnswerParts::All && !response.message.calls.is_empty();
        if has_calls {
            for call in &response.message.calls {
                events.extend(self.draft.block(direct_call(call)));
            }
        }
        if self.draft.is_same_wire() {
            self.ending = selected_fields(&response.native, |key, _| !MESSAGE.contains(&key));
            // Calls that the client does not get are not its reason.
            let is_valid = self.ending.get("stop_reason").is_some_and(|reason| (reason == "tool_use") == has_calls);
            if !is_valid {
                self.ending.shift_remove("stop_reason");
            }
        }
        self.stop_reason = if has_calls { "tool_use" } else { stop_reason(response.finish) };
        events
    }

    fn finish(&mut self, usage: &TurnUsage) -> Vec<SseEvent> {
        if self.draft.meta.is_none() {
            return Vec::new();
        }
        let mut events = self.draft.start();
        events.extend(self.draft.close(None));
        let mut delta = Map::new();
        self.end_message(&mut delta);
        let context_management = delta.shift_remove(CONTEXT_MANAGEMENT);
        let usage = usage.for_client(ClientSide::MESSAGES, self.draft.options.provider);
        let mut end = json!({"type": "message_delta", "delta": delta, "usage": usage});
        if let Some(context_management) = context_management {
            end[CONTEXT_MANAGEMENT] = context_management;
        }
        events.push(SseEvent::typed(&end));
        events.push(SseEvent::typed(&json!({"type": "message_stop"})));
        events
    }

    fn body(&mut self, usage: &TurnUsage) -> Option<Value> {
        let mut message = self.draft.message()?;
        message.insert("content".to_owned(), Value::Array(std::mem::take(&mut self.draft.content)));
        self.end_message(&mut message);
        message.insert(
            "usage".to_owned(),
            Value::Object(usage.for_client(ClientSide::MESSAGES, self.draft.options.provider)),
        );
        Some(Value::Object(message))
    }

    fn error(&mut self, body: Value) -> Vec<SseEvent> {
        let body = if fields::kind(&body) == "error" {
            body
        } else {
            let message = body.pointer("/error/message").and_then(Value::as_str).map(str::to_owned);
            let message = message.unwrap_or_else(|| body.to_string());
            json!({"type": "error", "error": {"type": "api_error", "message": message}})
        };
        vec![SseEvent::typed(&body)]
    }
}

fn native_content(response: &ModelResponse) -> &[Value] {
    response.native.get("content").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_text(block: &Value) -> bool {
    fields::kind(block) == "text"
}

/// Reasoning of a model on another wire, in blocks whose opaque field carries its state.
fn foreign_reasoning_blocks(text: &str, state: &Reasoning) -> Vec<Value> {
    match (text, state.is_empty()) {
        ("", true) => Vec::new(),
        ("", false) => vec![redacted(&state.to_carried())],
        (text, true) => vec![thinking(text, &Reasoning::from_text(text).to_carried())],
        (text, false) => vec![thinking(text, &state.to_carried())],
    }
}

fn stop_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::Calls => "end_turn",
        FinishReason::Length => "max_tokens",
        FinishReason::Filter => "refusal",
    }
}

/// The call as it came, if it came on this wire. Some providers give their calls no id, but clients need one.
fn direct_call(call: &ModelCall) -> Value {
    if fields::kind(&call.native) == fields::TOOL_USE {
        return call.native.clone();
    }
    match call.id.as_str() {
        "" => fields::write_call(&format!("toolu_{}", short_id(&call.name, &call.arguments, 0)), call),
        id => fields::write_call(id, call),
    }
}
