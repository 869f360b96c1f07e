//! Reading a client's HTTP request.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use dacapo_wire::{
    BadRequest, ClientSide, ConversationItem, ParsedRequest, ReadRequest, RequestReader, StoredStates, UnopenedStates,
};
use serde_json::Value;

use super::errors::TurnError;
use super::{GatewayServer, headers, json_bytes, json_size, threads};
use crate::observe::{Event, Observer, REQUEST_ID_HEADER};
use crate::quota::QuotaShare;
use crate::store::stored_responses::StoredTurn;
use crate::store::turn_records::TurnRecord;
use crate::turn::Tenant;
use crate::upstream::RequestContext;

/// A request of a client, parsed.
pub(crate) struct ClientRequest {
    pub parsed: ParsedRequest,
    /// As it came, except for references that were resolved.
    pub body: Bytes,
    pub model: String,
    pub context: RequestContext,
    pub tenant: Tenant,
    /// The turn that it takes.
    pub permit: QuotaShare,
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
        let gateway = &self.gateway;
        let (mut parts, body) = request.into_parts();
        let tenant = self.admit(&parts)?;
        let mut body = self.body(&tenant, &parts.headers, body).await?;
        let permit = self.take_turn(&tenant)?;
        let header = headers::mode(&parts.headers)?;
        let hold_text_chars = headers::hold_text_chars(&parts.headers)?;
        let values_max = gateway.config.body_values_max;
        let (lists, owner) = (Arc::clone(&gateway.tool_lists), Arc::clone(&tenant));
        let mut request_body = off_thread(body.clone(), body.len(), move |body| {
            json_size::check_values(&body, values_max)?;
            lists.parse(&owner, &body).map_err(|error| bad_request("body", format!("is not JSON: {error}")))
        })
        .await??;
        let json = request_body.json_mut();
        if threads::remove(client, json, &mut parts.headers)? {
            body = Bytes::from(json_bytes(json));
        }
        let mut stored_turn = None;
        if let Some(store) = &gateway.store {
            let resolved = StoredTurn::resolve(client, store, &tenant, json, &gateway.config, unopened).await?;
            stored_turn = resolved.turn;
            if resolved.is_changed {
                body = Bytes::from(json_bytes(json));
            }
        }
        let model = json.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
        let provider = gateway.upstreams.of(&model)?.provider_for(client);
        let sealer = gateway.config.secrets.sealer(&tenant);
        let stored = self.stored_states(client, &tenant, json, observer).await?;
        let offered = gateway.servers.as_ref().map(|servers| servers.offer(gateway.config.servers_of(&tenant)));
        let record = match (&offered, &gateway.answer_store) {
            (Some(_), Some(store)) => {
                let key = parts.headers.get("idempotency-key").map(HeaderValue::as_bytes);
                let ttl = gateway.config.turn_ttl;
                Some(Arc::new(TurnRecord::new(store, &tenant, client.wire(), key, &body, ttl)))
            }
            _ => None,
        };
        let offered_tools = offered.clone();
        let tenant = Tenant { name: tenant, sealer: sealer.clone(), stored_turn, offered: offered_tools, record };
        let defaults = gateway.defaults(&model);
        let model_name = model.clone();
        let reader = Arc::clone(gateway);
        let name = Arc::clone(&tenant.name);
        let unopened = Arc::clone(unopened);
        let parsed = off_thread(request_body, body.len(), move |request_body| {
            let toolboxes = &reader.toolboxes;
            let (sealer, stored, unopened) = (&sealer, &stored, &*unopened);
            let callers = reader.caller_rules(&model_name);
            let servers = offered.as_ref().map(|offered| &offered.tools);
            let tenant = &*name;
            RequestReader { provider, header, defaults, callers, sealer, stored, unopened, toolboxes, tenant, servers }
                .read_body(client, request_body)
        });
        let ReadRequest { mut parsed, mode } =
            parsed.await?.map_err(|error| match (&gateway.store, error.param.as_str()) {
                (Some(_), "previous_response_id") => {
                    BadRequest { message: UNKNOWN_RESPONSE.to_owned(), param: error.param }
                }
                (Some(_), "conversation") => BadRequest { message: NO_CONVERSATIONS.to_owned(), param: error.param },
                _ => error,
            })?;
        if let ParsedRequest::Turn(turn) = &mut parsed {
            gateway.config.error_texts.apply(turn);
            turn.tool_media = gateway.tool_media(&model);
            turn.prefs.hold_text_chars = hold_text_chars.unwrap_or_else(|| gateway.hold_text_chars(&model));
            let is_program = |item: &&ConversationItem| matches!(item, ConversationItem::Program(_));
            let count = turn.conversation.items.iter().filter(is_program).count();
            observer.emit(&Event::StatesOpened { count });
        }
        observer.emit(&Event::RequestRead { client: &tenant.name, model: &model, mode });
        let query = parts.uri.query().map_or_else(String::new, |query| format!("?{query}"));
        // Upstreams log it as well.
        let id = HeaderValue::from_str(observer.request_id().as_str()).ok();
        parts.headers.extend(id.map(|id| (HeaderName::from_static(REQUEST_ID_HEADER), id)));
        let context = RequestContext { headers: parts.headers, query, client };
        Ok(ClientRequest { parsed, body, model, context, tenant, permit })
    }

    /// Authenticates the client and names its tenant. Without configured clients, programs on this machine are let in,
    /// but web pages of other hosts are not.
    pub(crate) fn admit(&self, parts: &Parts) -> Result<Arc<str>, TurnError> {
        let config = &self.gateway.config;
        let is_open = config.clients.is_empty() && config.listen.ip().is_loopback();
        if is_open && headers::is_foreign(parts, &config.cors_origins) {
            let message = "a web page of another host may not use this; configure a [[client]] for it, or name it in \
                           cors_origins";
            return Err(TurnError::refused(StatusCode::FORBIDDEN, "permission_error", message));
        }
        config.clients.admit(&parts.headers, Instant::now()).map(Arc::from)
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
                for ((run, round), sealed) in referred_to.into_iter().zip(found) {
                    if let Some(sealed) = sealed {
                        stored.insert(run, round, sealed);
                    }
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

const UNKNOWN_RESPONSE: &str = "no response with this id is stored here: it was asked for with `store: false`, is older \
than `ttl_seconds` of [store], or is another client's; send the whole history as `input`";
const NO_CONVERSATIONS: &str = "conversations are not stored here; refer to the last response with `previous_response_id`, or send the whole \
history as `input`";

/// Parses large bodies on a thread that may block, and small ones at once.
async fn off_thread<I: Send + 'static, T: Send + 'static>(
    input: I,
    bytes: usize,
    work: impl FnOnce(I) -> T + Send + 'static,
) -> Result<T, TurnError> {
    const AT_ONCE_BYTES_MAX: usize = 128 << 10;
    if bytes <= AT_ONCE_BYTES_MAX {
        return Ok(work(input));
    }
    tokio::task::spawn_blocking(move || work(input)).await.map_err(|error| TurnError::Internal(error.to_string()))
}

pub(crate) fn bad_request(param: &str, message: String) -> TurnError {
    TurnError::BadRequest(BadRequest { param: param.to_owned(), message })
}
