//! `OpenAI` Responses.

mod fields;
mod output;
mod stream;
mod strict;
mod tools;

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

pub(super) use self::stream::events;
use super::MODEL;
use super::conversation::{Conversation, Role, Spoken, ToolUse, given, text_of};
use super::failure::Failure;
use super::message::{Ended, Outgoing, Tokens};
use super::options::{Options, flag, whole};
use super::seal::Seals;
use super::strict::object;

pub(super) fn read<'a>(request: &'a Value, seals: &Seals<'_>) -> Result<(Conversation<'a>, Options), Failure> {
    let request = object(request)?;
    fields::check(request)?;
    let tokens_max = whole(request, "max_output_tokens", u64::MAX)?;
    let options = Options { stream: flag(request, "stream")?, include_usage: true, n: 1, tokens_max, stop: Vec::new() };
    flag(request, "store")?;
    let tools = tools::read(request)?;
    let instructions =
        given(request, "instructions").map(|text| Spoken { role: Role::System, text: text_of(Some(text)) });
    let mut messages: Vec<Spoken> = instructions.into_iter().collect();
    match given(request, "input") {
        None => return Err(Failure::missing("input".into())),
        Some(Value::String(text)) => messages.push(Spoken { role: Role::User, text: text.clone() }),
        Some(Value::Array(items)) => {
            strict::check(items, stores(request), seals)?;
            for item in items {
                listen(&mut messages, item);
            }
        }
        Some(other) => {
            return Err(Failure::wrong_type("input".into(), "a string or an array of input items", other));
        }
    }
    let forbidden = request.get("tool_choice").and_then(Value::as_str) == Some("none");
    let conversation = Conversation {
        request,
        messages,
        tools,
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: ["instructions", "input", "tools"].iter().filter_map(|name| given(request, name)).collect(),
    };
    Ok((conversation, options))
}

/// Adds what an item says. Items of the assistant that follow each other are one message.
fn listen(messages: &mut Vec<Spoken>, item: &Value) {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    let (role, text) = match (kind, item["role"].as_str()) {
        ("message", Some("user")) => (Role::User, text_of(item.get("content"))),
        ("message", Some("assistant")) => (Role::Assistant, text_of(item.get("content"))),
        ("message" | "additional_tools", _) => (Role::System, text_of(item.get("content"))),
        _ if strict::answers(kind).is_some() => (Role::Tool, text_of(item.get("output"))),
        _ => (Role::Assistant, String::new()),
    };
    match messages.last_mut().filter(|last| last.role == role && role == Role::Assistant) {
        Some(last) => last.text.push_str(&text),
        None => messages.push(Spoken { role, text }),
    }
}

fn stores(request: &Map<String, Value>) -> bool {
    request.get("store") != Some(&Value::Bool(false))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed,
}

pub(super) fn body(outgoing: &Outgoing<'_>) -> Value {
    let status = status(outgoing);
    response(outgoing, status, &output::items(outgoing, status))
}

/// How the response ends.
fn status(outgoing: &Outgoing<'_>) -> Status {
    let natural = |ended: &Ended| if *ended == Ended::Limit { "length" } else { "stop" };
    match outgoing.finish_reason(natural) {
        Some("length" | "max_tokens" | "max_output_tokens") => Status::Incomplete("max_output_tokens"),
        Some("content_filter" | "refusal") => Status::Incomplete("content_filter"),
        _ => Status::Completed,
    }
}

fn response(outgoing: &Outgoing<'_>, status: Status, output: &[Value]) -> Value {
    let (name, reason) = match status {
        Status::InProgress => ("in_progress", None),
        Status::Completed => ("completed", None),
        Status::Incomplete(reason) => ("incomplete", Some(json!({"reason": reason}))),
        Status::Failed => ("failed", None),
    };
    let conversation = outgoing.conversation;
    let asked = |name: &str, otherwise: Value| conversation.given(name).cloned().unwrap_or(otherwise);
    let created = outgoing.stamp.created;
    let ended = matches!(status, Status::Completed | Status::Incomplete(_));
    json!({
        "id": outgoing.ids.answer(Wire::Responses),
        "object": "response",
        "created_at": created,
        "status": name,
        "background": false,
        "completed_at": (status == Status::Completed).then_some(created),
        "error": null,
        "incomplete_details": reason,
        "instructions": asked("instructions", Value::Null),
        "max_output_tokens": asked("max_output_tokens", Value::Null),
        "max_tool_calls": asked("max_tool_calls", Value::Null),
        "model": conversation.model().unwrap_or(MODEL),
        "output": output,
        "parallel_tool_calls": asked("parallel_tool_calls", true.into()),
        "previous_response_id": null,
        "prompt_cache_key": asked("prompt_cache_key", Value::Null),
        "reasoning": asked("reasoning", json!({"effort": null, "summary": null})),
        "safety_identifier": asked("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": stores(conversation.request),
        "temperature": asked("temperature", json!(1.0)),
        "text": asked("text", json!({"format": {"type": "text"}})),
        "tool_choice": asked("tool_choice", "auto".into()),
        "tools": asked("tools", json!([])),
        "top_logprobs": asked("top_logprobs", 0.into()),
        "top_p": asked("top_p", json!(1.0)),
        "truncation": asked("truncation", "disabled".into()),
        "usage": ended.then(|| usage(outgoing)),
        "user": asked("user", Value::Null),
        "metadata": asked("metadata", json!({})),
    })
}

/// Tokens as counted, with what the script says instead.
fn usage(outgoing: &Outgoing<'_>) -> Value {
    let Tokens { input, output, reasoning } = outgoing.tokens;
    let mut usage = json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input + output,
    });
    for (name, value) in &outgoing.draft.usage {
        let name = match name.as_str() {
            "prompt_tokens" => "input_tokens",
            "prompt_tokens_details" => "input_tokens_details",
            "completion_tokens" => "output_tokens",
            "completion_tokens_details" => "output_tokens_details",
            own => own,
        };
        usage[name] = value.clone();
    }
    if !outgoing.draft.usage.contains_key("total_tokens")
        && let (Some(input), Some(output)) = (usage["input_tokens"].as_u64(), usage["output_tokens"].as_u64())
    {
        usage["total_tokens"] = input.saturating_add(output).into();
    }
    usage
}
