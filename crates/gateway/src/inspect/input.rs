//! Reading what was saved: a request of any wire, a list of messages, one request per line, or a step request.

use dacapo_wire::{Wire, remove_credentials};
use serde_json::{Map, Value, json};

/// A saved request of a client, or a step request.
pub(super) struct SavedRequest {
    /// The line of the file, if it has one request per line.
    pub line: Option<usize>,
    pub content: Result<SavedContent, String>,
}

pub(super) enum SavedContent {
    Request {
        wire: Wire,
        body: Map<String, Value>,
        /// What was done to make it a request.
        notes: Vec<String>,
    },
    Step(Value),
}

const UNKNOWN: &str = "is no request of a known wire; expected an object with `messages` (Chat Completions, Messages) or \
                       `input` (Responses), a list of messages, an object with `request` and `response`, a step request, \
                       or one of these per line";

/// Reads a file. Requests that later ones continue are left out.
pub(super) fn read(text: &str, wire: Option<Wire>) -> Vec<SavedRequest> {
    let whole = match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => {
            let lines: Vec<(usize, &str)> = text
                .lines()
                .zip(1..)
                .map(|(line, at)| (at, line.trim()))
                .filter(|(_, line)| !line.is_empty())
                .collect();
            let first = lines.first().map(|(_, line)| serde_json::from_str::<Value>(line));
            if lines.len() > 1 && matches!(first, Some(Ok(Value::Object(_) | Value::Array(_)))) {
                return without_continued(lines.into_iter().map(|(at, line)| read_line(at, line, wire)));
            }
            Err(if lines.is_empty() { "is empty".to_owned() } else { format!("is not JSON: {error}") })
        }
    };
    match whole {
        Ok(Value::Array(requests)) if requests.first().is_some_and(is_request) => {
            let read = |value| SavedRequest { line: None, content: read_value(value, wire) };
            without_continued(requests.into_iter().map(read))
        }
        Ok(value) => vec![SavedRequest { line: None, content: read_value(value, wire) }],
        Err(message) => vec![SavedRequest { line: None, content: Err(message) }],
    }
}

fn read_line(at: usize, line: &str, wire: Option<Wire>) -> SavedRequest {
    let value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}"));
    SavedRequest { line: Some(at), content: value.and_then(|value| read_value(value, wire)) }
}

fn is_request(value: &Value) -> bool {
    ["messages", "input", "request", "program"].iter().any(|key| value.get(key).is_some())
}

/// Keeps the last of several requests of one conversation.
fn without_continued(requests: impl Iterator<Item = SavedRequest>) -> Vec<SavedRequest> {
    let mut kept: Vec<SavedRequest> = Vec::new();
    for request in requests {
        let continued = kept.iter().position(|earlier| continues(&request, earlier));
        match continued {
            Some(at) => kept[at] = request,
            None => kept.push(request),
        }
    }
    kept
}

fn continues(later: &SavedRequest, earlier: &SavedRequest) -> bool {
    match (&later.content, &earlier.content) {
        (
            Ok(SavedContent::Request { wire, body, .. }),
            Ok(SavedContent::Request { wire: earlier_wire, body: earlier, .. }),
        ) => {
            let (later, earlier) = (history(*wire, body), history(*earlier_wire, earlier));
            wire == earlier_wire && !earlier.is_empty() && later.starts_with(earlier)
        }
        _ => false,
    }
}

fn read_value(value: Value, wire: Option<Wire>) -> Result<SavedContent, String> {
    match value {
        Value::Array(entries) => {
            if entries.is_empty() || !entries.iter().all(Value::is_object) {
                return Err(UNKNOWN.to_owned());
            }
            let is_items = wire.map_or_else(|| entries.iter().any(is_responses_item), |wire| wire == Wire::Responses);
            let key = if is_items { "input" } else { "messages" };
            request(Map::from_iter([(key.to_owned(), Value::Array(entries))]), wire, None)
        }
        Value::Object(fields) if fields.contains_key("messages") || fields.contains_key("input") => {
            request(fields, wire, None)
        }
        Value::Object(fields) if fields.get("program").is_some_and(Value::is_object) => {
            Ok(SavedContent::Step(Value::Object(fields)))
        }
        Value::Object(mut fields) => {
            let wrapped = ["request", "body"].iter().find_map(|key| fields.shift_remove(*key));
            let response = fields.shift_remove("response");
            match wrapped {
                Some(Value::Object(body)) if body.contains_key("messages") || body.contains_key("input") => {
                    request(body, wire, response)
                }
                _ => Err(UNKNOWN.to_owned()),
            }
        }
        _ => Err(UNKNOWN.to_owned()),
    }
}

fn request(mut body: Map<String, Value>, wire: Option<Wire>, response: Option<Value>) -> Result<SavedContent, String> {
    let wire = wire.unwrap_or_else(|| wire_of(&body));
    remove_credentials(&mut body);
    let key = history_key(wire);
    match body.get(key) {
        Some(Value::Array(_)) => {}
        Some(Value::String(text)) if wire == Wire::Responses => {
            let message = json!([{"role": "user", "content": text}]);
            body.insert(key.to_owned(), message);
        }
        _ => return Err(format!("has no list `{key}`, which a request on the wire {wire} has")),
    }
    let mut notes = Vec::new();
    if let Some(response) = response {
        let entries = response_entries(wire, response);
        if let (false, Some(history)) = (entries.is_empty(), body.get_mut(key).and_then(Value::as_array_mut)) {
            history.extend(entries);
        }
    }
    let has_tools = body.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty());
    let names = called_tools(wire, history(wire, &body));
    if !has_tools && !names.is_empty() {
        let tools: Vec<Value> = names.iter().map(|name| tool(wire, name)).collect();
        body.insert("tools".to_owned(), Value::Array(tools));
        notes.push(
            "no tools are declared, so those that were called are assumed, with any arguments: what the model read is not \
             known exactly"
                .to_owned(),
        );
    }
    Ok(SavedContent::Request { wire, body, notes })
}

