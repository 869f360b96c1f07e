//! A client on any wire, without the HTTP: the next request, and the reading of a response. Like real clients it sends
//! the output of earlier responses back unchanged.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::allow_attributes, reason = "whether the lint fires depends on the test")]

use dacapo_wire::Wire;
use serde_json::{Map, Value, json};

/// The history of one conversation.
#[derive(Clone)]
pub(crate) struct ClientConversation {
    pub(crate) wire: Wire,
    pub(crate) history: Vec<Value>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) explicit: bool,
    /// Fields that replace or extend those of the body.
    pub(crate) extra: Value,
}

/// What a client reads from a response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientResponse {
    pub(crate) calls: Vec<Call>,
    pub(crate) text: String,
    /// The finish reason, stop reason or status.
    pub(crate) end: String,
    pub(crate) usage: Value,
}

/// A function of the client.
#[derive(Clone)]
pub(crate) struct Tool {
    name: String,
    description: String,
    schema: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) args: Value,
    caller: Option<Value>,
}

impl ClientConversation {
    /// With tools of this name and these string parameters.
    pub(crate) fn new(wire: Wire, tools: &[(&str, &[&str])]) -> ClientConversation {
        let tool = |(name, parameters): &(&str, &[&str])| {
            let properties: Map<String, Value> =
                parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
            let schema = json!({"type": "object", "properties": properties, "required": parameters});
            json!({"function": {"name": name, "description": format!("Does {name}."), "parameters": schema}})
        };
        ClientConversation::declared(wire, &tools.iter().map(tool).collect())
    }

    /// With tools as Chat Completions declares them.
    pub(crate) fn declared(wire: Wire, tools: &Value) -> ClientConversation {
        let tool = |tool: &Value| Tool {
            name: tool["function"]["name"].as_str().unwrap().to_owned(),
            description: tool["function"]["description"].as_str().unwrap_or_default().to_owned(),
            schema: tool["function"]["parameters"].clone(),
        };
        let tools = tools.as_array().unwrap().iter().map(tool).collect();
        ClientConversation { wire, history: Vec::new(), tools, explicit: false, extra: json!({}) }
    }

    pub(crate) fn user(&mut self, text: &str) {
        self.history.push(json!({"role": "user", "content": text}));
    }

    /// Answers a call. On Messages all answers of a round go into one message.
    pub(crate) fn answer(&mut self, call: &Call, text: &str, is_error: bool) {
        self.answer_with(call, &json!(text), is_error);
    }

    /// The same with content in the form of the wire.
    pub(crate) fn answer_with(&mut self, call: &Call, content: &Value, is_error: bool) {
        match self.wire {
            Wire::Chat => {
                let mut answer = json!({"role": "tool", "tool_call_id": call.id, "content": content});
                if is_error {
                    answer["is_error"] = json!(true);
                }
                self.history.push(answer);
            }
            Wire::Responses => {
                let mut answer = json!({"type": "function_call_output", "call_id": call.id, "output": content});
                if let Some(caller) = &call.caller {
                    answer["caller"] = caller.clone();
                }
                self.history.push(answer);
            }
            Wire::Messages => {
                let mut answer = json!({"type": "tool_result", "tool_use_id": call.id, "content": content});
                if is_error {
                    answer["is_error"] = json!(true);
                }
                match self.history.last_mut() {
                    Some(last) if last["role"] == "user" && last["content"].is_array() => {
                        last["content"].as_array_mut().unwrap().push(answer);
                    }
                    _ => self.history.push(json!({"role": "user", "content": [answer]})),
                }
            }
        }
    }

    /// Path below the base URL, and body.
    pub(crate) fn request(&self) -> (&'static str, Value) {
        let mut body = match self.wire {
            Wire::Chat => json!({"model": "m", "messages": self.history}),
            Wire::Responses => json!({"model": "m", "input": self.history, "store": false}),
            Wire::Messages => json!({"model": "m", "max_tokens": 4096, "messages": self.history}),
        };
        let tools: Vec<Value> = self.tools.iter().map(|tool| self.tool(tool)).collect();
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        if self.explicit {
            match self.wire {
                Wire::Chat => body["code_mode"] = json!({"explicit": true}),
                Wire::Responses => {
                    body["tools"].as_array_mut().unwrap().push(json!({"type": "programmatic_tool_calling"}));
                }
                Wire::Messages => body["tools"]
                    .as_array_mut()
                    .unwrap()
                    .insert(0, json!({"type": "code_execution_20260120", "name": "code_execution"})),
            }
        }
        body.as_object_mut().unwrap().extend(self.extra.as_object().unwrap().clone());
        if self.wire == Wire::Chat && body["stream"] == true {
            body["stream_options"] = json!({"include_usage": true});
        }
        (path(self.wire), body)
    }

