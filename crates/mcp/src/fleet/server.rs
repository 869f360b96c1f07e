//! The life of one server: connect, list, serve calls, notice its end, try again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dacapo_replay::{Answer, JsonText};
use rmcp::ServiceError;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Listing, Reply};
use super::link::{Down, Link, shortened};
use super::list_cache::ListCache;
use super::state::{Phase, ServerState, TransportKind};
use super::tail::Tail;
use super::tool_list::ToolList;
use super::{FleetOptions, content, not_taken, refusal};
use crate::ask::{Ask, Refusal, Told};
use crate::lock::lock;
use crate::mask::Mask;
use crate::servers_file::{Endpoint, InvalidServer, ServerEntry, ServerSpec};

/// A list that holds for no time at all is not asked for more often than this.
const TTL_MIN: Duration = Duration::from_secs(1);

/// What all servers of a fleet share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: FleetOptions,
    pub(super) mask: Mask,
    /// Counts the changes of lists.
    pub(super) changes: AtomicU64,
    pub(super) stop: CancellationToken,
    /// Room for servers that start though nobody waits for them.
    pub(super) starts: Semaphore,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    spec: Result<ServerSpec, InvalidServer>,
    shared: Arc<Shared>,
    stderr: Arc<Tail>,
    cache: Option<ListCache>,
    offer: Mutex<Offer>,
    link: watch::Sender<Link>,
    /// A call waits while nobody tries to connect.
    wanted: Notify,
    /// Somebody waits for the first connection.
    hurry: Notify,
    /// The list may have changed.
    changed: Arc<Notify>,
    room: Semaphore,
}

/// What a server offers, as far as we know.
#[derive(Debug, Default)]
struct Offer {
    list: Arc<ToolList>,
    from: Option<Source>,
    stale_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Cache,
    Server,
}

impl Server {
    pub(super) fn new(entry: ServerEntry, shared: Arc<Shared>) -> Server {
        let link = match &entry.spec {
            Ok(spec) if spec.disabled => Link::Disabled,
            Ok(_) => Link::Connecting { first: true },
            Err(error) => {
                let reason = shortened(&shared.mask.text(error.to_string()));
                Link::Down(Down { reason, since: Instant::now(), retry_at: None, was_up: false })
            }
        };
        let cache = match (&entry.spec, &shared.options.cache_dir) {
            (Ok(spec), Some(directory)) if !spec.disabled => {
                let is_placed = match &spec.endpoint {
                    Some(Endpoint::Stdio { cwd, .. }) => cwd.as_ref().is_some_and(|cwd| cwd.is_absolute()),
                    Some(Endpoint::Http { .. }) | None => true,
                };
                let started_in = if is_placed { None } else { std::env::current_dir().ok() };
                Some(ListCache::new(directory, &spec.fingerprint, started_in.as_deref()))
            }
            _ => None,
        };
        Server {
            name: entry.name,
            spec: entry.spec,
            stderr: Arc::default(),
            cache,
            offer: Mutex::default(),
            link: watch::Sender::new(link),
            wanted: Notify::new(),
            hurry: Notify::new(),
            changed: Arc::default(),
            room: Semaphore::new(shared.options.calls_per_server_max.max(1)),
            shared,
        }
    }

    /// Offers what an earlier run was told, if that is known.
    pub(super) fn load(&self) {
        if let Some(tools) = self.cache.as_ref().and_then(ListCache::load) {
            let list = Arc::new(ToolList::read(&self.name, tools));
            *lock(&self.offer) = Offer { list, from: Some(Source::Cache), stale_at: None };
        }
    }

