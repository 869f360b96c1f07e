//! Upstreams: how they are asked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use dacapo_replay::matches_pattern;
use dacapo_scripted::{ReplyEnding, ScriptedModel};
use dacapo_wire::{ClientSide, Delivery, ProviderSide, TextTools, Wire};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Url;
use serde_json::{Value, json};

use crate::gateway::StartError;
use crate::http::{self, TurnError};
use crate::key_mask::KeyMask;
use crate::model_routes::{ModelRoutes, ModelRule, Route};
use crate::observe::{Event, Observer, TRACEPARENT, TRACESTATE};

/// A body as it arrives.
pub(crate) type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send>>;

/// An address of a provider, below its base URL.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint<'a> {
    pub provider: ProviderSide,
    method: &'a Method,
    path: Cow<'a, str>,
    kind: EndpointKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndpointKind {
    Completion,
    TokenCount,
    /// Whatever the provider has there.
    Other,
}

impl<'a> Endpoint<'a> {
    /// Where a model is asked.
    pub(crate) fn completion(provider: ProviderSide, model: &str, delivery: Delivery) -> Endpoint<'static> {
        let (method, path) = (&Method::POST, provider.endpoint(model, delivery));
        Endpoint { provider, method, path, kind: EndpointKind::Completion }
    }

    /// Where a model on the client's own wire is asked.
    pub(crate) fn same_wire(client: ClientSide, model: &str) -> Result<Endpoint<'static>, TurnError> {
        let provider = ProviderSide::of(client.wire())
            .ok_or_else(|| TurnError::bug("a request passes through on a wire that no model is asked on"))?;
        Ok(Endpoint::completion(provider, model, Delivery::Whole))
    }

    /// A route that the gateway does not have; `path` is below the base URL, which ends in `/v1`.
    pub(crate) fn other(provider: ProviderSide, method: &'a Method, path: &'a str) -> Endpoint<'a> {
        Endpoint { provider, method, path: Cow::Borrowed(path), kind: EndpointKind::Other }
    }

    /// `None` if the provider does not count tokens.
    pub(crate) fn token_count(provider: ProviderSide) -> Option<Endpoint<'static>> {
        let path = Cow::Borrowed(provider.capabilities().token_count_path?);
        Some(Endpoint { provider, method: &Method::POST, path, kind: EndpointKind::TokenCount })
    }
}

/// The response of an upstream.
pub(crate) struct UpstreamResponse {
    pub provider: ProviderSide,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ByteStream,
    /// Size of the body, if it is known beforehand.
    pub bytes: Option<u64>,
    /// For errors that come with a success.
    pub mask: KeyMask,
}

/// A provider of models, or a script that plays one.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub name: String,
    /// Which models are here; `*` stands for any characters.
    pub models: Vec<String>,
    /// What it speaks; never empty.
    pub providers: Vec<ProviderSide>,
    /// Whether its models write programs as plain text, on Responses.
    pub execute_input: TextTools,
    /// Replaces the setting of code mode.
    pub hold_text_chars: Option<usize>,
    pub kind: UpstreamKind,
    pub source: UpstreamSource,
    /// What the configuration named, for people to read.
    pub key_from: Option<String>,
    pub script_from: Option<String>,
    /// How often a request is sent again when the upstream asks for it.
    pub retries_max: u32,
    pub retry_wait_max: Duration,
}

impl Upstream {
    pub(crate) fn new(name: &str, models: &str, kind: UpstreamKind) -> Upstream {
        Upstream {
            key_from: None,
            script_from: None,
            name: name.to_owned(),
            models: vec![models.to_owned()],
            providers: match kind {
                UpstreamKind::Http { .. } => vec![ProviderSide::CHAT],
                UpstreamKind::Scripted(_) => ProviderSide::ALL.to_vec(),
            },
            execute_input: TextTools::No,
            hold_text_chars: None,
            kind,
            source: UpstreamSource::Configured,
            retries_max: 2,
            retry_wait_max: Duration::from_secs(10),
        }
    }

