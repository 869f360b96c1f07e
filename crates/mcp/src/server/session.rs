//! What the programs of one client's session leave for later ones.

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::http::request::Parts;
use dacapo_replay::{CompletedCall, LogLevel, LogLine, StoredValues, ToolShape};
use dacapo_runner::Execution;
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::log_forwarder::LogForwarder;
use crate::lock::lock;

/// One client's connection over stdio, or one session over HTTP.
#[derive(Debug, Default)]
pub(super) struct Session(Mutex<SessionMemory>);

#[derive(Debug, Default)]
struct SessionMemory {
    stored: StoredValues,
    /// Calls of programs that failed or were cancelled, for the next program.
    record: Vec<CompletedCall>,
    /// Functions whose shapes of answers the client has been sent.
    known_shapes: BTreeSet<String>,
    /// If the client has set a level.
    logs: Option<LogForwarder>,
}

const NOT_KEPT: &str = "what was stored is not kept: this connection has no session";

/// Whether later requests of the client come to the same session. Over HTTP clients have none since MCP 2026-07-28.
fn has_session(context: &RequestContext<RoleServer>) -> bool {
    context.extensions.get::<Parts>().is_none_or(|request| request.headers.contains_key("mcp-session-id"))
}

impl Session {
    /// What a program that starts now can load.
    pub(super) fn stored(&self) -> StoredValues {
        lock(&self.0).stored.clone()
    }

    /// What a program that starts now need not execute again. It is the only one that gets it.
    pub(super) fn take_record(&self, context: &RequestContext<RoleServer>) -> Vec<CompletedCall> {
        if has_session(context) { std::mem::take(&mut lock(&self.0).record) } else { Vec::new() }
    }

    /// Keeps the record of a program that failed or was cancelled, for the next one.
    pub(super) fn keep_record(&self, record: Vec<CompletedCall>) {
        lock(&self.0).record.extend(record);
    }

    /// Keeps what a program has stored that began with `given`. Programs that ran at the same time keep theirs: of the same
    /// name, what the last one stored.
    pub(super) fn keep(&self, given: &StoredValues, execution: &mut Execution, context: &RequestContext<RoleServer>) {
        if !has_session(context) {
            if execution.stored != *given {
                execution.logs.push(LogLine { level: LogLevel::Warn, text: NOT_KEPT.to_owned() });
            }
            return;
        }
        self.keep_record(std::mem::take(&mut execution.record));
        let stored = &mut lock(&self.0).stored;
        for name in given.names().filter(|name| execution.stored.get(name).is_none()) {
            stored.remove(name);
        }
        for name in execution.stored.names() {
            let value = execution.stored.get(name);
            if let Some(value) = value.filter(|value| given.get(name) != Some(*value)) {
                stored.insert(name, value.clone());
            }
        }
    }

    /// Passes logs of servers on to the client, as long as the session lasts or until it sets another level.
    pub(super) fn pass_logs(&self, logs: LogForwarder) {
        lock(&self.0).logs = Some(logs);
    }

    /// The shapes of answers that the client has not been sent yet.
    pub(super) fn new_shapes(&self, execution: &Execution) -> Vec<String> {
        ToolShape::lines(&execution.shapes, execution.result.is_err(), &mut lock(&self.0).known_shapes)
    }
}
