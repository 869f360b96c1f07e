//! Requests and replies of `OpenAI` Responses.

mod fields;
mod output;
mod stream;
mod strict;
mod tools;

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

pub(crate) use self::stream::events;
use crate::MODEL;
use crate::provider_failure::ProviderFailure;
use crate::reply_message::{FinishCause, OutgoingMessage, ReplyTokens};
use crate::request_options::{RequestOptions, UsageChunk, flag, positive_integer, reply_mode};
use crate::scripted_conversation::{HistoryMessage, Role, ScriptedConversation, ToolUse, given, text_of};
use crate::signatures::Signatures;
use crate::strict::object;

pub(crate) fn read<'a>(
    request: &'a Value,
    signatures: &Signatures<'_>,
) -> Result<(ScriptedConversation<'a>, RequestOptions<'a>), ProviderFailure> {
    let request = object(request)?;
    fields::check(request)?;
    let tokens_max = positive_integer(request, "max_output_tokens", u64::MAX)?;
    let options = RequestOptions {
        mode: reply_mode(request)?,
        usage_chunk: UsageChunk::Sent,
        n: 1,
        tokens_max,
        stop: Vec::new(),
    };
    flag(request, "store")?;
    let tools = tools::read(request)?;
    let instructions =
        given(request, "instructions").map(|text| HistoryMessage { role: Role::System, text: text_of(Some(text)) });
    let mut messages: Vec<HistoryMessage<'_>> = instructions.into_iter().collect();
    match given(request, "input") {
        None => return Err(ProviderFailure::missing("input".into())),
        Some(Value::String(text)) => messages.push(HistoryMessage { role: Role::User, text: text.into() }),
        Some(Value::Array(items)) => {
            strict::check(items, item_storage(request), signatures)?;
            for item in items {
                push_item(&mut messages, item);
            }
        }
        Some(other) => {
            return Err(ProviderFailure::wrong_type("input".into(), "a string or an array of input items", other));
        }
    }
    let forbidden = request.get("tool_choice").and_then(Value::as_str) == Some("none");
    let conversation = ScriptedConversation {
        request,
        messages,
        tools,
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: ["instructions", "input", "tools"].iter().filter_map(|name| given(request, name)).collect(),
    };
    Ok((conversation, options))
}

/// Adds the message of an input item. Consecutive items of the assistant become one message.
fn push_item<'a>(messages: &mut Vec<HistoryMessage<'a>>, item: &'a Value) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    let (role, text) = match (kind, item["role"].as_str()) {
        ("message", Some("user")) => (Role::User, text_of(item.get("content"))),
        ("message", Some("assistant")) => (Role::Assistant, text_of(item.get("content"))),
        ("message" | "additional_tools", _) => (Role::System, text_of(item.get("content"))),
        _ if strict::answers(kind).is_some() => (Role::Tool, text_of(item.get("output"))),
        _ => (Role::Assistant, "".into()),
    };
    match messages.last_mut().filter(|last| last.role == role && role == Role::Assistant) {
        Some(last) => last.text.to_mut().push_str(&text),
        None => messages.push(HistoryMessage { role, text }),
    }
}

/// The parameter `store`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemStorage {
    Stored,
    NotStored,
}

fn item_storage(request: &Map<String, Value>) -> ItemStorage {
    if request.get("store") == Some(&Value::Bool(false)) { ItemStorage::NotStored } else { ItemStorage::Stored }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed,
}

pub(crate) fn body(outgoing: &OutgoingMessage<'_>) -> Value {
    let status = status(outgoing);
    response(outgoing, status, &output::items(outgoing, status))
}

/// The status of the finished response.
fn status(outgoing: &OutgoingMessage<'_>) -> ResponseStatus {
    let default = |cause: &FinishCause| if *cause == FinishCause::TokenLimit { "length" } else { "stop" };
    match outgoing.finish_reason(default) {
        Some("length" | "max_tokens" | "max_output_tokens") => ResponseStatus::Incomplete("max_output_tokens"),
        Some("content_filter" | "refusal") => ResponseStatus::Incomplete("content_filter"),
        _ => ResponseStatus::Completed,
    }
}

fn response(outgoing: &OutgoingMessage<'_>, status: ResponseStatus, output: &[Value]) -> Value {
    let (name, reason) = match status {
        ResponseStatus::InProgress => ("in_progress", None),
        ResponseStatus::Completed => ("completed", None),
        ResponseStatus::Incomplete(reason) => ("incomplete", Some(json!({"reason": reason}))),
        ResponseStatus::Failed => ("failed", None),
    };
    let conversation = outgoing.conversation;
    let echoed = |name: &str, default: Value| conversation.given(name).cloned().unwrap_or(default);
    let created = outgoing.constants.created;
    let ended = matches!(status, ResponseStatus::Completed | ResponseStatus::Incomplete(_));
    json!({
        "id": outgoing.ids.response(Wire::Responses),
        "object": "response",
        "created_at": created,
        "status": name,
        "background": false,
        "completed_at": (status == ResponseStatus::Completed).then_some(created),
        "error": null,
        "incomplete_details": reason,
        "instructions": echoed("instructions", Value::Null),
        "max_output_tokens": echoed("max_output_tokens", Value::Null),
        "max_tool_calls": echoed("max_tool_calls", Value::Null),
        "model": conversation.model().unwrap_or(MODEL),
        "output": output,
        "parallel_tool_calls": echoed("parallel_tool_calls", true.into()),
        "previous_response_id": null,
        "prompt_cache_key": echoed("prompt_cache_key", Value::Null),
        "reasoning": echoed("reasoning", json!({"effort": null, "summary": null})),
        "safety_identifier": echoed("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": item_storage(conversation.request) == ItemStorage::Stored,
        "temperature": echoed("temperature", json!(1.0)),
        "text": echoed("text", json!({"format": {"type": "text"}})),
        "tool_choice": echoed("tool_choice", "auto".into()),
        "tools": echoed("tools", json!([])),
        "top_logprobs": echoed("top_logprobs", 0.into()),
        "top_p": echoed("top_p", json!(1.0)),
        "truncation": echoed("truncation", "disabled".into()),
        "usage": ended.then(|| usage(outgoing)),
        "user": echoed("user", Value::Null),
        "metadata": echoed("metadata", json!({})),
    })
}

/// The token counts; values of the script replace them.
fn usage(outgoing: &OutgoingMessage<'_>) -> Value {
    let ReplyTokens { input, output, reasoning } = outgoing.tokens;
    let mut usage = json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    });
    outgoing.override_usage(&mut usage, |name, value| {
        let name = match name {
            "prompt_tokens" => "input_tokens",
            "prompt_tokens_details" => "input_tokens_details",
            "completion_tokens" => "output_tokens",
            "completion_tokens_details" => "output_tokens_details",
            other => other,
        };
        Some((name, value))
    });
    if !outgoing.template.usage.contains_key("total_tokens")
        && let (Some(input), Some(output)) = (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64())
    {
        usage["total_tokens"] = input.saturating_add(output).into();
    }
    usage
}
