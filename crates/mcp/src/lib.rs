//! MCP both ways: programs over the tools of any number of MCP servers, offered as one MCP server.

mod approval;
mod ask;
mod execution;
mod fleet;
mod mask;
mod policy;
mod run;
mod servers_file;
mod stopwatch;

pub use approval::{Approval, Approver, question};
pub use ask::{Ask, Attachment, Owners, Refusal, Told};
pub use execution::{Execution, Fault, StopKind, Stopped};
pub use fleet::{Fleet, FleetOptions, Phase, ServerState, TransportKind};
pub use policy::{Decision, Policy, Rule};
pub use run::{Moment, Progress, RunLimits, Runner, Watcher};
pub use servers_file::{
    ENVIRONMENT_MINIMUM, InvalidServer, Notice, ServerEntry, ServerSpec, ServersFile, ServersFileError,
};
