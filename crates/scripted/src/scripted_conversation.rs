//! The messages, tools and model of a request, independent of its wire format.

use std::borrow::Cow;

use dacapo_catalog::shorten;
use serde_json::{Map, Value};

/// A request that passed the checks of its wire.
pub(crate) struct ScriptedConversation<'a> {
    pub(crate) request: &'a Map<String, Value>,
    pub(crate) messages: Vec<HistoryMessage<'a>>,
    pub(crate) tools: Vec<OfferedTool<'a>>,
    pub(crate) tool_use: ToolUse,
    /// The parts of the request that are counted as input tokens.
    pub(crate) prompt: Vec<&'a Value>,
}

/// A message, as `when` and the placeholders see it. Every tool result is a message of its own.
#[derive(Debug)]
pub(crate) struct HistoryMessage<'a> {
    pub(crate) role: Role,
    pub(crate) text: Cow<'a, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// A tool of the request.
pub(crate) struct OfferedTool<'a> {
    pub(crate) name: &'a str,
    pub(crate) input: InputKind,
}

/// What a tool takes as its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    Json,
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolUse {
    Allowed,
    Forbidden,
}

/// Characters of a text that an error message quotes.
pub(crate) const QUOTED_CHARS_MAX: usize = 200;

impl<'a> ScriptedConversation<'a> {
    pub(crate) fn model(&self) -> Option<&'a str> {
        self.request.get("model")?.as_str()
    }

    pub(crate) fn given(&self, name: &str) -> Option<&'a Value> {
        given(self.request, name)
    }

    pub(crate) fn offers(&self, tool: &str) -> bool {
        self.offered(tool).is_some()
    }

    pub(crate) fn offered(&self, tool: &str) -> Option<&OfferedTool<'a>> {
        self.tools.iter().find(|offered| offered.name == tool)
    }

    pub(crate) fn last_role(&self) -> Option<Role> {
        self.messages.last().map(|message| message.role)
    }

    pub(crate) fn last_text(&self) -> &str {
        self.messages.last().map_or("", |message| &message.text)
    }

    pub(crate) fn last_text_of(&self, wanted: Role) -> Option<&str> {
        self.messages.iter().rfind(|message| message.role == wanted).map(|message| &*message.text)
    }

    /// The number of assistant messages since the last user message.
    pub(crate) fn step(&self) -> u64 {
        let since_user = self.messages.iter().rev().take_while(|message| message.role != Role::User);
        since_user.filter(|message| message.role == Role::Assistant).count() as u64
    }

    /// The URL of the last image of the history. An image that is sent along has a `data:` URL.
    pub(crate) fn last_image(&self) -> Option<Cow<'a, str>> {
        ["messages", "input"].iter().find_map(|name| self.request.get(*name)).and_then(last_image)
    }

    pub(crate) fn describe_last(&self) -> String {
        let text = Value::from(shorten(self.last_text(), QUOTED_CHARS_MAX));
        format!("The last message has role '{}' and says {text}.", self.last_role().map_or("", Role::name))
    }

    pub(crate) fn input_tokens(&self, count: fn(&str) -> usize) -> usize {
        input_tokens(&self.prompt, count)
    }
}

impl Role {
    pub(crate) const ALL: [Role; 4] = [Role::User, Role::Tool, Role::Assistant, Role::System];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

pub(crate) fn input_tokens(prompt: &[&Value], count: fn(&str) -> usize) -> usize {
    prompt.iter().map(|part| count(&part.to_string())).sum()
}

pub(crate) fn given<'a>(request: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    request.get(name).filter(|value| !value.is_null())
}

pub(crate) fn list<'a>(request: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    request.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn last_image(value: &Value) -> Option<Cow<'_, str>> {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    match value {
        Value::Array(items) => items.iter().rev().find_map(last_image),
        Value::Object(fields) => match text("/type") {
            Some("image_url") => text("/image_url/url").map(Cow::Borrowed),
            Some("input_image") => text("/image_url").map(Cow::Borrowed),
            Some("image") => {
                let data = || Some(format!("data:{};base64,{}", text("/source/media_type")?, text("/source/data")?));
                text("/source/url").map(Cow::Borrowed).or_else(|| data().map(Cow::Owned))
            }
            _ => fields.values().rev().find_map(last_image),
        },
        _ => None,
    }
}

/// The text of a `content` that is a string or a list of parts.
pub(crate) fn text_of(content: Option<&Value>) -> Cow<'_, str> {
    match content {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Array(parts)) => Cow::Owned(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
        _ => Cow::Borrowed(""),
    }
}
