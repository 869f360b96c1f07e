//! A small server on the SDK's own server side: `echo`, and as many other tools as are wanted to be listed.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;

const VERBS: [&str; 10] =
    ["create", "list", "get", "update", "archive", "export", "search", "approve", "assign", "sum_up"];
const NOUNS: [&str; 40] = [
    "invoice", "order", "customer", "ticket", "message", "document", "rollout", "branch", "release", "incident",
    "meeting", "employee", "contract", "payment", "refund", "shipment", "depot", "supplier", "product", "price",
    "campaign", "article", "survey", "lead", "account", "chart", "metric", "alert", "backup", "secret", "domain",
    "server", "database", "table", "query", "report", "budget", "expense", "shift", "vacation",
];
/// Tools of different servers differ in whose things they are about.
const AREAS: [&str; 10] =
    ["sales", "support", "finance", "logistics", "engineering", "marketing", "legal", "security", "research", "people"];

/// Serves on stdin and stdout. Takes some time before it begins, as servers do that load much.
pub(crate) fn echo(number: usize, tools: usize, start_ms: u64) -> anyhow::Result<()> {
    std::thread::sleep(Duration::from_millis(start_ms));
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let serving = Echo { tools: list(number, tools) }.serve(stdio_pipes()).await?;
        serving.waiting().await?;
        Ok(())
    })
}

struct Echo {
    tools: Vec<Tool>,
}

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let args = request.arguments.unwrap_or_default();
        if let Some(after) = args.get("after_ms").and_then(Value::as_u64).filter(|after| *after > 0) {
            tokio::time::sleep(Duration::from_millis(after)).await;
        }
        let message = args.get("message").and_then(Value::as_str).unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("Echo: {message}"))]).into())
    }
}

fn list(number: usize, count: usize) -> Vec<Tool> {
    let echo = json!({"type": "object", "required": ["message"], "properties": {
        "message": {"type": "string", "description": "Message to echo"},
        "after_ms": {"type": "integer", "description": "Milliseconds to wait before"}}});
    let echo = tool("echo".to_owned(), "Echoes back the message".to_owned(), echo);
    std::iter::once(echo).chain((1..count).map(|index| other(number, index))).collect()
}

fn other(number: usize, index: usize) -> Tool {
    let verb = VERBS[index % VERBS.len()];
    let noun = NOUNS[(number * 7 + index / VERBS.len()) % NOUNS.len()];
    let area = AREAS[number % AREAS.len()];
    let round = index / (VERBS.len() * NOUNS.len());
    let suffix = if round == 0 { String::new() } else { format!("_{round}") };
    let id = format!("{noun}_id");
    let schema = json!({"type": "object", "required": [id], "properties": {
        id.as_str(): {"type": "string", "description": format!("Which {noun}")},
        "fields": {"type": "array", "items": {"type": "string"}, "description": "Fields to return"},
        "status": {"type": "string", "enum": ["draft", "open", "closed"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}}});
    let description = format!("{verb} one {noun} or several of the {area} team, and return what became of it");
    tool(format!("{verb}_{noun}{suffix}"), description, schema)
}

fn tool(name: String, description: String, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { unreachable!("every schema here is an object") };
    Tool::new(name, description, Arc::<Map<String, Value>>::new(schema))
        .with_annotations(ToolAnnotations::new().read_only(true))
}
