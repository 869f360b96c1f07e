//! MCP both ways: programs over the tools of any number of MCP servers, offered as one MCP server.

mod approval;
mod ask;
mod cut;
mod elicit;
mod execution;
mod fleet;
mod flights;
mod http;
mod lock;
mod mask;
mod offer;
mod policy;
mod reply;
mod run;
mod running;
mod serve;
mod servers;
mod servers_file;
mod settings;
mod stopwatch;
mod suspended;

pub use approval::{Approval, Approver, question};
pub use ask::{Ask, Attachment, Owners, Refusal, Told};
pub use execution::{Execution, Fault, StopKind, Stopped};
pub use fleet::{Fleet, FleetOptions, Phase, ServerState, TransportKind};
pub use http::{Admission, HTTP_PATH, serve_http};
pub use offer::context_cost_text;
pub use policy::{Policy, Rule};
pub use run::{Moment, Progress, RunLimits, Runner, Watcher};
pub use serve::{Server, serve_stdio};
pub use servers::Servers;
pub use servers_file::{
    ENVIRONMENT_MINIMUM, InvalidServer, Notice, ServerEntry, ServerSpec, ServersFile, ServersFileError,
};
pub use settings::{SETTINGS_KEY, Settings, SettingsError};
pub use tokio_util::sync::CancellationToken;
