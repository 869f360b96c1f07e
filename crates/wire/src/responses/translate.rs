//! Items and wishes between this wire and our own words.

use serde_json::{Map, Value, json};

use super::fields;
use crate::carrier;
use crate::conversation::Given;
use crate::message::{
    Answered, Effort, Format, Media, MediaKind, Message, Part, Role, Source, Wishes, content, says_something,
};
use crate::saying::ModelCall;
use crate::usage::Tokens;

pub(super) fn preface(body: &Map<String, Value>) -> Vec<Message> {
    match body.get("instructions") {
        Some(Value::String(text)) if !text.is_empty() => {
            vec![Message { role: Role::System, parts: vec![Part::Text(text.clone())] }]
        }
        Some(Value::Array(items)) => items.iter().flat_map(read).collect(),
        _ => Vec::new(),
    }
}

/// What only this wire's providers understand is left out.
pub(super) fn read(item: &Value) -> Vec<Message> {
    let (role, parts) = match fields::kind(item) {
        "message" => {
            let role = match fields::text_of(item, "role") {
                "system" | "developer" => Role::System,
                "assistant" => Role::Assistant,
                _ => Role::User,
            };
            (role, content(item.get("content"), content_part))
        }
        "reasoning" => (Role::Assistant, vec![thought(item)]),
        "function_call" | "custom_tool_call" => (Role::Assistant, vec![Part::Call(call(item))]),
        "function_call_output" | "custom_tool_call_output" => (Role::User, vec![Part::Answer(answered(item))]),
        _ => return Vec::new(),
    };
    if parts.is_empty() { Vec::new() } else { vec![Message { role, parts }] }
}

/// Elsewhere names have no dots.
pub(super) fn call(item: &Value) -> ModelCall {
    let mut call = fields::model_call(item);
    if !fields::text_of(item, "namespace").is_empty() {
        call.name = format!("{}__{}", fields::text_of(item, "namespace"), fields::text_of(item, "name"));
    }
    call
}

fn thought(item: &Value) -> Part {
    let mut opaque = Map::new();
    match carrier::unwrap(fields::text_of(item, "encrypted_content")) {
        Some(carried) => opaque = carried,
        None if fields::is_whole_thought(item) => _ = opaque.insert("items".to_owned(), json!([item])),
        None => {}
    }
    Part::Reasoning { text: fields::thoughts(item), opaque }
}

pub(super) fn answered(item: &Value) -> Answered {
    let answered = Answered {
        id: fields::call_id(item).to_owned(),
        is_custom: fields::kind(item) == "custom_tool_call_output",
        ..Answered::default()
    };
    answered.saying(content(item.get("output"), content_part))
}

fn content_part(part: &Value) -> Part {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    if let Some(url) = text("image_url") {
        return Part::Media(Media { kind: MediaKind::Image, source: Source::of(url), name: None });
    }
    if let Some(data) = text("file_data").or_else(|| text("file_url")) {
        let name = text("filename").map(str::to_owned);
        return Part::Media(Media { kind: MediaKind::File, source: Source::of(data), name });
    }
    match text("text").or_else(|| text("refusal")) {
        Some(text) => Part::Text(text.to_owned()),
        None => Part::Text(part.to_string()),
    }
}

pub(super) fn write(message: &Message) -> Vec<Value> {
    let mut items = Vec::new();
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => {
                let kind = if message.role == Role::Assistant { "output_text" } else { "input_text" };
                content.push(json!({"type": kind, "text": text}));
                continue;
            }
            Part::Media(media) => {
                content.push(write_media(media));
                continue;
            }
            _ => write_message(message.role, &mut content, &mut items),
        }
        match part {
            Part::Reasoning { opaque, .. } => {
                let carried = opaque.get("items").and_then(Value::as_array).into_iter().flatten();
                // What it said aloud, other wires have as text.
                items.extend(carried.filter(|item| !fields::is_message(item)).cloned());
            }
            Part::Call(call) => items.push(fields::written(&call.id, call)),
            Part::Answer(answer) => items.push(write_answer(answer)),
            Part::Text(_) | Part::Media(_) => {}
        }
    }
    write_message(message.role, &mut content, &mut items);
    items
}

fn write_message(role: Role, content: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !content.is_empty() {
        let role = match role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        items.push(json!({"type": "message", "role": role, "content": std::mem::take(content)}));
    }
}