    /// Whether it has a model of this name.
    pub(crate) fn has(&self, model: &str) -> bool {
        self.models.iter().any(|pattern| matches_pattern(pattern, model))
    }

    pub(crate) fn is_scripted(&self) -> bool {
        matches!(self.kind, UpstreamKind::Scripted(_))
    }

    /// Whether it may have the format that came before Chat Completions.
    pub(crate) fn has_text_completions(&self) -> bool {
        matches!(self.kind, UpstreamKind::Http { .. })
            && self.providers.iter().any(|provider| provider.wire() == Wire::Chat)
    }

    /// The wire on which it is asked for a client: the client's own, if it speaks that.
    pub(crate) fn provider_for(&self, client: ClientSide) -> ProviderSide {
        let same = self.providers.iter().find(|provider| provider.wire() == client.wire());
        *same.or(self.providers.first()).expect("the configuration names at least one wire")
    }
}

/// What of a client's request is forwarded, besides its body.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    pub headers: HeaderMap,
    /// With its question mark.
    pub query: String,
    pub client: ClientSide,
}

/// Why there is an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamSource {
    /// Somebody wants it.
    Configured,
    /// Nothing was configured.
    Default,
}

#[derive(Debug, Clone)]
pub(crate) enum UpstreamKind {
    Http { base_url: String, key: Option<Secret>, pass_client_key: bool },
    Scripted(ScriptedModel),
}

impl UpstreamKind {
    fn has_tls(&self) -> bool {
        matches!(self, UpstreamKind::Http { base_url, .. } if !base_url.starts_with("http://"))
    }
}

/// Text that is never shown.
#[derive(Clone)]
pub(crate) struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

#[derive(Debug)]
pub(crate) struct Upstreams {
    routes: ModelRoutes,
    connections: Connections,
    /// Where models are asked. Parsing an address takes longer than finding it.
    addresses: RwLock<BTreeMap<String, Url>>,
}

/// How upstreams are connected to.
#[derive(Debug, Clone)]
struct Connections {
    client: reqwest::Client,
    connect_timeout: Duration,
    idle_timeout: Duration,
    has_tls: bool,
}

/// Addresses that are kept. Few upstreams are configured, and each has a few.
const ADDRESSES_MAX: usize = 64;

