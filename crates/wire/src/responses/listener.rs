//! Listening to a model: whole answers, and streams as providers really send them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields;
use crate::said::{Finish, Head, Heard, Listener, Said, Unheard};
use crate::saying::{ModelCall, Saying};
use crate::sse::Event;
use crate::wire::Wire;

/// Reads an answer that came whole.
pub(super) fn said(body: Value) -> Result<Said, String> {
    let Value::Object(mut response) = body else {
        return Err("the model's answer is no object".to_owned());
    };
    if response.get("status").is_some_and(|status| status == "failed") {
        let message = response.get("error").map(|error| fields::text_of(error, "message")).unwrap_or_default();
        return Err(format!("the model's answer failed: {message}"));
    }
    let Some(Value::Array(output)) = response.shift_remove("output") else {
        return Err("the model's answer has no output".to_owned());
    };
    let head = head(&response);
    Ok(put_together(response, output, head))
}

/// Elsewhere the messages of one answer are one text.
const BETWEEN: &str = "\n\n";

/// What of a response is the answer, or tells how it ended.
const NOT_AROUND: [&str; 6] = ["output", "usage", "status", "error", "incomplete_details", "completed_at"];

fn head(response: &Map<String, Value>) -> Head {
    let mut fields = response.clone();
    for key in NOT_AROUND {
        fields.shift_remove(key);
    }
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let created = fields.get("created_at");
    #[expect(clippy::cast_sign_loss, reason = "times before 1970 are as good as none")]
    let created = created.and_then(|created| created.as_u64().or_else(|| created.as_f64().map(|time| time as u64)));
    Head { id: text("id"), created, model: text("model"), wire: Wire::Responses, fields }
}

fn put_together(mut response: Map<String, Value>, output: Vec<Value>, head: Head) -> Said {
    let calls: Vec<ModelCall> = output.iter().filter(|item| fields::is_call(item)).map(fields::model_call).collect();
    let messages = || output.iter().filter(|item| fields::is_message(item));
    let texts: Vec<String> = messages().map(fields::said_text).filter(|text| !text.is_empty()).collect();
    let text = texts.join(BETWEEN);
    let mut opaque = Map::new();
    let items = wanted_back(&output);
    if !items.is_empty() {
        opaque.insert("items".to_owned(), Value::Array(items));
    }
    let thoughts = output.iter().filter(|item| fields::is_reasoning(item)).map(fields::thoughts);
    let reasoning = thoughts.filter(|thought| !thought.is_empty()).collect::<Vec<_>>().join("\n\n");
    let reason = response.get("incomplete_details").map(|details| fields::text_of(details, "reason"));
    let is_incomplete = response.get("status").is_some_and(|status| status == "incomplete");
    let finish = match reason {
        Some("content_filter") => Finish::Filter,
        _ if is_incomplete => Finish::Length,
        _ if calls.is_empty() => Finish::Stop,
        _ => Finish::Calls,
    };
    let usage = response.get("usage").filter(|usage| usage.is_object()).cloned();
    response.insert("output".to_owned(), Value::Array(output));
    let saying = Saying { text: Some(text).filter(|text| !text.is_empty()), opaque, calls };
    Said { saying, reasoning, finish, usage, head, native: response }
}

/// What stands in the model's history as it came: thoughts, and what its provider's tools did. A message is only text,
/// unless there is more to it.
fn wanted_back(output: &[Value]) -> Vec<Value> {
    let is_wanted = |item: &&Value| {
        fields::is_said(item)
            && !fields::is_client_call(item)
            && (!fields::is_reasoning(item) || fields::is_whole_thought(item))
    };
    let mut items: Vec<Value> = output.iter().filter(is_wanted).cloned().collect();
    let messages = items.iter().filter(|item| fields::is_message(item));
    let is_last = items.iter().rposition(|item| !fields::is_message(item)) < items.iter().position(fields::is_message);
    let is_text = messages.clone().count() <= 1 && messages.clone().all(is_plain) && is_last;
    if is_text {
        items.retain(|item| !fields::is_message(item));
    }
    items
}

fn is_plain(message: &Value) -> bool {
    let is_nothing = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    };
    let is_plain = |part: &Value| {
        part["type"] == "output_text" && is_nothing(part.get("annotations")) && is_nothing(part.get("logprobs"))
    };
    is_nothing(message.get("phase")) && message["content"].as_array().is_some_and(|parts| parts.iter().all(is_plain))
}

