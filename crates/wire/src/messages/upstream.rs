//! The provider side of Messages: writes requests, decodes responses.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::decode::{self, MessagesDecoder};
use super::draft::CONTAINER_PREFIX;
use super::{Messages, fields, history, params, tools, translate};
use crate::allowed_callers::ProgramDeclaration;
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

impl ProviderWire for Messages {
    fn wire(&self) -> Wire {
        Wire::Messages
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            call_id_chars_max: 64,
            stop_sequences: StopSequences::Supported,
            auth: AuthHeader::XApiKey,
            version_header: Some(("anthropic-version", "2023-06-01")),
            token_count_path: Some("/messages/count_tokens"),
            text_tools: TextTools::No,
            deltas: StreamedDeltas::Separate,
            result_media: ResultMedia::InResults,
            image_detail: ImageDetail::Unsupported,
        }
    }

    fn endpoint(&self, _model: &str, _: Delivery) -> Cow<'static, str> {
        Cow::Borrowed("/messages")
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
        let mut tools = request.tools;
        let is_forced =
            matches!(&request.tool_choice, ToolChoice::Required | ToolChoice::Program | ToolChoice::Tool(_));
        let history = if request.origin == BodyOrigin::SameWire {
            tools::keep_cache_breakpoint(request.client, &mut tools);
            if tools::program_declaration(request.client) == ProgramDeclaration::Declared || has_our_container(&body) {
                body.shift_remove("container");
            }
            request.history.into_iter().filter_map(history::without_carriers).collect()
        } else {
            if let Some(last) = tools.last_mut() {
                last["cache_control"] = json!({"type": "ephemeral"});
            }
            let (system, history) = translated_history(&request.history);
            if !system.is_empty() {
                body.insert("system".to_owned(), Value::Array(system));
            }
            if is_forced {
                body.shift_remove("thinking");
            }
            history.into_iter().map(Cow::Owned).collect::<Vec<_>>()
        };
        if requires_reasoning_first(&body) && lacks_reasoning_first(&history) {
            body.shift_remove("thinking");
        }
        body.shift_remove("thread");
        let mut tool_choice = request.tool_choice;
        if tools.is_empty() {
            tools = tools_of_calls(&history);
            if !tools.is_empty() {
                tool_choice = ToolChoice::None;
            }
        }
        body.insert(MESSAGES.to_owned(), Value::Null);
        if !tools.is_empty() {
            let client_choice = body.get("tool_choice");
            let calls = match (client_choice, request.origin) {
                (Some(choice), _) => params::calls_per_message(choice),
                (None, BodyOrigin::Translated) => request.calls,
                (None, BodyOrigin::SameWire) => CallsPerMessage::Any,
            };
            if client_choice.is_none() || tool_choice != ToolChoice::Auto {
                let choice = write_tool_choice(&tool_choice, calls);
                choice.map(|choice| body.insert("tool_choice".to_owned(), choice));
            }
        }
        if tools.is_empty() {
            body.shift_remove("tools");
        } else {
            body.insert("tools".to_owned(), Value::Array(tools));
        }
        if request.delivery.is_streamed() {
            body.insert("stream".to_owned(), Value::Bool(true));
        }
        ModelRequestBody::new(body, MESSAGES, history)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(MessagesDecoder::default())
    }

    fn decode_response(&self, body: Value) -> Result<ModelResponse, String> {
        decode::decode_response(body)
    }

    fn read_usage(&self, usage: &Body) -> TokenCounts {
        params::read_usage(usage)
    }
}

/// Declares the tools that a history has calls of: providers refuse one with calls and without tools.
fn tools_of_calls(history: &[Cow<'_, Value>]) -> Vec<Value> {
    let calls = history
        .iter()
        .flat_map(|message| fields::blocks(message))
        .filter(|block| fields::kind(block) == fields::TOOL_USE);
    let names: BTreeSet<&str> = calls.map(fields::name).collect();
    let declaration = |name: &str| {
        let description = "Was called before, and cannot be called now.";
        json!({"name": name, "description": description, "input_schema": {"type": "object"}})
    };
    names.into_iter().map(declaration).collect()
}

/// The value of `tool_choice`; `None` if the default does.
fn write_tool_choice(tool_choice: &ToolChoice, calls: CallsPerMessage) -> Option<Value> {
    let mut choice = match tool_choice {
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Auto if calls == CallsPerMessage::One => json!({"type": "auto"}),
        ToolChoice::Auto => return None,
        ToolChoice::Required | ToolChoice::Program => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if calls == CallsPerMessage::One {
        choice["disable_parallel_tool_use"] = Value::Bool(true);
    }
    Some(choice)
}

fn has_our_container(body: &Map<String, Value>) -> bool {
    let container = body.get("container");
    let id = container.and_then(|container| container.as_str().or_else(|| container.get("id")?.as_str()));
    id.is_some_and(|id| id.starts_with(CONTAINER_PREFIX))
}

/// Whether the API refuses calls whose message does not begin with reasoning. With adaptive thinking it does not.
fn requires_reasoning_first(body: &Map<String, Value>) -> bool {
    body.get("thinking").is_some_and(|thinking| fields::kind(thinking) == "enabled")
}

/// Whether the history ends with tool results for a message without reasoning.
fn lacks_reasoning_first(history: &[Cow<'_, Value>]) -> bool {
    let last = history.iter().rposition(|message| fields::role(message) == "assistant");
    let Some(last) = last else { return false };
    let mut after = history[last + 1..].iter().flat_map(|message| fields::blocks(message));
    let has_results = after.any(|block| fields::kind(block) == fields::TOOL_RESULT);
    has_results && !fields::blocks(&history[last]).first().is_some_and(fields::is_reasoning)
}

/// A history from another wire: the content of the system messages at its beginning, and the other messages.
/// Neighbouring messages of one role are joined, with tool results first.
fn translated_history(history: &[&Value]) -> (Vec<Value>, Vec<Value>) {
    let mut system = Vec::new();
    let mut messages: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for entry in history {
        let content = fields::content(entry).into_owned();
        let role = match fields::role(entry) {
            "system" if messages.is_empty() => {
                system.extend(content);
                continue;
            }
            "assistant" => "assistant",
            _ => "user",
        };
        match messages.last_mut() {
            Some((last, known)) if *last == role => known.extend(content),
            _ => messages.push((role, content)),
        }
    }
    for (role, content) in &mut messages {
        if *role == "user" {
            // The sort is stable: other blocks keep their order.
            content.sort_by_key(|block| fields::kind(block) != fields::TOOL_RESULT);
        }
    }
    let messages = messages.into_iter().map(|(role, content)| json!({"role": role, "content": content}));
    (system, messages.collect())
}
