//! Runs a program to its end and executes its tool calls.
//!
//! [`Runner::run`] steps a program with `dacapo_replay`, sends each call it makes to a [`ToolHost`], and steps it again
//! with the answers, until it returns, fails, or is stopped. Before a call is sent, the [`Policy`] decides whether it is
//! allowed, denied, or needs the approval of a person, who is asked through an [`Approver`]. Calls that a program makes
//! together run concurrently. A program may use so much wall-clock time and no more; the time that a person takes to
//! approve a call does not count.
//!
//! What it refuses to do:
//! - It knows no protocol. Tools are executed by a [`ToolHost`], whatever is behind it.
//! - It does no I/O of its own: tools, approvals and storage ([`JournalStore`]) are traits. It reads the clock of the
//!   system and its randomness once, to give each run a start time and a seed.
//! - It never sends a call twice. A call whose outcome is not known is reported as unfinished, not repeated.
//!
//! Start reading at [`Runner::run`], then `in_flight.rs`.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dacapo_replay::{Answer, JsonText, Toolbox, read_tools};
//! use dacapo_runner::*;
//! use serde_json::{Map, Value, json};
//!
//! struct Shop(Arc<Toolbox>);
//!
//! impl ToolHost for Shop {
//!     fn toolbox(&self) -> Arc<Toolbox> {
//!         Arc::clone(&self.0)
//!     }
//!     fn annotations(&self, _server: &str, _tool: &str) -> Map<String, Value> {
//!         Map::new()
//!     }
//!     fn call<'a>(
//!         &'a self,
//!         call: &'a ToolCall,
//!         _cancel: &'a CancellationToken,
//!     ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
//!         let price = call.args["item"].as_str().map_or(0, str::len);
//!         let answer = Answer::Ok(JsonText::from(&json!(price)));
//!         Box::pin(async { Ok(ToolOutput { answer, attachments: Vec::new() }) })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tools = read_tools(&json!([{ "name": "price", "server": "shop", "input_schema": { "type": "object" } }]))?;
//! let host = Shop(Arc::new(Toolbox::new(tools)?));
//! let runner = Runner::new(Policy::default(), RunLimits::default())?;
//!
//! let program = "const [a, b] = await Promise.all([shop.price({item: 'pen'}), shop.price({item: 'inkwell'})]); return a + b";
//! let execution = runner.run(program, &host, &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await;
//! assert_eq!(execution.result.expect("it returns").get(), "10");
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod answer_window;
mod approval;
mod call_gate;
mod execution;
mod in_flight;
mod lock;
mod policy;
mod runner;
mod server_connector;
mod server_log;
mod stopwatch;
mod store;
mod tool_host;
mod tool_servers;
mod trace_meta;
mod truncate;

pub use answer_window::gather_answers;
pub use approval::{
    Approval, ApprovalQuestion, ApprovalVerdict, Approver, DefinitionChange, QuestionText, StandingApprovals,
};
pub use call_gate::CallGate;
pub use dacapo_replay::{Attachment, matches_pattern};
pub use execution::{Execution, RunError, StopKind, StoppedRun};
pub use futures_util::future::BoxFuture;
pub use policy::{Decision, Policy, PolicyRule};
pub use runner::{CallPhase, CallProgress, ProgramStart, ProgressSink, ResumedRun, RunLimits, RunProgress, Runner};
pub use server_connector::{AddressReach, RemoteServer, ServerConnector};
pub use server_log::{LogSeverity, ServerLog, ServerLogs};
pub use store::{JournalStore, MemoryStore, StoreError, StoreKey};
pub use tokio_util::sync::CancellationToken;
pub use tool_host::{CallError, ToolCall, ToolDigest, ToolHost, ToolOutput};
pub use tool_servers::{Availability, ServerStatus, ToolServers};
pub use trace_meta::{current_trace, with_trace};
pub use truncate::{JSON_CHARS_MIN, TruncatedJson, truncate_json};
