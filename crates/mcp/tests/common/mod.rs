//! The tool host of the runner's tests, as the servers behind ours.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::allow_attributes, reason = "whether the lint fires depends on the test")]

#[path = "../../../runner/tests/common/mod.rs"]
mod desk;

use std::sync::{Arc, LazyLock, Mutex};

use dacapo_replay::Toolbox;
use dacapo_runner::{
    Availability, BoxFuture, CallError, CancellationToken, LogSeverity, ServerLog, ServerLogs, ServerStatus, ToolCall,
    ToolDigest, ToolHost, ToolOutput, ToolServers, current_trace,
};
use serde_json::{Map, Value};
use tokio::sync::broadcast;

pub(crate) use desk::Desk;

/// The traces of calls that belong to one, of all tests.
pub(crate) static TRACES: Mutex<Vec<Map<String, Value>>> = Mutex::new(Vec::new());

/// What the desk logs, in all tests.
pub(crate) static LOGS: LazyLock<broadcast::Sender<Arc<ServerLog>>> = LazyLock::new(|| broadcast::Sender::new(10));

/// The servers behind ours: the desk, and one that cannot be started.
pub(crate) struct Room(pub(crate) Arc<Desk>);

impl ToolHost for Room {
    fn toolbox(&self) -> Arc<Toolbox> {
        self.0.toolbox()
    }

    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value> {
        self.0.annotations(server, tool)
    }

    fn definition(&self, server: &str, tool: &str) -> Option<ToolDigest> {
        self.0.definition(server, tool)
    }

    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        let trace = current_trace();
        if !trace.is_empty() {
            TRACES.lock().expect("nobody panics").push(trace);
        }
        self.0.call(call, cancel)
    }
}

impl ToolServers for Room {
    fn statuses(&self) -> Vec<ServerStatus> {
        let status = |name: &str, availability| ServerStatus { name: name.to_owned(), availability };
        vec![status("desk", Availability::Ready), status("attic", Availability::Failed("no such file".to_owned()))]
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn logs(&self, severity_min: LogSeverity) -> Option<ServerLogs> {
        Some(ServerLogs::new(LOGS.subscribe(), severity_min, ()))
    }

    /// Nobody is told of the attic, unless it is asked for.
    fn names(&self) -> Vec<String> {
        vec!["desk".to_owned()]
    }
}
