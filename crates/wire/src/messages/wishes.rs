//! Wishes and figures between this wire and our own words.

use serde_json::{Map, Value, json};

use super::{fields, tools};
use crate::message::{Effort, Format, Wishes};
use crate::usage::Tokens;

/// Fields that are read elsewhere, or mean nothing beyond this wire.
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

/// This wire does not do without a limit.
const TOKENS_MAX_DEFAULT: u64 = 8_192;
/// Nobody may think with less.
const BUDGET_TOKENS_MIN: u64 = 1_024;
/// The only values of `top_p` that a thinking model takes.
const TOP_P_MIN_THINKING: f64 = 0.95;

pub(super) fn wishes(body: &Map<String, Value>) -> Wishes {
    let is_known = |key: &str| KNOWN.contains(&key) || key == "container" && tools::declares_programs(body);
    let unknown = body.iter().filter(|(key, value)| !value.is_null() && !is_known(key.as_str()));
    let config = body.get("output_config");
    let stops = body.get("stop_sequences").and_then(Value::as_array).into_iter().flatten();
    Wishes {
        model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
        tokens_max: body.get("max_tokens").and_then(Value::as_u64),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: stops.filter_map(Value::as_str).map(str::to_owned).collect(),
        effort: effort(body.get("thinking"), config),
        format: config.and_then(|config| config.get("format")).or_else(|| body.get("output_format")).and_then(format),
        user: body.get("metadata").and_then(|metadata| metadata.get("user_id")?.as_str()).map(str::to_owned),
        dropped: unknown.map(|(key, _)| key.clone()).collect(),
    }
}

fn effort(thinking: Option<&Value>, config: Option<&Value>) -> Option<Effort> {
    let thinking = thinking.unwrap_or(&Value::Null);
    let named = config.and_then(|config| config.get("effort")?.as_str()).and_then(Effort::parse);
    match fields::kind(thinking) {
        // Many models take no word for it.
        "disabled" => None,
        "enabled" => named.or_else(|| Some(Effort::of_budget(thinking.get("budget_tokens")?.as_u64()?))),
        _ => named,
    }
}

fn format(format: &Value) -> Option<Format> {
    let schema = format.get("schema").filter(|_| fields::kind(format) == "json_schema")?;
    let name = format.get("name").and_then(Value::as_str).unwrap_or("answer");
    Some(Format::Schema { name: name.to_owned(), schema: schema.clone(), strict: Some(true) })
}

pub(super) fn body(wishes: &Wishes) -> Map<String, Value> {
    let tokens_max = wishes.tokens_max.unwrap_or(TOKENS_MAX_DEFAULT);
    let budget = wishes.effort.and_then(|effort| budget(effort, tokens_max));
    let temperature = wishes.temperature.filter(|value| *value <= 1.0 && budget.is_none());
    // Newer models take one of the two.
    let top_p = wishes.top_p.filter(|_| temperature.is_none());
    let top_p = top_p.filter(|value| budget.is_none() || *value >= TOP_P_MIN_THINKING);
    let stops: Vec<&String> = wishes.stops.iter().filter(|stop| !stop.trim().is_empty()).collect();
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(wishes.model.as_str())));
    set("max_tokens", Some(Value::from(tokens_max)));
    set("temperature", temperature.map(Value::from));
    set("top_p", top_p.map(Value::from));
    set("stop_sequences", (!stops.is_empty()).then(|| json!(stops)));
    set("thinking", budget.map(|tokens| json!({"type": "enabled", "budget_tokens": tokens})));
    if let Some(Format::Schema { schema, .. }) = &wishes.format {
        set("output_config", Some(json!({"format": {"type": "json_schema", "schema": schema}})));
    }
    set("metadata", wishes.user.as_ref().map(|user| json!({"user_id": user})));
    body
}

/// What may be thought with leaves room for the answer.
fn budget(effort: Effort, tokens_max: u64) -> Option<u64> {
    let wished = effort.budget();
    let budget = if wished < tokens_max { wished } else { tokens_max / 2 };
    (wished > 0 && budget >= BUDGET_TOKENS_MIN).then_some(budget)
}

/// Here the tokens of caches are no part of the others.
pub(super) fn tokens(usage: &Map<String, Value>) -> Tokens {
    let number = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    let (cached, cache_written) = (number("cache_read_input_tokens"), number("cache_creation_input_tokens"));
    let details = usage.get("output_tokens_details");
    Tokens {
        input: number("input_tokens").saturating_add(cached).saturating_add(cache_written),
        cached,
        cache_written,
        output: number("output_tokens"),
        reasoning: details.and_then(|details| details.get("thinking_tokens")?.as_u64()).unwrap_or_default(),
    }
}

pub(super) fn usage(tokens: Tokens) -> Map<String, Value> {
    let fresh = tokens.input.saturating_sub(tokens.cached).saturating_sub(tokens.cache_written);
    let figures = [
        ("input_tokens", fresh),
        ("cache_creation_input_tokens", tokens.cache_written),
        ("cache_read_input_tokens", tokens.cached),
        ("output_tokens", tokens.output),
    ];
    figures.into_iter().map(|(key, figure)| (key.to_owned(), json!(figure))).collect()
}
