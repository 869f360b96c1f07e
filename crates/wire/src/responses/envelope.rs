//! The fields of a response around its output.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use dacapo_replay::{json_size, write_json, write_json_string};
use serde_json::{Map, Value, json};

use super::client::RESPONSE_ID_PREFIX;
use super::{fields, tools};
use crate::decoder::{FinishReason, ModelResponse, ResponseMeta};
use crate::request_servers::remove_credentials;
use crate::tool_lists::{ListText, TOOLS};
use crate::wire::Wire;

/// Fields of the request that a response repeats, with their defaults.
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
/// The provider's values of these fields are those of our request to it, not of the client's.
const CLIENTS: [&str; 4] = ["instructions", "parallel_tool_calls", "tool_choice", "tools"];

/// The fields of a request that its response repeats.
#[derive(Debug, Default)]
pub(super) struct RequestEcho {
    fields: Map<String, Value>,
    /// The tools as text, in place of the field: lists of tools are long.
    known_tools: Option<Arc<ListText>>,
}

impl RequestEcho {
    pub(super) fn of(body: &Map<String, Value>, known_tools: Option<Arc<ListText>>) -> RequestEcho {
        let is_text = |key: &str| key == TOOLS && known_tools.is_some();
        let repeated = REPEATED.iter().filter(|(key, _)| !is_text(key));
        let repeated = repeated.filter_map(|(key, _)| Some(((*key).to_owned(), body.get(*key)?.clone())));
        let mut fields: Map<String, Value> = repeated.filter(|(_, value)| !value.is_null()).collect();
        remove_credentials(&mut fields);
        RequestEcho { fields, known_tools }
    }

    /// Takes the tools out, if they are text: whoever writes the response puts them in.
    pub(super) fn take_known_tools(&mut self) -> Option<Arc<ListText>> {
        self.known_tools.take()
    }

    fn tools(&self) -> Option<Cow<'_, Value>> {
        match &self.known_tools {
            Some(list) => {
                Some(Cow::Owned(serde_json::from_str(list.as_str()).expect("the request's tools were parsed")))
            }
            None => self.fields.get(TOOLS).map(Cow::Borrowed),
        }
    }

    /// The client's functions of these names.
    pub(super) fn functions(&self, names: &[String]) -> Vec<Value> {
        let Some(declared) = self.tools() else { return Vec::new() };
        let declared: BTreeMap<String, &Value> = tools::functions(&declared).collect();
        names.iter().filter_map(|name| declared.get(name).copied().cloned()).collect()
    }

    /// The response without status, output and usage.
    pub(super) fn response(&self, meta: &ResponseMeta) -> Map<String, Value> {
        RequestEcho::around(meta, |key| match key {
            TOOLS => self.tools().map(Cow::into_owned),
            key => self.fields.get(key).cloned(),
        })
    }

    /// The same, moving the fields instead of copying them.
    pub(super) fn into_response(mut self, meta: &ResponseMeta) -> Map<String, Value> {
        RequestEcho::around(meta, |key| match (key, &self.known_tools) {
            (TOOLS, Some(_)) => self.tools().map(Cow::into_owned),
            (key, _) => self.fields.get_mut(key).map(Value::take),
        })
    }

    fn around(meta: &ResponseMeta, mut repeated: impl FnMut(&str) -> Option<Value>) -> Map<String, Value> {
        let mut response = Map::new();
        if meta.wire == Wire::Responses {
            response.clone_from(&meta.fields);
            for key in CLIENTS {
                response.shift_remove(key);
            }
        }
        response.insert("id".to_owned(), Value::from(meta.prefixed_id(RESPONSE_ID_PREFIX)));
        response.insert("object".to_owned(), Value::from("response"));
        response.entry("created_at").or_insert_with(|| Value::from(meta.created.unwrap_or_default()));
        response.insert("model".to_owned(), Value::from(meta.model.as_str()));
        response.insert("error".to_owned(), Value::Null);
        response.insert("incomplete_details".to_owned(), Value::Null);
        for (key, default) in REPEATED {
            let value = || repeated(key).unwrap_or_else(|| serde_json::from_str(default).unwrap_or_default());
            response.entry(key).or_insert_with(value);
        }
        response.insert("previous_response_id".to_owned(), Value::Null);
        response.insert("store".to_owned(), Value::Bool(false));
        response
    }
}

/// The JSON of a response that repeats these tools.
pub(super) fn json_text_with_tools(response: &Value, tools: &ListText) -> String {
    let mut json = String::with_capacity(json_size(response) + tools.as_str().len());
    json.push('{');
    for (key, value) in response.as_object().into_iter().flatten() {
        if json.len() > 1 {
            json.push(',');
        }
        write_json_string(&mut json, key);
        json.push(':');
        if key == TOOLS {
            json.push_str(tools.as_str());
        } else {
            write_json(&mut json, value);
        }
    }
    json.push('}');
    json
}

/// Why a response is not complete; `None` if it is.
pub(super) fn incomplete(response: &ModelResponse) -> Option<Value> {
    let reason = match response.finish {
        FinishReason::Length => "max_output_tokens",
        FinishReason::Filter => "content_filter",
        FinishReason::Stop | FinishReason::Calls => return None,
    };
    let native = response.native.get("incomplete_details").filter(|_| response.meta.wire == Wire::Responses);
    Some(native.filter(|details| details.is_object()).cloned().unwrap_or_else(|| json!({"reason": reason})))
}

/// An error in a stream. Some clients read its fields in `error`, others beside it.
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
