//! Calls that the gateway executes, and the tools of their servers, as items of a response and as events of its stream.

use dacapo_catalog::Effect;
use dacapo_replay::Answer;
use serde_json::{Value, json};

use super::events::{self, ItemEvent};
use super::{fields, item_ids};
use crate::encoder::{ServerCall, ServerCallApproval, ServerCallEnd};
use crate::server_tools::ServerToolList;

const IN_PROGRESS: &str = "in_progress";

/// A call whose item is not complete, or follows one that is not. Items end in the order in which they began.
#[derive(Debug)]
pub(super) struct OpenServerCall {
    pub at: usize,
    pub item: Value,
}

/// The tools of a server.
pub(super) fn list_item(list: &ServerToolList<'_>) -> Value {
    let tools = list.tools.iter().map(|tool| {
        json!({
            "annotations": {"read_only": tool.effect() == Effect::Read},
            "description": tool.description,
            "input_schema": tool.input_schema,
            "name": tool.name,
        })
    });
    let tools: Vec<Value> = tools.collect();
    let id = item_ids::tool_list_item(&list.id());
    json!({"id": id, "type": "mcp_list_tools", "server_label": list.server, "tools": tools})
}

pub(super) fn list_events(at: usize, item: &Value) -> Vec<ItemEvent> {
    vec![
        events::added(at, &fields::with_field(item, "tools", json!([]))),
        ("response.mcp_list_tools.in_progress", place(at, item)),
        ("response.mcp_list_tools.completed", place(at, item)),
        events::done(at, item),
    ]
}

/// A call that is being executed.
pub(super) fn call_item(call: &ServerCall<'_>) -> Value {
    let approval = (call.approval == ServerCallApproval::Asked).then(|| item_ids::approval_item(&call.approval_id()));
    json!({
        "id": item_ids::server_call_item(&call.id()),
        "type": "mcp_call",
        "status": IN_PROGRESS,
        "approval_request_id": approval,
        "arguments": call.call.args.to_string(),
        "error": null,
        "name": call.tool,
        "output": null,
        "server_label": call.server,
    })
}

/// A call that the client is to approve.
pub(super) fn approval_item(call: &ServerCall<'_>) -> Value {
    json!({
        "id": item_ids::approval_item(&call.approval_id()),
        "type": "mcp_approval_request",
        "arguments": call.call.args.to_string(),
        "name": call.tool,
        "server_label": call.server,
    })
}

pub(super) fn start_events(at: usize, item: &Value) -> Vec<ItemEvent> {
    let with = |key: &str| events::with(place(at, item), key, &item["arguments"]);
    vec![
        events::added(at, &fields::with_field(item, "arguments", json!(""))),
        ("response.mcp_call.in_progress", place(at, item)),
        ("response.mcp_call_arguments.delta", with("delta")),
        ("response.mcp_call_arguments.done", with("arguments")),
    ]
}

impl OpenServerCall {
    pub(super) fn end(&mut self, end: ServerCallEnd<'_>) {
        self.item["status"] = json!(end.status());
        match end {
            ServerCallEnd::Answered(Answer::Ok(_)) => self.item["output"] = json!(end.text()),
            ServerCallEnd::Answered(Answer::Error { .. }) => {
                let content = json!([{"type": "text", "text": end.text()}]);
                self.item["error"] = json!({"type": "mcp_tool_execution_error", "content": content});
            }
            ServerCallEnd::Cancelled => {}
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.item["status"] != IN_PROGRESS
    }

    pub(super) fn end_events(&self) -> Vec<ItemEvent> {
        let last = match fields::text_of(&self.item, "status") {
            "completed" => Some("response.mcp_call.completed"),
            "failed" => Some("response.mcp_call.failed"),
            _ => None,
        };
        let last = last.map(|kind| (kind, place(self.at, &self.item)));
        last.into_iter().chain([events::done(self.at, &self.item)]).collect()
    }
}

fn place(at: usize, item: &Value) -> Value {
    json!({"item_id": fields::text_of(item, "id"), "output_index": at})
}
