//! Requests and replies of `OpenAI` Chat Completions.

mod completion;
mod stream;
mod strict;

use dacapo_wire::Wire;
use serde_json::{Map, Value};

pub(crate) use self::completion::body;
pub(crate) use self::stream::events;
use crate::MODEL;
use crate::provider_failure::ProviderFailure;
use crate::reply_message::OutgoingMessage;
use crate::request_options::{ReplyMode, RequestOptions, UsageChunk, positive_integer, reply_mode};
use crate::scripted_conversation::{
    HistoryMessage, InputKind, OfferedTool, Role, ScriptedConversation, ToolUse, given, list, text_of,
};
use crate::strict::object;

type Messages<'a> = Vec<&'a Map<String, Value>>;

/// `OpenAI` allows 128; this is less because the whole reply is built in memory.
const CHOICES_MAX: u64 = 16;

pub(crate) fn read(request: &Value) -> Result<(ScriptedConversation<'_>, RequestOptions<'_>), ProviderFailure> {
    let request = object(request)?;
    let messages = messages(request)?;
    strict::check(request, &messages)?;
    let options = options(request)?;
    let tools = list(request, "tools").iter().filter_map(tool_name);
    let forbidden = request.get("tool_choice").and_then(Value::as_str) == Some("none");
    let conversation = ScriptedConversation {
        request,
        messages: messages.into_iter().map(history_message).collect(),
        tools: tools.map(|name| OfferedTool { name, input: InputKind::Json }).collect(),
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: ["messages", "tools"].iter().filter_map(|name| given(request, name)).collect(),
    };
    Ok((conversation, options))
}

fn messages<'a>(request: &'a Map<String, Value>) -> Result<Messages<'a>, ProviderFailure> {
    let messages = match request.get("messages") {
        None | Some(Value::Null) => return Err(ProviderFailure::missing("messages".into())),
        Some(Value::Array(messages)) if messages.is_empty() => {
            return Err(ProviderFailure::empty_array("messages".into()));
        }
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(ProviderFailure::wrong_type("messages".into(), "an array of objects", other)),
    };
    let message = |(i, message): (usize, &'a Value)| {
        message.as_object().ok_or_else(|| ProviderFailure::wrong_type(format!("messages[{i}]"), "an object", message))
    };
    messages.iter().enumerate().map(message).collect()
}

fn options(request: &Map<String, Value>) -> Result<RequestOptions<'_>, ProviderFailure> {
    let mode = reply_mode(request)?;
    let stream_options = given(request, "stream_options");
    if stream_options.is_some() && mode == ReplyMode::Whole {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(ProviderFailure::invalid(message, Some("stream_options".into())));
    }
    let tokens_max = [
        positive_integer(request, "max_tokens", u64::MAX)?,
        positive_integer(request, "max_completion_tokens", u64::MAX)?,
    ];
    let include_usage = stream_options.and_then(|options| options.get("include_usage"));
    Ok(RequestOptions {
        mode,
        usage_chunk: if include_usage == Some(&Value::Bool(true)) { UsageChunk::Sent } else { UsageChunk::Omitted },
        n: positive_integer(request, "n", CHOICES_MAX)?.unwrap_or(1),
        tokens_max: tokens_max.into_iter().flatten().min(),
        stop: given(request, "stop").map(stop).transpose()?.unwrap_or_default(),
    })
}

fn stop(value: &Value) -> Result<Vec<&str>, ProviderFailure> {
    let wrong = || ProviderFailure::wrong_type("stop".into(), "a string or an array of strings", value);
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}

fn history_message(message: &Map<String, Value>) -> HistoryMessage<'_> {
    HistoryMessage { role: role(message), text: text_of(message.get("content")) }
}

/// The role of a message. Names with the same meaning are one role.
fn role(message: &Map<String, Value>) -> Role {
    match message.get("role").and_then(Value::as_str).unwrap_or_default() {
        "assistant" => Role::Assistant,
        "function" | "tool" => Role::Tool,
        "user" => Role::User,
        _ => Role::System,
    }
}

/// The name of a tool; tools that the provider hosts have none.
fn tool_name(tool: &Value) -> Option<&str> {
    let named = ["function", "custom"].iter().find_map(|kind| tool.get(kind)).unwrap_or(tool);
    named.get("name")?.as_str()
}

/// The fields that a completion and all its chunks share.
fn envelope(outgoing: &OutgoingMessage<'_>, object: &str) -> Map<String, Value> {
    let mut envelope = Map::new();
    envelope.insert("id".into(), outgoing.ids.response(Wire::Chat).into());
    envelope.insert("object".into(), object.into());
    envelope.insert("created".into(), outgoing.constants.created.into());
    envelope.insert("model".into(), outgoing.conversation.model().unwrap_or(MODEL).into());
    if let Some(fingerprint) = &outgoing.constants.system_fingerprint {
        envelope.insert("system_fingerprint".into(), (**fingerprint).into());
    }
    envelope
}