    fn tool(&self, Tool { name, description, schema }: &Tool) -> Value {
        let mut tool = match self.wire {
            Wire::Chat => {
                json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
            }
            Wire::Responses => {
                json!({"type": "function", "name": name, "description": description, "parameters": schema})
            }
            Wire::Messages => json!({"name": name, "description": description, "input_schema": schema}),
        };
        match self.wire {
            Wire::Responses if self.explicit => tool["allowed_callers"] = json!(["programmatic"]),
            Wire::Messages if self.explicit => tool["allowed_callers"] = json!(["code_execution_20260120"]),
            _ => {}
        }
        tool
    }

    /// Reads a response, whole or streamed, and adds it to the history.
    pub(crate) fn read_response(&mut self, text: &str) -> ClientResponse {
        let is_stream = !text.starts_with('{');
        let body = if is_stream { streamed(self.wire, text) } else { serde_json::from_str(text).unwrap() };
        assert!(body.get("error").is_none_or(Value::is_null), "{body:#}");
        match self.wire {
            Wire::Chat => self.read_chat(&body),
            Wire::Responses => self.read_responses(&body),
            Wire::Messages => self.read_messages(&body),
        }
    }

    fn read_chat(&mut self, body: &Value) -> ClientResponse {
        let choice = &body["choices"][0];
        let message = choice["message"].clone();
        let call = |call: &Value| Call {
            id: call["id"].as_str().unwrap().to_owned(),
            name: call["function"]["name"].as_str().unwrap().to_owned(),
            args: serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap(),
            caller: None,
        };
        let messages = choice["messages"].as_array().cloned().unwrap_or_else(|| vec![message.clone()]);
        let text = messages.iter().filter_map(|message| message["content"].as_str()).collect();
        self.history.extend(messages);
        ClientResponse {
            calls: message["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
            text,
            end: choice["finish_reason"].as_str().unwrap_or_default().to_owned(),
            usage: body["usage"].clone(),
        }
    }

    fn read_responses(&mut self, body: &Value) -> ClientResponse {
        let output = body["output"].as_array().unwrap();
        self.history.extend(output.clone());
        let call = |item: &Value| Call {
            id: item["call_id"].as_str().unwrap().to_owned(),
            name: item["name"].as_str().unwrap().to_owned(),
            args: serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap(),
            caller: item.get("caller").filter(|caller| !caller.is_null()).cloned(),
        };
        let text = |item: &Value| {
            let parts = item["content"].as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str()).collect::<String>()
        };
        ClientResponse {
            calls: output.iter().filter(|item| item["type"] == "function_call").map(call).collect(),
            text: output.iter().filter(|item| item["type"] == "message").map(text).collect(),
            end: body["status"].as_str().unwrap_or_default().to_owned(),
            usage: body["usage"].clone(),
        }
    }

    fn read_messages(&mut self, body: &Value) -> ClientResponse {
        self.history.push(json!({"role": "assistant", "content": body["content"]}));
        if let Some(id) = body["container"]["id"].as_str() {
            self.extra["container"] = json!(id);
        }
        let blocks = body["content"].as_array().unwrap();
        let call = |block: &Value| Call {
            id: block["id"].as_str().unwrap().to_owned(),
            name: block["name"].as_str().unwrap().to_owned(),
            args: block["input"].clone(),
            caller: block.get("caller").cloned(),
        };
        ClientResponse {
            calls: blocks.iter().filter(|block| block["type"] == "tool_use").map(call).collect(),
            text: blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
            end: body["stop_reason"].as_str().unwrap_or_default().to_owned(),
            usage: body["usage"].clone(),
        }
    }
}

