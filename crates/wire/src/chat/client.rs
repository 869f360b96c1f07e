//! The client side of Chat Completions: reads requests, encodes responses.

use std::sync::Arc;

use dacapo_replay::Toolbox;
use serde_json::{Value, json};

use super::encode::{ChatEncoder, PreambleUse};
use super::{Chat, fields, history, params, programs, tools, translate};
use crate::allowed_callers::{ListContents, ProgramDeclaration, ToolSplit};
use crate::client_wire::{
    Body, CallIds, ClientCapabilities, ClientWire, EntriesPerResponse, EntryAuthor, ExplicitState, FailureMark,
    HistoryReading, ProgramHistory, RequestSurvey,
};
use crate::conversation::{Conversation, LostCalls, WireCall};
use crate::encoder::{ApiError, EncoderOptions, ResponseEncoder};
use crate::model_message::ModelCall;
use crate::neutral::{Media, MessagePart, NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::request::{BadRequest, entries};
use crate::seal::Sealer;
use crate::sse::SseEvent;
use crate::tool_answer::ToolAnswer;
use crate::tool_lists::ListText;
use crate::turn::ResponsePrefs;
use crate::usage::TokenCounts;
use crate::wire::Wire;

/// Prefix of response ids.
pub(super) const RESPONSE_ID_PREFIX: &str = "chatcmpl-";

impl ClientWire for Chat {
    fn wire(&self) -> Wire {
        Wire::Chat
    }

    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            explicit_state: ExplicitState::HistoryEntry,
            entries: EntriesPerResponse::One,
            failures: FailureMark::Text,
            response_id_prefix: RESPONSE_ID_PREFIX,
            params: params::NAMES,
            call_id_prefix: "call_",
            history: "messages",
            linking_words: &[],
        }
    }

    fn survey(&self, body: &Body) -> Result<RequestSurvey, BadRequest> {
        let messages = entries(body, "messages")?;
        let is_sealed = |message: &Value| {
            fields::tool_calls(message).iter().any(|call| Sealer::is_own_id(fields::id(call)))
                || Sealer::is_own_id(fields::tool_call_id(message))
        };
        let is_program = |message: &Value| matches!(fields::role(message), programs::CODE | programs::CODE_RESULT);
        Ok(RequestSurvey {
            call_ids: CallIds::sealed_if(messages.iter().any(is_sealed)),
            history: ProgramHistory::found_if(messages.iter().any(is_program)),
            declaration: ProgramDeclaration::Undeclared,
        })
    }

    fn split_tools<'a>(
        &self,
        body: &'a Body,
        _: ProgramDeclaration,
        contents: ListContents,
    ) -> Result<ToolSplit<'a>, BadRequest> {
        tools::split(body, contents)
    }

    fn ordinary_tools(&self, body: &Body, _: ProgramDeclaration) -> Vec<Value> {
        tools::ordinary(body)
    }

    fn incompatible_with_programs(&self, body: &Body) -> Option<&'static str> {
        params::incompatible_with_programs(body)
    }

    fn response_prefs(&self, body: &Body) -> ResponsePrefs {
        params::response_prefs(body)
    }

    fn conversation(&self, body: &mut Body, reading: HistoryReading<'_>) -> Result<Conversation, BadRequest> {
        let messages = match body.insert("messages".to_owned(), Value::Null) {
            Some(Value::Array(messages)) => messages,
            _ => Vec::new(),
        };
        match reading {
            HistoryReading::Explicit(opener) => programs::read(messages, opener.catalog),
            reading => Ok(history::read(messages, reading.opener())),
        }
    }

    fn call_ids(&self, body: &Value) -> Vec<Vec<String>> {
        let messages = body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let ids =
            |message: &Value| fields::tool_calls(message).iter().map(|call| fields::id(call).to_owned()).collect();
        messages.iter().map(ids).collect()
    }

    fn entry_author(&self, entry: &Value) -> EntryAuthor {
        match (fields::role(entry), fields::tool_calls(entry).is_empty()) {
            ("assistant", true) => EntryAuthor::ModelText,
            ("assistant", false) => EntryAuthor::ModelCalls,
            _ => EntryAuthor::Client,
        }
    }

    fn awaits_answers(&self, body: &Value) -> bool {
        let last = body.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
        last.is_some_and(|message| fields::role(message) == "tool")
    }

    fn without_code_mode(&self, mut body: Body, history: Option<Vec<Value>>) -> Value {
        if matches!(body.get("tools"), Some(Value::Array(_))) {
            let tools = tools::ordinary(&body);
            body.insert("tools".to_owned(), Value::Array(tools));
        }
        if let Some(history) = history {
            body.insert("messages".to_owned(), Value::Array(history));
        }
        Value::Object(body)
    }

    fn system_messages(&self, _: &Body) -> Vec<NeutralMessage> {
        Vec::new()
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
        let preamble_use = if params::has_response_format(body) { PreambleUse::LeftOut } else { PreambleUse::Shown };
        Box::new(ChatEncoder::new(options, preamble_use))
    }

    fn error_body(&self, error: &ApiError<'_>) -> Value {
        error_body(error)
    }

    fn error_event(&self, body: &Value) -> SseEvent {
        SseEvent::data(body)
    }

    fn write_usage(&self, tokens: TokenCounts) -> Body {
        params::write_usage(tokens)
    }
}

/// An error as both of `OpenAI`'s APIs send it.
pub(crate) fn error_body(error: &ApiError<'_>) -> Value {
    json!({"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}})
}
