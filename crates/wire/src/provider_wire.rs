//! What a model's provider speaks: requests out, responses in.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::client_wire::Body;
use crate::conversation::WireCall;
use crate::decoder::{ModelResponse, ResponseDecoder};
use crate::model_message::{ModelCall, ModelMessage};
use crate::model_request::ModelRequestBody;
use crate::neutral::{NeutralMessage, RequestParams, ToolDeclaration, ToolResult};
use crate::turn::{CallsPerMessage, Delivery, ToolChoice};
use crate::usage::TokenCounts;
use crate::wire::{ClientSide, ProviderSide, Wire};

/// The provider's side of a wire. A wire that clients speak, but no model is asked on, has none.
pub(crate) trait ProviderWire: Sync {
    fn wire(&self) -> Wire;

    fn capabilities(&self) -> ProviderCapabilities;

    /// Where a model is asked, below the provider's base URL, which ends in `/v1`.
    fn endpoint(&self, model: &str, delivery: Delivery) -> Cow<'static, str>;

    /// Entries of the model's history for a message that came from another wire.
    fn write_entry(&self, message: &NeutralMessage) -> Vec<Value>;

    /// A message of the model as it stands in its history. Its calls get these ids and results, which have the ids too;
    /// `direct` are the calls beside them that the client executed.
    fn write_model_message(
        &self,
        message: &ModelMessage,
        ids: &[String],
        results: Vec<ToolResult>,
        direct: Vec<WireCall>,
    ) -> Vec<Value>;

    fn write_call(&self, call: &ModelCall, result: Option<&ToolResult>) -> WireCall;

    fn write_tool(&self, tool: ToolDeclaration) -> Value;

    /// The body of a request that came from another wire, without its history and tools.
    fn write_params(&self, params: &RequestParams) -> Body;

    /// Reads back what [`ProviderWire::write_params`] wrote: what is missing then has no place on this wire.
    fn read_params(&self, body: &Body) -> RequestParams;

    /// The whole request.
    fn request<'a>(&self, body: Body, request: ModelRequest<'a>) -> ModelRequestBody<'a>;

    fn decoder(&self) -> Box<dyn ResponseDecoder>;

    /// Decodes a response that came whole.
    fn decode_response(&self, body: Value) -> Result<ModelResponse, String>;

    fn read_usage(&self, usage: &Body) -> TokenCounts;
}

/// How providers of a wire differ where the code of all wires is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderCapabilities {
    /// The longest tool-call id that providers accept.
    pub call_id_chars_max: usize,
    /// Whether requests may name sequences that end the response.
    pub stop_sequences: StopSequences,
    /// How the key is sent.
    pub auth: AuthHeader,
    /// A header that every request needs, with the value for clients that do not send it.
    pub version_header: Option<(&'static str, &'static str)>,
    /// Below the provider's base URL, which ends in `/v1`. `None`: the provider does not count tokens.
    pub token_count_path: Option<&'static str>,
    /// Whether programs can be written as plain text.
    pub text_tools: TextTools,
    /// What a delta without text says about the text before it.
    pub deltas: StreamedDeltas,
    /// Where images and files of tool results go.
    pub result_media: ResultMedia,
    /// Whether a request may say how closely an image is looked at.
    pub image_detail: ImageDetail,
}

/// Whether requests may name sequences that end the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSequences {
    /// They may.
    Supported,
    /// They are left out, and the client is told so.
    Unsupported,
}

/// How a provider takes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthHeader {
    /// `authorization: Bearer …`
    Bearer,
    /// `x-api-key: …`
    XApiKey,
}

/// Whether a tool may take plain text instead of JSON, so that a program need not be escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextTools {
    /// `execute` takes the program as text.
    ForPrograms,
    /// `execute` takes a JSON object with the program in `code`.
    No,
}

/// Where images and files of tool results go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultMedia {
    /// Into the result that they belong to.
    InResults,
    /// Into a message of the user: results hold only text.
    AfterResults,
}

/// Whether a request may say how closely an image is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDetail {
    /// It is passed on.
    Supported,
    /// It is left out, and the client is told so.
    Unsupported,
}

/// What a streamed delta without text says about the text before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamedDeltas {
    /// Nothing: text, calls and other fields share one stream of deltas.
    Mixed,
    /// The text is complete, and something of the provider's own follows: each block or item has deltas of its own.
    Separate,
}

/// What a model is asked with, besides the body.
pub(crate) struct ModelRequest<'a> {
    /// The client's body, with its own tools.
    pub client: &'a Map<String, Value>,
    pub history: Vec<&'a Value>,
    /// Ours first, then the others that the model may call.
    pub tools: Vec<Value>,
    /// What the model has to do, unless the body says it already.
    pub tool_choice: ToolChoice,
    pub calls: CallsPerMessage,
    pub delivery: Delivery,
    pub origin: BodyOrigin,
}

/// Whose fields the body of a model's request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyOrigin {
    /// The client's own: client and model are on the same wire.
    SameWire,
    /// Written by [`ProviderWire::write_params`].
    Translated,
}

impl BodyOrigin {
    pub(crate) fn between(client: ClientSide, provider: ProviderSide) -> BodyOrigin {
        if client.wire() == provider.wire() { BodyOrigin::SameWire } else { BodyOrigin::Translated }
    }
}