pub(super) fn history_key(wire: Wire) -> &'static str {
    match wire {
        Wire::Responses => "input",
        Wire::Chat | Wire::Messages => "messages",
    }
}

fn history(wire: Wire, body: &Map<String, Value>) -> &[Value] {
    body.get(history_key(wire)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_responses_item(entry: &Value) -> bool {
    let kinds = ["function_call", "function_call_output", "message", "reasoning", "program", "program_output"];
    entry["type"].as_str().is_some_and(|kind| kinds.contains(&kind))
}

/// The wire that a body looks like.
fn wire_of(body: &Map<String, Value>) -> Wire {
    if body.contains_key("input") && !body.contains_key("messages") {
        return Wire::Responses;
    }
    let list = |key: &str| body.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_chat = list("messages").iter().any(|message| {
        let role = message["role"].as_str().unwrap_or_default();
        ["system", "developer", "tool", "code", "code_result"].contains(&role) || message.get("tool_calls").is_some()
    }) || list("tools").iter().any(|tool| tool.get("function").is_some());
    let is_messages = body.contains_key("system")
        || body.contains_key("anthropic_version")
        || list("tools").iter().any(|tool| tool.get("input_schema").is_some())
        || list("messages").iter().any(|message| {
            let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
            let kind = |block: &Value| block["type"].as_str().unwrap_or_default().to_owned();
            blocks.iter().map(kind).any(|kind| kind.ends_with("tool_use") || kind.ends_with("tool_result"))
        });
    if is_messages && !is_chat { Wire::Messages } else { Wire::Chat }
}

/// The names of tools that a history calls.
fn called_tools(wire: Wire, history: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !names.iter().any(|known| known == name)) {
            names.push(name.to_owned());
        }
    };
    for entry in history {
        match wire {
            Wire::Chat => {
                entry["tool_calls"].as_array().into_iter().flatten().for_each(|call| add(&call["function"]["name"]));
            }
            Wire::Responses if entry["type"] == "function_call" => add(&entry["name"]),
            Wire::Responses => {}
            Wire::Messages => {
                let blocks = entry["content"].as_array().into_iter().flatten();
                blocks.filter(|block| block["type"] == "tool_use").for_each(|block| add(&block["name"]));
            }
        }
    }
    names
}

fn tool(wire: Wire, name: &str) -> Value {
    match wire {
        Wire::Chat => json!({"type": "function", "function": {"name": name}}),
        Wire::Responses => json!({"type": "function", "name": name, "parameters": {}}),
        Wire::Messages => json!({"name": name, "input_schema": {"type": "object"}}),
    }
}

/// The entries that a response adds to the history.
fn response_entries(wire: Wire, mut response: Value) -> Vec<Value> {
    match wire {
        Wire::Chat => response.pointer_mut("/choices/0/message").map(Value::take).into_iter().collect(),
        Wire::Responses => match response["output"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        },
        Wire::Messages => match response["content"].take() {
            Value::Null => Vec::new(),
            content => vec![json!({"role": "assistant", "content": content})],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wires(text: &str) -> Vec<Option<Wire>> {
        let wire = |request: &SavedRequest| match &request.content {
            Ok(SavedContent::Request { wire, .. }) => Some(*wire),
            _ => None,
        };
        read(text, None).iter().map(wire).collect()
    }

    #[test]
    fn the_wire_of_a_request_or_a_list_of_messages_is_seen() {
        let cases = [
            (r#"{"messages": [{"role": "user", "content": "hi"}]}"#, Wire::Chat),
            (r#"{"messages": [{"role": "user", "content": "hi"}], "system": "be brief"}"#, Wire::Messages),
            (r#"[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]"#, Wire::Messages),
            (r#"{"input": "hi"}"#, Wire::Responses),
            (r#"[{"type": "function_call", "name": "f", "arguments": "{}", "call_id": "a"}]"#, Wire::Responses),
            (r#"{"request": {"messages": []}, "response": {"choices": []}}"#, Wire::Chat),
        ];
        for (text, wire) in cases {
            assert_eq!(wires(text), [Some(wire)], "{text}");
        }
    }

    #[test]
    fn credentials_of_mcp_servers_are_left_out() {
        let saved = [
            r#"{"input": "hi", "tools": [{"type": "mcp", "server_label": "crm", "authorization": "SECRET", "headers": {"x": "SECRET"}}]}"#,
            r#"{"messages": [], "system": "", "mcp_servers": [{"type": "url", "name": "crm", "authorization_token": "SECRET"}]}"#,
        ];
        for text in saved {
            let requests = read(text, None);
            let Ok(SavedContent::Request { body, .. }) = &requests[0].content else { panic!("{text}") };
            let body = Value::Object(body.clone()).to_string();
            assert!(body.contains("crm") && !body.contains("SECRET"), "{body}");
        }
    }

    #[test]
    fn of_requests_that_continue_each_other_the_last_is_kept() {
        let lines = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n\
                     {\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n\n\
                     {\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"c\"}]}\n\
                     nonsense";
        let kept: Vec<(Option<usize>, bool)> =
            read(lines, None).iter().map(|request| (request.line, request.content.is_ok())).collect();
        assert_eq!(kept, [(Some(4), true), (Some(2), true), (Some(5), false)]);
    }
}
