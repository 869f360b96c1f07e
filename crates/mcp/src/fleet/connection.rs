//! One connection to a server, over stdio or HTTP, in whichever version of the protocol it speaks.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dacapo_runner::{CancellationToken, LogSeverity, ToolCall, current_trace};
use http::header::ACCEPT;
use http::{HeaderName, HeaderValue};
#[expect(deprecated, reason = "servers log until the protocol has removed it")]
use rmcp::model::LoggingMessageNotificationParam;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, CustomRequest,
    ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation, InputRequiredResult,
    ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequest, ReadResourceRequestParams, RequestMetaObject, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, Peer, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::connection_error::{ConnectError, describe, is_session_expired};
use super::content::CallContent;
use super::http_client::HttpClient;
use super::resources::{self, ResourceFunction};
use super::server::ServerNotices;
use super::server_auth::ServerAuth;
use super::server_process::ServerProcess;
use super::stderr_tail::StderrTail;
use super::stdio::StdioTransport;
use super::stdio_calls::{IDEMPOTENCY_KEY, StdioCalls};
use crate::servers_file::ServerEndpoint;

/// The version that `initialize` offers.
const LEGACY_VERSION: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// A list of tools is one message, and may be longer than the response to a call may be.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Headers that the protocol sets itself.
const OWN_HEADERS: [&str; 2] = ["mcp-session-id", "last-event-id"];
/// Asks a server to log from a level on, before MCP 2026-07-28.
const SET_LEVEL: &str = "logging/setLevel";
const SET_LEVEL_WAIT: Duration = Duration::from_secs(10);
/// Asks for it with a request.
const LOG_LEVEL_META: &str = "io.modelcontextprotocol/logLevel";
const PAGES_MAX: usize = 200;
const TOOLS_MAX: usize = 20_000;
/// A list of resources that is longer is given in parts.
const RESOURCES_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct ServerConnection {
    peer: Peer<RoleClient>,
    end: Arc<ConnectionEnd>,
    stop: CancellationToken,
    /// Sends calls past rmcp, for servers on stdio.
    calls: Option<Arc<StdioCalls>>,
    /// Metadata that the protocol requires with every call.
    meta: Map<String, Value>,
    log_requests: LogRequests,
}

/// What is known of the end of a connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionEnd {
    /// No further call should use the connection.
    ended: CancellationToken,
    /// The transport is closed, and the process of the server has ended.
    closed: CancellationToken,
    /// How the server's process ended.
    pub(super) reason: OnceLock<String>,
}

/// How a server is asked for log messages.
#[derive(Debug)]
enum LogRequests {
    /// Not at all: it logs nothing.
    None,
    /// By a request, before MCP 2026-07-28.
    Set(watch::Receiver<Option<LogSeverity>>),
    /// With every call.
    PerCall(watch::Receiver<Option<LogSeverity>>),
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The tools that a server lists, and how long the list is valid.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tools: Vec<Value>,
    /// Whether the server declares resources.
    pub(super) has_resources: bool,
    pub(super) ttl: Option<Duration>,
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum ServerReply {
    Content(CallContent),
    /// The server wants input from a person before it goes on.
    InputRequired(InputRequiredResult),
    /// Not the result of a call.
    Unexpected(Value),
}

impl ServerConnection {
    /// Connects. Dropping the future ends the process that was started.
    ///
    /// The first request is `server/discover` of MCP 2026-07-28. Servers of earlier versions should refuse it as unknown, and
    /// get `initialize` then. Some end their process instead, drop the connection, or answer with any result: they get a
    /// second connection that starts with `initialize`. A server that answers too late, and refuses `initialize` then, gets a
    /// second connection that waits longer, and so it does from then on.
    pub(super) async fn open(
        endpoint: &ServerEndpoint,
        stderr: &Arc<StderrTail>,
        notices: &Arc<ServerNotices>,
    ) -> Result<ServerConnection, String> {
        let connect = |lifecycle| ServerConnection::connect(endpoint, stderr, notices, lifecycle);
        let discover = || ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
        let needs_discover = &notices.needs_discover;
        let opened = if needs_discover.load(Ordering::Relaxed) {
            connect(discover()).await
        } else {
            match connect(lifecycle()).await {
                Err(ConnectError { needs_initialize: true, .. }) => connect(ClientLifecycleMode::Initialize).await,
                Err(refused @ ConnectError { needs_discover: true, .. }) => {
                    // Whoever gives up waiting now knows it the next time.
                    needs_discover.store(true, Ordering::Relaxed);
                    connect(discover()).await.map_err(|_second| refused)
                }
                other => other,
            }
        };
        opened.map_err(|error| {
            needs_discover.store(false, Ordering::Relaxed);
            error.reason
        })
    }

