//! All configured MCP servers, as the owners of one set of tools.
//!
//! Servers start side by side in the background and fail alone. [`server`] has the life of one of them,
//! [`connection`] what is said to it, [`stdio`], [`child`] and [`http_client`] how it gets there.

mod calls;
mod child;
mod connection;
mod content;
mod fault;
mod http_client;
mod link;
mod list_cache;
mod not_taken;
mod options;
mod outbox;
mod refusal;
mod response_id;
mod server;
mod state;
mod stdio;
mod tail;
mod tool_list;

use std::num::NonZero;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dacapo_replay::{Tool, Toolbox};
use futures_util::future::join_all;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::ask::{Ask, Owners, Refusal, Told};
use crate::lock::lock;
use crate::mask::Mask;
use crate::servers_file::ServersFile;
use server::{Server, Shared};

pub use options::FleetOptions;
pub use state::{Phase, ServerState, TransportKind};

const TOOLS_MAX: usize = 65_000;
/// Servers that start at a time though nobody waits for them.
const STARTS_MAX: usize = 8;

/// The servers of a file. Dropping it ends them; [`Fleet::shutdown`] also waits until they are gone.
#[derive(Debug)]
pub struct Fleet {
    servers: Vec<Arc<Server>>,
    shared: Arc<Shared>,
    /// The tools at some count of changes.
    toolbox: Mutex<(u64, Arc<Toolbox>)>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl Fleet {
    /// Starts all servers in the background and returns at once. Needs a Tokio runtime.
    pub fn start(file: ServersFile, options: FleetOptions) -> Fleet {
        let specs = file.servers.iter().filter_map(|server| server.spec.as_ref().ok());
        let mask = Mask::new(specs.flat_map(|spec| spec.secrets.iter().map(String::as_str)));
        let (changes, stop) = (AtomicU64::new(1), CancellationToken::new());
        let starts = Semaphore::new(STARTS_MAX);
        let shared = Arc::new(Shared { options, mask, changes, stop, starts });
        let servers: Vec<Arc<Server>> =
            file.servers.into_iter().map(|entry| Arc::new(Server::new(entry, shared.clone()))).collect();
        load(&servers);
        let keepers = servers.iter().map(|server| tokio::spawn(server.clone().keep())).collect();
        Fleet {
            servers,
            shared,
            toolbox: Mutex::new((0, Arc::new(toolbox_of(Vec::new())))),
            keepers: Mutex::new(keepers),
        }
    }

    /// Waits until every server is ready or has failed, or the wait is over.
    pub async fn settled(&self, wait: Duration) {
        let all = join_all(self.servers.iter().map(|server| server.settled()));
        drop(timeout(wait, all).await);
    }

    /// Waits until the list of every server is known, be it from an earlier run, or the server failed, or the wait
    /// is over.
    pub async fn listed(&self, wait: Duration) {
        let all = async {
            for server in &self.servers {
                server.listed().await;
            }
        };
        drop(timeout(wait, all).await);
    }

    /// The servers as they are now, in the order of the file.
    pub fn states(&self) -> Vec<ServerState> {
        self.servers.iter().map(|server| server.state()).collect()
    }

    /// Ends all servers and waits until their processes are gone. Calls in flight are refused.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        let keepers = std::mem::take(&mut *lock(&self.keepers));
        for keeper in keepers {
            if let Err(error) = keeper.await {
                tracing::error!(%error, "the keeper of an MCP server failed");
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Owners for Fleet {
    fn toolbox(&self) -> Arc<Toolbox> {
        for server in &self.servers {
            server.refresh();
        }
        let mut current = lock(&self.toolbox);
        // Counted before the lists are read: what changes in between is seen the next time.
        let changes = self.shared.changes.load(Ordering::Acquire);
        if current.0 != changes {
            let lists: Vec<_> = self.servers.iter().map(|server| server.list()).collect();
            let tools = lists.iter().flat_map(|list| list.tools.iter().cloned());
            *current = (changes, Arc::new(toolbox_of(tools.collect())));
        }
        current.1.clone()
    }

    fn annotations(&self, server: &str, tool: &str) -> Map<String, Value> {
        let list = self.servers.iter().find(|known| known.name == server).map(|server| server.list());
        list.and_then(|list| list.annotations.get(tool).cloned()).unwrap_or_default()
    }

    fn confirmed<'a>(
        &'a self,
        server: &'a str,
        cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let Some(server) = self.servers.iter().find(|known| known.name == server) else { return };
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = server.confirmed() => {}
            }
        })
    }

    fn call<'a>(
        &'a self,
        ask: &'a Ask,
        cancel: &'a CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Result<Told, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            match self.servers.iter().find(|server| server.name == ask.server) {
                Some(server) => server.call(ask, cancel).await,
                None => Err(Refusal(format!("there is no server `{}` in the configuration", ask.server))),
            }
        })
    }
}

/// Reads the lists of earlier runs, side by side.
fn load(servers: &[Arc<Server>]) {
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

/// Tools beyond what a program can number are left out.
fn toolbox_of(mut tools: Vec<Tool>) -> Toolbox {
    if tools.len() > TOOLS_MAX {
        tracing::warn!("{} tools are too many; the first {TOOLS_MAX} are offered", tools.len());
        tools.truncate(TOOLS_MAX);
    }
    Toolbox::new(tools).expect("a program can number so many tools")
}
