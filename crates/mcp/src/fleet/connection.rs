//! One connection to a server, over stdio or HTTP, in whichever era of the protocol it speaks.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, ElicitRequestParams,
    ElicitResult, ErrorCode, ErrorData, Implementation, InputRequiredResult, ListToolsRequest, PaginatedRequestParams,
    ProtocolVersion, RequestMetaObject, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::FleetOptions;
use super::calls::{Calls, IDEMPOTENCY_KEY};
use super::child::Child;
use super::content::Content;
use super::fault::{NotOpened, said};
use super::http_client::HttpClient;
use super::stdio::StdioTransport;
use super::tail::Tail;
use crate::ask::Ask;
use crate::servers_file::Endpoint;

/// What `initialize` offers.
const LEGACY_VERSION: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// A list is one message, and may be longer than an answer may be.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Set by us, each at its time.
const OWN_HEADERS: [&str; 2] = ["mcp-session-id", "last-event-id"];
const PAGES_MAX: usize = 200;
const TOOLS_MAX: usize = 20_000;

#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    /// No further call should go this way.
    over: CancellationToken,
    /// Everything that belongs to the connection is gone.
    closed: CancellationToken,
    /// How a server's process ended.
    end: Arc<OnceLock<String>>,
    stop: CancellationToken,
    /// The short way for calls, if there is one.
    calls: Option<Arc<Calls>>,
    /// What the protocol wants to be said with every call.
    meta: Map<String, Value>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a server lists, and how long it says that it holds.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tools: Vec<Value>,
    pub(super) ttl: Option<Duration>,
}

/// What came back for a call.
#[derive(Debug)]
pub(super) enum Reply {
    Content(Content),
    /// The server wants something from a person before it goes on.
    Asks(InputRequiredResult),
    /// Nothing that answers a call.
    Odd(Value),
}

impl Connection {
    /// Connects. Dropping the future ends whatever was started.
    ///
    /// Servers of the old era should refuse a question that they do not know, and are greeted with `initialize` then.
    /// Some end their process instead, drop the connection, or say yes to everything: they get a second connection
    /// that begins with `initialize`.
    pub(super) async fn open(
        endpoint: &Endpoint,
        options: &FleetOptions,
        stderr: &Arc<Tail>,
        changed: &Arc<Notify>,
    ) -> Result<Connection, String> {
        let begin = |lifecycle| Connection::begin(endpoint, options, stderr, changed, lifecycle);
        let opened = match begin(lifecycle()).await {
            Err(NotOpened { was_puzzled: true, .. }) => begin(ClientLifecycleMode::Initialize).await,
            other => other,
        };
        opened.map_err(|error| error.reason)
    }

    async fn begin(
        endpoint: &Endpoint,
        options: &FleetOptions,
        stderr: &Arc<Tail>,
        changed: &Arc<Notify>,
        lifecycle: ClientLifecycleMode,
    ) -> Result<Connection, NotOpened> {
        let stop = CancellationToken::new();
        let end = Arc::default();
        let client = Client { changed: changed.clone() };
        let bytes_max = options.answer_bytes_max.max(LIST_BYTES_MAX);
        let (running, calls) = match endpoint {
            Endpoint::Stdio { command, args, env, cwd } => {
                let child = Child::start(command, args, env, cwd.as_deref(), stderr)?;
                let patience = options.shutdown_patience;
                let transport = StdioTransport::new(child, stderr.clone(), Arc::clone(&end), bytes_max, patience);
                let calls = transport.calls();
                (serve_client_with_lifecycle_and_ct(client, transport, lifecycle, stop.clone()).await, Some(calls))
            }
            Endpoint::Http { url, headers } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(header_map(headers)?)
                    .max_concurrent_requests(options.calls_per_server_max);
                let transport = StreamableHttpClientTransport::with_client(HttpClient::new(bytes_max)?, config);
                (serve_client_with_lifecycle_and_ct(client, transport, lifecycle, stop.clone()).await, None)
            }
        };
        let running = running.map_err(|error| NotOpened::new(&error, &end))?;
        Ok(Connection::new(running, stop, end, calls))
    }

    fn new(
        running: RunningService<RoleClient, Client>,
        stop: CancellationToken,
        end: Arc<OnceLock<String>>,
        calls: Option<Arc<Calls>>,
    ) -> Connection {
        let peer = running.peer().clone();
        let (over, closed) = (CancellationToken::new(), CancellationToken::new());
        let meta = meta(&peer, running.service().get_info());
        let connection = Connection { peer, over: over.clone(), closed: closed.clone(), end, stop, calls, meta };
        tokio::spawn(async move {
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "the task of a connection failed");
            }
            over.cancel();
            closed.cancel();
        });
        connection
    }

    pub(super) fn protocol_version(&self) -> Option<String> {
        self.peer.peer_info().map(|info| info.protocol_version.to_string())
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until no further call should go this way, and says why.
    pub(super) async fn over(&self) -> String {
        self.over.cancelled().await;
        self.end().unwrap_or_else(|| "the connection was lost".to_owned())
    }

    pub(super) fn end(&self) -> Option<String> {
        self.end.get().cloned()
    }

    pub(super) fn give_up(&self) {
        self.over.cancel();
    }

    /// Closes the connection and waits until its process is gone. Calls in flight end with it.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.closed.cancelled().await;
    }

    /// Asks for the list, page by page.
    pub(super) async fn list(&self, limit: Duration) -> Result<Listing, String> {
        let has_tools = self.peer.peer_info().is_none_or(|info| info.capabilities.tools.is_some());
        let mut listing = Listing { tools: Vec::new(), ttl: None };
        let mut cursor = None;
        for _page in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let result = match self.request(request, limit).await {
                Ok(result) => result,
                // It said that it has none.
                Err(ServiceError::McpError(_)) if !has_tools => return Ok(listing),
                Err(error) => return Err(format!("cannot list its tools: {}", said(&error))),
            };
            // One tool that is not quite as it should be makes the whole page an unknown kind of result.
            let page = serde_json::to_value(result).map_err(|error| error.to_string())?;
            let Value::Array(tools) = &page["tools"] else {
                return Err("cannot list its tools: its answer has no `tools`".to_owned());
            };
            listing.tools.extend(tools.iter().cloned());
            if listing.tools.len() > TOOLS_MAX {
                return Err(format!("it lists more than {TOOLS_MAX} tools"));
            }
            if let Some(ttl) = page["ttlMs"].as_u64().map(Duration::from_millis) {
                listing.ttl = Some(listing.ttl.map_or(ttl, |shortest| shortest.min(ttl)));
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                return Ok(listing);
            }
        }
        Err(format!("its list of tools does not end: more than {PAGES_MAX} pages"))
    }

    pub(super) async fn call(&self, ask: &Ask, limit: Duration) -> Result<Reply, ServiceError> {
        if let Some(calls) = &self.calls {
            let answered = timeout(limit, calls.call(ask, &self.meta)).await;
            return answered.unwrap_or(Err(ServiceError::Timeout { timeout: limit })).map(Reply::read);
        }
        let mut params = CallToolRequestParams::new(ask.tool.clone()).with_arguments(ask.args.clone());
        let meta = Map::from_iter([(IDEMPOTENCY_KEY.to_owned(), Value::from(ask.key.as_str()))]);
        params.meta = Some(RequestMetaObject::from(meta));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.request(request, limit).await.map(Reply::from)
    }

    /// Tells `changed` whenever the server says that its list changed. Older servers say so unasked.
    pub(super) async fn watch_list(&self, changed: &Notify) {
        let Some(info) = self.peer.peer_info() else { return };
        let announces = info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        if !announces || info.protocol_version.has_initialize() {
            return;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match self.peer.listen(filter).await {
            Ok(mut subscription) => {
                while let Ok(Some(_notification)) = subscription.next().await {
                    changed.notify_one();
                }
                // What was said since then is lost.
                changed.notify_one();
            }
            Err(error) => tracing::debug!(%error, "a server announces changes of its list and lets nobody listen"),
        }
    }

    /// Sends a request and waits. If nobody waits any more, the server is told.
    async fn request(&self, request: ClientRequest, limit: Duration) -> Result<ServerResult, ServiceError> {
        let answered = timeout(limit, async {
            let handle = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
            let mut waiting = Waiting(Some(handle));
            let answer = waiting.answer().await;
            waiting.0 = None;
            answer
        });
        answered.await.unwrap_or(Err(ServiceError::Timeout { timeout: limit }))
    }
}