/// The data of a stream's events, in order.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Assembles the events of a stream into a response, as clients do.
pub(crate) fn streamed(wire: Wire, text: &str) -> Value {
    let events = events(text);
    if let Some(error) = events.iter().find(|event| event.get("error").is_some_and(|error| !error.is_null())) {
        return error.clone();
    }
    match wire {
        Wire::Chat => streamed_chat(&events),
        Wire::Responses => streamed_response(&events),
        Wire::Messages => streamed_message(&events),
    }
}

/// Where clients of a wire send their requests, below `/v1`.
pub(crate) fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Chat => "/chat/completions",
        Wire::Responses => "/responses",
        Wire::Messages => "/messages",
    }
}

fn streamed_chat(events: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": null});
    let mut whole = json!({});
    let (mut calls, mut finish_reason, mut messages) = (Vec::<Value>::new(), Value::Null, Vec::new());
    for chunk in events {
        if let Some(usage) = chunk.get("usage") {
            whole["usage"] = usage.clone();
        }
        let delta = &chunk["choices"][0]["delta"];
        for key in ["content", "reasoning_content"] {
            if let Some(piece) = delta[key].as_str() {
                message[key] = json!(format!("{}{piece}", message[key].as_str().unwrap_or_default()));
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            if let Some(known) = calls.get_mut(index) {
                let piece = |call: &Value| call["function"]["arguments"].as_str().unwrap().to_owned();
                known["function"]["arguments"] = json!(piece(known) + &piece(call));
            } else {
                let mut call = call.clone();
                call.as_object_mut().unwrap().shift_remove("index");
                calls.push(call);
            }
        }
        messages.extend(delta.get("message").cloned());
        if let reason @ Value::String(_) = &chunk["choices"][0]["finish_reason"] {
            finish_reason = reason.clone();
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    whole["choices"] = json!([{"message": message, "finish_reason": finish_reason}]);
    if !messages.is_empty() {
        whole["choices"][0]["messages"] = json!(messages);
    }
    whole
}

fn streamed_message(events: &[Value]) -> Value {
    assert_eq!(events[0]["type"], "message_start", "{events:#?}");
    assert_eq!(events.last().unwrap()["type"], "message_stop", "{events:#?}");
    let mut message = events[0]["message"].clone();
    let mut blocks: Vec<Value> = Vec::new();
    let mut json = String::new();
    for event in &events[1..] {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(event["index"], blocks.len(), "{event}");
                blocks.push(event["content_block"].clone());
                json.clear();
            }
            "content_block_delta" => {
                let at = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
                assert_eq!(at + 1, blocks.len(), "only the last block is open");
                let block = &mut blocks[at];
                let mut join = |key: &str, piece: &str| {
                    block[key] = json!(format!("{}{piece}", block[key].as_str().unwrap_or_default()));
                };
                let delta = &event["delta"];
                let text = |key: &str| delta[key].as_str().unwrap();
                match delta["type"].as_str().unwrap() {
                    "text_delta" => join("text", text("text")),
                    "thinking_delta" => join("thinking", text("thinking")),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => json.push_str(text("partial_json")),
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => {
                if !json.is_empty() {
                    blocks.last_mut().unwrap()["input"] = serde_json::from_str(&json).unwrap();
                    json.clear();
                }
            }
            "message_delta" => {
                message.as_object_mut().unwrap().extend(event["delta"].as_object().unwrap().clone());
                message["usage"] = event["usage"].clone();
            }
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    message["content"] = json!(blocks);
    message
}

fn streamed_response(events: &[Value]) -> Value {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{events:#?}");
    }
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types[..2], ["response.created", "response.in_progress"]);
    let last = events.last().unwrap();
    assert!(matches!(types[types.len() - 1], "response.completed" | "response.incomplete"), "{last:#}");
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    for (number, event) in done.clone().enumerate() {
        assert_eq!(event["output_index"], number, "{event}");
    }
    let items: Vec<&Value> = done.map(|event| &event["item"]).collect();
    let whole: Vec<&Value> = last["response"]["output"].as_array().unwrap().iter().collect();
    assert_eq!(items, whole, "what was done is what the response holds");
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    let actual: String = whole
        .iter()
        .filter(|item| item["type"] == "message")
        .flat_map(|item| item["content"].as_array().unwrap())
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(text, actual);
    last["response"].clone()
}
