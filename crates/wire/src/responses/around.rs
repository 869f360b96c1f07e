//! What stands around an answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{fields, tools};
use crate::said::{Finish, Head, Said};
use crate::wire::Wire;

/// Fields of the request that a response repeats, and what they are if the request has none.
const REPEATED: [(&str, &str); 14] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("reasoning", "{\"effort\":null,\"summary\":null}"),
    ("service_tier", "\"default\""),
    ("temperature", "null"),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
    ("background", "false"),
];
/// Of these the model's provider knows only what we asked it with.
const CLIENTS: [&str; 4] = ["instructions", "parallel_tool_calls", "tool_choice", "tools"];

/// What a response repeats of its request.
#[derive(Debug, Default)]
pub(super) struct Repeated(Map<String, Value>);

impl Repeated {
    pub(super) fn of(body: &Map<String, Value>) -> Repeated {
        let repeated = REPEATED.iter().filter_map(|(key, _)| Some(((*key).to_owned(), body.get(*key)?.clone())));
        Repeated(repeated.filter(|(_, value)| !value.is_null()).collect())
    }

    /// The client's functions of these names.
    pub(super) fn functions(&self, names: &[String]) -> Vec<Value> {
        let Some(declared) = self.0.get("tools") else { return Vec::new() };
        let declared: BTreeMap<String, &Value> = tools::functions(declared).collect();
        names.iter().filter_map(|name| declared.get(name).copied().cloned()).collect()
    }

    /// The response, without what it came to.
    pub(super) fn response(&self, head: &Head) -> Map<String, Value> {
        let mut response = Map::new();
        if head.wire == Wire::Responses {
            response.clone_from(&head.fields);
            for key in CLIENTS {
                response.shift_remove(key);
            }
        }
        let prefix = Wire::Responses.answer_prefix();
        let id = if head.id.starts_with(prefix) { head.id.clone() } else { format!("{prefix}{}", head.id) };
        response.insert("id".to_owned(), Value::from(id));
        response.insert("object".to_owned(), Value::from("response"));
        response.entry("created_at").or_insert_with(|| Value::from(head.created.unwrap_or_default()));
        response.insert("model".to_owned(), Value::from(head.model.as_str()));
        response.insert("error".to_owned(), Value::Null);
        response.insert("incomplete_details".to_owned(), Value::Null);
        for (key, default) in REPEATED {
            let value =
                || self.0.get(key).cloned().unwrap_or_else(|| serde_json::from_str(default).unwrap_or_default());
            response.entry(key).or_insert_with(value);
        }
        response.insert("previous_response_id".to_owned(), Value::Null);
        response.insert("store".to_owned(), Value::Bool(false));
        response
    }
}

/// Why an answer is not complete; `None` if it is.
pub(super) fn incomplete(said: &Said) -> Option<Value> {
    let reason = match said.finish {
        Finish::Length => "max_output_tokens",
        Finish::Filter => "content_filter",
        Finish::Stop | Finish::Calls => return None,
    };
    let native = said.native.get("incomplete_details").filter(|_| said.head.wire == Wire::Responses);
    Some(native.filter(|details| details.is_object()).cloned().unwrap_or_else(|| json!({"reason": reason})))
}

/// An error in a stream: some clients read its fields here, others there.
pub(super) fn error(body: &Value) -> Value {
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
    let message = match fields::text_of(error, "message") {
        "" => "the answer failed",
        message => message,
    };
    let kind = Some(fields::text_of(error, "type")).filter(|kind| !kind.is_empty()).unwrap_or("server_error");
    let (param, code) = (error.get("param"), error.get("code"));
    let error = json!({"message": message, "type": kind, "param": param, "code": code});
    json!({"code": code, "message": message, "param": param, "error": error})
}
