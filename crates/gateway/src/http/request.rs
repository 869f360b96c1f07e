//! Reading a client's HTTP request.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use dacapo_replay::json_text;
use dacapo_runner::AddressReach;
use dacapo_wire::{
    BadRequest, BodyOutline, ClientSide, CodeMode, ConversationItem, ParsedRequest, ReadRequest, RequestBody,
    RequestReader, Sealer, StoredStates, UnopenedStates, Wire,
};
use memchr::memmem;
use reqwest::Url;
use serde_json::Value;

use super::body::check_json_values;
use super::errors::TurnError;
use super::{ApiClient, GatewayServer, headers, threads};
use crate::config::Connectors;
use crate::gateway::Gateway;
use crate::model_routes::Route;
use crate::observe::{Event, Observer, REQUEST_ID_HEADER};
use crate::quota::QuotaShare;
use crate::request_servers::AllowedServer;
use crate::store::stored_responses::StoredTurn;
use crate::store::turn_records::TurnRecord;
use crate::tool_servers::OfferedTools;
use crate::turn::Tenant;
use crate::upstream::{RequestContext, Upstream};

/// A request of a client, parsed.
pub(crate) struct ClientRequest {
    pub parsed: ParsedRequest,
    /// As it came, except for references that were resolved.
    pub body: Bytes,
    pub source: Arc<RequestSource>,
    /// Who is asked for its model.
    pub route: Route,
    pub context: RequestContext,
    pub tenant: Tenant,
    /// The turn that it takes.
    pub permit: QuotaShare,
}

/// What a request is read with, whichever upstream is asked for its model.
pub(crate) struct RequestSource {
    pub client: ClientSide,
    /// As the client calls it.
    pub model: String,
    gateway: Arc<Gateway>,
    tenant: Arc<str>,
    header: Option<CodeMode>,
    hold_text_chars: Option<usize>,
    sealer: Sealer,
    stored: StoredStates,
    unopened: Arc<UnopenedStates>,
    /// Tools of MCP servers.
    offered: Option<Arc<OfferedTools>>,
}

/// A request of a client who may send it, before it is read.
struct AdmittedRequest {
    client: ClientSide,
    parts: Parts,
    tenant: Arc<str>,
    body: Bytes,
    permit: QuotaShare,
    header: Option<CodeMode>,
    hold_text_chars: Option<usize>,
}

/// What is to be done for a request, and for whom.
struct InterpretedRequest {
    read: ReadRequest,
    source: Arc<RequestSource>,
    route: Route,
    tenant: Tenant,
}

impl AdmittedRequest {
    /// With nothing from a store, and without tools of servers.
    fn source(&self, gateway: &Arc<Gateway>, model: String, unopened: &Arc<UnopenedStates>) -> RequestSource {
        RequestSource {
            client: self.client,
            model,
            gateway: Arc::clone(gateway),
            tenant: Arc::clone(&self.tenant),
            header: self.header,
            hold_text_chars: self.hold_text_chars,
            sealer: gateway.config.secrets.sealer(&self.tenant),
            stored: StoredStates::default(),
            unopened: Arc::clone(unopened),
            offered: None,
        }
    }
}

impl RequestSource {
    fn tenant(&self, stored_turn: Option<StoredTurn>, record: Option<Arc<TurnRecord>>) -> Tenant {
        let (name, sealer) = (Arc::clone(&self.tenant), self.sealer.clone());
        Tenant { name, sealer, stored_turn, offered: self.offered.clone(), record }
    }

    /// Reads a request for a model of this upstream. `text` is what it was parsed from.
    fn read(&self, upstream: &Upstream, body: RequestBody, text: &[u8]) -> Result<ReadRequest, BadRequest> {
        let is_outlined = body.unread_bytes() > 0;
        match self.reader(upstream).read_body(self.client, body) {
            // The error may name the wrong entry.
            Err(_) if is_outlined => self.read_text(upstream, text),
            read => read,
        }
    }

