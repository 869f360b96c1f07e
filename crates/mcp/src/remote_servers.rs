//! Servers that are named by their addresses when they are needed.

use std::sync::Arc;

use dacapo_runner::{RemoteServer, ServerConnector, ToolServers};

use crate::fleet::{Fleet, FleetOptions};
use crate::servers_file::ServersFile;

/// Connects to servers over HTTP. Nothing of what they list is cached on disk, and logins of this machine are not for them:
/// whoever names a server brings the token for it.
#[derive(Debug, Clone, Default)]
pub struct RemoteServers {
    options: FleetOptions,
}

impl RemoteServers {
    /// With these timeouts and limits.
    pub fn new(options: FleetOptions) -> RemoteServers {
        RemoteServers { options: FleetOptions { cache_dir: None, tokens_dir: None, ..options } }
    }
}

impl ServerConnector for RemoteServers {
    fn connect(&self, server: RemoteServer) -> Arc<dyn ToolServers> {
        let options = FleetOptions { reach: server.reach, ..self.options.clone() };
        Arc::new(Fleet::start(ServersFile::remote(server), options))
    }
}
