//! Messages and wishes in our own words, for models that are asked on another wire than the client's.

use serde_json::{Map, Value};

use crate::saying::ModelCall;

/// One message of a history.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Media(Media),
    /// What a model thought, with what its provider wants back: see [`crate::carrier`].
    Reasoning {
        text: String,
        opaque: Map<String, Value>,
    },
    Call(ModelCall),
    Answer(Answered),
}

impl Part {
    /// Stands for what the model's wire has no place for.
    pub(crate) fn missing(kind: &str) -> Part {
        Part::Text(format!("({kind}, which this model cannot be given)"))
    }
}

/// Does a field of a request ask for anything?
pub(crate) fn says_something(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
}

/// What a client's tool said.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answered {
    /// Of the call.
    pub id: String,
    pub text: String,
    pub media: Vec<Media>,
    pub is_error: bool,
    /// The call took text instead of JSON.
    pub is_custom: bool,
}

impl Answered {
    /// With what the tool said.
    pub(crate) fn saying(mut self, parts: Vec<Part>) -> Answered {
        for part in parts {
            match part {
                Part::Text(text) => self.text.push_str(&text),
                Part::Media(media) => self.media.push(media),
                _ => {}
            }
        }
        self
    }
}

/// Content that is a text, or a list of what `part` reads.
pub(crate) fn content(content: Option<&Value>, part: fn(&Value) -> Part) -> Vec<Part> {
    match content {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) => vec![Part::Text(text.clone())],
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(other) => vec![Part::Text(other.to_string())],
    }
}

/// An image or a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Media {
    pub kind: MediaKind,
    pub source: Source,
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Image,
    File,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    Url(String),
    /// Base64.
    Data {
        mime: String,
        data: String,
    },
}

impl Source {
    /// Reads `data:` addresses too.
    pub(crate) fn of(url: &str) -> Source {
        let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match inline {
            Some((mime, data)) => Source::Data { mime: mime.to_owned(), data: data.to_owned() },
            None => Source::Url(url.to_owned()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Source::Url(url) => url.clone(),
            Source::Data { mime, data } => format!("data:{mime};base64,{data}"),
        }
    }
}

/// A tool that the model may call by itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub input: Input,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Schema(Value),
    /// Text; what form it has is the provider's affair.
    Text {
        format: Option<Value>,
    },
}

/// What a request says besides its history and tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Wishes {
    pub model: String,
    pub tokens_max: Option<u64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub stops: Vec<String>,
    pub effort: Option<Effort>,
    pub format: Option<Format>,
    pub user: Option<String>,
    /// Fields that only the client's wire knows: they are left out, and the client is told.
    pub dropped: Vec<String>,
}

/// How long a model may think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    None,
    Low,
    Medium,
    High,
}

/// What the answer has to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Format {
    Json,
    Schema { name: String, schema: Value, strict: Option<bool> },
}

impl Format {
    /// A schema with its name, as both of `OpenAI`'s wires have it.
    pub(crate) fn schema(format: &Value) -> Format {
        Format::Schema {
            name: format.get("name").and_then(Value::as_str).unwrap_or("answer").to_owned(),
            schema: format.get("schema").cloned().unwrap_or_else(|| Value::Object(Map::new())),
            strict: format.get("strict").and_then(Value::as_bool),
        }
    }
}

impl Effort {
    pub(crate) fn parse(name: &str) -> Option<Effort> {
        match name {
            "none" => Some(Effort::None),
            "minimal" | "low" => Some(Effort::Low),
            "medium" => Some(Effort::Medium),
            "high" | "xhigh" | "max" => Some(Effort::High),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Effort::None => "none",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }

    pub(crate) fn of_budget(tokens: u64) -> Effort {
        match tokens {
            0 => Effort::None,
            1..=4_096 => Effort::Low,
            4_097..=12_288 => Effort::Medium,
            _ => Effort::High,
        }
    }

    /// Tokens to think with.
    pub(crate) fn budget(self) -> u64 {
        match self {
            Effort::None => 0,
            Effort::Low => 2_048,
            Effort::Medium => 8_192,
            Effort::High => 16_384,
        }
    }
}