    fn read_text(&self, upstream: &Upstream, text: &[u8]) -> Result<ReadRequest, BadRequest> {
        let body: Value = serde_json::from_slice(text)
            .map_err(|error| BadRequest { param: "body".to_owned(), message: format!("is not JSON: {error}") })?;
        self.reader(upstream).read(self.client, body)
    }

    fn reader(&self, upstream: &Upstream) -> RequestReader<'_> {
        let gateway = &self.gateway;
        let mut defaults = gateway.defaults(&self.tenant, &self.model);
        defaults.execute_input = upstream.execute_input;
        RequestReader {
            provider: upstream.provider_for(self.client),
            header: self.header,
            defaults,
            callers: gateway.caller_rules(&self.model),
            sealer: &self.sealer,
            stored: &self.stored,
            unopened: &self.unopened,
            toolboxes: &gateway.toolboxes,
            tenant: &self.tenant,
            servers: self.offered.as_ref().map(|offered| &offered.tools),
        }
    }

    /// Reads it once more, for the upstream that is asked now: it speaks another wire.
    pub(crate) async fn read_again(self: &Arc<Self>, route: &Route, body: &Bytes) -> Result<ParsedRequest, TurnError> {
        let (source, upstream) = (Arc::clone(self), Arc::clone(&route.target().upstream));
        let read = off_thread(body.clone(), body.len(), move |body| source.read_text(&upstream, &body));
        let mut parsed = read.await??.parsed;
        self.prepare(&mut parsed, route);
        Ok(parsed)
    }

    /// Applies what the operator has configured for the model.
    fn prepare(&self, parsed: &mut ParsedRequest, route: &Route) {
        if let ParsedRequest::Turn(turn) = parsed {
            self.gateway.config.error_texts.apply(turn);
            turn.tool_media = self.gateway.tool_media(&self.model);
            turn.prefs.hold_text_chars = self.hold_text_chars.unwrap_or_else(|| self.gateway.hold_text_chars(route));
        }
    }
}

impl GatewayServer {
    /// Reads a request, and reports states in it that cannot be opened, whether or not the request can be served.
    pub(crate) async fn read(
        &self,
        client: ClientSide,
        request: Request<Body>,
        observer: &Observer,
    ) -> Result<ClientRequest, TurnError> {
        let unopened = Arc::default();
        let read = self.read_with(client, request, observer, &unopened).await;
        if !unopened.is_empty() {
            observer.emit(&Event::StatesUnopened { states: &unopened });
        }
        read
    }

    async fn read_with(
        &self,
        client: ClientSide,
        request: Request<Body>,
        observer: &Observer,
        unopened: &Arc<UnopenedStates>,
    ) -> Result<ClientRequest, TurnError> {
        let mut admitted = self.admit_request(client, request, observer).await?;
        let InterpretedRequest { read, source, route, tenant } = match self.read_forwarded(&admitted, unopened).await? {
            Some(forwarded) => forwarded,
            None => self.read_whole(&mut admitted, observer, unopened).await?,
        };
        let AdmittedRequest { mut parts, body, permit, .. } = admitted;
        let ReadRequest { mut parsed, mode } = read;
        source.prepare(&mut parsed, &route);
        if let ParsedRequest::Turn(turn) = &parsed {
            let is_program = |item: &&ConversationItem| matches!(item, ConversationItem::Program(_));
            let count = turn.conversation.items.iter().filter(is_program).count();
            observer.emit(&Event::StatesOpened { count });
        }
        observer.emit(&Event::RequestRead { client: &tenant.name, model: &source.model, mode });
        let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        // Upstreams log it as well.
        let id = HeaderValue::from_str(observer.request_id().as_str()).ok();
        parts.headers.extend(id.map(|id| (HeaderName::from_static(REQUEST_ID_HEADER), id)));
        let context = RequestContext { headers: parts.headers, query, client };
        Ok(ClientRequest { parsed, body, source, route, context, tenant, permit })
    }

