//! Messages, tools and parameters in a form that belongs to no wire, for models that are asked on another wire than the
//! client's.

use serde_json::{Map, Value};

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
    /// Reasoning that people can read, and what its provider wants back.
    Reasoning {
        text: String,
        state: Reasoning,
    },
    Call(ModelCall),
    Result(ToolResult),
}

impl MessagePart {
    /// Stands for content that the model's wire has no place for.
    pub(crate) fn missing(kind: &str) -> MessagePart {
        MessagePart::Text(format!("({kind}, which this model cannot be given)"))
    }
}

/// Whether a field of a request has a value that matters.
pub(crate) fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ToolResult {
    /// Of the call.
    pub id: String,
    pub text: String,
    pub media: Vec<Media>,
    pub status: ToolStatus,
    /// Of the call.
    pub format: CallFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ToolStatus {
    #[default]
    Ok,
    Failed,
}

impl ToolStatus {
    /// Reads `is_error`.
    pub(crate) fn of_flag(is_error: Option<&Value>) -> ToolStatus {
        if is_error == Some(&Value::Bool(true)) { ToolStatus::Failed } else { ToolStatus::Ok }
    }
}

impl ToolResult {
    /// Adds content.
    pub(crate) fn with_content(mut self, parts: Vec<MessagePart>) -> ToolResult {
        for part in parts {
            match part {
                MessagePart::Text(text) => self.text.push_str(&text),
                MessagePart::Media(media) => self.media.push(media),
                _ => {}
            }
        }
        self
    }

    /// The text for a wire that has no field for failures.
    pub(crate) fn text_with_failure(&self) -> String {
        match self.status {
            ToolStatus::Failed if !self.text.starts_with("Error") => format!("Error: {}", self.text),
            _ => self.text.clone(),
        }
    }
}

/// Content that is a text, or a list of what `part` reads.
pub(crate) fn content(content: Option<&Value>, part: fn(&Value) -> MessagePart) -> Vec<MessagePart> {
    match content {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => vec![MessagePart::Text(text.clone())],
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(other) => vec![MessagePart::Text(other.to_string())],
    }
}

/// An image or a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Media {
    pub kind: MediaKind,
    pub source: MediaSource,
    pub name: Option<String>,
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
    /// Reads `data:` addresses too.
    pub(crate) fn of(url: &str) -> MediaSource {
        let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match inline {
            Some((mime, data)) => MediaSource::Data { mime: mime.to_owned(), data: data.to_owned() },
            None => MediaSource::Url(url.to_owned()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            MediaSource::Url(url) => url.clone(),
            MediaSource::Data { mime, data } => format!("data:{mime};base64,{data}"),
        }
    }
}

/// A tool that the model may call by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolDeclaration {
    pub name: String,
    pub description: Option<String>,
    pub input: ToolInput,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolInput {
    Schema(Value),
    /// Text; what form it has is the provider's affair.
    Text {
        format: Option<Value>,
    },
}

/// What a request says besides its history and tools.
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
    /// Fields that only the client's wire knows: they are left out, and the client is told.
    pub dropped: Vec<String>,
}

/// How long a model may think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReasoningEffort {
    None,
    Low,
    Medium,
    High,
}

/// What the answer has to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ResponseFormat {
    Json,
    Schema { name: String, schema: Value, strict: Option<bool> },
}

impl ResponseFormat {
    /// A schema with its name, as both of `OpenAI`'s wires have it.
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
            "minimal" | "low" => Some(ReasoningEffort::Low),
            "medium" => Some(ReasoningEffort::Medium),
            "high" | "xhigh" | "max" => Some(ReasoningEffort::High),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ReasoningEffort::None => "none",
            ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High => "high",
        }
    }

    pub(crate) fn of_budget(tokens: u64) -> ReasoningEffort {
        match tokens {
            0 => ReasoningEffort::None,
            1..=4_096 => ReasoningEffort::Low,
            4_097..=12_288 => ReasoningEffort::Medium,
            _ => ReasoningEffort::High,
        }
    }

    /// Tokens to think with.
    pub(crate) fn budget(self) -> u64 {
        match self {
            ReasoningEffort::None => 0,
            ReasoningEffort::Low => 2_048,
            ReasoningEffort::Medium => 8_192,
            ReasoningEffort::High => 16_384,
        }
    }
}