    async fn connect(
        endpoint: &ServerEndpoint,
        stderr: &Arc<StderrTail>,
        notices: &Arc<ServerNotices>,
        lifecycle: ClientLifecycleMode,
    ) -> Result<ServerConnection, ConnectError> {
        let options = &notices.context.options;
        let log_wanted = notices.context.logs.wanted();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let end = Arc::<ConnectionEnd>::default();
        let client = FleetClient { notices: Arc::clone(notices) };
        let bytes_max = options.answer_bytes_max.max(LIST_BYTES_MAX);
        let (running, calls) = match endpoint {
            ServerEndpoint::Stdio { command, args, env, cwd } => {
                let child = ServerProcess::start(command, args, env, cwd.as_deref(), stderr)?;
                let shutdown_grace = options.shutdown_grace;
                let transport =
                    StdioTransport::new(child, Arc::clone(stderr), Arc::clone(&end), bytes_max, shutdown_grace);
                let calls = transport.calls();
                (serve_client_with_lifecycle_and_ct(client, transport, lifecycle, stopped).await, Some(calls))
            }
            ServerEndpoint::Http { url, headers, .. } => {
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(header_map(headers)?)
                    .max_concurrent_requests(options.calls_per_server_max)
                    // In a new session, rmcp would repeat whatever request was answered with 404, also calls that the server
                    // may have executed.
                    .reinit_on_expired_session(false);
                let auth = ServerAuth::new(&notices.server, url, headers, Arc::clone(&notices.context))?;
                let client_of_server = HttpClient::new(bytes_max, options.reach, auth)?;
                let transport = StreamableHttpClientTransport::with_client(client_of_server, config);
                (serve_client_with_lifecycle_and_ct(client, transport, lifecycle, stopped).await, None)
            }
        };
        let running = running.map_err(|error| ConnectError::new(&error, end.reason.get()))?;
        Ok(ServerConnection::new(running, stop, end, calls, log_wanted))
    }

