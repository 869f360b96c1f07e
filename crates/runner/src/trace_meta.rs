//! The trace that a program's calls belong to: W3C Trace Context, which MCP carries in `_meta`.
//!
//! It is the same for all calls of a program, and neither the runner nor whoever approves a call needs it. So it goes with
//! the task that runs the program, and not with each call.

use serde_json::{Map, Value};

tokio::task_local! {
    static TRACE: Map<String, Value>;
}

const NAMES: [&str; 2] = ["traceparent", "tracestate"];
/// More than the specification asks anybody to take.
const BYTES_MAX: usize = 1_024;

/// Runs a future. The calls that it sends to MCP servers belong to the trace that this `_meta`, or these headers, name.
pub async fn with_trace<F: Future>(given: &Map<String, Value>, future: F) -> F::Output {
    let text = |name: &str| given.get(name).and_then(Value::as_str).filter(|text| text.len() <= BYTES_MAX);
    let passed = NAMES.into_iter().filter_map(|name| Some((name.to_owned(), Value::from(text(name)?))));
    TRACE.scope(passed.collect(), future).await
}

/// The trace of the call that is being sent, as `_meta` has it; empty if there is none.
pub fn current_trace() -> Map<String, Value> {
    TRACE.try_with(Clone::clone).unwrap_or_default()
}
