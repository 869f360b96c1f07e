//! Anthropic Messages.

mod content;
mod fields;
mod history;
mod stream;
mod strict;
mod tools;

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

use self::content::OutputBlock;
use self::history::MergedMessage;
pub(crate) use self::stream::events;
use crate::MODEL;
use crate::provider_failure::ProviderFailure;
use crate::reply_message::{FinishCause, OutgoingMessage, ReplyTokens};
use crate::request_options::{ReplyMode, RequestOptions, UsageChunk};
use crate::scripted_conversation::{
    HistoryMessage, InputKind, OfferedTool, Role, ScriptedConversation, ToolUse, given, list, text_of,
};
use crate::signatures::Signatures;

pub(crate) fn read<'a>(
    request: &'a Value,
    signatures: &Signatures<'_>,
) -> Result<(ScriptedConversation<'a>, RequestOptions<'a>), ProviderFailure> {
    let request = object(request)?;
    fields::check(request)?;
    let options = options(request)?;
    tools::check(request)?;
    let history = history::read(request)?;
    strict::check(&history, signatures)?;
    strict::check_thinking(request, &history)?;
    let system =
        given(request, "system").map(|system| HistoryMessage { role: Role::System, text: text_of(Some(system)) });
    let tools = list(request, "tools").iter().filter_map(|tool| tool.get("name")?.as_str());
    let forbidden = request.get("tool_choice").is_some_and(|choice| choice["type"] == "none");
    let conversation = ScriptedConversation {
        request,
        messages: system.into_iter().chain(history.iter().flat_map(MergedMessage::history_messages)).collect(),
        tools: tools.map(|name| OfferedTool { name, input: InputKind::Json }).collect(),
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: prompt_of(request),
    };
    Ok((conversation, options))
}

/// The parts of a request that are counted as input tokens.
pub(crate) fn prompt(request: &Value) -> Result<Vec<&Value>, ProviderFailure> {
    let request = object(request)?;
    history::read(request)?;
    Ok(prompt_of(request))
}

fn prompt_of(request: &Map<String, Value>) -> Vec<&Value> {
    ["system", "messages", "tools"].iter().filter_map(|name| given(request, name)).collect()
}

fn object(request: &Value) -> Result<&Map<String, Value>, ProviderFailure> {
    request.as_object().ok_or_else(|| refusal("Input should be a valid dictionary"))
}

fn options<'a>(request: &'a Map<String, Value>) -> Result<RequestOptions<'a>, ProviderFailure> {
    let mode = match given(request, "stream") {
        None | Some(Value::Bool(false)) => ReplyMode::Whole,
        Some(Value::Bool(true)) => ReplyMode::Stream,
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
            let stop = |(i, stop): (usize, &'a Value)| {
                let wrong = || refusal(format!("stop_sequences.{i}: Input should be a valid string"));
                stop.as_str().ok_or_else(wrong)
            };
            stops.iter().enumerate().map(stop).collect::<Result<_, _>>()?
        }
    };
    let tokens_max = Some(usize::try_from(tokens_max).unwrap_or(usize::MAX));
    Ok(RequestOptions { mode, usage_chunk: UsageChunk::Sent, n: 1, tokens_max, stop })
}

pub(crate) fn body(outgoing: &OutgoingMessage<'_>) -> Value {
    let content = content::blocks(outgoing);
    let stop = stop(outgoing, &content);
    let content: Vec<_> = content.into_iter().map(|block| block.value).collect();
    envelope(outgoing, &content, &stop, &usage(outgoing))
}

/// `stop_reason` and `stop_sequence`.
fn stop(outgoing: &OutgoingMessage<'_>, content: &[OutputBlock<'_>]) -> [Value; 2] {
    let calls = content.iter().any(|block| block.value["type"] == "tool_use");
    let reason = outgoing.finish_reason(|cause| match cause {
        FinishCause::Complete if calls => "tool_use",
        FinishCause::Complete => "end_turn",
        FinishCause::ToolCalls => "tool_use",
        FinishCause::Stop(_) => "stop_sequence",
        FinishCause::TokenLimit => "max_tokens",
    });
    let reason = reason.map(|reason| match reason {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    });
    let sequence = match &outgoing.message.finish_cause {
        FinishCause::Stop(sequence) if reason == Some("stop_sequence") => Some(sequence.as_str()),
        _ => None,
    };
    [reason.into(), sequence.into()]
}

fn envelope(
    outgoing: &OutgoingMessage<'_>,
    content: &[Value],
    [reason, sequence]: &[Value; 2],
    usage: &Value,
) -> Value {
    json!({
        "id": outgoing.ids.response(Wire::Messages),
        "type": "message",
        "role": "assistant",
        "model": outgoing.conversation.model().unwrap_or(MODEL),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": usage,
    })
}

/// The token counts; values of the script replace them.
fn usage(outgoing: &OutgoingMessage<'_>) -> Value {
    let ReplyTokens { input, output, .. } = outgoing.tokens;
    let mut usage = json!({
        "input_tokens": input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
        "service_tier": "standard",
    });
    outgoing.override_usage(&mut usage, |name, value| match name {
        "prompt_tokens" => Some(("input_tokens", value)),
        "completion_tokens" => Some(("output_tokens", value)),
        "prompt_tokens_details" => Some(("cache_read_input_tokens", &value["cached_tokens"])),
        "completion_tokens_details" | "total_tokens" => None,
        other => Some((other, value)),
    });
    usage
}

fn refusal(message: impl Into<String>) -> ProviderFailure {
    ProviderFailure::invalid(message, None)
}
