//! `OpenAI` Chat Completions.

mod completion;
mod stream;
mod strict;

use dacapo_wire::Wire;
use serde_json::{Map, Value};

pub(super) use self::completion::body;
pub(super) use self::stream::events;
use super::MODEL;
use super::conversation::{Conversation, Input, Offered, Role, Spoken, ToolUse, given, list, text_of};
use super::failure::Failure;
use super::message::Outgoing;
use super::options::{Options, flag, whole};
use super::strict::object;

type Messages<'a> = Vec<&'a Map<String, Value>>;

/// Fewer than `OpenAI`'s 128: a reply is in memory as a whole.
const CHOICES_MAX: u64 = 16;

pub(super) fn read(request: &Value) -> Result<(Conversation<'_>, Options), Failure> {
    let request = object(request)?;
    let messages = messages(request)?;
    strict::check(request, &messages)?;
    let options = options(request)?;
    let spoken = |message: &&Map<String, Value>| Spoken { role: role(message), text: text_of(message.get("content")) };
    let tools = list(request, "tools").iter().filter_map(tool_name);
    let forbidden = request.get("tool_choice").and_then(Value::as_str) == Some("none");
    let conversation = Conversation {
        request,
        messages: messages.iter().map(spoken).collect(),
        tools: tools.map(|name| Offered { name, input: Input::Json }).collect(),
        tool_use: if forbidden { ToolUse::Forbidden } else { ToolUse::Allowed },
        prompt: ["messages", "tools"].iter().filter_map(|name| given(request, name)).collect(),
    };
    Ok((conversation, options))
}

fn messages<'a>(request: &'a Map<String, Value>) -> Result<Messages<'a>, Failure> {
    let messages = match request.get("messages") {
        None | Some(Value::Null) => return Err(Failure::missing("messages".into())),
        Some(Value::Array(messages)) if messages.is_empty() => return Err(Failure::empty_array("messages".into())),
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(Failure::wrong_type("messages".into(), "an array of objects", other)),
    };
    let message = |(i, message): (usize, &'a Value)| {
        message.as_object().ok_or_else(|| Failure::wrong_type(format!("messages[{i}]"), "an object", message))
    };
    messages.iter().enumerate().map(message).collect()
}

fn options(request: &Map<String, Value>) -> Result<Options, Failure> {
    let stream = flag(request, "stream")?;
    let stream_options = given(request, "stream_options");
    if stream_options.is_some() && !stream {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(Failure::invalid(message, Some("stream_options".into())));
    }
    let tokens_max = [whole(request, "max_tokens", u64::MAX)?, whole(request, "max_completion_tokens", u64::MAX)?];
    Ok(Options {
        stream,
        include_usage: stream_options.and_then(|options| options.get("include_usage")) == Some(&Value::Bool(true)),
        n: whole(request, "n", CHOICES_MAX)?.unwrap_or(1),
        tokens_max: tokens_max.into_iter().flatten().min(),
        stop: given(request, "stop").map(stop).transpose()?.unwrap_or_default(),
    })
}

fn stop(value: &Value) -> Result<Vec<String>, Failure> {
    let wrong = || Failure::wrong_type("stop".into(), "a string or an array of strings", value);
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(texts) => texts.iter().map(|text| text.as_str().map(str::to_owned).ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}

/// The role, with the names that mean the same made one.
fn role(message: &Map<String, Value>) -> Role {
    match message.get("role").and_then(Value::as_str).unwrap_or_default() {
        "assistant" => Role::Assistant,
        "function" | "tool" => Role::Tool,
        "user" => Role::User,
        _ => Role::System,
    }
}

/// The name under which a tool is called; hosted tools have none.
fn tool_name(tool: &Value) -> Option<&str> {
    let named = ["function", "custom"].iter().find_map(|kind| tool.get(kind)).unwrap_or(tool);
    named.get("name")?.as_str()
}

/// What a completion and all its chunks have alike.
fn envelope(outgoing: &Outgoing<'_>, object: &str) -> Map<String, Value> {
    let mut envelope = Map::new();
    envelope.insert("id".into(), outgoing.ids.answer(Wire::Chat).into());
    envelope.insert("object".into(), object.into());
    envelope.insert("created".into(), outgoing.stamp.created.into());
    envelope.insert("model".into(), outgoing.conversation.model().unwrap_or(MODEL).into());
    if let Some(fingerprint) = &outgoing.stamp.system_fingerprint {
        envelope.insert("system_fingerprint".into(), (**fingerprint).into());
    }
    envelope
}
