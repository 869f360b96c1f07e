//! MCP on both sides: the tools of any number of MCP servers, offered to programs through one MCP server.
//!
//! - [`Fleet`] is the client of the configured servers. It starts and reconnects them, lists their tools, and executes
//!   calls as a [`ToolHost`](dacapo_runner::ToolHost).
//! - [`McpServer`] is our own server. A client sees two tools, `search` and `execute`; a program that is given to `execute`
//!   is run by a [`Runner`](dacapo_runner::Runner) over the fleet.
//! - [`ServersFile`] and [`Settings`] read the file of servers.
//!
//! How programs run, and which of their calls are allowed, is `dacapo_runner`'s business. Nothing outside this crate names
//! rmcp.
//!
//! Start reading at [`Fleet::start`] for the servers behind us, and at [`McpServer`] for our own.
#![warn(missing_docs)]

mod fleet;
mod lock;
mod mask;
mod oauth;
mod remote_servers;
mod server;
mod servers_file;
mod settings;
mod tool_servers;

pub use fleet::{Fleet, FleetOptions, ServerPhase, ServerState, TransportKind};
pub use oauth::{Login, LoginError};
pub use remote_servers::RemoteServers;
pub use server::{HTTP_PATH, HttpAuth, McpServer, StoreSharing, context_cost_text, serve_http, serve_stdio};
pub use servers_file::{
    ENVIRONMENT_MINIMUM, IgnoredKey, InvalidServer, ServerEntry, ServerSpec, ServersFile, ServersFileError, parse_json,
};
pub use settings::{SETTINGS_KEY, Settings, SettingsError, StorePlace};
