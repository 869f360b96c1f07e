//! Messages, tools and parameters in a form that belongs to no wire, for requests whose client and model are on
//! different wires.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::model_message::{CallFormat, ModelCall};
use crate::reasoning::Reasoning;

/// One message of a history.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NeutralMessage {
    pub role: MessageRole,
    pub parts: Vec<MessagePart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageRole {
    System,
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MessagePart {
    Text(String),
    Media(Media),
    /// An image or a file in a block that is on the model's wire already.
    Native(Value),
    /// Readable text of the reasoning, and the state that its provider wants back.
    Reasoning {
        text: String,
        state: Reasoning,
    },
    Call(ModelCall),
    Result(ToolResult),
}

impl MessagePart {
    /// A note in place of content that the model's wire cannot carry.
    pub(crate) fn missing(kind: &str) -> MessagePart {
        MessagePart::Text(missing_text(kind))
    }
}

/// The text of such a note.
pub(crate) fn missing_text(kind: &str) -> String {
    format!("({kind}, which this model cannot be given)")
}

/// Whether a field of a request is set: null and the empty object count as unset.
pub(crate) fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ToolResult {
    /// The id of the call.
    pub id: String,
    pub text: String,
    /// Images and files.
    pub media: Vec<MessagePart>,
    pub status: ToolStatus,
    /// The format of the call, because some wires have another kind of result for calls of text tools.
    pub format: CallFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ToolStatus {
    #[default]
    Ok,
    Failed,
}

impl ToolStatus {
    /// Reads the field `is_error`.
    pub(crate) fn of_flag(is_error: Option<&Value>) -> ToolStatus {
        if is_error == Some(&Value::Bool(true)) { ToolStatus::Failed } else { ToolStatus::Ok }
    }
}

impl ToolResult {
    /// Appends text and media. Results have no other content.
    pub(crate) fn with_content(mut self, parts: Vec<MessagePart>) -> ToolResult {
        for part in parts {
            match part {
                MessagePart::Text(text) => self.text.push_str(&text),
                MessagePart::Media(_) | MessagePart::Native(_) => self.media.push(part),
                _ => {}
            }
        }
        self
    }

    /// The text for a wire that has no field for failures.
    pub(crate) fn text_with_failure(&self) -> Cow<'_, str> {
        match self.status {
            ToolStatus::Failed if !self.text.starts_with("Error") => Cow::Owned(format!("Error: {}", self.text)),
            _ => Cow::Borrowed(&self.text),
        }
    }
}

/// Reads content that is a string or a list of parts.
pub(crate) fn content(content: Option<&Value>, part: fn(&Value) -> MessagePart) -> Vec<MessagePart> {
    match content {
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        other => {
            let text = string_or_json(other);
            if text.is_empty() { Vec::new() } else { vec![MessagePart::Text(text)] }
        }
    }
}

/// The text of a message or a tool result. Content that is not only text is rendered as JSON.
pub(crate) fn text_or_json(content: Option<&Value>) -> Cow<'_, str> {
    let texts: Option<Vec<&str>> = match content {
        Some(Value::String(text)) => Some(vec![text]),
        Some(Value::Array(parts)) => parts.iter().map(|part| part.get("text").and_then(Value::as_str)).collect(),
        _ => None,
    };
    match texts.as_deref() {
        // It may be large.
        Some([text]) => Cow::Borrowed(text),
        Some(texts) => Cow::Owned(texts.concat()),
        None => Cow::Owned(string_or_json(content)),
    }
}