    /// Takes a request of a client who may send it, with its body.
    async fn admit_request(
        &self,
        client: ClientSide,
        request: Request<Body>,
        observer: &Observer,
    ) -> Result<AdmittedRequest, TurnError> {
        let (parts, body) = request.into_parts();
        let tenant = self.admit_observed(&parts, observer).await?;
        let body = self.body(&tenant, &parts.headers, body).await?;
        let permit = self.take_turn(&tenant)?;
        let header = headers::mode(&parts.headers)?;
        let hold_text_chars = headers::hold_text_chars(&parts.headers)?;
        Ok(AdmittedRequest { client, parts, tenant, body, permit, header, hold_text_chars })
    }

    /// Reads a request that is forwarded as it came, without parsing all of it. `None` if it may not be forwarded.
    async fn read_forwarded(
        &self,
        admitted: &AdmittedRequest,
        unopened: &Arc<UnopenedStates>,
    ) -> Result<Option<InterpretedRequest>, TurnError> {
        let (gateway, client) = (&self.gateway, admitted.client);
        // The model, which may have a mode of its own, is not known yet.
        let mode = admitted.header.unwrap_or_else(|| gateway.defaults(&admitted.tenant, "").mode);
        let is_likely = mode == CodeMode::Off || memmem::find(&admitted.body, b"\"tools\"").is_none();
        let may_refer_to_store = client.wire() == Wire::Responses && gateway.store.is_some();
        if !is_likely || gateway.has_servers() || may_refer_to_store || threads::are_named(&admitted.parts.headers) {
            return Ok(None);
        }
        let values_max = gateway.config.body_values_max;
        let (process, owner) = (Arc::clone(&gateway.process), Arc::clone(&admitted.tenant));
        // Its history is gone over in a fraction of the time of parsing it, but a new tool list is not.
        let outline = off_thread(admitted.body.clone(), admitted.body.len() / 2, move |body| {
            check_json_values(&body, values_max)?;
            Ok::<_, TurnError>(BodyOutline::of(client, &process.tool_lists, &owner, &body))
        });
        let Some(outline) = outline.await?? else { return Ok(None) };
        let model = outline.model().to_owned();
        let route = self.route(&admitted.tenant, &model)?;
        let source = admitted.source(gateway, model, unopened);
        let read = source.reader(&route.target().upstream).read_outline(client, &outline);
        let tenant = source.tenant(None, None);
        Ok(read.map(|read| InterpretedRequest { read, source: Arc::new(source), route, tenant }))
    }

    async fn read_whole(
        &self,
        admitted: &mut AdmittedRequest,
        observer: &Observer,
        unopened: &Arc<UnopenedStates>,
    ) -> Result<InterpretedRequest, TurnError> {
        let (gateway, client, tenant) = (&self.gateway, admitted.client, Arc::clone(&admitted.tenant));
        let values_max = gateway.config.body_values_max;
        let (process, owner) = (Arc::clone(&gateway.process), Arc::clone(&tenant));
        // Stores, servers and threads change histories, or look into all of them.
        let needs_history =
            gateway.store.is_some() || gateway.has_servers() || threads::are_named(&admitted.parts.headers);
        let mut request_body = off_thread(admitted.body.clone(), admitted.body.len(), move |body| {
            check_json_values(&body, values_max)?;
            let lists = &process.tool_lists;
            let parsed =
                if needs_history { lists.parse(&owner, &body) } else { lists.parse_outlined(client, &owner, &body) };
            let parsed = match parsed {
                Ok(parsed) if parsed.unread_bytes() > 0 && threads::has_fields(parsed.json()) => {
                    lists.parse(&owner, &body)
                }
                parsed => parsed,
            };
            parsed.map_err(|error| bad_request("body", format!("is not JSON: {error}")))
        })
        .await??;
        let json = request_body.json_mut();
        if client.wire() == Wire::Messages && threads::remove(json, &mut admitted.parts.headers)? {
            admitted.body = Bytes::from(json_text(json));
        }
        let mut stored_turn = None;
        if let Some(store) = &gateway.store {
            let resolved = StoredTurn::resolve(client, store, &tenant, json, &gateway.config, unopened).await?;
            stored_turn = resolved.turn;
            if resolved.is_changed {
                admitted.body = Bytes::from(json_text(json));
            }
        }
        let model = json.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        let route = self.route(&tenant, &model)?;
        let offered = self.offered(client, &tenant, json, &route).await?;
        let record = match (&offered, &gateway.answer_store) {
            (Some(_), Some(store)) => {
                let key = admitted.parts.headers.get("idempotency-key").map(HeaderValue::as_bytes);
                let ttl = gateway.config.turn_ttl;
                Some(Arc::new(TurnRecord::new(store, &tenant, client.wire(), key, &admitted.body, ttl)))
            }
            _ => None,
        };
        let stored = self.stored_states(client, &tenant, json, observer).await?;
        let source = Arc::new(RequestSource { stored, offered, ..admitted.source(gateway, model, unopened) });
        let tenant = source.tenant(stored_turn, record);
        let (reader, upstream) = (Arc::clone(&source), Arc::clone(&route.target().upstream));
        // Names and declarations of new tools take several times as long as parsing them.
        let read_bytes =
            admitted.body.len() - request_body.unread_bytes() + request_body.new_tools_bytes() * NEW_TOOLS_TIMES;
        let input = (request_body, admitted.body.clone());
        let read =
            off_thread(input, read_bytes, move |(request_body, text)| reader.read(&upstream, request_body, &text));
        let read = read.await?.map_err(|error| match (&gateway.store, error.param.as_str()) {
            (Some(_), "previous_response_id") => {
                BadRequest { message: UNKNOWN_RESPONSE.to_owned(), param: error.param }
            }
            (Some(_), "conversation") => BadRequest { message: NO_CONVERSATIONS.to_owned(), param: error.param },
            _ => error,
        })?;
        Ok(InterpretedRequest { read, source, route, tenant })
    }