/// Longer error bodies are cut.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// The client's own headers stay unless requests are traced here.
fn pass_trace_on(headers: &mut HeaderMap, trace: Vec<(&'static str, HeaderValue)>) {
    if trace.is_empty() {
        return;
    }
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    headers.extend(trace.into_iter().map(|(name, value)| (HeaderName::from_static(name), value)));
}

impl Connections {
    fn new(list: &[Upstream], connect_timeout: Duration, idle_timeout: Duration) -> Result<Connections, StartError> {
        let builder = || {
            reqwest::Client::builder()
                .connect_timeout(connect_timeout)
                .read_timeout(idle_timeout)
                .redirect(reqwest::redirect::Policy::none())
                .pool_max_idle_per_host(256)
                .tcp_nodelay(true)
        };
        let has_tls = list.iter().any(|upstream| upstream.kind.has_tls());
        // Machines without CA certificates can serve too, as long as no upstream uses TLS.
        let without_certificates = || builder().tls_certs_only([]).build();
        let client = if has_tls {
            builder().build().or_else(|error| {
                // If it is made without them, the certificates are what is missing.
                let client = without_certificates()?;
                let is_wanted =
                    |upstream: &&Upstream| upstream.kind.has_tls() && upstream.source == UpstreamSource::Configured;
                if let Some(upstream) = list.iter().find(is_wanted) {
                    return Err(StartError::NoCaCertificates { upstream: upstream.name.clone(), source: error });
                }
                tracing::warn!(
                    "no CA certificates were found on this machine, so providers cannot be asked over https; install \
                     ca-certificates, or set SSL_CERT_FILE to a file that holds them"
                );
                Ok(client)
            })?
        } else {
            without_certificates()?
        };
        Ok(Connections { client, connect_timeout, idle_timeout, has_tls })
    }

    /// Whether these upstreams can be asked over them.
    fn serve(&self, list: &[Upstream], connect_timeout: Duration, idle_timeout: Duration) -> bool {
        self.connect_timeout == connect_timeout
            && self.idle_timeout == idle_timeout
            && self.has_tls == list.iter().any(|upstream| upstream.kind.has_tls())
    }
}

impl Upstreams {
    /// Connections of `before` are used on, if they can be.
    pub(crate) fn new(
        list: Vec<Upstream>,
        rules: Vec<ModelRule>,
        (connect, idle): (Duration, Duration),
        before: Option<&Upstreams>,
    ) -> Result<Upstreams, StartError> {
        let usable = before.map(|before| &before.connections).filter(|known| known.serve(&list, connect, idle));
        let connections = match usable {
            Some(known) => known.clone(),
            None => Connections::new(&list, connect, idle)?,
        };
        Ok(Upstreams { routes: ModelRoutes::new(list, rules), connections, addresses: RwLock::default() })
    }

    /// The address of an endpoint; `query` begins with a question mark, or is empty.
    fn address(
        &self,
        base_url: &str,
        endpoint: &Endpoint<'_>,
        query: &str,
    ) -> Result<Url, <Url as std::str::FromStr>::Err> {
        let text = format!("{base_url}{}", endpoint.path);
        if endpoint.kind == EndpointKind::Other {
            return Url::parse(&format!("{text}{query}"));
        }
        let known = self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&text).cloned();
        let mut address = if let Some(known) = known {
            known
        } else {
            let address = Url::parse(&text)?;
            if address.query().is_some() || address.fragment().is_some() {
                // What follows belongs to these.
                return Url::parse(&format!("{text}{query}"));
            }
            let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
            if addresses.len() < ADDRESSES_MAX {
                addresses.insert(text, address.clone());
            }
            address
        };
        if let Some(query) = query.strip_prefix('?') {
            address.set_query(Some(query));
        }
        Ok(address)
    }

    /// The client by which all of them are asked.
    pub(crate) fn client(&self) -> &reqwest::Client {
        &self.connections.client
    }

    /// Who is asked for a model.
    pub(crate) fn route(&self, model: &str) -> Result<Route, TurnError> {
        self.routes.of(model)
    }

    /// All that were configured.
    pub(crate) fn list(&self) -> &[Arc<Upstream>] {
        self.routes.upstreams()
    }

    /// Sends a request to the upstream whose turn it is, and again while it asks for a retry. Whatever comes back last is
    /// the response. Where another upstream can be asked instead, it does not wait for a retry.
    pub(crate) async fn send(
        &self,
        route: &Route,
        endpoint: &Endpoint<'_>,
        context: &RequestContext,
        body: &Bytes,
        observer: &Observer,
    ) -> Result<UpstreamResponse, TurnError> {
        let upstream = route.upstream();
        let name = upstream.name.as_str();
        let mut retries = if route.next().is_some() { upstream.retries_max } else { 0 };
        loop {
            observer.emit(&Event::ModelAsked { upstream: name });
            let response = self.send_once(route, endpoint, context, body, observer).await;
            let response = response.inspect_err(|_| observer.emit(&Event::ModelUnreachable { upstream: name }))?;
            let status = response.status;
            observer.emit(&Event::ModelResponded { upstream: name, status });
            match retry_after(&response).filter(|wait| *wait <= upstream.retry_wait_max) {
                Some(wait) if retries < upstream.retries_max => {
                    retries += 1;
                    observer.emit(&Event::ModelRetried { upstream: name, status, wait });
                    tokio::time::sleep(wait).await;
                }
                _ => return Ok(response),
            }
        }
    }

    async fn send_once(
        &self,
        route: &Route,
        endpoint: &Endpoint<'_>,
        context: &RequestContext,
        body: &Bytes,
        observer: &Observer,
    ) -> Result<UpstreamResponse, TurnError> {
        let (upstream, provider) = (route.upstream(), endpoint.provider);
        match &upstream.kind {
            UpstreamKind::Scripted(_) if endpoint.kind == EndpointKind::Other => Err(TurnError::refused(
                StatusCode::NOT_FOUND,
                "not_found_error",
                format!("the upstream `{}` is a script, which has nothing at /v1{}", upstream.name, endpoint.path),
            )),
            UpstreamKind::Scripted(script) => Ok(scripted(script, endpoint, body)),
            UpstreamKind::Http { base_url, key, pass_client_key } => {
                // A client's own key is for the provider that it knows of, not for one that takes over.
                let passes_key = *pass_client_key && route.is_at_first();
                let mut headers = http::forwarded(context, provider, key.as_ref(), passes_key);
                pass_trace_on(&mut headers, observer.trace_headers());
                let is_same_wire = context.client.wire() == provider.wire();
                let query = if is_same_wire { context.query.as_str() } else { "" };
                let address = self.address(base_url, endpoint, query).map_err(|error| {
                    let name = &upstream.name;
                    TurnError::upstream(format!(
                        "the upstream `{name}` has a wrong address: {error}; see its `base_url`"
                    ))
                })?;
                let sent =
                    self.client().request(endpoint.method.clone(), address).headers(headers).body(body.clone()).send();
                let response = sent.await.map_err(|error| unreachable(&upstream.name, &error))?;
                let mask = KeyMask::new(key.as_ref());
                let (status, headers) = (response.status(), http::returned(response.headers(), key.as_ref()));
                let bytes = response.content_length();
                let body = Box::pin(response.bytes_stream().map(|piece| piece.map_err(|error| describe(&error))));
                let body = mask.body(body);
                Ok(UpstreamResponse { provider, status, headers, body, bytes, mask })
            }
        }
    }

    /// What `GET /v1/models` lists: the operator's own names, whatever the upstreams say, and the names that they are
    /// configured for, as far as the client may ask for them.
    pub(crate) async fn models(&self, headers: &HeaderMap, may_ask_for: impl Fn(&str) -> bool) -> Value {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let takes_client_key = |upstream: &&Arc<Upstream>| match &upstream.kind {
            UpstreamKind::Http { key, pass_client_key, .. } => key.is_none() && *pass_client_key,
            UpstreamKind::Scripted(_) => false,
        };
        // A client's key is for one upstream, and without a model's name it is not known for which.
        let is_clear = self.list().iter().filter(takes_client_key).count() <= 1;
        let named = |name: &str, upstream: &Upstream| json!({"id": name, "object": "model", "created": 0, "owned_by": upstream.name});
        let mut data: Vec<Value> = self.routes.names().map(|(name, upstream)| named(name, upstream)).collect();
        for upstream in self.list() {
            let listed = match &upstream.kind {
                UpstreamKind::Scripted(_) => None,
                UpstreamKind::Http { base_url, key, pass_client_key } => {
                    let client = ClientSide::CHAT;
                    let provider = upstream.provider_for(client);
                    // Every wire lists its models in the same way, so the client counts as one of the same wire.
                    let client = ClientSide::of(provider.wire()).unwrap_or(client);
                    let context = RequestContext { headers: headers.clone(), query: String::new(), client };
                    let headers = http::forwarded(&context, provider, key.as_ref(), *pass_client_key && is_clear);
                    let sent = self.client().get(format!("{base_url}/models")).headers(headers).timeout(TIMEOUT).send();
                    match sent.await {
                        Ok(response) if response.status().is_success() => {
                            let body = response.bytes().await.unwrap_or_default();
                            serde_json::from_slice::<Value>(&body).ok()
                        }
                        _ => None,
                    }
                }
            };
            let listed = match listed.and_then(|mut body| body.get_mut("data").map(Value::take)) {
                Some(Value::Array(listed)) => listed,
                _ => Vec::new(),
            };
            let configured = upstream.models.iter().filter(|pattern| !pattern.contains('*'));
            let configured = configured.map(|name| named(name, upstream));
            for model in listed.into_iter().chain(configured) {
                if !data.iter().any(|known| known.get("id") == model.get("id")) {
                    data.push(model);
                }
            }
        }
        data.retain(|model| model["id"].as_str().is_some_and(&may_ask_for));
        json!({"object": "list", "data": data})
    }
}