/// A string as it is, any other value as JSON; nothing for a value that is missing or null.
pub(crate) fn string_or_json(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A copy of the fields that `keep` accepts.
pub(crate) fn selected_fields(fields: &Map<String, Value>, keep: impl Fn(&str, &Value) -> bool) -> Map<String, Value> {
    let kept = fields.iter().filter(|(key, value)| keep(key, value));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A copy of an object with another value in one of its fields, whose own value is not copied: lists of tools are long.
pub(crate) fn with_field(fields: &Map<String, Value>, key: &str, mut value: Value) -> Map<String, Value> {
    let copy = |(known, old): (&String, &Value)| {
        let copied = if known == key { value.take() } else { old.clone() };
        (known.clone(), copied)
    };
    fields.iter().map(copy).collect()
}

/// A value after a change that copies only what it changes. `None` if it is left out.
pub(crate) fn changed(value: Value, change: impl FnOnce(&Value) -> Option<Cow<'_, Value>>) -> Option<Value> {
    if let Cow::Owned(changed) = change(&value)? {
        return Some(changed);
    }
    Some(value)
}

/// A field of an object. Where there are few, as in a history, it takes less time to look at each than to hash the name.
pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    const FEW: usize = 8;
    match value {
        Value::Object(fields) if fields.len() <= FEW => {
            fields.iter().find_map(|(key, value)| (key == name).then_some(value))
        }
        other => other.get(name),
    }
}

/// A copy of an object without these fields.
pub(crate) fn without_fields(object: &Value, keys: &[&str]) -> Value {
    let mut object = object.clone();
    remove_fields(&mut object, keys);
    object
}

/// Removes fields of an object.
pub(crate) fn remove_fields(object: &mut Value, keys: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        for key in keys {
            fields.shift_remove(*key);
        }
    }
}

/// An image or a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Media {
    pub kind: MediaKind,
    pub source: MediaSource,
    pub name: Option<String>,
    /// How closely an image is looked at: `low`, `high` or `auto`, on `OpenAI`'s wires.
    pub detail: Option<String>,
}

impl Media {
    pub(crate) fn image(url: &str, detail: Option<&str>) -> Media {
        let (kind, source) = (MediaKind::Image, MediaSource::of(url));
        Media { kind, source, name: None, detail: detail.map(str::to_owned) }
    }

    pub(crate) fn file(url: &str, name: Option<&str>) -> Media {
        let (kind, source) = (MediaKind::File, MediaSource::of(url));
        Media { kind, source, name: name.map(str::to_owned), detail: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    File,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MediaSource {
    Url(String),
    /// Base64.
    Data {
        mime: String,
        data: String,
    },
}

impl MediaSource {
    /// Reads a URL. A `data:` URL holds the content itself.
    pub(crate) fn of(url: &str) -> MediaSource {
        let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match inline {
            Some((mime, data)) => MediaSource::Data { mime: mime.to_owned(), data: data.to_owned() },
            None => MediaSource::Url(url.to_owned()),
        }
    }

    pub(crate) fn url(&self) -> Cow<'_, str> {
        match self {
            MediaSource::Url(url) => Cow::Borrowed(url),
            MediaSource::Data { mime, data } => Cow::Owned(format!("data:{mime};base64,{data}")),
        }
    }
}

/// A tool that the model may call directly.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolDeclaration {
    pub name: String,
    pub description: Option<String>,
    pub input: ToolInput,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolInput {
    /// JSON of this schema.
    Schema(Value),
    /// Plain text. The format, such as a grammar, is passed to the provider as it is.
    Text { format: Option<Value> },
}

impl ToolDeclaration {
    /// Name, description and schema for a wire whose tools take only JSON: the text is a property of its own, and the
    /// description has its grammar.
    pub(crate) fn into_json_tool(self) -> (String, Option<String>, Value) {
        let format = match self.input {
            ToolInput::Schema(schema) => return (self.name, self.description, schema),
            ToolInput::Text { format } => format,
        };
        let grammar = format.as_ref().and_then(|format| format.get("grammar"));
        let text = |key: &str| grammar.and_then(|grammar| grammar.get(key)?.as_str());
        let description = match (self.description, text("definition")) {
            (description, Some(definition)) => {
                let syntax = text("syntax").unwrap_or_default();
                let description = description.as_deref().unwrap_or_default();
                Some(format!("{description}\nThe input must match this {syntax} grammar:\n{definition}"))
            }
            (description, None) => description,
        };
        let schema = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
        (self.name, description, schema)
    }
}

/// The parameters of a request: everything except its history and tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RequestParams {
    pub model: String,
    pub tokens_max: Option<u64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub stops: Vec<String>,
    pub effort: Option<ReasoningEffort>,
    pub format: Option<ResponseFormat>,
    pub user: Option<String>,
    /// How long answers should be: `low`, `medium` or `high`.
    pub verbosity: Option<Value>,
    /// Fields of [`SHARED_BY_OPENAI`], as they are.
    pub shared: Map<String, Value>,
    /// Fields that only the client's wire has. They are left out, and a response header names them.
    pub dropped: Vec<String>,
}

/// Fields that have the same name and meaning on both of `OpenAI`'s wires.
pub(crate) const SHARED_BY_OPENAI: [&str; 6] =
    ["metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user"];

/// Those of them that name who asks, best first.
pub(crate) const USER_FIELDS: [&str; 2] = ["safety_identifier", "user"];

impl RequestParams {
    /// The fields of a body that both of `OpenAI`'s wires have.
    pub(crate) fn shared_fields(body: &Map<String, Value>) -> Map<String, Value> {
        selected_fields(body, |key, value| SHARED_BY_OPENAI.contains(&key) && is_set(value))
    }