    /// Who is asked for a model, if the client may ask for it.
    fn route(&self, tenant: &str, model: &str) -> Result<Route, TurnError> {
        self.gateway.config.clients.rules(tenant).check_model(Some(model))?;
        self.gateway.upstreams.route(model)
    }

    /// Authenticates the client and names its tenant. Without configured clients, programs on this machine are let in,
    /// but web pages of other hosts are not.
    pub(crate) async fn admit(&self, parts: &Parts) -> Result<Arc<str>, TurnError> {
        self.within_rate(self.api_client(parts)?).await
    }

    /// The same. Whoever observes the request knows its client also if it is refused.
    pub(crate) async fn admit_observed(&self, parts: &Parts, observer: &Observer) -> Result<Arc<str>, TurnError> {
        let client = self.api_client(parts)?;
        if let Some(client) = client {
            observer.emit(&Event::ClientKnown { client: &client.name });
        }
        self.within_rate(client).await
    }

    /// `None` if everybody is let in.
    fn api_client(&self, parts: &Parts) -> Result<Option<&ApiClient>, TurnError> {
        let config = &self.gateway.config;
        let is_open = config.clients.is_empty() && config.listen.ip().is_loopback();
        if is_open && headers::is_foreign(parts, &config.cors_origins) {
            let message = "a web page of another host may not use this; configure a [[client]] for it, or name it in \
                           cors_origins";
            return Err(TurnError::refused(StatusCode::FORBIDDEN, "permission_error", message));
        }
        config.clients.authenticate(&parts.headers)
    }

    async fn within_rate(&self, client: Option<&ApiClient>) -> Result<Arc<str>, TurnError> {
        let Some(client) = client else { return Ok(Arc::from("")) };
        if let Some(rate) = &client.rate {
            self.gateway.process.rates.take(&client.name, rate).await?;
        }
        Ok(Arc::from(client.name.as_str()))
    }

