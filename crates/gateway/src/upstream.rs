//! Models: where each lives, and how it is asked.

use std::pin::Pin;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;
use dacapo_runner::matches_pattern;
use dacapo_wire::Wire;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};

use crate::error::TurnError;
use crate::headers;
use dacapo_scripted::{Ending, Script};

/// A body as it arrives.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, String>> + Send>>;

/// What an upstream is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Answer(Wire),
    /// How many tokens a request has. Only Messages has it.
    TokenCount,
}

impl Target {
    fn wire(self) -> Wire {
        match self {
            Target::Answer(wire) => wire,
            Target::TokenCount => Wire::Messages,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Target::Answer(wire) => wire.path(),
            Target::TokenCount => "/messages/count_tokens",
        }
    }
}

/// What an upstream answered.
pub(crate) struct Answer {
    pub wire: Wire,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Pieces,
}

/// One place where models live.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub name: String,
    /// Which models are here; `*` stands for any characters.
    pub models: Vec<String>,
    /// What it speaks; never empty.
    pub wires: Vec<Wire>,
    /// Its models write programs as plain text, on Responses.
    pub custom_execute: bool,
    pub place: Place,
    /// What the configuration named, for people to read.
    pub key_from: Option<String>,
    pub script_from: Option<String>,
    /// How often a request is sent again when the upstream asks for it.
    pub retries_max: u32,
    pub retry_wait_max: Duration,
}

impl Upstream {
    pub(crate) fn new(name: &str, models: &str, place: Place) -> Upstream {
        Upstream {
            key_from: None,
            script_from: None,
            name: name.to_owned(),
            models: vec![models.to_owned()],
            wires: match place {
                Place::Http { .. } => vec![Wire::Chat],
                Place::Scripted(_) => Wire::ALL.to_vec(),
            },
            custom_execute: false,
            place,
            retries_max: 2,
            retry_wait_max: Duration::from_secs(10),
        }
    }

    /// On which wire it is asked for a client: on its own, if it can be.
    pub(crate) fn wire_for(&self, client: Wire) -> Wire {
        let first = self.wires.first().copied().unwrap_or(client);
        if self.wires.contains(&client) { client } else { first }
    }
}

/// What a request is sent with, besides its body.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    /// The client's.
    pub headers: HeaderMap,
    /// The client's, with its question mark.
    pub query: String,
    /// The client's.
    pub wire: Wire,
}

#[derive(Debug, Clone)]
pub(crate) enum Place {
    Http { base_url: String, key: Option<Secret>, pass_client_key: bool },
    Scripted(Script),
}

impl Place {
    fn has_tls(&self) -> bool {
        matches!(self, Place::Http { base_url, .. } if !base_url.starts_with("http://"))
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
    list: Vec<Upstream>,
    client: reqwest::Client,
}

/// An error body beyond this is cut: nobody reads it.
const ERROR_BYTES_MAX: usize = 1 << 20;

impl Upstreams {
    pub(crate) fn new(list: Vec<Upstream>, connect: Duration, idle: Duration) -> Result<Upstreams, reqwest::Error> {
        let builder = reqwest::Client::builder()
            .connect_timeout(connect)
            .read_timeout(idle)
            .redirect(reqwest::redirect::Policy::none())
            .pool_max_idle_per_host(256)
            .tcp_nodelay(true);
        let has_tls = list.iter().any(|upstream| upstream.place.has_tls());
        // Machines without certificates can serve too, as long as there is nothing to be certified.
        let builder = if has_tls { builder } else { builder.tls_certs_only([]) };
        Ok(Upstreams { client: builder.build()?, list })
    }

