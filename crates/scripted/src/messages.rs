//! Anthropic Messages.

mod content;
mod fields;
mod history;
mod stream;
mod strict;
mod tools;

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use self::content::Block;
use self::history::Merged;
pub(super) use self::stream::events;
use super::MODEL;
use super::conversation::{Conversation, Input, Offered, Role, Spoken, ToolUse, given, list, text_of};
use super::failure::Failure;
use super::message::{Ended, Outgoing, Tokens};
use super::options::Options;
use super::seal::Seals;

pub(super) fn read<'a>(request: &'a Value, seals: &Seals<'_>) -> Result<(Conversation<'a>, Options), Failure> {
    let request = object(request)?;
    fields::check(request)?;
    let options = options(request)?;
    tools::check(request)?;
    let history = history::read(request)?;
    strict::check(&history, seals)?;
    strict::check_thinking(request, &history)?;
    let system = given(request, "system").map(|system| Spoken { role: Role::System, text: text_of(Some(system)) });
    let tools = list(request, "tools").iter().filter_map(|tool| tool.get("name")?.as_str());
    let forbidden = request.get("tool_choice").is_some_and(|choice| choice["type"] == "none");
    let conversation = Conversation {
        request,
        messages: system.into_iter().chain(history.iter().flat_map(Merged::spoken)).collect(),
        tools: tools.map(|name| Offered { name, input: Input::Json }).collect(),
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: prompt_of(request),
    };
    Ok((conversation, options))
}

/// What counts as input.
pub(super) fn prompt(request: &Value) -> Result<Vec<&Value>, Failure> {
    let request = object(request)?;
    history::read(request)?;
    Ok(prompt_of(request))
}

fn prompt_of(request: &Map<String, Value>) -> Vec<&Value> {
    ["system", "messages", "tools"].iter().filter_map(|name| given(request, name)).collect()
}

fn object(request: &Value) -> Result<&Map<String, Value>, Failure> {
    request.as_object().ok_or_else(|| refusal("Input should be a valid dictionary"))
}

fn options(request: &Map<String, Value>) -> Result<Options, Failure> {
    let stream = match given(request, "stream") {
        None => false,
        Some(Value::Bool(stream)) => *stream,
        Some(_) => return Err(refusal("stream: Input should be a valid boolean")),
    };
    let tokens_max = match request.get("max_tokens") {
        None => return Err(refusal("max_tokens: Field required")),
        Some(max) if max.as_i64().is_some_and(|max| max < 1) => {
            return Err(refusal("max_tokens: Input should be greater than or equal to 1"));
        }
        Some(max) => max.as_u64().ok_or_else(|| refusal("max_tokens: Input should be a valid integer"))?,
    };
    let stop = match given(request, "stop_sequences") {
        None => Vec::new(),
        Some(stops) => {
            let stops = stops.as_array().ok_or_else(|| refusal("stop_sequences: Input should be a valid list"))?;
            let stop = |(i, stop): (usize, &Value)| {
                let wrong = || refusal(format!("stop_sequences.{i}: Input should be a valid string"));
                stop.as_str().map(str::to_owned).ok_or_else(wrong)
            };
            stops.iter().enumerate().map(stop).collect::<Result<_, _>>()?
        }
    };
    let tokens_max = Some(usize::try_from(tokens_max).unwrap_or(usize::MAX));
    Ok(Options { stream, include_usage: true, n: 1, tokens_max, stop })
}

pub(super) fn body(outgoing: &Outgoing<'_>) -> Value {
    let content = content::blocks(outgoing);
    let stop = stop(outgoing, &content);
    let content: Vec<_> = content.into_iter().map(|block| block.value).collect();
    envelope(outgoing, &content, &stop, &usage(outgoing))
}

/// `stop_reason` and `stop_sequence`.
fn stop(outgoing: &Outgoing<'_>, content: &[Block<'_>]) -> [Value; 2] {
    let calls = content.iter().any(|block| block.value["type"] == "tool_use");
    let reason = outgoing.finish_reason(|ended| match ended {
        Ended::Said if calls => "tool_use",
        Ended::Said => "end_turn",
        Ended::Calls => "tool_use",
        Ended::Stop(_) => "stop_sequence",
        Ended::Limit => "max_tokens",
    });
    let reason = reason.map(|reason| match reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        own => own,
    });
    let sequence = match &outgoing.message.ended {
        Ended::Stop(sequence) if reason == Some("stop_sequence") => Some(sequence.as_str()),
        _ => None,
    };
    [reason.into(), sequence.into()]
}

fn envelope(outgoing: &Outgoing<'_>, content: &[Value], [reason, sequence]: &[Value; 2], usage: &Value) -> Value {
    json!({
        "id": outgoing.ids.answer(Wire::Messages),
        "type": "message",
        "role": "assistant",
        "model": outgoing.conversation.model().unwrap_or(MODEL),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage,
    })
}

/// Tokens as counted, with what the script says instead.
fn usage(outgoing: &Outgoing<'_>) -> Value {
    let Tokens { input, output, .. } = outgoing.tokens;
    let mut usage = json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
        "service_tier": "standard",
    });
    for (name, value) in &outgoing.draft.usage {
        match name.as_str() {
            "prompt_tokens" => usage["input_tokens"] = value.clone(),
            "completion_tokens" => usage["output_tokens"] = value.clone(),
            "prompt_tokens_details" => usage["cache_read_input_tokens"] = value["cached_tokens"].clone(),
            "completion_tokens_details" | "total_tokens" => {}
            own => usage[own] = value.clone(),
        }
    }
    usage
}

fn refusal(message: impl Into<String>) -> Failure {
    Failure::invalid(message, None)
}
