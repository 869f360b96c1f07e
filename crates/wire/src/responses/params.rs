//! Request parameters, and token counts of responses.

use serde_json::{Map, Value, json};

use super::fields;
use super::tools::{self, FunctionName};
use crate::client_wire::ParamNames;
use crate::neutral::{ReasoningEffort, RequestParams, ResponseFormat, SHARED_BY_OPENAI, is_set};
use crate::turn::{CallsPerMessage, Delivery, ResponsePrefs, StreamUsage, ToolChoice};
use crate::usage::{TokenCounts, usage_count};

/// The first field whose guarantee a program cannot give. Such a request goes to the model with the client's own tools.
pub(super) fn incompatible_with_programs(body: &Map<String, Value>) -> Option<&'static str> {
    let choice = body.get("tool_choice")?;
    let is_incompatible = match fields::text_of(choice, "type") {
        "function" => !tools::is_direct(body, choice),
        "allowed_tools" => true,
        _ => false,
    };
    is_incompatible.then_some("tool_choice")
}

pub(super) fn response_prefs(body: &Map<String, Value>) -> ResponsePrefs {
    let flag = |key: &str| body.get(key).and_then(Value::as_bool);
    let choice = body.get("tool_choice").unwrap_or(&Value::Null);
    ResponsePrefs {
        delivery: Delivery::streamed_if(flag("stream") == Some(true)),
        stream_usage: StreamUsage::Included,
        calls: CallsPerMessage::one_if(flag("parallel_tool_calls") == Some(false)),
        tool_choice: match (choice.as_str(), fields::text_of(choice, "type")) {
            (Some("required"), _) => ToolChoice::Required,
            (Some("none"), _) => ToolChoice::None,
            (_, tools::PROGRAMS) => ToolChoice::Program,
            (_, "function" | "custom") => ToolChoice::Tool(FunctionName::of(choice).to_string()),
            _ => ToolChoice::Auto,
        },
        hold_text_chars: 0,
    }
}

pub(super) const NAMES: ParamNames =
    ParamNames { tokens_max: &["max_output_tokens"], effort: "reasoning.effort", stops: None };

/// Fields that are read elsewhere, or that have no meaning on other wires.
const KNOWN: [&str; 18] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "text",
    "store",
    "include",
    "background",
    "previous_response_id",
    "conversation",
];

pub(super) fn read(body: &Map<String, Value>) -> RequestParams {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_known = |key: &str| KNOWN.contains(&key) || SHARED_BY_OPENAI.contains(&key);
    let unknown = body.iter().filter(|(key, value)| is_set(value) && !is_known(key.as_str()));
    let mut dropped: Vec<String> = unknown.map(|(key, _)| key.clone()).collect();
    let inner = [("text", ["format", "verbosity"]), ("reasoning", ["effort", "summary"])];
    for (key, known) in inner {
        let fields = body.get(key).and_then(Value::as_object).into_iter().flatten();
        let unknown = fields.filter(|(name, value)| !value.is_null() && !known.contains(&name.as_str()));
        dropped.extend(unknown.map(|(name, _)| format!("{key}.{name}")));
    }
    let of = |key: &str, name: &str| body.get(key).and_then(|value| value.get(name));
    let shared = RequestParams::shared_fields(body);
    RequestParams {
        model: text("model").unwrap_or_default(),
        tokens_max: body.get("max_output_tokens").and_then(Value::as_u64),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: Vec::new(),
        effort: of("reasoning", "effort").and_then(Value::as_str).and_then(ReasoningEffort::parse),
        format: of("text", "format").and_then(format),
        user: RequestParams::user_in(&shared),
        verbosity: of("text", "verbosity").filter(|value| is_set(value)).cloned(),
        shared,
        dropped,
    }
}

fn format(format: &Value) -> Option<ResponseFormat> {
    match fields::text_of(format, "type") {
        "json_object" => Some(ResponseFormat::Json),
        "json_schema" => Some(ResponseFormat::schema(format)),
        _ => None,
    }
}

/// Stop sequences are left out, because this wire has none.
pub(super) fn write(params: &RequestParams) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(params.model.as_str())));
    set("max_output_tokens", params.tokens_max.map(Value::from));
    set("temperature", params.temperature.map(Value::from));
    set("top_p", params.top_p.map(Value::from));
    set("reasoning", params.effort.map(|effort| json!({"effort": effort.openai_name()})));
    let format = params.format.as_ref().map(|format| match format {
        ResponseFormat::Json => json!({"type": "json_object"}),
        ResponseFormat::Schema { name, schema, strict } => {
            json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict})
        }
    });
    let text = [("format", format), ("verbosity", params.verbosity.clone())].into_iter();
    let text: Map<String, Value> = text.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
    set("text", (!text.is_empty()).then_some(Value::Object(text)));
    params.write_shared(&mut body);
    body
}

pub(super) fn read_usage(usage: &Map<String, Value>) -> TokenCounts {
    let number = |field| usage_count(usage, (field, None));
    let detail = |object, field| usage_count(usage, (object, Some(field)));
    TokenCounts {
        input: number("input_tokens"),
        cached: detail("input_tokens_details", "cached_tokens"),
        cache_written: detail("input_tokens_details", "cache_write_tokens"),
        output: number("output_tokens"),
        reasoning: detail("output_tokens_details", "reasoning_tokens"),
    }
}

pub(super) fn write_usage(tokens: TokenCounts) -> Map<String, Value> {
    let usage = json!({
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_written},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input.saturating_add(tokens.output),
    });
    match usage {
        Value::Object(usage) => usage,
        _ => Map::new(),
    }
}