/// Puts a streamed answer together.
#[derive(Debug, Default)]
pub(super) struct ResponsesListener {
    head: Option<Head>,
    kinds: BTreeMap<u64, Kind>,
    /// The message that spoke last.
    speaks: Option<u64>,
    /// Items that are whole.
    items: BTreeMap<u64, Value>,
    /// As it stands at the end.
    response: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Text,
    Other,
}

impl Kind {
    fn of(item: &Value) -> Kind {
        match item {
            item if fields::is_call(item) => Kind::Call,
            item if fields::is_message(item) => Kind::Text,
            _ => Kind::Other,
        }
    }

    /// Of an item that was not announced.
    fn guessed(event: &str) -> Kind {
        if event.contains("function_call_arguments") || event.contains("custom_tool_call_input") {
            Kind::Call
        } else if ["output_text", "refusal", "content_part"].iter().any(|part| event.contains(part)) {
            Kind::Text
        } else {
            Kind::Other
        }
    }
}

impl Listener for ResponsesListener {
    fn hear(&mut self, event: &Event) -> Result<Heard, Unheard> {
        if event.data.trim() == "[DONE]" {
            return Ok(Heard::default());
        }
        let mut data: Value = serde_json::from_str(&event.data).map_err(|error| Unheard::NotJson(error.to_string()))?;
        let kind = match fields::text_of(&data, "type") {
            "" => event.name.clone().unwrap_or_default(),
            kind => kind.to_owned(),
        };
        if kind == "error" || data.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Unheard::Error(error(data.get("error").unwrap_or(&data))));
        }
        match kind.as_str() {
            "response.failed" => Err(Unheard::Error(error(&data["response"]["error"]))),
            "response.completed" | "response.incomplete" => {
                if let Some(Value::Object(response)) = data.get_mut("response").map(Value::take) {
                    self.head.get_or_insert_with(|| head(&response));
                    self.response = Some(response);
                }
                Ok(Heard::default())
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = data.get("response").and_then(Value::as_object) {
                    self.head.get_or_insert_with(|| head(response));
                }
                Ok(Heard::default())
            }
            _ => Ok(self.hear_item(&kind, data)),
        }
    }

    fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    fn is_over(&self) -> bool {
        self.response.is_some()
    }

    fn finish(self: Box<Self>) -> Option<Said> {
        let mut response = self.response?;
        let output = match response.shift_remove("output") {
            Some(Value::Array(output)) if !output.is_empty() => output,
            // Some leave it out where they have streamed it.
            _ => self.items.into_values().collect(),
        };
        Some(put_together(response, output, self.head?))
    }
}

impl ResponsesListener {
    fn hear_item(&mut self, event: &str, data: Value) -> Heard {
        let Some(index) = data.get("output_index").and_then(Value::as_u64) else {
            return Heard { native: Some(data), ..Heard::default() };
        };
        let item = data.get("item");
        let kind = *self.kinds.entry(index).or_insert_with(|| item.map_or_else(|| Kind::guessed(event), Kind::of));
        let mut heard = Heard { is_text: kind == Kind::Text, ..Heard::default() };
        let delta = || fields::text_of(&data, "delta").to_owned();
        match event {
            "response.output_item.done" => {
                if let Some(item) = item {
                    self.items.insert(index, item.clone());
                    if fields::is_reasoning(item) && fields::is_whole_thought(item) {
                        heard.opaque = json!({"items": [item]}).as_object().cloned();
                    }
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                heard.text = delta();
                if !heard.text.is_empty() && self.speaks.replace(index).is_some_and(|before| before != index) {
                    heard.text.insert_str(0, BETWEEN);
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => heard.reasoning = delta(),
            "response.reasoning_summary_part.added" if data["summary_index"] != 0 => {
                "\n\n".clone_into(&mut heard.reasoning);
            }
            _ => {}
        }
        if kind == Kind::Call {
            return Heard::default();
        }
        heard.native = Some(data);
        heard
    }
}

/// An error in the form in which it would have come instead of a stream.
fn error(error: &Value) -> Value {
    let text = |key: &str| error.get(key).filter(|value| value.is_string());
    let message = text("message").cloned().unwrap_or_else(|| Value::from("the model's answer failed"));
    let kind = text("type").filter(|kind| *kind != "error").or_else(|| text("code")).cloned();
    json!({"error": {
        "message": message,
        "type": kind.unwrap_or_else(|| Value::from("server_error")),
        "param": text("param"),
        "code": text("code"),
    }})
}
