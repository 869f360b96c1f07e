//! The client side of Responses: reads requests, encodes responses.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Value, json};

use super::encode::ResponsesEncoder;
use super::{Responses, envelope, events, fields, history, item_ids, params, programs, references, tools, translate};
use crate::allowed_callers::{Extensions, ListContents, ProgramDeclaration, ToolSplit};
use crate::chat;
use crate::client_wire::{
    Body, CallIds, ClientCapabilities, ClientWire, EntriesPerResponse, EntryAuthor, ExplicitState, FailureMark,
    HistoryReading, ProgramHistory, RequestSurvey,
};
use crate::conversation::{Conversation, LostCalls, WireCall};
use crate::encoder::{ApiError, EncoderOptions, ResponseEncoder};
use crate::model_message::ModelCall;
use crate::neutral::{Media, MessagePart, NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::request::BadRequest;
use crate::request_servers::{self, RequestServer};
use crate::sse::SseEvent;
use crate::tool_answer::ToolAnswer;
use crate::tool_lists::ListText;
use crate::turn::ResponsePrefs;
use crate::usage::TokenCounts;
use crate::wire::Wire;

const NOT_STORED: &str = "nothing is stored here: send the whole history as `input`, with `store: false` and \
`include: [\"reasoning.encrypted_content\"]`. With openai-python that is `input += response.output`, with the AI SDK \
`providerOptions: {openai: {store: false}}`. Or turn on `[store]` in the gateway";

/// Prefix of response ids.
pub(super) const RESPONSE_ID_PREFIX: &str = "resp_";

impl ClientWire for Responses {
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            explicit_state: ExplicitState::HistoryEntry,
            entries: EntriesPerResponse::Many,
            failures: FailureMark::Text,
            response_id_prefix: RESPONSE_ID_PREFIX,
            params: params::NAMES,
            call_id_prefix: "call_",
            history: "input",
            linking_words: &[
                "\"call_id\"",
                "\"item_reference\"",
                "\"reasoning\"",
                "\"additional_tools\"",
                "\"tool_search_output\"",
            ],
        }
    }

    fn survey(&self, body: &Body) -> Result<RequestSurvey, BadRequest> {
        let items: &[Value] = match body.get("input") {
            Some(Value::Array(items)) => items,
            Some(Value::String(_)) => &[],
            None | Some(Value::Null) if body.get("prompt").is_some_and(Value::is_object) => &[],
            None | Some(Value::Null) => return Err(BadRequest::new("input", "is missing")),
            Some(_) => return Err(BadRequest::new("input", "must be a string or an array of items")),
        };
        if let Some(at) = items.iter().position(|item| !item.is_object()) {
            return Err(BadRequest::new(format!("input[{at}]"), "must be an object"));
        }
        Ok(RequestSurvey {
            call_ids: CallIds::sealed_if(items.iter().any(item_ids::is_sealed)),
            history: ProgramHistory::found_if(items.iter().any(item_ids::is_program)),
            declaration: tools::program_declaration(body),
        })
    }

    fn split_tools<'a>(
        &self,
        body: &'a Body,
        programs: ProgramDeclaration,
        contents: ListContents,
    ) -> Result<ToolSplit<'a>, BadRequest> {
        let items = body.get("input").and_then(Value::as_array);
        let needs_rewriting = items.is_some_and(|items| items.iter().any(item_ids::is_ours));
        Ok(ToolSplit {
            extensions: if needs_rewriting { Extensions::Found } else { Extensions::None },
            ..tools::split(body, programs, contents)?
        })
    }

    fn ordinary_tools(&self, body: &Body, programs: ProgramDeclaration) -> Vec<Value> {
        tools::ordinary(body, programs)
    }

    fn incompatible_with_programs(&self, body: &Body) -> Option<&'static str> {
        params::incompatible_with_programs(body)
    }

    fn request_servers(&self, body: &Body) -> Result<Vec<RequestServer>, BadRequest> {
        request_servers::of_responses(body)
    }

    fn response_prefs(&self, body: &Body) -> ResponsePrefs {
        params::response_prefs(body)
    }

    fn conversation(&self, body: &mut Body, reading: HistoryReading<'_>) -> Result<Conversation, BadRequest> {
        for key in ["previous_response_id", "conversation"] {
            if body.get(key).is_some_and(|value| !value.is_null()) {
                return Err(BadRequest::new(key, NOT_STORED));
            }
        }
        if body.get("background") == Some(&Value::Bool(true)) {
            return Err(BadRequest::new(
                "background",
                "cannot be had here: nothing is stored that could be asked for later; leave it out, and set `stream` if the answer takes long",
            ));
        }
        if reading.opener().is_some() {
            tools::check_callers(body)?;
        }
        let items = match body.insert("input".to_owned(), Value::Null) {
            Some(Value::Array(items)) => items,
            Some(Value::String(text)) => vec![json!({"type": "message", "role": "user", "content": text})],
            _ => Vec::new(),
        };
        let tool_lists = items.iter().filter_map(|item| item_ids::tool_list(item).map(str::to_owned)).collect();
        let approvals = items.iter().filter_map(item_ids::approval_answer);
        let approvals = approvals.map(|(name, is_approved)| (name.to_owned(), is_approved)).collect();
        let items = references::resolve(items)?;
        let conversation = match reading {
            HistoryReading::Explicit(opener) => programs::read(items, opener)?,
            reading => history::read(items.into_iter().map(|(_, item)| item), reading.opener()),
        };
        Ok(Conversation { approvals, tool_lists, ..conversation })
    }

    fn call_ids(&self, body: &Value) -> Vec<Vec<String>> {
        let items = body.get("input").and_then(Value::as_array).cloned().unwrap_or_default();
        // A wrong reference is reported when the history is read.
        let items = references::resolve(items).unwrap_or_default();
        history::call_ids(items.into_iter().map(|(_, item)| item))
    }

    fn entry_author(&self, entry: &Value) -> EntryAuthor {
        match (fields::is_model_output(entry), fields::is_call(entry)) {
            (true, _) if fields::is_message(entry) => EntryAuthor::ModelText,
            (true, _) | (_, true) => EntryAuthor::ModelCalls,
            (false, false) => EntryAuthor::Client,
        }
    }

    fn awaits_answers(&self, body: &Value) -> bool {
        let last = body.get("input").and_then(Value::as_array).and_then(|items| items.last());
        last.is_some_and(|item| fields::text_of(item, "type") == "function_call_output")
    }

    /// The fields of tools about programs stay, because they are part of this wire.
    fn without_code_mode(&self, mut body: Body, history: Option<Vec<Value>>) -> Value {
        let history = history.or_else(|| match body.get_mut("input") {
            Some(Value::Array(items)) => Some(std::mem::take(items)),
            _ => None,
        });
        if let Some(items) = history {
            let items = references::resolve_own(items).into_iter();
            body.insert("input".to_owned(), items.filter_map(item_ids::without_programs).collect());
        }
        Value::Object(body)
    }

    fn system_messages(&self, body: &Body) -> Vec<NeutralMessage> {
        translate::system_messages(body)
    }

    fn read_entry(&self, entry: &Value) -> Vec<NeutralMessage> {
        translate::read(entry)
    }

    fn read_answer(&self, answer: &Value, key: &str) -> ToolAnswer {
        fields::answer(answer, key)
    }

    fn read_block(&self, block: &Value) -> MessagePart {
        (translate::BLOCKS.read)(block)
    }

    fn write_block(&self, media: &Media) -> Value {
        (translate::BLOCKS.write)(media)
    }

    fn read_tool(&self, entry: &Value) -> Option<ToolDeclaration> {
        tools::read(entry)
    }

    fn read_params(&self, body: &Body) -> RequestParams {
        params::read(body)
    }

    fn read_call(&self, call: &WireCall) -> (ModelCall, Option<ToolResult>) {
        (translate::read_call(&call.call), call.answer.as_ref().map(translate::read_result))
    }

    fn ordinary_calls(&self, calls: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value> {
        history::ordinary_calls(calls, ids, note)
    }

    fn encoder(
        &self,
        options: EncoderOptions,
        body: &Body,
        known_tools: Option<Arc<ListText>>,
        toolbox: &Arc<Toolbox>,
    ) -> Box<dyn ResponseEncoder> {
        Box::new(ResponsesEncoder::for_request(options, body, known_tools, toolbox))
    }

    fn error_body(&self, error: &ApiError<'_>) -> Value {
        chat::error_body(error)
    }

    fn error_event(&self, body: &Value) -> SseEvent {
        SseEvent::typed(&events::numbered("error", envelope::error(body), 0))
    }

    fn write_usage(&self, tokens: TokenCounts) -> Body {
        params::write_usage(tokens)
    }
}