impl UpstreamResponse {
    /// Reads it to its end.
    pub(crate) async fn whole(mut self, bytes_max: usize) -> Result<Bytes, String> {
        let mut first = Bytes::new();
        let mut whole = Vec::new();
        while let Some(piece) = self.body.next().await {
            let piece = piece?;
            if first.len() + whole.len() + piece.len() > bytes_max {
                return Err(format!("the answer is larger than {bytes_max} bytes"));
            }
            if first.is_empty() && whole.is_empty() {
                first = piece;
                continue;
            }
            // Only bodies of several pieces are copied.
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&piece);
        }
        Ok(if whole.is_empty() { first } else { Bytes::from(whole) })
    }

    pub(crate) fn is_stream(&self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        content_type.is_some_and(|text| text.starts_with("text/event-stream"))
    }

    pub(crate) async fn into_error(mut self) -> TurnError {
        let mut body = Vec::new();
        while let Some(Ok(piece)) = self.body.next().await {
            body.extend_from_slice(&piece);
            if body.len() > ERROR_BYTES_MAX {
                body.truncate(ERROR_BYTES_MAX);
                break;
            }
        }
        TurnError::passed(self.provider.wire(), self.status, self.headers, Bytes::from(body))
    }
}

fn scripted(script: &ScriptedModel, endpoint: &Endpoint<'_>, body: &[u8]) -> UpstreamResponse {
    let provider = endpoint.provider;
    let request = serde_json::from_slice(body).unwrap_or(Value::Null);
    if endpoint.kind == EndpointKind::TokenCount {
        let count = Bytes::from(script.count_tokens(&request).to_string());
        let body = Box::pin(stream::iter([Ok(count)]));
        let mask = KeyMask::new(None);
        return UpstreamResponse {
            provider,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body,
            bytes: None,
            mask,
        };
    }
    let reply = script.reply(provider.wire(), &request);
    let mut headers = HeaderMap::new();
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    let cut = (reply.ending == ReplyEnding::Cut).then(|| Err("the connection was cut".to_owned()));
    let chunks = stream::iter(reply.chunks).then(|piece| async move {
        if !piece.delay.is_zero() {
            tokio::time::sleep(piece.delay).await;
        }
        Ok(piece.bytes)
    });
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = Box::pin(chunks.chain(stream::iter(cut)));
    UpstreamResponse { provider, status, headers, body, bytes: None, mask: KeyMask::new(None) }
}