    /// Tools of MCP servers for programs of this request: of the deployment, and of those that it names itself, where the
    /// model's provider does not connect to them.
    async fn offered(
        &self,
        client: ClientSide,
        tenant: &str,
        body: &Value,
        route: &Route,
    ) -> Result<Option<Arc<OfferedTools>>, TurnError> {
        let gateway = &self.gateway;
        let config = &gateway.config;
        let deployed = gateway.servers.as_ref().map(|servers| servers.offer(config.servers_of(tenant)));
        let Some(request_servers) = &gateway.request_servers else { return Ok(deployed) };
        let is_gateways = config.mcp_connectors == Connectors::Gateway;
        if !is_gateways && route.target().upstream.provider_for(client).wire() == client.wire() {
            return Ok(deployed);
        }
        let mut allowed: Vec<AllowedServer> = Vec::new();
        for server in client.request_servers(body).map_err(TurnError::BadRequest)? {
            let url = Url::parse(&server.url).ok();
            let reaches = config.mcp_allowed.iter().filter_map(|allowed| allowed.reach(url.as_ref()?));
            // A host that is named in full goes before patterns.
            let Some(reach) = reaches.min_by_key(|reach| *reach == AddressReach::Public) else {
                if is_gateways {
                    return Err(bad_request(&server.path, NOT_ALLOWED.to_owned()));
                }
                // It is reported as a tool that the model's wire cannot carry.
                continue;
            };
            let is_taken = gateway.servers.as_ref().is_some_and(|servers| servers.has(&server.name))
                || allowed.iter().any(|known| known.server.name == server.name);
            if is_taken {
                return Err(bad_request(&server.path, format!("another server is named `{}`", server.name)));
            }
            allowed.push(AllowedServer { server, reach });
        }
        if allowed.is_empty() {
            return Ok(deployed);
        }
        Ok(Some(Arc::new(request_servers.offer(tenant, deployed.as_deref(), allowed).await)))
    }

    /// States of programs that are stored here, because the client's ids do not carry them.
    async fn stored_states(
        &self,
        client: ClientSide,
        tenant: &str,
        body: &Value,
        observer: &Observer,
    ) -> Result<StoredStates, TurnError> {
        let mut stored = StoredStates::default();
        let Some(store) = &self.gateway.store else { return Ok(stored) };
        let referred_to = StoredStates::referred_to(client, body);
        match store.get(tenant, &referred_to).await {
            Ok(found) => {
                let mut absent = Vec::new();
                for ((run, round), sealed) in referred_to.into_iter().zip(found) {
                    match sealed {
                        Some(sealed) => stored.insert(run, round, sealed),
                        None => absent.push((run, round)),
                    }
                }
                if !absent.is_empty() {
                    let expired = store.expired(tenant, &absent).await;
                    // They are missing, for whatever reason.
                    let expired = expired.inspect_err(|error| observer.emit(&Event::StoreFailed { error }));
                    let expired =
                        absent.iter().zip(expired.unwrap_or_default()).filter(|(_, has_expired)| *has_expired);
                    expired.for_each(|((run, round), _)| stored.insert_expired(*run, *round));
                }
                Ok(stored)
            }
            // Only a program that would continue now needs its state.
            Err(error) if client.awaits_answers(body) => Err(error.into()),
            Err(error) => {
                observer.emit(&Event::StoreFailed { error: &error });
                Ok(stored)
            }
        }
    }
}

const NOT_ALLOWED: &str =
    "this gateway does not connect to the server's address; its operator has to name it in `allow_urls` of [mcp]";
const UNKNOWN_RESPONSE: &str = "no response with this id is stored here: it was asked for with `store: false`, is older \
than `ttl_seconds` of [store], or is another client's; send the whole history as `input`";
const NO_CONVERSATIONS: &str = "conversations are not stored here; refer to the last response with `previous_response_id`, or send the whole \
history as `input`";

/// How many times as long as parsing a list of new tools it takes to make functions of them.
const NEW_TOOLS_TIMES: usize = 8;

/// Parses large bodies on a thread that may block, and small ones at once.
async fn off_thread<I: Send + 'static, T: Send + 'static>(
    input: I,
    bytes: usize,
    work: impl FnOnce(I) -> T + Send + 'static,
) -> Result<T, TurnError> {
    const AT_ONCE_BYTES_MAX: usize = 512 << 10;
    if bytes <= AT_ONCE_BYTES_MAX {
        return Ok(work(input));
    }
    tokio::task::spawn_blocking(move || work(input)).await.map_err(|error| TurnError::Internal(error.to_string()))
}

pub(crate) fn bad_request(param: &str, message: String) -> TurnError {
    TurnError::BadRequest(BadRequest { param: param.to_owned(), message })
}