    fn new(
        running: RunningService<RoleClient, FleetClient>,
        stop: CancellationToken,
        end: Arc<ConnectionEnd>,
        calls: Option<Arc<StdioCalls>>,
        log_wanted: watch::Receiver<Option<LogSeverity>>,
    ) -> ServerConnection {
        let peer = running.peer().clone();
        let meta = meta(&peer, running.service().get_info());
        let log_requests = match peer.peer_info() {
            Some(info) if info.capabilities.logging.is_none() => LogRequests::None,
            Some(info) if info.protocol_version.has_initialize() => LogRequests::Set(log_wanted),
            Some(_) => LogRequests::PerCall(log_wanted),
            None => LogRequests::None,
        };
        let ending = Arc::clone(&end);
        tokio::spawn(async move {
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "the task of a connection failed");
            }
            ending.ended.cancel();
            ending.closed.cancel();
        });
        ServerConnection { peer, end, stop, calls, meta, log_requests }
    }

    pub(super) fn protocol_version(&self) -> Option<String> {
        self.peer.peer_info().map(|info| info.protocol_version.to_string())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.ended.is_cancelled()
    }

    /// Waits until no further call should use this connection, and returns why.
    pub(super) async fn ended(&self) -> String {
        self.end.ended.cancelled().await;
        self.end().unwrap_or_else(|| "the connection was lost".to_owned())
    }

    /// How the server's process ended, if it did.
    pub(super) fn end(&self) -> Option<String> {
        self.end.reason.get().cloned()
    }

    /// Makes further calls use a new connection.
    pub(super) fn retire(&self) {
        self.end.ended.cancel();
    }

    /// Closes the connection and waits until the server's process has ended. Calls in flight fail.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.end.closed.cancelled().await;
    }

    /// Requests the list of tools, page by page.
    pub(super) async fn list(&self, limit: Duration) -> Result<Listing, String> {
        let info = self.peer.peer_info();
        let has_tools = info.as_ref().is_none_or(|info| info.capabilities.tools.is_some());
        let has_resources = info.is_some_and(|info| info.capabilities.resources.is_some());
        let mut listing = Listing { tools: Vec::new(), has_resources, ttl: None };
        let mut cursor = None;
        for _page in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let result = match self.request(request, limit).await {
                Ok(result) => result,
                // The server has declared that it has no tools.
                Err(ServiceError::McpError(_)) if !has_tools => return Ok(listing),
                Err(error) => return Err(format!("cannot list its tools: {}", describe(&error))),
            };
            // Read as plain JSON: one tool that rmcp cannot read would make the whole page an unknown kind of result.
            let mut page = serde_json::to_value(result).map_err(|error| error.to_string())?;
            let Some(Value::Array(tools)) = page.get_mut("tools") else {
                return Err("cannot list its tools: its answer has no `tools`".to_owned());
            };
            listing.tools.append(tools);
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

    pub(super) async fn call(&self, call: &ToolCall, limit: Duration) -> Result<ServerReply, ServiceError> {
        if let Some(calls) = &self.calls {
            let answered = timeout(limit, calls.call(call, &self.meta, &self.request_meta())).await;
            return answered.unwrap_or(Err(ServiceError::Timeout { timeout: limit })).map(ServerReply::read);
        }
        let mut params = CallToolRequestParams::new(call.tool.clone()).with_arguments(call.args.clone());
        let mut meta = self.request_meta();
        meta.insert(IDEMPOTENCY_KEY.to_owned(), Value::from(call.idempotency_key.as_str()));
        params.meta = Some(RequestMetaObject::from(meta));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        self.request(request, limit).await.map(ServerReply::from)
    }

    /// Sends the request of a function for resources. A list is requested page by page; if it does not end, the answer has
    /// the cursor of the next page.
    pub(super) async fn resources(
        &self,
        function: ResourceFunction,
        args: &Map<String, Value>,
        limit: Duration,
    ) -> Result<ServerReply, ServiceError> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
        let mut cursor = text("cursor");
        let mut entries = Vec::new();
        for _page in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.take());
            let request = match function {
                ResourceFunction::Read => {
                    let mut params = ReadResourceRequestParams::new(text("uri").unwrap_or_default());
                    params.meta = Some(RequestMetaObject::from(self.request_meta()));
                    ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
                }
                ResourceFunction::List => ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params)),
                ResourceFunction::ListTemplates => {
                    ClientRequest::ListResourceTemplatesRequest(ListResourceTemplatesRequest::with_param(params))
                }
            };
            let mut page = match self.request(request, limit).await? {
                ServerResult::InputRequiredResult(result) => return Ok(ServerReply::InputRequired(result)),
                other => serde_json::to_value(other).unwrap_or_default(),
            };
            let Some(Value::Array(page_entries)) = page.get_mut(function.field()) else {
                return Ok(ServerReply::Unexpected(page));
            };
            entries.append(page_entries);
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() || entries.len() >= RESOURCES_MAX {
                break;
            }
        }
        let result = match function {
            ResourceFunction::Read => resources::as_tool_result(entries),
            ResourceFunction::List | ResourceFunction::ListTemplates => {
                let mut list = json!({ function.field(): entries });
                if let Some(cursor) = cursor {
                    list["nextCursor"] = cursor.into();
                }
                json!({ "structuredContent": list, "content": [] })
            }
        };
        Ok(ServerReply::read(result))
    }

    /// Metadata of one request: the trace that it belongs to, and what the server may log.
    fn request_meta(&self) -> Map<String, Value> {
        let mut meta = current_trace();
        if let LogRequests::PerCall(wanted) = &self.log_requests
            && let Some(severity) = *wanted.borrow()
        {
            meta.insert(LOG_LEVEL_META.to_owned(), json!(severity));
        }
        meta
    }

    /// Tells the server which log messages are wanted, now and whenever that changes. Never returns.
    pub(super) async fn follow_log_level(&self) {
        let LogRequests::Set(wanted) = &self.log_requests else { return std::future::pending().await };
        let mut wanted = wanted.clone();
        loop {
            let severity = *wanted.borrow_and_update();
            // There is no request for silence. The least that can be asked for is what concerns everybody.
            let params = json!({ "level": severity.unwrap_or(LogSeverity::Emergency) });
            let request = ClientRequest::CustomRequest(CustomRequest::new(SET_LEVEL, Some(params)));
            if let Err(error) = self.request(request, SET_LEVEL_WAIT).await {
                tracing::debug!(%error, "a server that logs does not take a level");
            }
            if wanted.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Notifies `changed` whenever the server announces a change of its list. Servers before 2026-07-28 announce changes
    /// without a subscription, see `on_tool_list_changed`.
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
                // Changes after the subscription ended were not announced.
                changed.notify_one();
            }
            Err(error) => {
                tracing::debug!(%error, "a server announces changes of its list and refuses the subscription");
            }
        }
    }

    /// Sends a request and waits for the response. If this future is dropped, the request is cancelled.
    async fn request(&self, request: ClientRequest, limit: Duration) -> Result<ServerResult, ServiceError> {
        let answered = timeout(limit, async {
            let handle = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
            let mut request = CancellableRequest(Some(handle));
            let response = request.response().await;
            request.0 = None;
            response
        });
        let answered = answered.await.unwrap_or(Err(ServiceError::Timeout { timeout: limit }));
        if answered.as_ref().is_err_and(is_session_expired) {
            self.retire();
        }
        answered
    }
}