fn write_media(media: &Media) -> Value {
    match (media.kind, &media.source) {
        (MediaKind::Image, source) => json!({"type": "input_image", "image_url": source.url(), "detail": "auto"}),
        (MediaKind::File, Source::Url(url)) => json!({"type": "input_file", "file_url": url}),
        (MediaKind::File, data) => {
            json!({"type": "input_file", "filename": media.name.as_deref().unwrap_or("file"), "file_data": data.url()})
        }
    }
}

pub(super) fn write_answer(answer: &Answered) -> Value {
    let text = if answer.is_error && !answer.text.starts_with("Error") {
        // The only way in which this wire can tell.
        format!("Error: {}", answer.text)
    } else {
        answer.text.clone()
    };
    if answer.media.is_empty() {
        return fields::output(&answer.id, text, answer.is_custom);
    }
    let text = (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}));
    let parts: Vec<Value> = text.into_iter().chain(answer.media.iter().map(write_media)).collect();
    fields::output(&answer.id, parts, answer.is_custom)
}

/// Fields that are read elsewhere, or mean nothing beyond this wire.
const KNOWN: [&str; 21] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "max_output_tokens",
    "temperature",
    "top_p",
    "reasoning",
    "text",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "store",
    "include",
    "background",
    "previous_response_id",
    "conversation",
];

pub(super) fn wishes(body: &Map<String, Value>) -> Wishes {
    let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    let unknown = body.iter().filter(|(key, value)| says_something(value) && !KNOWN.contains(&key.as_str()));
    let mut dropped: Vec<String> = unknown.map(|(key, _)| key.clone()).collect();
    let inner = [("text", "format"), ("reasoning", "effort")];
    for (key, known) in inner {
        let fields = body.get(key).and_then(Value::as_object).into_iter().flatten();
        let unknown = fields.filter(|(name, value)| !value.is_null() && *name != known && *name != "summary");
        dropped.extend(unknown.map(|(name, _)| format!("{key}.{name}")));
    }
    let of = |key: &str, name: &str| body.get(key).and_then(|value| value.get(name));
    Wishes {
        model: text("model").unwrap_or_default(),
        tokens_max: body.get("max_output_tokens").and_then(Value::as_u64),
        temperature: body.get("temperature").and_then(Value::as_f64),
        top_p: body.get("top_p").and_then(Value::as_f64),
        stops: Vec::new(),
        effort: of("reasoning", "effort").and_then(Value::as_str).and_then(Effort::parse),
        format: of("text", "format").and_then(format),
        user: text("safety_identifier").or_else(|| text("user")),
        dropped,
    }
}

fn format(format: &Value) -> Option<Format> {
    match fields::text_of(format, "type") {
        "json_object" => Some(Format::Json),
        "json_schema" => Some(Format::schema(format)),
        _ => None,
    }
}

/// Stops have no place on this wire.
pub(super) fn body(wishes: &Wishes) -> Map<String, Value> {
    let mut body = Map::new();
    let mut set = |key: &str, value: Option<Value>| _ = value.map(|value| body.insert(key.to_owned(), value));
    set("model", Some(Value::from(wishes.model.as_str())));
    set("max_output_tokens", wishes.tokens_max.map(Value::from));
    set("temperature", wishes.temperature.map(Value::from));
    set("top_p", wishes.top_p.map(Value::from));
    set("reasoning", wishes.effort.map(|effort| json!({"effort": effort.name()})));
    set(
        "text",
        wishes.format.as_ref().map(|format| match format {
            Format::Json => json!({"format": {"type": "json_object"}}),
            Format::Schema { name, schema, strict } => {
                json!({"format": {"type": "json_schema", "name": name, "schema": schema, "strict": strict}})
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
        input: number("input_tokens"),
        cached: detail("input_tokens_details", "cached_tokens"),
        cache_written: detail("input_tokens_details", "cache_write_tokens"),
        output: number("output_tokens"),
        reasoning: detail("output_tokens_details", "reasoning_tokens"),
    }
}

pub(super) fn usage(tokens: Tokens) -> Map<String, Value> {
    let usage = json!({
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.cache_written},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input.saturating_add(tokens.output),
    });
    match usage {
        Value::Object(usage) => usage,
        _ => Map::new(),
    }
}

pub(super) fn read_given(given: &Given) -> (ModelCall, Option<Answered>) {
    (call(&given.call), given.answer.as_ref().map(answered))
}

pub(super) fn write_given(call: &ModelCall, answer: Option<&Answered>) -> Given {
    Given { call: fields::written(&call.id, call), answer: answer.map(write_answer) }
}
