//! How a request wants to be answered.

use serde_json::Value;

use super::conversation::Conversation;
use super::failure::Failure;

pub(super) struct Options {
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// How many choices.
    pub(super) n: usize,
    pub(super) tokens_max: Option<usize>,
    pub(super) stop: Vec<String>,
}

/// Fewer than OpenAI's 128: a reply is in memory as a whole.
const CHOICES_MAX: u64 = 16;

impl Options {
    pub(super) fn read(conversation: &Conversation<'_>) -> Result<Options, Failure> {
        let given = |name: &str| conversation.request.get(name).filter(|value| !value.is_null());
        let flag = |name: &str| match given(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(Failure::wrong_type(name.into(), "a boolean", other)),
        };
        let whole = |name: &str, max: u64| given(name).map(|value| positive(name, value, max)).transpose();
        let stream = flag("stream")?;
        let stream_options = given("stream_options");
        if stream_options.is_some() && !stream {
            let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
            return Err(Failure::invalid(message, Some("stream_options".into())));
        }
        let tokens_max = [whole("max_tokens", u64::MAX)?, whole("max_completion_tokens", u64::MAX)?];
        Ok(Options {
            stream,
            include_usage: stream_options.and_then(|options| options.get("include_usage")) == Some(&Value::Bool(true)),
            n: whole("n", CHOICES_MAX)?.unwrap_or(1),
            tokens_max: tokens_max.into_iter().flatten().min(),
            stop: given("stop").map(stop).transpose()?.unwrap_or_default(),
        })
    }
}

fn positive(name: &str, value: &Value, max: u64) -> Result<usize, Failure> {
    if !value.is_i64() && !value.is_u64() {
        return Err(Failure::wrong_type(name.into(), "an integer", value));
    }
    let (side, bound, code) = match value.as_u64() {
        Some(number) if number > max => ("above maximum", format!("<= {max}"), "integer_above_max_value"),
        Some(number) if number > 0 => return Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        _ => ("below minimum", ">= 1".into(), "integer_below_min_value"),
    };
    let message = format!("Invalid '{name}': integer {side} value. Expected a value {bound}, but got {value} instead.");
    Err(Failure::invalid(message, Some(name.into())).with_code(code))
}

fn stop(value: &Value) -> Result<Vec<String>, Failure> {
    let wrong = || Failure::wrong_type("stop".into(), "a string or an array of strings", value);
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned).ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}
