//! Headers: which are forwarded to models, and which are returned to clients.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use dacapo_wire::{AuthHeader, BadRequest, CodeMode, ProviderSide, Turn};

use super::errors::TurnError;
use super::web_pages::AllowedOrigins;
use crate::key_mask::KeyMask;
use crate::observe::{Event, Observer};
use crate::upstream::{RequestContext, Secret};

/// Headers that belong to one connection, or to us.
fn is_ours(name: &HeaderName) -> bool {
    const OURS: [&str; 13] = [
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "content-encoding",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "cookie",
    ];
    OURS.contains(&name.as_str()) || name.as_str().starts_with("x-dacapo-")
}

/// Headers that name the account of whoever owns the key.
const OF_ACCOUNT: [&str; 3] = ["openai-organization", "openai-project", "anthropic-organization-id"];

/// Names of headers that are meant for this connection only, as `Connection` lists them.
fn of_connection(headers: &HeaderMap) -> Vec<String> {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// The headers of a request to a provider.
pub(crate) fn forwarded(
    context: &RequestContext,
    provider: ProviderSide,
    key: Option<&Secret>,
    pass_client_key: bool,
) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    let is_same_wire = context.client.wire() == provider.wire();
    let mut client_key = None;
    let of_connection = of_connection(&context.headers);
    for (name, value) in &context.headers {
        let is_key = *name == header::AUTHORIZATION || name == "api-key" || name == "x-api-key";
        // Headers of one protocol may mean something else to providers of another.
        let is_of_protocol =
            ["anthropic-", "openai-", "x-stainless-"].iter().any(|start| name.as_str().starts_with(start));
        // With the operator's key, the client does not say on which of the operator's accounts it is charged.
        let is_of_account = key.is_some() && OF_ACCOUNT.contains(&name.as_str());
        if is_of_account || of_connection.iter().any(|listed| name == listed.as_str()) {
            continue;
        }
        if is_key && !is_same_wire {
            client_key = Some(value);
        } else if !is_ours(name) && (is_same_wire || !is_of_protocol) && (!is_key || pass_client_key && key.is_none()) {
            forwarded.append(name, value.clone());
        }
    }
    let text = match (key, client_key) {
        (Some(key), _) => Some(key.0.as_str()),
        (None, Some(value)) if pass_client_key => {
            let text = value.to_str().unwrap_or_default();
            Some(text.strip_prefix("Bearer ").unwrap_or(text))
        }
        _ => None,
    };
    let capabilities = provider.capabilities();
    if let Some(text) = text {
        let (name, value) = match capabilities.auth {
            AuthHeader::XApiKey => (HeaderName::from_static("x-api-key"), text.to_owned()),
            AuthHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {text}")),
        };
        forwarded.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    }
    if let Some((name, value)) = capabilities.version_header
        && !forwarded.contains_key(name)
    {
        forwarded.insert(name, HeaderValue::from_static(value));
    }
    forwarded
}

/// Of an upstream's answer that passes through. It names neither the operator's key nor the account behind it.
pub(crate) fn returned(headers: &HeaderMap, key: Option<&Secret>) -> HeaderMap {
    let of_connection = of_connection(headers);
    let mut kept = selected(headers, |name| {
        let is_of_account = key.is_some() && OF_ACCOUNT.contains(&name.as_str());
        let is_of_connection = of_connection.iter().any(|listed| name == listed.as_str());
        !is_ours(name) && name != header::SET_COOKIE && !is_of_account && !is_of_connection
    });
    KeyMask::new(key).headers(&mut kept);
    kept
}

/// The headers of an upstream's response that concern the request, not the body.
pub(crate) fn about_request(headers: &HeaderMap) -> HeaderMap {
    let starts = ["x-", "openai-", "anthropic-"];
    selected(headers, |name| starts.iter().any(|start| name.as_str().starts_with(start)) || name == "request-id")
}

/// A copy of the headers whose names `keep` accepts.
fn selected(headers: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| keep(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The value of `x-dacapo-hold-text-chars`.
pub(crate) fn hold_text_chars(headers: &HeaderMap) -> Result<Option<usize>, TurnError> {
    const NAME: &str = "x-dacapo-hold-text-chars";
    let Some(value) = headers.get(NAME) else { return Ok(None) };
    let chars = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    chars.map(Some).ok_or_else(|| {
        let message = "must be a number of characters; 0 holds nothing back".to_owned();
        TurnError::BadRequest(BadRequest { param: NAME.to_owned(), message })
    })
}

/// Switches code mode in a request, and says in a response how it applied.
pub(super) const MODE: &str = "x-dacapo-mode";

/// How a request switches code mode.
pub(crate) fn mode(headers: &HeaderMap) -> Result<Option<CodeMode>, TurnError> {
    let Some(value) = headers.get(MODE) else { return Ok(None) };
    let mode = value.to_str().ok().and_then(|text| CodeMode::parse(text.trim()));
    mode.map(Some).ok_or_else(|| {
        let message = "must be off, plain, explicit or native".to_owned();
        TurnError::BadRequest(BadRequest { param: MODE.to_owned(), message })
    })
}

/// Whether the request comes from a web page of another host, or names a host that is not this machine (DNS
/// rebinding).
pub(crate) fn is_foreign(parts: &Parts, allowed: &AllowedOrigins) -> bool {
    let is_local = |host: &str| {
        let name = host.strip_prefix('[').and_then(|rest| rest.split(']').next());
        let name = name.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
        name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let text = |name: HeaderName| parts.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(header::ORIGIN).filter(|_| allowed.allowed(&parts.headers).is_none());
    let origin = origin.map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    // A request for a proxy names its host in the address as well, and there it counts for more.
    let hosts = text(header::HOST).into_iter().chain(parts.uri.host());
    origin.into_iter().chain(hosts).any(|host| !is_local(host))
}

/// Names what the model's wire cannot carry in a response header, and reports it.
pub(crate) fn dropped_params(turn: &Turn, observer: &Observer) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !turn.dropped.is_empty() {
        let (client, provider) = (turn.client.wire(), turn.provider.wire());
        observer.emit(&Event::ParamsDropped { client, provider, dropped: &turn.dropped });
        let value = HeaderValue::try_from(turn.dropped.join(", "));
        headers.extend(value.ok().map(|value| (HeaderName::from_static("x-dacapo-dropped"), value)));
    }
    headers
}
