//! The provider side of Chat Completions: writes requests, decodes responses.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::decode::{self, ChatDecoder};
use super::{Chat, fields, history, params, tools, translate};
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
const MESSAGES: &str = "messages";

impl ProviderWire for Chat {
    fn wire(&self) -> Wire {
        Wire::Chat
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            call_id_chars_max: 40,
            stop_sequences: StopSequences::Supported,
            auth: AuthHeader::Bearer,
            version_header: None,
            token_count_path: None,
            text_tools: TextTools::No,
            deltas: StreamedDeltas::Mixed,
            result_media: ResultMedia::AfterResults,
            image_detail: ImageDetail::Supported,
        }
    }

    fn endpoint(&self, _model: &str, _: Delivery) -> Cow<'static, str> {
        Cow::Borrowed("/chat/completions")
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
        history::model_message(message, ids, &results, direct)
    }

    fn write_call(&self, call: &ModelCall, result: Option<&ToolResult>) -> WireCall {
        WireCall { call: fields::write_json_call(&call.id, call), answer: result.map(translate::write_result) }
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
        body.insert(MESSAGES.to_owned(), Value::Null);
        if request.tools.is_empty() {
            body.shift_remove("tools");
        } else {
            body.insert("tools".to_owned(), Value::Array(request.tools));
        }
        match request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => _ = body.insert("tool_choice".to_owned(), Value::from("none")),
            ToolChoice::Required | ToolChoice::Program => {
                body.insert("tool_choice".to_owned(), Value::from("required"));
            }
            ToolChoice::Tool(name) => {
                body.insert("tool_choice".to_owned(), json!({"type": "function", "function": {"name": name}}));
            }
        }
        if request.delivery.is_streamed() {
            body.insert("stream".to_owned(), Value::Bool(true));
            let options = body.entry("stream_options").or_insert_with(|| json!({}));
            if let Some(options) = options.as_object_mut() {
                options.insert("include_usage".to_owned(), Value::Bool(true));
            } else {
                *options = json!({"include_usage": true});
            }
        }
        if request.origin == BodyOrigin::Translated && request.calls == CallsPerMessage::One {
            body.insert("parallel_tool_calls".to_owned(), Value::Bool(false));
        }
        ModelRequestBody::new(body, MESSAGES, request.history.into_iter().map(Cow::Borrowed).collect())
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(ChatDecoder::default())
    }

    fn decode_response(&self, body: Value) -> Result<ModelResponse, String> {
        decode::decode_response(body)
    }

    fn read_usage(&self, usage: &Body) -> TokenCounts {
        params::read_usage(usage)
    }
}
