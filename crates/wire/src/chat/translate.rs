//! Messages, tools and wishes between this wire and our own words.

use serde_json::{Map, Value, json};

use super::fields;
use crate::conversation::Given;
use crate::message::{
    Answered, Effort, Format, Input, Media, MediaKind, Message, Part, Role, Source, Tool, Wishes, content,
    says_something,
};
use crate::saying::ModelCall;
use crate::speaker::Trouble;
use crate::usage::Tokens;

pub(super) fn read(message: &Value) -> Vec<Message> {
    let parts = content(message.get("content"), content_part);
    let (role, parts) = match fields::role(message) {
        "system" | "developer" => (Role::System, parts),
        "assistant" => {
            let opaque: Map<String, Value> =
                message.as_object().map(|fields| fields::reasoning(fields).collect()).unwrap_or_default();
            let text = fields::thoughts(message).to_owned();
            let reasoning = (!opaque.is_empty()).then_some(Part::Reasoning { text, opaque });
            let calls = fields::tool_calls(message).iter().map(fields::model_call).map(Part::Call);
            (Role::Assistant, reasoning.into_iter().chain(parts).chain(calls).collect())
        }
        "tool" => (Role::User, vec![Part::Answer(answered(message))]),
        _ => (Role::User, parts),
    };
    vec![Message { role, parts }]
}

pub(super) fn answered(message: &Value) -> Answered {
    let answered = Answered {
        id: fields::tool_call_id(message).to_owned(),
        is_error: message.get("is_error") == Some(&Value::Bool(true)),
        ..Answered::default()
    };
    answered.saying(content(message.get("content"), content_part))
}

fn content_part(part: &Value) -> Part {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    if let Some(url) = text("/image_url/url").or_else(|| text("/image_url")) {
        return Part::Media(Media { kind: MediaKind::Image, source: Source::of(url), name: None });
    }
    if let Some(data) = text("/file/file_data") {
        let name = text("/file/filename").map(str::to_owned);
        return Part::Media(Media { kind: MediaKind::File, source: Source::of(data), name });
    }
    match text("/text").or_else(|| text("/refusal")) {
        Some(text) => Part::Text(text.to_owned()),
        None => Part::missing(text("/type").unwrap_or("part")),
    }
}

pub(super) fn write(message: &Message) -> Vec<Value> {
    let mut written = Vec::new();
    let mut fields = Map::new();
    let mut content = Vec::new();
    let mut calls = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push(json!({"type": "text", "text": text})),
            Part::Media(media) => content.push(write_media(media)),
            Part::Reasoning { text, opaque } => {
                fields.extend(fields::reasoning(opaque));
                if fields.is_empty() && !text.is_empty() {
                    fields.insert("reasoning_content".to_owned(), Value::from(text.as_str()));
                }
            }
            Part::Call(call) => calls.push(fields::written(&call.id, call)),
            Part::Answer(answer) => {
                written.push(write_answer(answer));
                // Only texts have a place there.
                content.extend(answer.media.iter().map(write_media));
            }
        }
    }
    if content.is_empty() && calls.is_empty() {
        return written;
    }
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let mut message = Map::new();
    message.insert("role".to_owned(), Value::from(role));
    message.insert("content".to_owned(), plain_content(content));
    message.extend(fields);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    written.push(Value::Object(message));
    written
}

/// Texts alone are one text: not every provider takes parts.
fn plain_content(parts: Vec<Value>) -> Value {
    if parts.is_empty() {
        return Value::Null;
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect();
    match texts {
        Some(texts) => Value::from(texts.join("\n\n")),
        None => Value::Array(parts),
    }
}

fn write_media(media: &Media) -> Value {
    match media.kind {
        MediaKind::Image => json!({"type": "image_url", "image_url": {"url": media.source.url()}}),
        MediaKind::File if matches!(media.source, Source::Url(_)) => {
            json!({"type": "text", "text": format!("(a file at {}, which this model cannot be given)", media.source.url())})
        }
        MediaKind::File => {
            json!({"type": "file", "file": {"filename": media.name.as_deref().unwrap_or("file"), "file_data": media.source.url()}})
        }
    }
}

pub(super) fn write_answer(answer: &Answered) -> Value {
    let content = if answer.is_error && !answer.text.starts_with("Error") {
        // The only way in which this wire can tell.
        format!("Error: {}", answer.text)
    } else {
        answer.text.clone()
    };
    json!({"role": "tool", "tool_call_id": answer.id, "content": content})
}

pub(super) fn read_given(given: &Given) -> (ModelCall, Option<Answered>) {
    (fields::model_call(&given.call), given.answer.as_ref().map(answered))
}

pub(super) fn write_given(call: &ModelCall, answer: Option<&Answered>) -> Given {
    Given { call: fields::written(&call.id, call), answer: answer.map(write_answer) }
}

/// An error in `OpenAI`'s words.
pub(crate) fn error(trouble: &Trouble<'_>) -> Value {
    json!({"error": {"message": trouble.message, "type": trouble.kind, "param": trouble.param, "code": trouble.code}})
}

pub(super) fn read_tool(entry: &Value) -> Option<Tool> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    match entry.get("type").and_then(Value::as_str) {
        Some("function") => {
            let function = entry.get("function")?;
            let schema = function.get("parameters").filter(|schema| schema.is_object()).cloned();
            Some(Tool {
                name: text(function.get("name"))?,
                description: text(function.get("description")),
                input: Input::Schema(schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}))),
            })
        }
        Some("custom") => {
            let custom = entry.get("custom")?;
            Some(Tool {
                name: text(custom.get("name"))?,
                description: text(custom.get("description")),
                input: Input::Text { format: custom.get("format").cloned() },
            })
        }
        _ => None,
    }
}

