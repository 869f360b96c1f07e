//! The client side of Messages: reads requests, encodes responses.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Value, json};

use super::encode::MessagesEncoder;
use super::{Messages, approvals, fields, history, params, tools, translate};
use crate::allowed_callers::{ListContents, ProgramDeclaration, ToolSplit};
use crate::client_wire::{
    Body, CallIds, ClientCapabilities, ClientWire, EntriesPerResponse, EntryAuthor, ExplicitState, FailureMark,
    HistoryReading, ProgramHistory, RequestSurvey,
};
use crate::conversation::{Conversation, LostCalls, WireCall};
use crate::encoder::{ApiError, EncoderOptions, ResponseEncoder};
use crate::model_message::ModelCall;
use crate::neutral::{Media, MessagePart, NeutralMessage, RequestParams, ToolDeclaration, ToolResult, changed};
use crate::request::{BadRequest, entries};
use crate::request_servers::{self, RequestServer};
use crate::seal::Sealer;
use crate::sse::SseEvent;
use crate::tool_answer::ToolAnswer;
use crate::tool_lists::ListText;
use crate::turn::ResponsePrefs;
use crate::usage::TokenCounts;
use crate::wire::Wire;

/// Prefix of response ids.
pub(super) const RESPONSE_ID_PREFIX: &str = "msg_";

impl ClientWire for Messages {
    fn wire(&self) -> Wire {
        Wire::Messages
    }

    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            explicit_state: ExplicitState::CallIds,
            entries: EntriesPerResponse::One,
            failures: FailureMark::Field,
            response_id_prefix: RESPONSE_ID_PREFIX,
            params: params::NAMES,
            call_id_prefix: "toolu_",
            history: "messages",
            linking_words: &[],
        }
    }

    fn survey(&self, body: &Body) -> Result<RequestSurvey, BadRequest> {
        let messages = entries(body, "messages")?;
        let is_sealed = |block: &Value| {
            Sealer::is_own_id(fields::id(block))
                || Sealer::is_own_id(fields::tool_use_id(block))
                || fields::is_our_program(block)
                || fields::is_our_search(block)
                || fields::is_our_server_call(block)
                || fields::is_carrier(block)
        };
        let is_program = |block: &Value| fields::is_program(block) || fields::kind(block) == fields::PROGRAM_RESULT;
        let declaration = tools::program_declaration(body);
        // Programs in the history of a client that no longer declares them are read all the same, but the request is
        // not in explicit mode because of them.
        let has_programs =
            declaration == ProgramDeclaration::Declared && messages.iter().flat_map(fields::blocks).any(is_program);
        Ok(RequestSurvey {
            call_ids: CallIds::sealed_if(messages.iter().flat_map(fields::blocks).any(is_sealed)),
            history: ProgramHistory::found_if(has_programs),
            declaration,
        })
    }

    fn split_tools<'a>(
        &self,
        body: &'a Body,
        programs: ProgramDeclaration,
        contents: ListContents,
    ) -> Result<ToolSplit<'a>, BadRequest> {
        tools::split(body, programs, contents)
    }

    fn ordinary_tools(&self, body: &Body, programs: ProgramDeclaration) -> Vec<Value> {
        tools::ordinary(body, programs)
    }

    fn incompatible_with_programs(&self, body: &Body) -> Option<&'static str> {
        params::incompatible_with_programs(body)
    }

    fn request_servers(&self, body: &Body) -> Result<Vec<RequestServer>, BadRequest> {
        request_servers::of_messages(body)
    }

    fn response_prefs(&self, body: &Body) -> ResponsePrefs {
        params::response_prefs(body)
    }

    /// Clients of this wire may have programs of both modes in one history, so one reader serves both.
    fn conversation(&self, body: &mut Body, reading: HistoryReading<'_>) -> Result<Conversation, BadRequest> {
        let mut messages = match body.insert("messages".to_owned(), Value::Null) {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        let approvals = approvals::take(&mut messages)?;
        let conversation = match reading.opener() {
            Some(opener) => history::read(messages, body, opener),
            None => history::read_without_programs(messages),
        };
        Ok(Conversation { approvals, ..conversation })
    }

    fn call_ids(&self, body: &Value) -> Vec<Vec<String>> {
        let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let ids = |message: &Value| {
            let calls = fields::blocks(message).iter().filter(|block| fields::kind(block) == fields::TOOL_USE);
            calls.map(|call| fields::id(call).to_owned()).collect()
        };
        messages.iter().map(ids).collect()
    }

    fn entry_author(&self, entry: &Value) -> EntryAuthor {
        let has_calls = fields::blocks(entry).iter().any(|block| fields::kind(block) == fields::TOOL_USE);
        match (fields::role(entry), has_calls) {
            ("assistant", false) => EntryAuthor::ModelText,
            ("assistant", true) => EntryAuthor::ModelCalls,
            _ => EntryAuthor::Client,
        }
    }

    fn awaits_answers(&self, body: &Value) -> bool {
        // The provider joins neighbouring messages of one role.
        let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten().rev();
        let of_client = messages.take_while(|message| fields::role(message) != "assistant");
        of_client.flat_map(fields::blocks).any(|block| fields::kind(block) == fields::TOOL_RESULT)
    }

    fn without_code_mode(&self, mut body: Body, history: Option<Vec<Value>>) -> Value {
        tools::without_code_mode(&mut body);
        body.shift_remove("thread");
        if let Some(history) = history {
            let history = history.into_iter();
            let history = history.filter_map(|message| changed(message, history::without_carriers)).collect();
            body.insert("messages".to_owned(), Value::Array(history));
        }
        Value::Object(body)
    }

    fn system_messages(&self, body: &Body) -> Vec<NeutralMessage> {
        translate::system_messages(body.get("system"))
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
        (fields::model_call(&call.call), call.answer.as_ref().map(translate::read_result))
    }

    fn ordinary_calls(&self, calls: LostCalls, ids: &[String], note: Option<&str>) -> Vec<Value> {
        history::ordinary_calls(calls, ids, note)
    }

    fn encoder(
        &self,
        options: EncoderOptions,
        body: &Body,
        _: Option<Arc<ListText>>,
        _: &Arc<Toolbox>,
    ) -> Box<dyn ResponseEncoder> {
        Box::new(MessagesEncoder::new(options, tools::program_type(body)))
    }

    fn error_body(&self, error: &ApiError<'_>) -> Value {
        let kind = match error.status {
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        let mut body = json!({"type": kind, "message": error.message});
        if let Some(code) = error.code {
            body["details"] = json!({"error_code": code});
        }
        json!({"type": "error", "error": body, "request_id": null})
    }

    fn error_event(&self, body: &Value) -> SseEvent {
        SseEvent::typed(body)
    }

    fn write_usage(&self, tokens: TokenCounts) -> Body {
        params::write_usage(tokens)
    }
}
