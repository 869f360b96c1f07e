//! Keeps one server connected: connect, list the tools, execute calls, notice when the connection ends, connect again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dacapo_replay::{Answer, Effect, JsonText, Tool};
use dacapo_runner::{CallError, CancellationToken, LogSeverity, ServerLog, ToolCall, ToolOutput};
use rmcp::ServiceError;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{Listing, ServerConnection, ServerReply};
use super::connection_error::is_session_expired;
use super::link_state::{LinkState, Outage, first_line};
use super::list_cache::ListCache;
use super::log_relay::{LogRelay, ServerLogSink};
use super::resources::ResourceFunction;
use super::server_state::{ServerPhase, ServerState, TransportKind};
use super::stderr_tail::StderrTail;
use super::tool_list::ToolList;
use super::{FleetOptions, call_errors, content, rejected_response};
use crate::lock::lock;
use crate::mask::Mask;
use crate::servers_file::{InvalidServer, ServerEndpoint, ServerEntry, ServerSpec};

/// A list with a shorter `ttlMs` is not requested more often than this.
const TTL_MIN: Duration = Duration::from_secs(1);

/// What the servers of a fleet share.
#[derive(Debug)]
pub(super) struct FleetContext {
    pub(super) options: FleetOptions,
    pub(super) mask: Mask,
    /// Counts the changes of lists.
    pub(super) changes: AtomicU64,
    pub(super) stop: CancellationToken,
    /// Permits for servers that start while nobody waits for them.
    pub(super) starts: Semaphore,
    pub(super) logs: Arc<LogRelay>,
}

/// What a server sends by itself.
#[derive(Debug)]
pub(super) struct ServerNotices {
    /// The list of tools may have changed.
    pub(super) changed: Notify,
    pub(super) server: String,
    /// It has no `initialize`, and takes long to answer.
    pub(super) needs_discover: AtomicBool,
    logs: ServerLogSink,
    pub(super) context: Arc<FleetContext>,
}

impl ServerNotices {
    /// Takes a log message.
    pub(super) fn logged(&self, severity: LogSeverity, logger: Option<String>, mut data: Value) {
        let mask = &self.context.mask;
        mask.value(&mut data);
        let logger = logger.map(|logger| mask.text(logger));
        self.logs.take(ServerLog { server: self.server.clone(), severity, logger, data });
    }
}

#[derive(Debug)]
pub(super) struct FleetServer {
    spec: Result<ServerSpec, InvalidServer>,
    context: Arc<FleetContext>,
    stderr: Arc<StderrTail>,
    cache: Option<ListCache>,
    known: Mutex<KnownTools>,
    link: watch::Sender<LinkState>,
    /// A call needs a connection while none is being tried.
    retry_now: Notify,
    /// Something waits for the first connection.
    start_now: Notify,
    notices: Arc<ServerNotices>,
    /// Permits for calls in flight.
    call_permits: Semaphore,
}

/// The tools of a server, as far as they are known.
#[derive(Debug, Default)]
struct KnownTools {
    list: Arc<ToolList>,
    from: Option<ToolListSource>,
    stale_at: Option<Instant>,
}

/// What was warned of last. A server is tried again and again, and most often fails for the same reason, such as a command
/// that is not installed.
#[derive(Debug, Default)]
struct LastWarning(Option<String>);

