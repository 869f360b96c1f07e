//! Servers that are not configured, but named when they are needed.

use std::fmt;
use std::sync::Arc;

use crate::tool_servers::ToolServers;

/// Connects to servers by their addresses.
pub trait ServerConnector: Send + Sync {
    /// Starts to connect, and returns at once. The connection ends when what it returns is dropped.
    fn connect(&self, server: RemoteServer) -> Arc<dyn ToolServers>;
}

/// A server at an address.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteServer {
    /// Becomes the namespace of its tools.
    pub name: String,
    /// Its address.
    pub url: String,
    /// For every request to it. They may hold credentials.
    pub headers: Vec<(String, String)>,
    /// Which machines its name may stand for.
    pub reach: AddressReach,
}

/// Which machines may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressReach {
    /// All.
    #[default]
    Any,
    /// Only those that anybody on the internet could reach: not this machine, nor its networks.
    Public,
}

impl fmt::Debug for RemoteServer {
    /// Neither the address nor the headers, which may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteServer").field("name", &self.name).field("reach", &self.reach).finish_non_exhaustive()
    }
}