pub(super) fn write_tool(tool: &Tool) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), Value::from(tool.name.as_str()));
    if let Some(description) = &tool.description {
        fields.insert("description".to_owned(), Value::from(description.as_str()));
    }
    match &tool.input {
        Input::Schema(schema) => {
            fields.insert("parameters".to_owned(), schema.clone());
            json!({"type": "function", "function": fields})
        }
        Input::Text { format } => {
            if let Some(format) = format {
                fields.insert("format".to_owned(), format.clone());
            }
            json!({"type": "custom", "custom": fields})
        }
    }
}

/// Fields that are read elsewhere, or mean nothing beyond this wire.
const KNOWN: [&str; 19] = [
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
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "store",
    "n",
];

pub(super) fn wishes(body: &Map<String, Value>) -> Wishes {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut dropped: Vec<String> = body
        .iter()
        .filter(|(key, value)| says_something(value) && !KNOWN.contains(&key.as_str()))
        .map(|(key, _)| key.clone())
        .collect();
    if body.get("n").is_some_and(|n| n.as_u64() != Some(1) && !n.is_null()) {
        dropped.push("n".to_owned());
    }
    Wishes {
        model: text("model").unwrap_or_default(),
        tokens_max: ["max_completion_tokens", "max_tokens"].iter().find_map(|key| body.get(*key)?.as_u64()),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: match body.get("stop") {
            Some(Value::String(stop)) => vec![stop.clone()],
            Some(Value::Array(stops)) => stops.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        },
        effort: body.get("reasoning_effort").and_then(Value::as_str).and_then(Effort::parse),
        format: body.get("response_format").and_then(format),
        user: text("safety_identifier").or_else(|| text("user")),
        dropped,
    }
}

fn format(format: &Value) -> Option<Format> {
    match format.get("type").and_then(Value::as_str)? {
        "json_object" => Some(Format::Json),
        "json_schema" => format.get("json_schema").map(Format::schema),
        _ => None,
    }
}

pub(super) fn body(wishes: &Wishes) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(wishes.model.as_str())));
    set("max_completion_tokens", wishes.tokens_max.map(Value::from));
    set("temperature", wishes.temperature.map(Value::from));
    set("top_p", wishes.top_p.map(Value::from));
    set("stop", (!wishes.stops.is_empty()).then(|| json!(wishes.stops)));
    set("reasoning_effort", wishes.effort.map(|effort| Value::from(effort.name())));
    set(
        "response_format",
        wishes.format.as_ref().map(|format| match format {
            Format::Json => json!({"type": "json_object"}),
            Format::Schema { name, schema, strict } => {
                json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}})
            }
        }),
    );
    set("user", wishes.user.as_deref().map(Value::from));
    body
}

pub(super) fn tokens(usage: &Map<String, Value>) -> Tokens {
    let number = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
    let detail = |object: &str, key: &str| {
        usage.get(object).and_then(|details| details.get(key)).and_then(Value::as_u64).unwrap_or_default()
    };
    Tokens {
        input: number("prompt_tokens"),
        cached: detail("prompt_tokens_details", "cached_tokens"),
        cache_written: 0,
        output: number("completion_tokens"),
        reasoning: detail("completion_tokens_details", "reasoning_tokens"),
    }
}

pub(super) fn usage(tokens: Tokens) -> Map<String, Value> {
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