/// How long to wait before asking again, if the upstream says that this may help.
fn retry_after(answer: &UpstreamResponse) -> Option<Duration> {
    if !matches!(answer.status.as_u16(), 429 | 503 | 529) {
        return None;
    }
    let text = answer.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn unreachable(name: &str, error: &reqwest::Error) -> TurnError {
    let status = if error.is_timeout() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
    TurnError::refused(status, http::UPSTREAM, format!("the upstream `{name}` cannot be reached: {}", describe(error)))
}

/// The error with its causes, without the address, which may hold secrets.
fn describe(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() { "it took too long".to_owned() } else { "the connection failed".to_owned() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_the_text_whether_or_not_it_is_known() {
        let timeouts = (Duration::from_secs(1), Duration::from_secs(1));
        let upstreams = Upstreams::new(Vec::new(), Vec::new(), timeouts, None).unwrap();
        let endpoint = Endpoint::completion(ProviderSide::MESSAGES, "m", Delivery::Whole);
        for base_url in ["http://a.example/v1", "http://a.example/?to=b.example/v1", "http://a.example/#v1"] {
            for query in ["", "?beta=true", "", "?x=%20 y'&\u{e4}", "?"] {
                let address = upstreams.address(base_url, &endpoint, query).unwrap();
                assert_eq!(address, Url::parse(&format!("{base_url}{}{query}", endpoint.path)).unwrap(), "{query}");
            }
        }
        assert!(upstreams.address("no address", &endpoint, "").is_err());
    }
}