    /// Keeps the server connected until the fleet stops.
    pub(super) async fn keep(self: Arc<Server>) {
        let Ok(ServerSpec { disabled: false, endpoint: Some(endpoint), .. }) = &self.spec else { return };
        let stop = self.shared.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.keep_connected(endpoint) => {}
        }
        let reason = "it was shut down".to_owned();
        let down = Down { reason, since: Instant::now(), retry_at: None, was_up: false };
        if let Link::Up(connection) = self.link.send_replace(Link::Down(down)) {
            connection.close().await;
        }
    }

    /// Never ends.
    async fn keep_connected(&self, endpoint: &Endpoint) {
        let options = &self.shared.options;
        let mut failures = 0;
        let mut turn = self.turn().await;
        loop {
            let begun = Instant::now();
            let opened = self.open(endpoint).await;
            turn.take();
            let (reason, was_up) = match opened {
                Ok(connection) => {
                    self.link.send_replace(Link::Up(connection.clone()));
                    (self.attend(&connection).await, true)
                }
                Err(reason) => (reason, false),
            };
            // One that ends soon after every start is as bad as one that does not start.
            failures = if was_up && begun.elapsed() > options.retry_max { 1 } else { failures + 1 };
            let now = Instant::now();
            let wait = options.retry_wait(failures);
            let reason = shortened(&self.shared.mask.text(reason));
            let wrote = self.stderr.last(&self.shared.mask);
            tracing::warn!(server = self.name, reason, wrote, "an MCP server is not available");
            self.link.send_replace(Link::Down(Down { reason, since: now, retry_at: Some(now + wait), was_up }));
            tokio::select! {
                () = sleep(wait) => {}
                () = self.wanted.notified() => {}
            }
            self.link.send_replace(Link::Connecting { first: false });
        }
    }

    /// A server whose tools are known already lets those who ask for them go first: a hundred processes that start take
    /// all there is of a small machine.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if lock(&self.offer).from != Some(Source::Cache) {
            return None;
        }
        let turn = async {
            sleep(self.shared.options.known_start_wait).await;
            self.shared.starts.acquire().await.ok()
        };
        tokio::select! {
            biased;
            () = self.hurry.notified() => None,
            turn = turn => turn,
        }
    }

    async fn open(&self, endpoint: &Endpoint) -> Result<Arc<Connection>, String> {
        let options = &self.shared.options;
        let opened = timeout(options.connect_timeout, async {
            let connection = Connection::open(endpoint, options, &self.stderr, &self.changed).await?;
            match connection.list(options.connect_timeout).await {
                Ok(listing) => self.publish(listing),
                Err(reason) => return Err(if connection.is_over() { connection.over().await } else { reason }),
            }
            Ok(Arc::new(connection))
        });
        let too_late = || Err(format!("it did not answer within {} s", options.connect_timeout.as_secs_f64()));
        opened.await.unwrap_or_else(|_elapsed| too_late())
    }

    /// Follows the changes of the list until the connection is over, and says why it is.
    async fn attend(&self, connection: &Connection) -> String {
        let options = &self.shared.options;
        let watch = async {
            loop {
                connection.watch_list(&self.changed).await;
                sleep(options.retry_max).await;
            }
        };
        let follow = async {
            loop {
                self.changed.notified().await;
                sleep(options.relist_wait).await;
                match connection.list(options.connect_timeout).await {
                    Ok(listing) => self.publish(listing),
                    Err(reason) => {
                        // It is as old as before, so whoever looks at it next asks again.
                        lock(&self.offer).stale_at = Instant::now().checked_add(options.retry_min.max(TTL_MIN));
                        let reason = self.shared.mask.text(reason);
                        tracing::warn!(server = self.name, reason, "the list of tools stays as it was");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            reason = connection.over() => reason,
            () = watch => unreachable!("a loop without end"),
            () = follow => unreachable!("a loop without end"),
        }
    }

    fn publish(&self, mut listing: Listing) {
        listing.tools.iter_mut().for_each(|tool| self.shared.mask.value(tool));
        let list = ToolList::read(&self.name, listing.tools);
        let mut offer = lock(&self.offer);
        offer.stale_at = listing.ttl.and_then(|ttl| Instant::now().checked_add(ttl.max(TTL_MIN)));
        let before = offer.from.replace(Source::Server);
        let is_same = before.is_some() && offer.list.listed == list.listed;
        // One that came from the cache is written again, for its time.
        if let Some(cache) = self.cache.clone().filter(|_| !is_same || before == Some(Source::Cache)) {
            let tools = list.listed.clone();
            let name = self.name.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = cache.store(tools) {
                    tracing::warn!(server = name, %error, "the list of tools could not be kept for the next start");
                }
            });
        }
        if is_same {
            return;
        }
        offer.list = Arc::new(list);
        drop(offer);
        self.shared.changes.fetch_add(1, Ordering::Release);
    }

    /// The tools as far as they are known.
    pub(super) fn list(&self) -> Arc<ToolList> {
        lock(&self.offer).list.clone()
    }

    /// The list, if it is that of an earlier run.
    fn kept_list(&self) -> Option<Arc<ToolList>> {
        let offer = lock(&self.offer);
        (offer.from == Some(Source::Cache)).then(|| offer.list.clone())
    }

    /// Asks for the list anew if it is older than its server said it holds.
    pub(super) fn refresh(&self) {
        let mut offer = lock(&self.offer);
        if offer.stale_at.is_some_and(|stale_at| stale_at <= Instant::now()) {
            offer.stale_at = None;
            self.changed.notify_one();
        }
    }

    pub(super) async fn call(&self, ask: &Ask, cancel: &CancellationToken) -> Result<Told, Refusal> {
        let called = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(refusal::cancelled(ask)),
            called = self.call_to_end(ask) => called,
        };
        called.map_err(|refusal| Refusal(self.shared.mask.text(refusal.0)))
    }

    async fn call_to_end(&self, ask: &Ask) -> Result<Told, Refusal> {
        let options = &self.shared.options;
        let kept = self.kept_list();
        let _room = self.room.acquire().await.map_err(|_closed| refusal::cancelled(ask))?;
        let connection = self.connection().await.map_err(|reason| refusal::unavailable(ask, &reason))?;
        // Whoever allowed the call read what an earlier run was told.
        if kept.is_some_and(|list| list.annotations.get(&ask.tool) != self.list().annotations.get(&ask.tool)) {
            return Err(refusal::changed(ask));
        }
        let reply = match connection.call(ask, options.call_timeout).await {
            Ok(reply) => reply,
            Err(ServiceError::McpError(error)) => {
                if let Some(reason) = not_taken::reason(&error, options.answer_bytes_max) {
                    return Err(refusal::not_taken(ask, &reason));
                }
                let mut data = json!({ "code": error.code.0, "data": error.data });
                self.shared.mask.value(&mut data);
                let message = self.shared.mask.text(error.message.into_owned());
                let answer = Answer::Error { message, data: Some(JsonText::from(&data)) };
                return Ok(Told { answer, attachments: Vec::new() });
            }
            Err(error) => {
                if matches!(error, ServiceError::TransportSend(_) | ServiceError::TransportClosed) {
                    connection.give_up();
                }
                let end = connection.is_over().then(|| connection.end()).flatten();
                let end = end.map(|end| self.told_with_last_words(end));
                return Err(refusal::lost(ask, &error, end.as_deref()));
            }
        };
        let told = match reply {
            Reply::Content(content) => content.told(&ask.key, &self.shared.mask),
            Reply::Asks(asks) => return Err(refusal::asks(ask, &asks)),
            Reply::Odd(value) => return Err(refusal::odd(ask, &value.to_string())),
        };
        match content::bytes(&told) {
            bytes if bytes > options.answer_bytes_max => {
                let reason = not_taken::too_large(Some(bytes as u64), options.answer_bytes_max);
                Err(refusal::not_taken(ask, &reason))
            }
            _ => Ok(told),
        }
    }

    /// The connection, or why there is none. A server that is down is tried once.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let options = &self.shared.options;
        let mut link = self.link.subscribe();
        let mut tried = false;
        loop {
            let down = match &*link.borrow_and_update() {
                Link::Up(connection) if !connection.is_over() => return Ok(connection.clone()),
                Link::Up(_) => None,
                Link::Connecting { .. } => {
                    self.hurry.notify_one();
                    tried = true;
                    None
                }
                Link::Down(down) => Some(down.clone()),
                Link::Disabled => return Err("it is disabled in the configuration".to_owned()),
            };
            if let Some(down) = down {
                let soon = !down.was_up && down.since.elapsed() < options.retry_min;
                if tried || soon || down.retry_at.is_none() {
                    return Err(down.reason);
                }
                tried = true;
                self.wanted.notify_one();
            }
            // Trying takes as long as it may, and is told here when it is over.
            if link.changed().await.is_err() {
                return Err("it was shut down".to_owned());
            }
        }
    }

    /// Waits until the server is ready or has failed once.
    pub(super) async fn settled(&self) {
        self.hurry.notify_one();
        drop(self.link.subscribe().wait_for(|link| !matches!(link, Link::Connecting { first: true })).await);
    }

    /// Waits until its list is known, from wherever, or it failed.
    pub(super) async fn listed(&self) {
        if lock(&self.offer).from.is_none() {
            self.settled().await;
        }
    }

    /// Waits until its list is its own and not that of an earlier run, or it cannot be reached. One that is down is
    /// tried, because a call would try it too.
    pub(super) async fn confirmed(&self) {
        if lock(&self.offer).from != Some(Source::Server) {
            drop(timeout(self.shared.options.connect_timeout, self.connection()).await);
        }
    }

    pub(super) fn state(&self) -> ServerState {
        let link = self.link.borrow().clone();
        let (tools, cached) = {
            let offer = lock(&self.offer);
            (offer.list.tools.len(), offer.from == Some(Source::Cache))
        };
        let endpoint = self.spec.as_ref().ok().and_then(|spec| spec.endpoint.as_ref());
        let transport = endpoint.map(|endpoint| match endpoint {
            Endpoint::Stdio { .. } => TransportKind::Stdio,
            Endpoint::Http { .. } => TransportKind::Http,
        });
        let protocol_version = match &link {
            Link::Up(connection) => connection.protocol_version(),
            _ => None,
        };
        let phase = match link {
            Link::Connecting { .. } => Phase::Connecting,
            Link::Up(_) => Phase::Ready,
            Link::Down(down) => {
                let retry_in = down.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
                Phase::Failed { reason: down.reason, retry_in }
            }
            Link::Disabled => Phase::Disabled,
        };
        let stderr = self.stderr.lines(&self.shared.mask);
        ServerState { name: self.name.clone(), transport, protocol_version, tools, cached, phase, stderr }
    }

    /// Why a server is gone often stands in the last line that it wrote.
    fn told_with_last_words(&self, reason: String) -> String {
        let reason = shortened(&self.shared.mask.text(reason));
        match self.stderr.last(&self.shared.mask) {
            Some(words) => format!("{reason}; the last it wrote: {words}"),
            None => reason,
        }
    }
}