    /// Who asks, in these fields.
    pub(crate) fn user_in(shared: &Map<String, Value>) -> Option<String> {
        USER_FIELDS.iter().find_map(|key| shared.get(*key)?.as_str()).map(str::to_owned)
    }

    /// Writes these fields. A client of another wire may have named a user under none of their names.
    pub(crate) fn write_shared(&self, body: &mut Map<String, Value>) {
        body.extend(self.shared.clone());
        if let Some(user) = self.user.as_deref().filter(|_| RequestParams::user_in(&self.shared).is_none()) {
            body.insert("user".to_owned(), Value::from(user));
        }
    }
}

/// How much a model may reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    XHigh,
    /// Only on Messages.
    Max,
}

/// The format that the model's answer must have.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResponseFormat {
    Json,
    Schema { name: String, schema: Value, strict: Option<bool> },
}

impl ResponseFormat {
    /// Reads a schema with its name, which has the same form on both of `OpenAI`'s wires.
    pub(crate) fn schema(format: &Value) -> ResponseFormat {
        ResponseFormat::Schema {
            name: format.get("name").and_then(Value::as_str).unwrap_or("answer").to_owned(),
            schema: format.get("schema").cloned().unwrap_or_else(|| Value::Object(Map::new())),
            strict: format.get("strict").and_then(Value::as_bool),
        }
    }
}

impl ReasoningEffort {
    pub(crate) fn parse(name: &str) -> Option<ReasoningEffort> {
        match name {
            "none" => Some(ReasoningEffort::None),
            "minimal" => Some(ReasoningEffort::Minimal),
            "low" => Some(ReasoningEffort::Low),
            "medium" => Some(ReasoningEffort::Medium),
            "high" => Some(ReasoningEffort::High),
            "xhigh" => Some(ReasoningEffort::XHigh),
            "max" => Some(ReasoningEffort::Max),
            _ => None,
        }
    }

    /// The name on `OpenAI`'s wires, which have nothing above `xhigh`.
    pub(crate) fn openai_name(self) -> &'static str {
        match self {
            ReasoningEffort::None => "none",
            ReasoningEffort::Minimal => "minimal",
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
            ReasoningEffort::XHigh | ReasoningEffort::Max => "xhigh",
        }
    }

    /// The effort for a limit of reasoning tokens.
    pub(crate) fn of_budget(tokens: u64) -> ReasoningEffort {
        match tokens {
            0 => ReasoningEffort::None,
            1..=4_096 => ReasoningEffort::Low,
            4_097..=12_288 => ReasoningEffort::Medium,
            // Not every model has more.
            _ => ReasoningEffort::High,
        }
    }

    /// The limit of reasoning tokens, for wires that have a limit instead of an effort.
    pub(crate) fn budget(self) -> u64 {
        match self {
            ReasoningEffort::None => 0,
            ReasoningEffort::Minimal => 1_024,
            ReasoningEffort::Low => 2_048,
            ReasoningEffort::Medium => 8_192,
            ReasoningEffort::High => 16_384,
            ReasoningEffort::XHigh => 24_576,
            ReasoningEffort::Max => 32_768,
        }
    }
}
