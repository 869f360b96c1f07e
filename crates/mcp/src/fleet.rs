//! All configured MCP servers, as the host of one set of tools.
//!
//! Servers start concurrently in the background, and one that fails does not affect the others. [`server`] keeps one of them
//! connected, [`connection`] is the protocol, and [`stdio`], [`server_process`] and [`http_client`] are the transports.

mod call_errors;
mod connection;
mod connection_error;
mod content;
mod http_client;
mod link_state;
mod list_cache;
mod log_relay;
mod options;
mod outbox;
mod public_addresses;
mod rejected_response;
mod resources;
mod response_id;
mod server;
mod server_auth;
mod server_process;
mod server_state;
mod stderr_tail;
mod stdio;
mod stdio_calls;
mod tool_list;

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dacapo_replay::{Tool, ToolShape, Toolbox};
use dacapo_runner::{
    BoxFuture, CallError, CancellationToken, LogSeverity, ServerLogs, ToolCall, ToolDigest, ToolHost, ToolOutput,
};
use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::lock::lock;
use crate::mask::Mask;
use crate::servers_file::ServersFile;
use log_relay::LogRelay;
use server::{FleetContext, FleetServer};

pub use options::FleetOptions;
pub(crate) use public_addresses::is_public;
pub use server_state::{ServerPhase, ServerState, TransportKind};

const TOOLS_MAX: usize = 65_000;
/// Servers that may start at the same time while nobody waits for them.
const STARTS_MAX: usize = 8;

/// The servers of a file. Dropping it ends them; [`Fleet::shutdown`] also waits until their processes have ended.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Arc<FleetServer>>,
    context: Arc<FleetContext>,
    /// The value of `changes` when the toolbox was made, and the toolbox.
    toolbox: Mutex<(u64, Arc<Toolbox>)>,
    supervisors: Mutex<Vec<JoinHandle<()>>>,
}

impl Fleet {
    /// Starts all servers in the background and returns at once. Needs a Tokio runtime.
    pub fn start(file: ServersFile, options: FleetOptions) -> Fleet {
        let specs = file.servers.iter().filter_map(|server| server.spec.as_ref().ok());
        let mask = Mask::new(specs.flat_map(|spec| spec.secrets.iter().map(String::as_str)));
        let (changes, stop) = (AtomicU64::new(1), CancellationToken::new());
        let starts = Semaphore::new(STARTS_MAX);
        let logs = Arc::new(LogRelay::new());
        let context = Arc::new(FleetContext { options, mask, changes, stop, starts, logs });
        let servers: Vec<Arc<FleetServer>> =
            file.servers.into_iter().map(|entry| Arc::new(FleetServer::new(entry, Arc::clone(&context)))).collect();
        load(&servers);
        let supervisors = servers.iter().map(|server| tokio::spawn(Arc::clone(server).supervise())).collect();
        Fleet {
            servers,
            toolbox: Mutex::new((0, Arc::new(toolbox_of(Vec::new(), &context.options)))),
            context,
            supervisors: Mutex::new(supervisors),
        }
    }

    /// Waits until every server is ready or has failed, but not longer than `wait`.
    pub async fn settled(&self, wait: Duration) {
        let all = join_all(self.servers.iter().map(|server| server.settled()));
        drop(timeout(wait, all).await);
    }

    /// Waits until the tools of every server are known, from the server or from the cache, or the server has failed, but
    /// not longer than `wait`.
    pub async fn listed(&self, wait: Duration) {
        self.listed_where(wait, |_| true).await;
    }

    /// The same for some of the servers, by name.
    pub(crate) async fn listed_where(&self, wait: Duration, is_wanted: impl Fn(&str) -> bool) {
        let all = async {
            for server in self.servers.iter().filter(|server| is_wanted(server.name())) {
                server.listed().await;
            }
        };
        drop(timeout(wait, all).await);
    }

    /// The servers as they are now, in the order of the file.
    pub fn states(&self) -> Vec<ServerState> {
        self.servers.iter().map(|server| server.state()).collect()
    }

    /// What the servers log from now on, from this severity on.
    pub(crate) fn logs(&self, severity_min: LogSeverity) -> ServerLogs {
        self.context.logs.subscribe(severity_min)
    }

    /// Ends all servers and waits until their processes have ended. Calls in flight fail.
    pub async fn shutdown(&self) {
        self.context.stop.cancel();
        let supervisors = std::mem::take(&mut *lock(&self.supervisors));
        for supervisor in supervisors {
            if let Err(error) = supervisor.await {
                tracing::error!(%error, "the task of an MCP server failed");
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

impl ToolHost for Fleet {
    fn toolbox(&self) -> Arc<Toolbox> {
        for server in &self.servers {
            server.refresh();
        }
        let mut current = lock(&self.toolbox);
        // Read before the lists: a change in between makes the next call build the toolbox again.
        let changes = self.context.changes.load(Ordering::Acquire);
        if current.0 != changes {
            let lists: Vec<_> = self.servers.iter().map(|server| server.list()).collect();
            let tools = lists.iter().flat_map(|list| list.tools.iter().cloned());
            *current = (changes, Arc::new(toolbox_of(tools.collect(), &self.context.options)));
        }
        Arc::clone(&current.1)
    }

    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value> {
        let list = self.servers.iter().find(|known| known.name() == server).map(|server| server.list());
        list.and_then(|list| list.annotations(tool).cloned()).unwrap_or_default()
    }

    fn definition(&self, server: &str, tool: &str) -> Option<ToolDigest> {
        self.servers.iter().find(|known| known.name() == server)?.list().definition(tool)
    }

    fn observed(&self, shapes: &[ToolShape]) {
        if shapes.is_empty() {
            return;
        }
        let toolbox = self.toolbox();
        let catalog = toolbox.catalog();
        for server in &self.servers {
            let of_server = catalog.functions().iter().filter_map(|function| {
                let tool = &catalog.tools()[function.tool.0 as usize];
                let is_of_server = tool.server.as_deref() == Some(server.name());
                let shape = shapes.iter().find(|shape| is_of_server && shape.function == function.expression())?;
                Some((tool.name.as_str(), shape.shape.as_str()))
            });
            server.observe(of_server);
        }
    }

    fn tools_confirmed<'a>(&'a self, server: &'a str, cancel: &'a CancellationToken) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(server) = self.servers.iter().find(|known| known.name() == server) else { return };
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = server.confirmed() => {}
            }
        })
    }

    fn call<'a>(
        &'a self,
        call: &'a ToolCall,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ToolOutput, CallError>> {
        Box::pin(async move {
            match self.servers.iter().find(|server| server.name() == call.server) {
                Some(server) => server.call(call, cancel).await,
                None => Err(CallError(format!("there is no server `{}` in the configuration", call.server))),
            }
        })
    }
}

/// Reads the cached lists, concurrently.
fn load(servers: &[Arc<FleetServer>]) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(servers.len());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(server) = servers.get(next.fetch_add(1, Ordering::Relaxed)) {
            server.load();
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
}

/// Leaves out tools beyond the number that a program can have.
fn toolbox_of(mut tools: Vec<Tool>, options: &FleetOptions) -> Toolbox {
    if tools.len() > TOOLS_MAX {
        tracing::warn!("{} tools are too many; the first {TOOLS_MAX} are offered", tools.len());
        tools.truncate(TOOLS_MAX);
    }
    Toolbox::with_effects(tools, Arc::clone(&options.effects)).expect("a program can number so many tools")
}
