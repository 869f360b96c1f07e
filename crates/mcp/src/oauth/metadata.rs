//! Finds the authorization server of a server: protected-resource metadata (RFC 9728), then authorization-server metadata
//! (RFC 8414, `OpenID` Connect Discovery).

use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http;

/// What is needed to log in to a server.
#[derive(Debug)]
pub(super) struct LoginMetadata {
    pub(super) server: AuthorizationServer,
    /// What tokens are for (RFC 8707).
    pub(super) resource: String,
    /// What the server asks for, or says that it knows. `None`: it says nothing.
    pub(super) scopes: Option<Vec<String>>,
}

/// What an authorization server says of itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct ProtectedResource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    scopes_supported: Option<Vec<String>>,
}

/// Asks the server at this URL who logs people in.
pub(super) async fn find(client: &Client, url: &Url) -> Result<LoginMetadata, String> {
    let challenge = challenge(client, url).await?;
    let named = challenge.as_deref().and_then(|challenge| parameter(challenge, "resource_metadata"));
    let asked_for = challenge.as_deref().and_then(|challenge| parameter(challenge, "scope"));
    let asked_for = asked_for.map(|scopes| scopes.split_whitespace().map(str::to_owned).collect());
    let places = match named {
        Some(place) => vec![Url::parse(&place).map_err(|error| format!("the server's `resource_metadata`: {error}"))?],
        None => well_known(url, "oauth-protected-resource"),
    };
    let mut protected = None;
    for place in places {
        if let Some(json) = get(client, url, &place).await? {
            let read: ProtectedResource = read(json, &place)?;
            if !covers(&read.resource, url) {
                let resource = &read.resource;
                return Err(format!("the server says that its tokens are for {resource}, which is another server"));
            }
            protected = Some(read);
            break;
        }
    }
    let (issuer, resource, known) = match protected {
        Some(ProtectedResource { resource, authorization_servers, scopes_supported }) => {
            let issuer = authorization_servers.into_iter().next();
            let issuer = issuer.ok_or("the server names no authorization server")?;
            (issuer, resource, scopes_supported)
        }
        // Before June 2025, a server was its own authorization server.
        None => (url.origin().ascii_serialization(), url.to_string(), None),
    };
    let server = authorization_server(client, url, &issuer).await?;
    Ok(LoginMetadata { server, resource, scopes: asked_for.or(known) })
}

/// What the server wants of a client that sends no token. Servers without `initialize` refuse that, and need not say more.
async fn challenge(client: &Client, url: &Url) -> Result<Option<String>, String> {
    let us = json!({ "name": "dacapo", "version": env!("CARGO_PKG_VERSION") });
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                       "io.modelcontextprotocol/clientInfo": us, "io.modelcontextprotocol/clientCapabilities": {} });
    let first_requests = [
        ("2026-07-28", "server/discover", json!({ "_meta": meta })),
        ("2025-11-25", "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": us })),
    ];
    for (version, method, params) in first_requests {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = client.post(url.as_str()).header("accept", "application/json, text/event-stream").json(&body);
        let request = request.header("mcp-protocol-version", version).header("mcp-method", method);
        let answer = http::send(request).await.map_err(|error| format!("the server cannot be reached: {error}"))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Ok(answer.challenge);
        }
    }
    Ok(None)
}

async fn authorization_server(client: &Client, url: &Url, issuer: &str) -> Result<AuthorizationServer, String> {
    let issuer_url =
        Url::parse(issuer).map_err(|error| format!("`{issuer}` is no address of an authorization server: {error}"))?;
    let mut places = well_known_first(&issuer_url, "oauth-authorization-server");
    places.extend(well_known_first(&issuer_url, "openid-configuration"));
    if issuer_url.path() != "/" {
        let mut appended = issuer_url.clone();
        appended.set_path(&format!("{}/.well-known/openid-configuration", issuer_url.path().trim_end_matches('/')));
        places.push(appended);
    }
    for place in places {
        let Some(json) = get(client, url, &place).await? else { continue };
        let server: AuthorizationServer = read(json, &place)?;
        if server.issuer != issuer && server.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(format!("{place} is of the issuer {}, and {issuer} was asked for", server.issuer));
        }
        if !server.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Err(format!("{issuer} does not say that it knows PKCE with S256, without which no login is safe"));
        }
        let endpoints = [Some(&server.authorization_endpoint), Some(&server.token_endpoint)];
        for endpoint in endpoints.into_iter().chain([server.registration_endpoint.as_ref()]).flatten() {
            let endpoint = Url::parse(endpoint).map_err(|error| format!("{place}: `{endpoint}`: {error}"))?;
            must_be_as_safe(url, &endpoint)?;
        }
        return Ok(server);
    }
    Err(format!("{issuer} does not say how to log in: it has no metadata for OAuth or OpenID Connect"))
}

