//! The provider side of Responses: writes requests, decodes responses.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::decode::{self, ResponsesDecoder};
use super::{Responses, fields, history, item_ids, params, tools, translate};
use crate::client_wire::Body;
use crate::conversation::WireCall;
use crate::decoder::{ModelResponse, ResponseDecoder};
use crate::model_message::{ModelCall, ModelMessage};
use crate::model_request::ModelRequestBody;
use crate::neutral::{NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::provider_wire::{
    AuthHeader, BodyOrigin, ImageDetail, ModelRequest, ProviderCapabilities, ProviderWire, ResultMedia, StopSequences,
    StreamedDeltas, TextTools,
};
use crate::turn::{CallsPerMessage, Delivery, ToolChoice};
use crate::usage::TokenCounts;
use crate::wire::Wire;

/// The field of the history.
const INPUT: &str = "input";

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
            result_media: ResultMedia::InResults,
            image_detail: ImageDetail::Supported,
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
        results: Vec<ToolResult>,
        direct: Vec<WireCall>,
    ) -> Vec<Value> {
        history::model_message(message, ids, results, direct)
    }

    fn write_call(&self, call: &ModelCall, result: Option<&ToolResult>) -> WireCall {
        WireCall { call: fields::write_call(&call.id, call), answer: result.map(translate::write_result) }
    }

    fn write_tool(&self, tool: ToolDeclaration) -> Value {
        tools::write(tool)
    }

    fn write_params(&self, params: &RequestParams) -> Body {
        params::write(params)
    }

    fn read_params(&self, body: &Body) -> RequestParams {
        params::read(body)
    }

    fn request<'a>(&self, mut body: Body, request: ModelRequest<'a>) -> ModelRequestBody<'a> {
        body.insert(INPUT.to_owned(), Value::Null);
        if request.tools.is_empty() {
            body.shift_remove("tools");
        } else {
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
        // The provider would store the model's view of the conversation, which the client never sees.
        body.insert("store".to_owned(), Value::Bool(false));
        // Models without reasoning refuse this value of `include`.
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
        let history = request.history.into_iter().filter_map(item_ids::cleaned).collect();
        ModelRequestBody::new(body, INPUT, without_dangling_reasoning(history))
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

/// Drops reasoning that no output of the model follows, which providers refuse.
fn without_dangling_reasoning(items: Vec<Cow<'_, Value>>) -> Vec<Cow<'_, Value>> {
    let mut precedes_output = false;
    let mut retained = Vec::with_capacity(items.len());
    for item in items.into_iter().rev() {
        if !fields::is_reasoning(&item) {
            let is_client_message = fields::is_message(&item) && !fields::is_model_output(&item);
            precedes_output = !is_client_message && !fields::is_output(&item) && !fields::is_client_output(&item);
        } else if !precedes_output {
            continue;
        }
        retained.push(item);
    }
    retained.reverse();
    retained
}