impl LastWarning {
    /// Whether this outage is worth another warning.
    fn is_worth_warning(&mut self, reason: &str, was_up: bool) -> bool {
        let is_same = self.0.as_deref() == Some(reason);
        self.0 = Some(reason.to_owned());
        was_up || !is_same
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolListSource {
    Cache,
    Server,
}

impl FleetServer {
    pub(super) fn new(entry: ServerEntry, context: Arc<FleetContext>) -> FleetServer {
        let link = match &entry.spec {
            Ok(spec) if spec.disabled => LinkState::Disabled,
            Ok(_) => LinkState::Connecting { first: true },
            Err(error) => {
                let reason = first_line(&context.mask.text(error.to_string()));
                LinkState::Down(Outage { reason, since: Instant::now(), retry_at: None, was_up: false })
            }
        };
        let cache = match (&entry.spec, &context.options.cache_dir) {
            (Ok(spec), Some(directory)) if !spec.disabled => {
                let is_placed = match &spec.endpoint {
                    Some(ServerEndpoint::Stdio { cwd, .. }) => cwd.as_ref().is_some_and(|cwd| cwd.is_absolute()),
                    Some(ServerEndpoint::Http { .. }) | None => true,
                };
                let started_in = if is_placed { None } else { std::env::current_dir().ok() };
                Some(ListCache::new(directory, &spec.fingerprint, started_in.as_deref()))
            }
            _ => None,
        };
        FleetServer {
            spec: entry.spec,
            stderr: Arc::default(),
            cache,
            known: Mutex::default(),
            link: watch::Sender::new(link),
            retry_now: Notify::new(),
            start_now: Notify::new(),
            notices: Arc::new(ServerNotices {
                changed: Notify::new(),
                server: entry.name,
                needs_discover: AtomicBool::new(false),
                logs: ServerLogSink::new(Arc::clone(&context.logs)),
                context: Arc::clone(&context),
            }),
            call_permits: Semaphore::new(context.options.calls_per_server_max.max(1)),
            context,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.notices.server
    }

    /// Takes the list of an earlier run from the cache, if there is one.
    pub(super) fn load(&self) {
        if let Some((tools, has_resources, shapes)) = self.cache.as_ref().and_then(ListCache::load) {
            let list = Arc::new(ToolList::read(self.name(), tools, has_resources, shapes));
            *lock(&self.known) = KnownTools { list, from: Some(ToolListSource::Cache), stale_at: None };
        }
    }

    /// Keeps the server connected until the fleet stops.
    pub(super) async fn supervise(self: Arc<FleetServer>) {
        let Ok(ServerSpec { disabled: false, endpoint: Some(endpoint), .. }) = &self.spec else { return };
        tokio::select! {
            biased;
            () = self.context.stop.cancelled() => {}
            () = self.keep_connected(endpoint) => {}
        }
        let reason = "it was shut down".to_owned();
        let down = Outage { reason, since: Instant::now(), retry_at: None, was_up: false };
        if let LinkState::Up(connection) = self.link.send_replace(LinkState::Down(down)) {
            connection.close().await;
        }
    }

    /// Connects, and connects again whenever the connection has ended. Never returns.
    async fn keep_connected(self: &Arc<Self>, endpoint: &ServerEndpoint) {
        let options = &self.context.options;
        let mut failures = 0;
        let mut warned = LastWarning::default();
        let mut start_permit = self.wait_to_start().await;
        loop {
            let started = Instant::now();
            let opened = self.open(endpoint).await;
            start_permit.take();
            let (reason, was_up) = match opened {
                Ok(connection) => {
                    self.link.send_replace(LinkState::Up(Arc::clone(&connection)));
                    (self.follow_list(&connection).await, true)
                }
                Err(reason) => (reason, false),
            };
            // A server that ends soon after every start is retried as slowly as one that does not start.
            failures = if was_up && started.elapsed() > options.retry_max { 1 } else { failures + 1 };
            let now = Instant::now();
            let wait = options.retry_wait(failures);
            let reason = first_line(&self.context.mask.text(reason));
            let last_stderr_line = self.stderr.last(&self.context.mask);
            if warned.is_worth_warning(&reason, was_up) {
                tracing::warn!(server = self.name(), reason, last_stderr_line, "an MCP server is not available");
            } else {
                tracing::debug!(server = self.name(), reason, last_stderr_line, "an MCP server is still not available");
            }
            self.link.send_replace(LinkState::Down(Outage { reason, since: now, retry_at: Some(now + wait), was_up }));
            tokio::select! {
                () = sleep(wait) => {}
                () = self.retry_now.notified() => {}
            }
            self.link.send_replace(LinkState::Connecting { first: false });
        }
    }

    /// Delays the start of a server whose tools are known from the cache, until it is needed or a permit is free: a hundred
    /// processes that start at once would leave a small machine no time for the first request.
    async fn wait_to_start(&self) -> Option<SemaphorePermit<'_>> {
        if lock(&self.known).from != Some(ToolListSource::Cache) {
            return None;
        }
        let permit = async {
            sleep(self.context.options.known_start_wait).await;
            self.context.starts.acquire().await.ok()
        };
        tokio::select! {
            biased;
            () = self.start_now.notified() => None,
            permit = permit => permit,
        }
    }

    async fn open(self: &Arc<Self>, endpoint: &ServerEndpoint) -> Result<Arc<ServerConnection>, String> {
        let options = &self.context.options;
        let opened = timeout(options.connect_timeout, async {
            let connection = ServerConnection::open(endpoint, &self.stderr, &self.notices).await?;
            match connection.list(options.connect_timeout).await {
                Ok(listing) => self.publish(listing),
                Err(reason) => return Err(if connection.has_ended() { connection.ended().await } else { reason }),
            }
            Ok(Arc::new(connection))
        });
        let too_late = || Err(format!("it did not answer within {} s", options.connect_timeout.as_secs_f64()));
        opened.await.unwrap_or_else(|_elapsed| too_late())
    }

    /// Keeps the list of tools up to date until the connection ends, and returns why it ended.
    async fn follow_list(self: &Arc<Self>, connection: &ServerConnection) -> String {
        let options = &self.context.options;
        let watch = async {
            loop {
                connection.watch_list(&self.notices.changed).await;
                sleep(options.retry_max).await;
            }
        };
        let follow = async {
            loop {
                self.notices.changed.notified().await;
                sleep(options.relist_wait).await;
                match connection.list(options.connect_timeout).await {
                    Ok(listing) => self.publish(listing),
                    Err(reason) => {
                        // The list stays stale, so the next one who reads it after a while requests it again.
                        lock(&self.known).stale_at = Instant::now().checked_add(options.retry_min.max(TTL_MIN));
                        let reason = self.context.mask.text(reason);
                        tracing::warn!(server = self.name(), reason, "the list of tools stays as it was");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            reason = connection.ended() => reason,
            () = watch => unreachable!("a loop without end"),
            () = follow => unreachable!("a loop without end"),
            () = connection.follow_log_level() => unreachable!("a loop without end"),
        }
    }

    fn publish(self: &Arc<Self>, mut listing: Listing) {
        listing.tools.iter_mut().for_each(|tool| self.context.mask.value(tool));
        let shapes = self.list().shapes_for(&listing.tools);
        let list = Arc::new(ToolList::read(self.name(), listing.tools, listing.has_resources, shapes));
        let mut known = lock(&self.known);
        known.stale_at = listing.ttl.and_then(|ttl| Instant::now().checked_add(ttl.max(TTL_MIN)));
        let before = known.from.replace(ToolListSource::Server);
        let is_same =
            before.is_some() && known.list.listed == list.listed && known.list.has_resources == list.has_resources;
        // The same list as in the cache is written again, because the cache expires.
        if !is_same || before == Some(ToolListSource::Cache) {
            self.cache(&list);
        }
        if is_same {
            return;
        }
        known.list = list;
        drop(known);
        self.context.changes.fetch_add(1, Ordering::Release);
    }

    /// Writes a list to the cache, in the background.
    fn cache(self: &Arc<Self>, list: &Arc<ToolList>) {
        if self.cache.is_none() {
            return;
        }
        let (server, list) = (Arc::clone(self), Arc::clone(list));
        tokio::task::spawn_blocking(move || {
            if let Some(Err(error)) = server.cache.as_ref().map(|cache| cache.store(&list)) {
                tracing::warn!(server = server.name(), %error, "the list of tools could not be cached");
            }
        });
    }

    /// Remembers what answers looked like, of tools of which that is not known yet: declarations do not change with every
    /// answer.
    pub(super) fn observe<'a>(self: &Arc<Self>, observed: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut known = lock(&self.known);
        let new: Vec<(&str, &str)> = observed.filter(|(tool, shape)| known.list.is_unknown(tool, shape)).collect();
        if new.is_empty() {
            return;
        }
        let list = Arc::make_mut(&mut known.list);
        for (tool, shape) in new {
            list.observe(tool, shape);
        }
        let list = Arc::clone(&known.list);
        drop(known);
        self.cache(&list);
        self.context.changes.fetch_add(1, Ordering::Release);
    }

    /// The tools that are known now.
    pub(super) fn list(&self) -> Arc<ToolList> {
        Arc::clone(&lock(&self.known).list)
    }

    /// The list, if there is one.
    fn known_list(&self) -> Option<Arc<ToolList>> {
        let known = lock(&self.known);
        known.from.map(|_| Arc::clone(&known.list))
    }

    /// Requests the list again if its `ttlMs` has passed.
    pub(super) fn refresh(&self) {
        let mut known = lock(&self.known);
        if known.stale_at.is_some_and(|stale_at| stale_at <= Instant::now()) {
            known.stale_at = None;
            self.notices.changed.notify_one();
        }
    }

    pub(super) async fn call(&self, call: &ToolCall, cancel: &CancellationToken) -> Result<ToolOutput, CallError> {
        let called = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(call_errors::cancelled(call)),
            called = self.call_to_end(call) => called,
        };
        called.map_err(|error| CallError(self.context.mask.text(error.0)))
    }

    async fn call_to_end(&self, call: &ToolCall) -> Result<ToolOutput, CallError> {
        let options = &self.context.options;
        let known = self.known_list();
        let _permit = self.call_permits.acquire().await.map_err(|_closed| call_errors::cancelled(call))?;
        let mut connection = self.connection().await.map_err(|reason| call_errors::unavailable(call, &reason))?;
        // The call was allowed by what was known of the tool before. The connection may be a new one, with another list.
        if !self.is_as_allowed(call, known.as_deref()) {
            return Err(call_errors::tool_changed(call));
        }
        let mut reply = self.send(call, &connection).await;
        if reply.as_ref().is_err_and(is_session_expired) && self.may_repeat(call) {
            // The server may be gone meanwhile, or may list the tool differently; then the first error is the answer.
            if let Ok(again) = self.connection().await
                && self.is_as_allowed(call, known.as_deref())
            {
                connection = again;
                reply = self.send(call, &connection).await;
            }
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(ServiceError::McpError(error)) => {
                if let Some(reason) = rejected_response::reason(&error, options.answer_bytes_max) {
                    return Err(call_errors::response_rejected(call, &reason));
                }
                let mut data = json!({ "code": error.code.0, "data": error.data });
                self.context.mask.value(&mut data);
                let message = self.context.mask.text(error.message.into_owned());
                let answer = Answer::Error { message, data: Some(JsonText::from(&data)) };
                return Ok(ToolOutput { answer, attachments: Vec::new() });
            }
            Err(error) => {
                if matches!(error, ServiceError::TransportSend(_) | ServiceError::TransportClosed) {
                    connection.retire();
                }
                let end = connection.has_ended().then(|| connection.end()).flatten();
                let end = end.map(|end| self.with_last_stderr_line(end));
                return Err(call_errors::connection_lost(call, &error, end.as_deref()));
            }
        };
        let output = match reply {
            ServerReply::Content(content) => content.into_output(&call.idempotency_key, &self.context.mask),
            ServerReply::InputRequired(result) => return Err(call_errors::input_required(call, &result)),
            ServerReply::Unexpected(value) => return Err(call_errors::unexpected_result(call, &value.to_string())),
        };
        match content::bytes(&output) {
            bytes if bytes > options.answer_bytes_max => {
                let reason = rejected_response::too_large(Some(bytes as u64), options.answer_bytes_max);
                Err(call_errors::response_rejected(call, &reason))
            }
            _ => Ok(output),
        }
    }

    async fn send(&self, call: &ToolCall, connection: &ServerConnection) -> Result<ServerReply, ServiceError> {
        let limit = self.context.options.call_timeout;
        match self.list().resource_function(&call.tool) {
            Some(function) => connection.resources(function, &call.args, limit).await,
            None => connection.call(call, limit).await,
        }
    }

    /// Whether the tool has the annotations that the list had, and the definition that a person approved.
    fn is_as_allowed(&self, call: &ToolCall, list: Option<&ToolList>) -> bool {
        let now = self.list();
        list.is_none_or(|list| list.annotations(&call.tool) == now.annotations(&call.tool))
            && call.approved.is_none_or(|approved| now.definition(&call.tool) == Some(approved))
    }

    /// Whether a call that the server may have executed can be sent to it again.
    fn may_repeat(&self, call: &ToolCall) -> bool {
        let list = self.list();
        let configured = self.context.options.effects.of(&format!("{}.{}", call.server, call.tool));
        let declared = || list.tools.iter().find(|tool| tool.name == call.tool).map(Tool::effect);
        configured.or_else(declared).is_some_and(|effect| effect != Effect::Write)
    }

    /// The connection, or why there is none. If the server is not connected, one attempt to connect is waited for.
    async fn connection(&self) -> Result<Arc<ServerConnection>, String> {
        let options = &self.context.options;
        let mut link = self.link.subscribe();
        let mut tried = false;
        loop {
            let down = match &*link.borrow_and_update() {
                LinkState::Up(connection) if !connection.has_ended() => return Ok(Arc::clone(connection)),
                LinkState::Up(_) => None,
                LinkState::Connecting { .. } => {
                    self.start_now.notify_one();
                    tried = true;
                    None
                }
                LinkState::Down(down) => Some(down.clone()),
                LinkState::Disabled => return Err("it is disabled in the configuration".to_owned()),
            };
            if let Some(down) = down {
                let soon = !down.was_up && down.since.elapsed() < options.retry_min;
                if tried || soon || down.retry_at.is_none() {
                    return Err(down.reason);
                }
                tried = true;
                self.retry_now.notify_one();
            }
            // An attempt to connect has a timeout of its own, and ends with a change of the link's state.
            if link.changed().await.is_err() {
                return Err("it was shut down".to_owned());
            }
        }
    }

    /// Waits until the server is ready or has failed once.
    pub(super) async fn settled(&self) {
        self.start_now.notify_one();
        drop(self.link.subscribe().wait_for(|link| !matches!(link, LinkState::Connecting { first: true })).await);
    }

    /// Waits until its tools are known, from the server or from the cache, or it has failed.
    pub(super) async fn listed(&self) {
        if lock(&self.known).from.is_none() {
            self.settled().await;
        }
    }

    /// Waits until its list comes from the server and not from the cache, or it cannot be reached. Tries to connect if it is
    /// not connected, because the call that waits for this would try it too.
    pub(super) async fn confirmed(&self) {
        if lock(&self.known).from != Some(ToolListSource::Server) {
            drop(timeout(self.context.options.connect_timeout, self.connection()).await);
        }
    }

    pub(super) fn state(&self) -> ServerState {
        let link = self.link.borrow().clone();
        let (list, cached) = {
            let known = lock(&self.known);
            (Arc::clone(&known.list), known.from == Some(ToolListSource::Cache))
        };
        let (tools, resource_functions) =
            (list.listed.len(), list.resource_functions().map(ResourceFunction::name).collect());
        let endpoint = self.spec.as_ref().ok().and_then(|spec| spec.endpoint.as_ref());
        let transport = endpoint.map(|endpoint| match endpoint {
            ServerEndpoint::Stdio { .. } => TransportKind::Stdio,
            ServerEndpoint::Http { .. } => TransportKind::Http,
        });
        let protocol_version = match &link {
            LinkState::Up(connection) => connection.protocol_version(),
            _ => None,
        };
        let phase = match link {
            LinkState::Connecting { .. } => ServerPhase::Connecting,
            LinkState::Up(_) => ServerPhase::Ready,
            LinkState::Down(down) => {
                let retry_in = down.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
                ServerPhase::Failed { reason: down.reason, retry_in }
            }
            LinkState::Disabled => ServerPhase::Disabled,
        };
        let stderr = self.stderr.lines(&self.context.mask);
        let name = self.notices.server.clone();
        ServerState { name, transport, protocol_version, tools, resource_functions, cached, phase, stderr }
    }

    /// Adds the last line of the server's stderr, which often has the cause.
    fn with_last_stderr_line(&self, reason: String) -> String {
        let reason = first_line(&self.context.mask.text(reason));
        match self.stderr.last(&self.context.mask) {
            Some(words) => format!("{reason}; the last it wrote: {words}"),
            None => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_as_before_is_warned_of_once() {
        let mut warned = LastWarning::default();
        let missing = "the command `nowhere` is not installed";
        assert_eq!([warned.is_worth_warning(missing, false), warned.is_worth_warning(missing, false)], [true, false]);
        assert!(warned.is_worth_warning("it ended with status 1", false), "another reason");
        assert!(warned.is_worth_warning("it ended with status 1", true), "it had come back in between");
    }
}