    /// The first that has the model.
    pub(crate) fn of(&self, model: &str) -> Result<&Upstream, TurnError> {
        let found =
            self.list.iter().find(|upstream| upstream.models.iter().any(|pattern| matches_pattern(pattern, model)));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.list.iter().flat_map(|upstream| &upstream.models).map(String::as_str).collect();
            TurnError::ours(
                StatusCode::NOT_FOUND,
                "not_found_error",
                format!("no upstream has the model `{model}`; configured are {}", known.join(", ")),
            )
        })
    }

    /// Posts a request; asks again when the upstream says that this may help. Whatever comes back then is the answer.
    pub(crate) async fn post(
        &self,
        upstream: &Upstream,
        target: Target,
        asking: &Asking,
        body: Bytes,
    ) -> Result<Answer, TurnError> {
        let mut tries = 0;
        loop {
            let answer = self.post_once(upstream, target, asking, body.clone()).await?;
            let wait = retry_after(&answer).filter(|wait| *wait <= upstream.retry_wait_max);
            match wait {
                Some(wait) if tries < upstream.retries_max => {
                    tries += 1;
                    tracing::debug!(upstream = upstream.name, status = answer.status.as_u16(), ?wait, "asking again");
                    tokio::time::sleep(wait).await;
                }
                _ => return Ok(answer),
            }
        }
    }

    async fn post_once(
        &self,
        upstream: &Upstream,
        target: Target,
        asking: &Asking,
        body: Bytes,
    ) -> Result<Answer, TurnError> {
        match &upstream.place {
            Place::Scripted(script) => Ok(scripted(script, target, &body)),
            Place::Http { base_url, key, pass_client_key } => {
                let headers = headers::forwarded(asking, target.wire(), key.as_ref(), *pass_client_key);
                let query = if asking.wire == target.wire() { asking.query.as_str() } else { "" };
                let url = format!("{base_url}{}{query}", target.path());
                let sent = self.client.post(url).headers(headers).body(body).send();
                let response = sent.await.map_err(|error| unreachable(&upstream.name, &error))?;
                Ok(Answer {
                    wire: target.wire(),
                    status: response.status(),
                    headers: headers::returned(response.headers()),
                    body: Box::pin(response.bytes_stream().map(|piece| piece.map_err(|error| told(&error)))),
                })
            }
        }
    }

    /// What `GET /v1/models` lists: whatever the upstreams say, and the names that they are configured for.
    pub(crate) async fn models(&self, headers: &HeaderMap) -> Value {
        const PATIENCE: Duration = Duration::from_secs(10);
        let takes_client_key = |upstream: &&Upstream| match &upstream.place {
            Place::Http { key, pass_client_key, .. } => key.is_none() && *pass_client_key,
            Place::Scripted(_) => false,
        };
        // A client's key is for one upstream; which one, only a model's name could tell.
        let is_clear = self.list.iter().filter(takes_client_key).count() <= 1;
        let mut data: Vec<Value> = Vec::new();
        for upstream in &self.list {
            let listed = match &upstream.place {
                Place::Scripted(_) => None,
                Place::Http { base_url, key, pass_client_key } => {
                    let wire = upstream.wire_for(Wire::Chat);
                    let asking = Asking { headers: headers.clone(), query: String::new(), wire };
                    let headers = headers::forwarded(&asking, wire, key.as_ref(), *pass_client_key && is_clear);
                    let sent = self.client.get(format!("{base_url}/models")).headers(headers).timeout(PATIENCE).send();
                    match sent.await {
                        Ok(response) if response.status().is_success() => {
                            let body = response.bytes().await.unwrap_or_default();
                            serde_json::from_slice::<Value>(&body).ok()
                        }
                        _ => None,
                    }
                }
            };
            let listed =
                listed.and_then(|body| body.get("data").and_then(Value::as_array).cloned()).unwrap_or_default();
            let named = upstream.models.iter().filter(|pattern| !pattern.contains('*'));
            let named =
                named.map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": upstream.name}));
            for model in listed.into_iter().chain(named) {
                if !data.iter().any(|known| known.get("id") == model.get("id")) {
                    data.push(model);
                }
            }
        }
        json!({"object": "list", "data": data})
    }
}

impl Answer {
    /// Reads it to its end.
    pub(crate) async fn whole(mut self, bytes_max: usize) -> Result<Bytes, String> {
        let mut whole = Vec::new();
        while let Some(piece) = self.body.next().await {
            whole.extend_from_slice(&piece?);
            if whole.len() > bytes_max {
                return Err(format!("the answer is larger than {bytes_max} bytes"));
            }
        }
        Ok(Bytes::from(whole))
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
        TurnError::passed(self.wire, self.status, self.headers, Bytes::from(body))
    }
}

fn scripted(script: &Script, target: Target, body: &[u8]) -> Answer {
    let request = serde_json::from_slice(body).unwrap_or(Value::Null);
    if target == Target::TokenCount {
        let count = Bytes::from(script.count_tokens(&request).to_string());
        let body = Box::pin(stream::iter([Ok(count)]));
        return Answer { wire: target.wire(), status: StatusCode::OK, headers: HeaderMap::new(), body };
    }
    let reply = script.reply(target.wire(), &request);
    let mut headers = HeaderMap::new();
    for (name, value) in &reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    let cut = (reply.ending == Ending::Cut).then(|| Err("the connection was cut".to_owned()));
    let pieces = stream::iter(reply.pieces).then(|piece| async move {
        if !piece.delay.is_zero() {
            tokio::time::sleep(piece.delay).await;
        }
        Ok(piece.bytes)
    });
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Answer { wire: target.wire(), status, headers, body: Box::pin(pieces.chain(stream::iter(cut))) }
}

/// How long to wait before asking again, if the upstream says that this may help.
fn retry_after(answer: &Answer) -> Option<Duration> {
    if !matches!(answer.status.as_u16(), 429 | 503 | 529) {
        return None;
    }
    let text = answer.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn unreachable(name: &str, error: &reqwest::Error) -> TurnError {
    let status = if error.is_timeout() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
    TurnError::ours(status, "upstream_error", format!("the upstream `{name}` cannot be reached: {}", told(error)))
}

/// The error with its causes, without the address: it may hold secrets.
fn told(error: &reqwest::Error) -> String {
    let mut told = if error.is_timeout() { "it took too long".to_owned() } else { "the connection failed".to_owned() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}
