//! Request parameters, and token counts of responses.

use serde_json::{Map, Value, json};

use crate::client_wire::ParamNames;
use crate::neutral::{ReasoningEffort, RequestParams, ResponseFormat, SHARED_BY_OPENAI, is_set};
use crate::turn::{CallsPerMessage, Delivery, ResponsePrefs, StreamUsage, ToolChoice};
use crate::usage::{TokenCounts, usage_count};

/// The first field whose guarantee a program cannot give. Such a request goes to the model with the client's own tools.
pub(super) fn incompatible_with_programs(body: &Map<String, Value>) -> Option<&'static str> {
    let is_incompatible = |key: &&'static str| match body.get(*key) {
        None | Some(Value::Null) => false,
        // A function that must be called.
        Some(choice) if *key == "tool_choice" => choice.is_object(),
        Some(n) if *key == "n" => n.as_u64() != Some(1),
        // A stop sequence could cut the program off.
        Some(Value::Array(stops)) if *key == "stop" => !stops.is_empty(),
        Some(_) => true,
    };
    ["tool_choice", "n", "stop", "functions", "function_call"].into_iter().find(is_incompatible)
}

/// Whether the client parses the text of the answer.
pub(super) fn has_response_format(body: &Map<String, Value>) -> bool {
    let format = body.get("response_format").and_then(|format| format.get("type"));
    format.is_some_and(|kind| kind != "text")
}

pub(super) fn response_prefs(body: &Map<String, Value>) -> ResponsePrefs {
    let flag = |key: &str| body.get(key).and_then(Value::as_bool);
    let include_usage = body.get("stream_options").and_then(|options| options.get("include_usage"));
    let choice = body.get("tool_choice");
    ResponsePrefs {
        delivery: Delivery::streamed_if(flag("stream") == Some(true)),
        stream_usage: match include_usage {
            Some(Value::Bool(true)) => StreamUsage::Included,
            _ => StreamUsage::LeftOut,
        },
        calls: CallsPerMessage::one_if(flag("parallel_tool_calls") == Some(false)),
        tool_choice: match choice.and_then(Value::as_str) {
            Some("required") => ToolChoice::Required,
            Some("none") => ToolChoice::None,
            _ => match choice
                .and_then(|choice| choice.pointer("/function/name").or_else(|| choice.pointer("/custom/name")))
                .and_then(Value::as_str)
            {
                Some(name) => ToolChoice::Tool(name.to_owned()),
                None => ToolChoice::Auto,
            },
        },
        hold_text_chars: 0,
    }
}

pub(super) const NAMES: ParamNames = ParamNames {
    tokens_max: &["max_completion_tokens", "max_tokens"],
    effort: "reasoning_effort",
    stops: Some("stop"),
};

/// Fields that are read elsewhere, or that have no meaning on other wires.
const KNOWN: [&str; 17] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "stop",
    "reasoning_effort",
    "response_format",
    "verbosity",
    "store",
    "n",
];

pub(super) fn read(body: &Map<String, Value>) -> RequestParams {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut dropped: Vec<String> = body
        .iter()
        .filter(|(key, value)| {
            is_set(value) && !KNOWN.contains(&key.as_str()) && !SHARED_BY_OPENAI.contains(&key.as_str())
        })
        .map(|(key, _)| key.clone())
        .collect();
    if body.get("n").is_some_and(|n| n.as_u64() != Some(1) && !n.is_null()) {
        dropped.push("n".to_owned());
    }
    let shared = RequestParams::shared_fields(body);
    RequestParams {
        model: text("model").unwrap_or_default(),
        tokens_max: ["max_completion_tokens", "max_tokens"].iter().find_map(|key| body.get(*key)?.as_u64()),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: match body.get("stop") {
            Some(Value::String(stop)) => vec![stop.clone()],
            Some(Value::Array(stops)) => stops.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        },
        effort: body.get("reasoning_effort").and_then(Value::as_str).and_then(ReasoningEffort::parse),
        format: body.get("response_format").and_then(format),
        user: RequestParams::user_in(&shared),
        verbosity: body.get("verbosity").filter(|value| is_set(value)).cloned(),
        shared,
        dropped,
    }
}

fn format(format: &Value) -> Option<ResponseFormat> {
    match format.get("type").and_then(Value::as_str)? {
        "json_object" => Some(ResponseFormat::Json),
        "json_schema" => format.get("json_schema").map(ResponseFormat::schema),
        _ => None,
    }
}

pub(super) fn write(params: &RequestParams) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(params.model.as_str())));
    set("max_completion_tokens", params.tokens_max.map(Value::from));
    set("temperature", params.temperature.map(Value::from));
    set("top_p", params.top_p.map(Value::from));
    set("stop", (!params.stops.is_empty()).then(|| json!(params.stops)));
    set("reasoning_effort", params.effort.map(|effort| Value::from(effort.openai_name())));
    set(
        "response_format",
        params.format.as_ref().map(|format| match format {
            ResponseFormat::Json => json!({"type": "json_object"}),
            ResponseFormat::Schema { name, schema, strict } => {
                json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}})
            }
        }),
    );
    set("verbosity", params.verbosity.clone());
    params.write_shared(&mut body);
    body
}

pub(super) fn read_usage(usage: &Map<String, Value>) -> TokenCounts {
    let number = |field| usage_count(usage, (field, None));
    let detail = |object, field| usage_count(usage, (object, Some(field)));
    TokenCounts {
        input: number("prompt_tokens"),
        cached: detail("prompt_tokens_details", "cached_tokens"),
        cache_written: 0,
        output: number("completion_tokens"),
        reasoning: detail("completion_tokens_details", "reasoning_tokens"),
    }
}

pub(super) fn write_usage(tokens: TokenCounts) -> Map<String, Value> {
    let mut usage = Map::new();
    usage.insert("prompt_tokens".to_owned(), json!(tokens.input));
    usage.insert("completion_tokens".to_owned(), json!(tokens.output));
    usage.insert("total_tokens".to_owned(), json!(tokens.input + tokens.output));
    if tokens.cached > 0 {
        usage.insert("prompt_tokens_details".to_owned(), json!({"cached_tokens": tokens.cached}));
    }
    if tokens.reasoning > 0 {
        usage.insert("completion_tokens_details".to_owned(), json!({"reasoning_tokens": tokens.reasoning}));
    }
    usage
}