impl Reply {
    /// Most results need no looking at all kinds there are.
    fn read(result: Value) -> Reply {
        let is_complete = result.get("resultType").is_none_or(|kind| kind == "complete");
        if is_complete && result.get("content").is_some_and(Value::is_array) {
            return Content::read(result).map_or(Reply::Odd(Value::Null), Reply::Content);
        }
        serde_json::from_value(result).map_or(Reply::Odd(Value::Null), ServerResult::into)
    }
}

impl From<ServerResult> for Reply {
    fn from(result: ServerResult) -> Reply {
        match result {
            ServerResult::CallToolResult(result) => Reply::Content(Content::from(result)),
            ServerResult::InputRequiredResult(asks) => Reply::Asks(asks),
            other => {
                let value = serde_json::to_value(other).unwrap_or_default();
                Content::read(value.clone()).map_or(Reply::Odd(value), Reply::Content)
            }
        }
    }
}

/// A request in flight; dropped before its answer came, it is cancelled.
struct Waiting(Option<RequestHandle<RoleClient>>);

impl Waiting {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        match &mut self.0 {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(handle.cancel(Some("nobody waits for the answer any more".to_owned())));
        }
    }
}

/// Our side of a connection.
#[derive(Debug)]
struct Client {
    changed: Arc<Notify>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("dacapo", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(LEGACY_VERSION)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    /// We do not say that we can be asked. A server that asks anyway must not take it for a person's refusal.
    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "nobody can be asked for input here", None))
    }
}

/// Since there is no handshake, requests say who sends them.
fn meta(peer: &Peer<RoleClient>, client: ClientConfig) -> Map<String, Value> {
    let Some(server) = peer.peer_info().filter(|server| !server.protocol_version.has_initialize()) else {
        return Map::new();
    };
    let mut meta = RequestMetaObject::default();
    meta.set_protocol_version(server.protocol_version.clone());
    meta.set_client_info(client.client_info);
    meta.set_client_capabilities(client.capabilities);
    match serde_json::to_value(meta) {
        Ok(Value::Object(meta)) => meta,
        _ => Map::new(),
    }
}

fn lifecycle() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(LEGACY_VERSION),
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let read = headers.iter().map(|(name, value)| {
        let header =
            HeaderName::try_from(name).map_err(|_invalid| format!("`{name}` is no name for an HTTP header"))?;
        if header == ACCEPT || OWN_HEADERS.contains(&header.as_str()) {
            return Err(format!("the header `{name}` is the protocol's own; leave it out of `headers`"));
        }
        let mut value = HeaderValue::try_from(value)
            .map_err(|_invalid| format!("the value of the header `{name}` has characters that no header can have"))?;
        value.set_sensitive(true);
        Ok((header, value))
    });
    read.collect()
}
