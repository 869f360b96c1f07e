//! Headers: which go on to models, which come back to clients, and what they say.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use dacapo_wire::{BadRequest, Switch, Wire};

use crate::error::TurnError;
use crate::upstream::{Asking, Secret};

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

/// The version of Anthropic's API, for clients on other wires.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

pub(crate) fn forwarded(asking: &Asking, wire: Wire, key: Option<&Secret>, pass_client_key: bool) -> HeaderMap {
    let mut forwarded = HeaderMap::new();
    let is_same_wire = asking.wire == wire;
    let mut client_key = None;
    for (name, value) in &asking.headers {
        let is_key = *name == header::AUTHORIZATION || name == "api-key" || name == "x-api-key";
        // What one provider understands may mean something else to another.
        let is_dialect = ["anthropic-", "openai-", "x-stainless-"].iter().any(|start| name.as_str().starts_with(start));
        if is_key && !is_same_wire {
            client_key = Some(value.clone());
        } else if !is_ours(name) && (is_same_wire || !is_dialect) && (!is_key || pass_client_key && key.is_none()) {
            forwarded.append(name.clone(), value.clone());
        }
    }
    let text = match (key, &client_key) {
        (Some(key), _) => Some(key.0.as_str()),
        (None, Some(value)) if pass_client_key => {
            let text = value.to_str().unwrap_or_default();
            Some(text.strip_prefix("Bearer ").unwrap_or(text))
        }
        _ => None,
    };
    if let Some(text) = text {
        let (name, value) = match wire {
            Wire::Messages => (HeaderName::from_static("x-api-key"), text.to_owned()),
            Wire::Chat | Wire::Responses => (header::AUTHORIZATION, format!("Bearer {text}")),
        };
        forwarded.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    }
    if wire == Wire::Messages && !forwarded.contains_key(ANTHROPIC_VERSION.0) {
        forwarded.insert(ANTHROPIC_VERSION.0, HeaderValue::from_static(ANTHROPIC_VERSION.1));
    }
    forwarded
}

/// Of an upstream's answer that passes through.
pub(crate) fn returned(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !is_ours(name) && **name != header::SET_COOKIE);
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What an upstream's headers say about the request, not about its body.
pub(crate) fn about(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| {
        let name = name.as_str();
        ["x-", "openai-", "anthropic-"].iter().any(|start| name.starts_with(start)) || name == "request-id"
    });
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What `x-dacapo-mode` says.
pub(crate) fn mode(headers: &HeaderMap) -> Result<Option<Switch>, TurnError> {
    let Some(value) = headers.get("x-dacapo-mode") else { return Ok(None) };
    let switch = value.to_str().ok().and_then(|text| Switch::parse(text.trim()));
    switch.map(Some).ok_or_else(|| {
        let message = "must be off, plain, explicit or native".to_owned();
        TurnError::Bad(BadRequest { param: "x-dacapo-mode".to_owned(), message })
    })
}

/// Does a web page of another host ask, or one that has made its host's name mean us?
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    let is_local = |host: &str| {
        let name = host.strip_prefix('[').and_then(|rest| rest.split(']').next());
        let name = name.unwrap_or_else(|| host.rsplit_once(':').map_or(host, |(name, _)| name));
        name == "localhost" || name.ends_with(".localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let origin = text(header::ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    origin.is_some_and(|origin| !is_local(origin)) || text(header::HOST).is_some_and(|host| !is_local(host))
}
