//! Request parameters, and token counts of responses.

use serde_json::{Map, Value, json};

use super::{fields, tools};
use crate::allowed_callers::ProgramDeclaration;
use crate::client_wire::ParamNames;
use crate::neutral::{ReasoningEffort, RequestParams, ResponseFormat};
use crate::turn::{CallsPerMessage, Delivery, ResponsePrefs, StreamUsage, ToolChoice};
use crate::usage::{TokenCounts, usage_count};

pub(super) const NAMES: ParamNames =
    ParamNames { tokens_max: &["max_tokens"], effort: "output_config.effort", stops: Some("stop_sequences") };

/// Fields that are read elsewhere, or that have no meaning on other wires.
const KNOWN: [&str; 17] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "max_tokens",
    "temperature",
    "top_p",
    "stop_sequences",
    "thinking",
    "output_config",
    "output_format",
    "metadata",
    "cache_control",
    "thread",
    "betas",
];

/// `max_tokens` is required on this wire.
const TOKENS_MAX_DEFAULT: u64 = 8_192;
/// The smallest `budget_tokens` that the API accepts.
const BUDGET_TOKENS_MIN: u64 = 1_024;
/// With thinking, the API accepts no lower `top_p`.
const TOP_P_MIN_THINKING: f64 = 0.95;

pub(super) fn read(body: &Map<String, Value>) -> RequestParams {
    let is_known = |key: &str| {
        KNOWN.contains(&key) || key == "container" && tools::program_declaration(body) == ProgramDeclaration::Declared
    };
    let unknown = body.iter().filter(|(key, value)| !value.is_null() && !is_known(key.as_str()));
    let config = body.get("output_config");
    let stops = body.get("stop_sequences").and_then(Value::as_array).into_iter().flatten();
    RequestParams {
        model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
        tokens_max: body.get("max_tokens").and_then(Value::as_u64),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: stops.filter_map(Value::as_str).map(str::to_owned).collect(),
        effort: effort(body.get("thinking"), config),
        format: config.and_then(|config| config.get("format")).or_else(|| body.get("output_format")).and_then(format),
        user: body.get("metadata").and_then(|metadata| metadata.get("user_id")?.as_str()).map(str::to_owned),
        dropped: unknown.map(|(key, _)| key.clone()).collect(),
        ..RequestParams::default()
    }
}

fn effort(thinking: Option<&Value>, config: Option<&Value>) -> Option<ReasoningEffort> {
    let thinking = thinking.unwrap_or(&Value::Null);
    let named = config.and_then(|config| config.get("effort")?.as_str()).and_then(ReasoningEffort::parse);
    match fields::kind(thinking) {
        // Many models of other wires refuse a request that turns reasoning off.
        "disabled" => None,
        "enabled" => named.or_else(|| Some(ReasoningEffort::of_budget(thinking.get("budget_tokens")?.as_u64()?))),
        _ => named,
    }
}

fn format(format: &Value) -> Option<ResponseFormat> {
    let schema = format.get("schema").filter(|_| fields::kind(format) == "json_schema")?;
    let name = format.get("name").and_then(Value::as_str).unwrap_or("answer");
    Some(ResponseFormat::Schema { name: name.to_owned(), schema: schema.clone(), strict: Some(true) })
}

pub(super) fn write(params: &RequestParams) -> Map<String, Value> {
    let tokens_max = params.tokens_max.unwrap_or(TOKENS_MAX_DEFAULT);
    let budget = params.effort.and_then(|effort| budget(effort, tokens_max));
    let temperature = params.temperature.filter(|value| *value <= 1.0 && budget.is_none());
    // Newer models accept only one of the two.
    let top_p = params.top_p.filter(|_| temperature.is_none());
    let top_p = top_p.filter(|value| budget.is_none() || *value >= TOP_P_MIN_THINKING);
    let stops: Vec<&String> = params.stops.iter().filter(|stop| !stop.trim().is_empty()).collect();
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(params.model.as_str())));
    set("max_tokens", Some(Value::from(tokens_max)));
    set("temperature", temperature.map(Value::from));
    set("top_p", top_p.map(Value::from));
    set("stop_sequences", (!stops.is_empty()).then(|| json!(stops)));
    set("thinking", budget.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens})));
    if let Some(ResponseFormat::Schema { schema, .. }) = &params.format {
        set("output_config", Some(json!({"format": {"type": "json_schema", "schema": schema}})));
    }
    set("metadata", params.user.as_ref().map(|user| json!({"user_id": user})));
    body
}

/// Thinking counts towards `max_tokens`, so the budget leaves room for the answer.
fn budget(effort: ReasoningEffort, tokens_max: u64) -> Option<u64> {
    let requested = effort.budget();
    let budget = if requested < tokens_max { requested } else { tokens_max / 2 };
    (requested > 0 && budget >= BUDGET_TOKENS_MIN).then_some(budget)
}

/// On this wire `input_tokens` does not include tokens that were read from a cache or written to one.
pub(super) fn read_usage(usage: &Map<String, Value>) -> TokenCounts {
    let number = |field| usage_count(usage, (field, None));
    let (cached, cache_written) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
    TokenCounts {
        input: number("input_tokens").saturating_add(cached).saturating_add(cache_written),
        cached,
        cache_written,
        output: number("output_tokens"),
        reasoning: usage_count(usage, ("output_tokens_details", Some("thinking_tokens"))),
    }
}

pub(super) fn write_usage(tokens: TokenCounts) -> Map<String, Value> {
    let fresh = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_written);
    let figures = [
        ("input_tokens", fresh),
        ("cache_creation_input_tokens", tokens.cache_written),
        ("cache_read_input_tokens", tokens.cached),
        ("output_tokens", tokens.output),
    ];
    figures.into_iter().map(|(key, figure)| (key.to_owned(), json!(figure))).collect()
}

/// The first field whose guarantee a program cannot give. Such a request goes to the model with the client's own tools.
pub(super) fn incompatible_with_programs(body: &Map<String, Value>) -> Option<&'static str> {
    if chosen_tool(body).is_some_and(|name| tools::is_only_for_programs(body, name)) {
        return Some("tool_choice");
    }
    // A stop sequence could cut the program off.
    let stops = body.get("stop_sequences").and_then(Value::as_array);
    stops.is_some_and(|stops| !stops.is_empty()).then_some("stop_sequences")
}

fn chosen_tool(body: &Map<String, Value>) -> Option<&str> {
    let choice = body.get("tool_choice")?;
    (fields::kind(choice) == "tool").then(|| fields::name(choice))
}

pub(super) fn response_prefs(body: &Map<String, Value>) -> ResponsePrefs {
    let choice = body.get("tool_choice");
    let tool_choice = match choice.map(fields::kind) {
        Some("any") => ToolChoice::Required,
        Some("none") => ToolChoice::None,
        _ => match chosen_tool(body) {
            Some(fields::PROGRAM) if tools::program_declaration(body) == ProgramDeclaration::Declared => {
                ToolChoice::Program
            }
            Some(name) => ToolChoice::Tool(name.to_owned()),
            None => ToolChoice::Auto,
        },
    };
    ResponsePrefs {
        delivery: Delivery::streamed_if(body.get("stream") == Some(&Value::Bool(true))),
        stream_usage: StreamUsage::Included,
        calls: choice.map_or(CallsPerMessage::Any, calls_per_message),
        tool_choice,
        hold_text_chars: 0,
    }
}

pub(super) fn calls_per_message(choice: &Value) -> CallsPerMessage {
    CallsPerMessage::one_if(choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true)))
}
