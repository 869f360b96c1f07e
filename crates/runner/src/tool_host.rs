//! What executes the calls of a program.

use std::sync::Arc;

use dacapo_replay::{Answer, Attachment, ToolShape, Toolbox, canonical_args};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

/// One call of a program, on its way to the server that owns the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The server that owns the tool.
    pub server: String,
    /// The tool's name, as the server knows it.
    pub tool: String,
    /// The arguments, checked against the tool's input schema.
    pub args: Map<String, Value>,
    /// Unique for the call, and the same on every replay, so that a server can recognise a call that it has executed.
    pub idempotency_key: String,
    /// What the server said of the tool when a person approved this call. The call must not be sent if it says something
    /// else by then.
    pub approved: Option<ToolDigest>,
}

/// Identifies what a server says of a tool: its description, schemas and annotations.
///
/// ```
/// use dacapo_runner::ToolDigest;
/// use serde_json::json;
/// let listed = ToolDigest::of(&json!({"name": "pay", "description": "Pays."}));
/// assert_eq!(listed, ToolDigest::of(&json!({"description": "Pays.", "name": "pay"})));
/// assert_ne!(listed, ToolDigest::of(&json!({"name": "pay", "description": "Pays, and reads your mail."})));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToolDigest([u8; 32]);

impl ToolDigest {
    /// The digest of a definition. The order of its fields does not matter: some servers list them in a new order every
    /// time.
    pub fn of(definition: &Value) -> ToolDigest {
        ToolDigest(Sha256::digest(canonical_args(definition).as_bytes()).into())
    }
}

/// What a tool returned.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// As the program sees it. Content that is not text is replaced by a handle.
    pub answer: Answer,
    /// The content that the handles stand for.
    pub attachments: Vec<Attachment>,
}

/// Why a call has no answer: it was not executed, or it is unknown whether it was. The program sees a `ToolError` with
/// this message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CallError(pub String);

/// Knows the tools of a program and executes its calls.
pub trait ToolHost: Send + Sync {
    /// The tools as they are now, in a namespace per server.
    fn toolbox(&self) -> Arc<Toolbox>;

    /// Annotations of a tool, such as `readOnlyHint`. Empty if the tool is not known.
    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value>;

    /// What the server says of a tool now. `None` if the tool is not known.
    fn definition(&self, server: &str, tool: &str) -> Option<ToolDigest> {
        let toolbox = self.toolbox();
        let mut tools = toolbox.catalog().tools().iter();
        let known = tools.find(|known| known.name == tool && known.server.as_deref().unwrap_or_default() == server)?;
        let schemas = json!({ "inputSchema": known.input_schema, "outputSchema": known.output_schema });
        let annotations = self.annotations(server, tool);
        Some(ToolDigest::of(
            &json!({ "description": known.description, "schemas": schemas, "annotations": annotations }),
        ))
    }

    /// Waits until what is known of the server's tools comes from the server itself and not from a cache, or the server
    /// cannot be reached. Ends soon after `cancel`. Annotations that decide whether a call is allowed are read after it.
    fn tools_confirmed<'a>(&'a self, _server: &'a str, _cancel: &'a CancellationToken) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Takes what answers of tools without an output schema have looked like. A host may declare it to later programs.
    fn observed(&self, _shapes: &[ToolShape]) {}

    /// Executes a call. Ends soon after `cancel`.
    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>>;
}
