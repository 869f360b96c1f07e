//! MCP servers that requests name: the gateway connects to them where the model's provider does not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dacapo_replay::Tool;
use dacapo_runner::{AddressReach, Availability, Decision, RemoteServer, ServerConnector, ToolServers};
use dacapo_wire::{RequestServer, ServerTools};
use futures_util::future::join_all;
use sha2::{Digest, Sha256};

use crate::tool_servers::OfferedTools;

/// Connections to servers, which later requests of the same client use again.
pub(crate) struct RequestServers {
    connector: Arc<dyn ServerConnector>,
    known: Mutex<Vec<KnownServer>>,
}

struct KnownServer {
    /// Of the client, and of all that it says of the server.
    digest: [u8; 32],
    host: Arc<dyn ToolServers>,
    used_at: Instant,
}

/// A server that the gateway may connect to.
pub(crate) struct AllowedServer {
    pub server: RequestServer,
    pub reach: AddressReach,
}

/// How many connections are kept, and for how long they may be unused.
const KNOWN_MAX: usize = 64;
const UNUSED_MAX: Duration = Duration::from_mins(10);

impl RequestServers {
    pub(crate) fn new(connector: Arc<dyn ServerConnector>) -> RequestServers {
        RequestServers { connector, known: Mutex::default() }
    }

    /// The tools of these servers beside those of the deployment. One that cannot be reached costs its own tools.
    pub(crate) async fn offer(
        &self,
        tenant: &str,
        deployed: Option<&OfferedTools>,
        mut servers: Vec<AllowedServer>,
    ) -> OfferedTools {
        let hosts: Vec<_> = servers.iter_mut().map(|allowed| self.host(tenant, allowed)).collect();
        join_all(hosts.iter().map(|host| host.ready())).await;
        let mut decisions = deployed.map(|deployed| deployed.decisions.clone()).unwrap_or_default();
        let mut of_request = BTreeMap::new();
        let toolboxes: Vec<_> = hosts.iter().map(|host| host.toolbox()).collect();
        let (mut tools, mut unavailable): (Vec<&Tool>, Vec<String>) = Default::default();
        for ((AllowedServer { server, .. }, host), toolbox) in servers.into_iter().zip(hosts).zip(&toolboxes) {
            let is_missing =
                |availability: &Availability| matches!(availability, Availability::Starting | Availability::Failed(_));
            if host.statuses().iter().any(|status| is_missing(&status.availability)) {
                unavailable.push(server.name.clone());
            }
            let of_server: Vec<&Tool> = toolbox.catalog().tools().iter().filter(|tool| server.offers(tool)).collect();
            let decision = |tool: &&Tool| {
                let decision = if server.needs_approval(tool) { Decision::Ask } else { Decision::Allow };
                (tool.name.clone(), decision)
            };
            decisions.entry(server.name.clone()).or_default().extend(of_server.iter().map(decision));
            tools.extend(of_server);
            of_request.insert(server.name, host);
        }
        let names: BTreeSet<String> = of_request.keys().cloned().collect();
        let of_servers = ServerTools::new(tools, unavailable).of_request(names);
        let tools = match deployed {
            Some(deployed) => deployed.tools.joined_with(&of_servers),
            None => of_servers,
        };
        OfferedTools { tools, decisions, of_request }
    }

    /// Takes the address and the headers, which only a connection needs.
    fn host(&self, tenant: &str, AllowedServer { server, reach }: &mut AllowedServer) -> Arc<dyn ToolServers> {
        let RequestServer { name, url, headers, .. } = server;
        let mut digest = Sha256::new();
        for text in
            [tenant, name, url].into_iter().chain(headers.iter().flat_map(|(name, value)| [name.as_str(), value]))
        {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.update([u8::from(*reach == AddressReach::Public)]);
        let (digest, now) = (digest.finalize().into(), Instant::now());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests that run keep what they use.
        known.retain(|known| now.duration_since(known.used_at) < UNUSED_MAX);
        if let Some(known) = known.iter_mut().find(|known| known.digest == digest) {
            known.used_at = now;
            return Arc::clone(&known.host);
        }
        if known.len() >= KNOWN_MAX {
            let oldest = known.iter().enumerate().min_by_key(|(_, known)| known.used_at).map(|(at, _)| at);
            oldest.map(|at| known.swap_remove(at));
        }
        let (url, headers) = (std::mem::take(url), std::mem::take(headers));
        let host = self.connector.connect(RemoteServer { name: name.clone(), url, headers, reach: *reach });
        known.push(KnownServer { digest, host: Arc::clone(&host), used_at: now });
        host
    }
}

impl fmt::Debug for RequestServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestServers").finish_non_exhaustive()
    }
}
