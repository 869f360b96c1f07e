//! What the runner of a program and the servers' side say to each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dacapo_replay::{Answer, Toolbox};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// One call of a program, on its way to the server that owns the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    pub server: String,
    pub tool: String,
    pub args: Map<String, Value>,
    /// The same on every replay: executing the call twice can be avoided.
    pub key: String,
}

/// What a server said.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// As the program sees it; what is not text stands in it as a handle.
    pub answer: Answer,
    /// What the handles stand for.
    pub attachments: Vec<Attachment>,
}

/// Content that is not text: an image, sound, a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// As it stands in the answer: `{"handle": "…"}` is part of the object there.
    pub handle: String,
    /// The MCP content block, as it came.
    pub block: Value,
}

/// Why a call was not executed, or why nobody knows whether it was. A program sees it as a `ToolError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// All that is behind the tools of a program.
pub trait Owners: Send + Sync {
    /// The tools as they are now, in a namespace per server.
    fn toolbox(&self) -> Arc<Toolbox>;

    /// Annotations of a tool, such as `readOnlyHint`.
    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value>;

    /// Returns when what is known of the server's tools comes from the server itself, or it cannot be reached, or
    /// soon after `cancel`. Whoever decides by annotations waits for it first.
    fn confirmed<'a>(
        &'a self,
        _server: &'a str,
        _cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::ready(()))
    }

    /// Executes a call. Ends soon after `cancel`.
    fn call<'a>(
        &'a self,
        ask: &'a Ask,
        cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Result<Told, Refusal>> + Send + 'a>>;
}
