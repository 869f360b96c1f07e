//! What a request says: its messages, tools and model.

use serde_json::{Map, Value};

use super::failure::Failure;

/// A request body that has messages.
pub(super) struct Conversation<'a> {
    pub(super) request: &'a Map<String, Value>,
    pub(super) messages: Vec<&'a Map<String, Value>>,
}

/// As much of a text as an error message quotes.
const QUOTED_CHARS_MAX: usize = 200;

impl<'a> Conversation<'a> {
    pub(super) fn read(request: &'a Value) -> Result<Conversation<'a>, Failure> {
        let Value::Object(request) = request else {
            let message = "We could not parse the JSON body of your request. The API expects a JSON object.";
            return Err(Failure::invalid(message, None));
        };
        let messages = match request.get("messages") {
            None | Some(Value::Null) => return Err(Failure::missing("messages".into())),
            Some(Value::Array(messages)) if messages.is_empty() => return Err(Failure::empty_array("messages".into())),
            Some(Value::Array(messages)) => messages,
            Some(other) => return Err(Failure::wrong_type("messages".into(), "an array of objects", other)),
        };
        let message = |(i, message): (usize, &'a Value)| {
            message.as_object().ok_or_else(|| Failure::wrong_type(format!("messages[{i}]"), "an object", message))
        };
        let messages = messages.iter().enumerate().map(message).collect::<Result<_, _>>()?;
        Ok(Conversation { request, messages })
    }

    pub(super) fn model(&self) -> Option<&'a str> {
        self.request.get("model")?.as_str()
    }

    pub(super) fn tools(&self) -> &'a [Value] {
        self.request.get("tools").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(super) fn offers(&self, tool: &str) -> bool {
        self.tools().iter().any(|offered| tool_name(offered) == Some(tool))
    }

    pub(super) fn forbids_tools(&self) -> bool {
        self.request.get("tool_choice").and_then(Value::as_str) == Some("none")
    }

    pub(super) fn last_role(&self) -> &'a str {
        self.messages.last().map_or("", |message| role(message))
    }

    pub(super) fn last_text(&self) -> String {
        self.messages.last().map(|message| text(message)).unwrap_or_default()
    }

    pub(super) fn last_text_of(&self, wanted: &str) -> Option<String> {
        self.messages.iter().rfind(|message| role(message) == wanted).map(|message| text(message))
    }

    /// How many assistant messages there are since the last user message.
    pub(super) fn step(&self) -> u64 {
        let turn = self.messages.iter().rev().take_while(|message| role(message) != "user");
        turn.filter(|message| role(message) == "assistant").count() as u64
    }

    pub(super) fn describe_last(&self) -> String {
        let text = Value::from(clip(&self.last_text()));
        format!("The last message has role '{}' and says {text}.", self.last_role())
    }
}

/// The role, with the names that mean the same made one.
pub(super) fn role(message: &Map<String, Value>) -> &str {
    match message.get("role").and_then(Value::as_str).unwrap_or_default() {
        "developer" => "system",
        "function" => "tool",
        role => role,
    }
}

/// The name under which a tool is called; hosted tools have none.
pub(super) fn tool_name(tool: &Value) -> Option<&str> {
    let named = ["function", "custom"].iter().find_map(|kind| tool.get(kind)).unwrap_or(tool);
    named.get("name")?.as_str()
}

fn text(message: &Map<String, Value>) -> String {
    match message.get("content") {
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