impl ServerReply {
    /// Recognises most results without trying each kind of result that rmcp knows.
    fn read(result: Value) -> ServerReply {
        let is_complete = result.get("resultType").is_none_or(|kind| kind == "complete");
        if is_complete && result.get("content").is_some_and(Value::is_array) {
            return CallContent::read(result)
                .map_or_else(|_unread| ServerReply::Unexpected(Value::Null), ServerReply::Content);
        }
        serde_json::from_value(result).map_or(ServerReply::Unexpected(Value::Null), ServerResult::into)
    }
}

impl From<ServerResult> for ServerReply {
    fn from(result: ServerResult) -> ServerReply {
        match result {
            ServerResult::CallToolResult(result) => ServerReply::Content(CallContent::from(result)),
            ServerResult::InputRequiredResult(result) => ServerReply::InputRequired(result),
            other => {
                let value = serde_json::to_value(other).unwrap_or_default();
                CallContent::read(value).map_or_else(ServerReply::Unexpected, ServerReply::Content)
            }
        }
    }
}

/// A request in flight. Dropped before its response arrives, it is cancelled.
struct CancellableRequest(Option<RequestHandle<RoleClient>>);

impl CancellableRequest {
    async fn response(&mut self) -> Result<ServerResult, ServiceError> {
        match &mut self.0 {
            Some(handle) => (&mut handle.rx).await.unwrap_or(Err(ServiceError::TransportClosed)),
            None => Err(ServiceError::TransportClosed),
        }
    }
}

impl Drop for CancellableRequest {
    fn drop(&mut self) {
        if let (Some(handle), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(handle.cancel(Some("nobody waits for the answer any more".to_owned())));
        }
    }
}

/// Our side of a connection.
#[derive(Debug)]
struct FleetClient {
    notices: Arc<ServerNotices>,
}

impl ClientHandler for FleetClient {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("dacapo", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(LEGACY_VERSION)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.notices.changed.notify_one();
    }

    #[expect(deprecated, reason = "servers log until the protocol has removed it")]
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let severity = serde_json::to_value(message.level).and_then(serde_json::from_value);
        if let Ok(severity) = severity {
            self.notices.logged(severity, message.logger, message.data);
        }
    }

    /// We do not declare elicitation. A server that asks anyway gets an error, which is not a person's refusal.
    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "nobody can be asked for input here", None))
    }
}

/// From 2026-07-28 on there is no handshake, and every request names the client and the version of the protocol.
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
