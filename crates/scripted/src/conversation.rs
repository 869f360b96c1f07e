//! What a request says, whatever its format: its messages, tools and model.

use serde_json::{Map, Value};

/// A request that has been read, and that nobody refuses.
pub(super) struct Conversation<'a> {
    pub(super) request: &'a Map<String, Value>,
    pub(super) messages: Vec<Spoken>,
    pub(super) tools: Vec<Offered<'a>>,
    pub(super) tool_use: ToolUse,
    /// What counts as input.
    pub(super) prompt: Vec<&'a Value>,
}

/// A message, as `when` and the templates see it. Every result of a tool is one.
#[derive(Debug)]
pub(super) struct Spoken {
    pub(super) role: Role,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    System,
    User,
    Assistant,
    Tool,
}

pub(super) struct Offered<'a> {
    pub(super) name: &'a str,
    pub(super) input: Input,
}

/// What a tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Json,
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolUse {
    Allowed,
    Forbidden,
}

/// As much of a text as an error message quotes.
const QUOTED_CHARS_MAX: usize = 200;

impl<'a> Conversation<'a> {
    pub(super) fn model(&self) -> Option<&'a str> {
        self.request.get("model")?.as_str()
    }

    pub(super) fn given(&self, name: &str) -> Option<&'a Value> {
        given(self.request, name)
    }

    pub(super) fn offers(&self, tool: &str) -> bool {
        self.offered(tool).is_some()
    }

    pub(super) fn offered(&self, tool: &str) -> Option<&Offered<'a>> {
        self.tools.iter().find(|offered| offered.name == tool)
    }

    pub(super) fn last_role(&self) -> Option<Role> {
        self.messages.last().map(|message| message.role)
    }

    pub(super) fn last_text(&self) -> &str {
        self.messages.last().map_or("", |message| &message.text)
    }

    pub(super) fn last_text_of(&self, wanted: Role) -> Option<&str> {
        self.messages.iter().rfind(|message| message.role == wanted).map(|message| message.text.as_str())
    }

    /// How many assistant messages there are since the last user message.
    pub(super) fn step(&self) -> u64 {
        let turn = self.messages.iter().rev().take_while(|message| message.role != Role::User);
        turn.filter(|message| message.role == Role::Assistant).count() as u64
    }

    pub(super) fn describe_last(&self) -> String {
        let text = Value::from(clip(self.last_text()));
        format!("The last message has role '{}' and says {text}.", self.last_role().map_or("", Role::name))
    }

    pub(super) fn input_tokens(&self, count: fn(&str) -> usize) -> usize {
        input_tokens(&self.prompt, count)
    }
}

impl Role {
    pub(super) const ALL: [Role; 4] = [Role::User, Role::Tool, Role::Assistant, Role::System];

    pub(super) fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

pub(super) fn input_tokens(prompt: &[&Value], count: fn(&str) -> usize) -> usize {
    prompt.iter().map(|part| count(&part.to_string())).sum()
}

pub(super) fn given<'a>(request: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    request.get(name).filter(|value| !value.is_null())
}

pub(super) fn list<'a>(request: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    request.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What a content says, be it text or a list of parts.
pub(super) fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

pub(super) fn clip(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
