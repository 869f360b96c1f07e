//! Makes us known to an authorization server (RFC 7591), unless it knows us already.

use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http;
use super::metadata::AuthorizationServer;
use crate::servers_file::OAuthClient;

/// What an authorization server shows to people.
const CLIENT_NAME: &str = "Da Capo";

/// How we are known to an authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RegisteredClient {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) method: AuthMethod,
}

/// How we prove to be that client when we ask for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AuthMethod {
    None,
    ClientSecretBasic,
    ClientSecretPost,
}

impl AuthMethod {
    fn parse(name: &str) -> Option<AuthMethod> {
        serde_json::from_value(Value::from(name)).ok()
    }

    /// The first that the server knows. A server that says nothing knows the first.
    fn choose(server: &AuthorizationServer, preferred: &[AuthMethod]) -> AuthMethod {
        let known: Vec<AuthMethod> =
            server.token_endpoint_auth_methods_supported.iter().filter_map(|name| AuthMethod::parse(name)).collect();
        let mut both = preferred.iter().filter(|method| known.contains(method));
        both.next().or(preferred.first()).copied().unwrap_or(AuthMethod::None)
    }
}

/// The client that the configuration names, or a new one.
pub(super) async fn register(
    http_client: &Client,
    server: &AuthorizationServer,
    configured: &OAuthClient,
    redirect: &str,
    scope: Option<&str>,
) -> Result<RegisteredClient, String> {
    if let Some(id) = configured.id.clone() {
        let secret = configured.secret.clone();
        let with_secret = [AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost];
        let method = if secret.is_some() { AuthMethod::choose(server, &with_secret) } else { AuthMethod::None };
        return Ok(RegisteredClient { id, secret, method });
    }
    let Some(endpoint) = &server.registration_endpoint else {
        let issuer = &server.issuer;
        return Err(format!(
            "{issuer} takes no registrations; register there yourself, and put `\"oauth\": {{\"clientId\": …}}` into the \
             entry of the server"
        ));
    };
    let any = [AuthMethod::None, AuthMethod::ClientSecretBasic, AuthMethod::ClientSecretPost];
    let method = AuthMethod::choose(server, &any);
    let mut request = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    });
    if let Some(scope) = scope {
        request["scope"] = scope.into();
    }
    let sent =
        http::send(http_client.post(endpoint.as_str()).header("accept", "application/json").json(&request)).await;
    let answer = sent.map_err(|error| format!("cannot register with {}: {error}", server.issuer))?;
    let registered = answer.json.as_ref().filter(|_| answer.status.is_success());
    let Some((registered, id)) = registered.and_then(|json| Some((json, json["client_id"].as_str()?))) else {
        return Err(format!("{} does not register us: {}", server.issuer, http::error_text(&answer)));
    };
    // Some servers give a secret to whoever registers, and want it only from those who asked for one.
    let method = registered["token_endpoint_auth_method"].as_str().and_then(AuthMethod::parse).unwrap_or(method);
    let secret = registered["client_secret"].as_str().filter(|secret| !secret.is_empty());
    let secret = secret.filter(|_| method != AuthMethod::None).map(str::to_owned);
    Ok(RegisteredClient { id: id.to_owned(), secret, method })
}
