//! What providers of Responses speak.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::decode::{self, ResponsesDecoder};
use super::{Responses, fields, history, item_ids, params, tools, translate};
use crate::client_wire::Body;
use crate::conversation::WireCall;
use crate::decoder::{ModelResponse, ResponseDecoder};
use crate::model_message::{ModelCall, ModelMessage};
use crate::neutral::{NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::provider_wire::{
    AuthHeader, BodyOrigin, ModelRequest, ProviderCapabilities, ProviderWire, StopSequences, StreamedDeltas, TextTools,
};
use crate::turn::{CallsPerMessage, Delivery, ToolChoice};
use crate::usage::TokenCounts;
use crate::wire::Wire;

impl ProviderWire for Responses {
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            call_id_chars_max: 64,
            stop_sequences: StopSequences::Unsupported,
            auth: AuthHeader::Bearer,
            version_header: None,
            token_count_path: None,
            text_tools: TextTools::ForPrograms,
            deltas: StreamedDeltas::Separate,
        }
    }

    fn endpoint(&self, _model: &str, _: Delivery) -> Cow<'static, str> {
        Cow::Borrowed("/responses")
    }

    fn write_entry(&self, message: &NeutralMessage) -> Vec<Value> {
        translate::write(message)
    }

    fn write_model_message(
        &self,
        message: &ModelMessage,
        ids: &[String],
        results: &[String],
        direct: &[WireCall],
    ) -> Vec<Value> {
        history::model_message(message, ids, results, direct)
    }

    fn write_call(&self, call: &ModelCall, result: Option<&ToolResult>) -> WireCall {
        WireCall { call: fields::written(&call.id, call), answer: result.map(translate::write_result) }
    }

    fn write_tool(&self, tool: &ToolDeclaration) -> Value {
        tools::write(tool)
    }

    fn write_params(&self, params: &RequestParams) -> Body {
        params::write(params)
    }

    fn read_params(&self, body: &Body) -> RequestParams {
        params::read(body)
    }

    fn request(&self, mut body: Body, request: ModelRequest<'_>) -> Value {
        let history = request.history.iter().cloned().filter_map(item_ids::cleaned).collect();
        body.insert("input".to_owned(), Value::Array(without_dangling_reasoning(history)));
        if request.origin == BodyOrigin::SameWire || !request.tools.is_empty() {
            body.insert("tools".to_owned(), Value::Array(request.tools));
        }
        match request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => _ = body.insert("tool_choice".to_owned(), Value::from("none")),
            ToolChoice::Required | ToolChoice::Program => {
                _ = body.insert("tool_choice".to_owned(), Value::from("required"));
            }
            ToolChoice::Tool(name) => {
                _ = body.insert("tool_choice".to_owned(), json!({"type": "function", "name": name}));
            }
        }
        for key in ["previous_response_id", "conversation"] {
            body.shift_remove(key);
        }
        // Whoever stores it could only give back what the client never saw.
        body.insert("store".to_owned(), Value::Bool(false));
        // Models that do not think refuse it.
        if body.get("reasoning").is_some_and(Value::is_object) {
            let include = body.entry("include").or_insert_with(|| json!([]));
            match include {
                Value::Array(names) if names.iter().any(|name| name == ENCRYPTED) => {}
                Value::Array(names) => names.push(Value::from(ENCRYPTED)),
                other => *other = json!([ENCRYPTED]),
            }
        }
        if request.delivery.is_streamed() {
            body.insert("stream".to_owned(), Value::Bool(true));
        }
        if request.origin == BodyOrigin::Translated && request.calls == CallsPerMessage::One {
            body.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
        }
        Value::Object(body)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(ResponsesDecoder::default())
    }

    fn decode_response(&self, body: Value) -> Result<ModelResponse, String> {
        decode::decode_response(body)
    }

    fn read_usage(&self, usage: &Body) -> TokenCounts {
        params::read_usage(usage)
    }
}

const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Drops thoughts that nothing follows any more: no provider takes them.
fn without_dangling_reasoning(items: Vec<Value>) -> Vec<Value> {
    let mut leads = false;
    let mut kept: Vec<Value> = Vec::new();
    for item in items.into_iter().rev() {
        if !fields::is_reasoning(&item) {
            let is_others = fields::is_message(&item) && !fields::is_model_output(&item);
            leads = !is_others && !fields::is_output(&item) && !fields::is_client_output(&item);
        } else if !leads {
            continue;
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}