/// The metadata at an address; `None` if there is none.
async fn get(client: &Client, server: &Url, place: &Url) -> Result<Option<Value>, String> {
    must_be_as_safe(server, place)?;
    let answer = http::send(client.get(place.as_str()).header("accept", "application/json")).await;
    let answer = answer.map_err(|error| format!("{place} cannot be read: {error}"))?;
    Ok(answer.json.filter(|_| answer.status.is_success()))
}

fn read<T: for<'de> Deserialize<'de>>(json: Value, place: &Url) -> Result<T, String> {
    serde_json::from_value(json).map_err(|error| format!("{place} is no metadata: {error}"))
}

/// Whoever is reached over TLS must not lead us to somebody who is not.
fn must_be_as_safe(server: &Url, other: &Url) -> Result<(), String> {
    match other.scheme() {
        "https" => Ok(()),
        "http" if server.scheme() == "http" => Ok(()),
        _ => Err(format!("{other} is not safe: it must begin with https://")),
    }
}

/// Where metadata may be: for the path of the URL, then for its origin.
fn well_known(url: &Url, name: &str) -> Vec<Url> {
    let mut places = well_known_first(url, name);
    if url.path() != "/" {
        places.push(at_path(url, &format!("/.well-known/{name}")));
    }
    places
}

fn well_known_first(url: &Url, name: &str) -> Vec<Url> {
    vec![at_path(url, &format!("/.well-known/{name}{}", url.path().trim_end_matches('/')))]
}

fn at_path(url: &Url, path: &str) -> Url {
    let mut place = url.clone();
    place.set_path(path);
    place.set_query(None);
    place.set_fragment(None);
    place
}

/// Whether tokens for a resource are for the server too: it is the server, or contains it.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (outer, inner) = (resource.path().trim_end_matches('/'), server.path().trim_end_matches('/'));
    let is_within = inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin() && is_within
}

/// A parameter of a challenge: `Bearer scope="a b", resource_metadata="…"`.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], rest[at + name.len()..].trim_start());
        rest = &rest[at + name.len()..];
        let begins = before.chars().next_back().is_none_or(|letter| matches!(letter, ' ' | ',' | '\t'));
        let Some(value) = after.strip_prefix('=').filter(|_| begins) else { continue };
        let value = value.trim_start();
        return Some(match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default().to_owned(),
            None => value.split([',', ' ']).next().unwrap_or_default().to_owned(),
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn a_challenge_is_read_by_the_names_of_its_parameters() {
        let challenge = r#"Bearer error="invalid_token", error_description="no scope=x", resource_metadata="https://a/b", scope="r w""#;
        assert_eq!(parameter(challenge, "resource_metadata").as_deref(), Some("https://a/b"));
        assert_eq!(parameter(challenge, "realm"), None);
        assert_eq!(parameter("Bearer scope=read, realm=x", "scope").as_deref(), Some("read"));
        assert_eq!(parameter("Bearer my_scope=\"no\" , scope = \"yes\"", "scope").as_deref(), Some("yes"));
    }

    #[test]
    fn tokens_are_only_asked_for_the_server_or_what_contains_it() {
        for (resource, is_covered) in [
            ("https://a.example/mcp", true),
            ("https://a.example/mcp/", true),
            ("https://a.example", true),
            ("https://a.example/mc", false),
            ("https://a.example/mcp/other", false),
            ("https://b.example/mcp", false),
            ("http://a.example/mcp", false),
            ("mcp", false),
        ] {
            assert_eq!(covers(resource, &url("https://a.example/mcp")), is_covered, "{resource}");
        }
    }

    #[test]
    fn metadata_is_looked_for_where_it_may_be() {
        let places = |server: &str| -> Vec<String> {
            well_known(&url(server), "x").into_iter().map(|place| place.to_string()).collect()
        };
        assert_eq!(places("https://a/b/c?d"), ["https://a/.well-known/x/b/c", "https://a/.well-known/x"]);
        assert_eq!(places("https://a"), ["https://a/.well-known/x"]);
        assert!(must_be_as_safe(&url("https://a"), &url("http://a/b")).is_err());
        assert!(must_be_as_safe(&url("http://a"), &url("http://b")).is_ok());
    }
}
