//! Gets tokens from an authorization server: for a code, or for a refresh token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::{Client, StatusCode};
use serde::{Deserialize, Serialize};

use super::http;
use super::registration::{AuthMethod, RegisteredClient};

/// A login: its tokens, and all that is needed to refresh them.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginTokens {
    pub(super) access_token: String,
    refresh_token: Option<String>,
    /// In seconds since 1970. `None`: not known.
    expires_at: Option<u64>,
    client: RegisteredClient,
    token_endpoint: String,
    /// What the tokens are for.
    resource: String,
}

/// Who is asked for tokens, as whom, and what for.
pub(super) struct TokenEndpoint {
    pub(super) url: String,
    pub(super) client: RegisteredClient,
    pub(super) resource: String,
}

/// Why there are no tokens.
#[derive(Debug)]
pub(super) enum TokenError {
    /// The code or the refresh token is not good any more.
    InvalidGrant(String),
    Other(String),
}

/// A token that expires within this time is not used any more: the request that it is for takes time too.
const MARGIN: Duration = Duration::from_secs(30);

impl LoginTokens {
    /// Whether the token will be good for the next request. One that does not say when it expires is.
    pub(super) fn is_fresh(&self) -> bool {
        self.expires_at.is_none_or(|at| at > now() + MARGIN.as_secs())
    }

    pub(super) fn can_be_refreshed(&self) -> bool {
        self.refresh_token.is_some()
    }

    pub(super) fn has_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= now())
    }

    /// The tokens for a code that a browser has brought.
    pub(super) async fn for_code(
        client: &Client,
        endpoint: TokenEndpoint,
        code: &str,
        verifier: &str,
        redirect: &str,
    ) -> Result<LoginTokens, TokenError> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
        ];
        request(client, endpoint, &fields, None).await
    }

    /// New tokens in place of these.
    pub(super) async fn refreshed(self, client: &Client) -> Result<LoginTokens, TokenError> {
        let Some(refresh_token) = self.refresh_token else {
            return Err(TokenError::InvalidGrant("it has no refresh token".to_owned()));
        };
        let endpoint = TokenEndpoint { url: self.token_endpoint, client: self.client, resource: self.resource };
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.as_str())];
        request(client, endpoint, &fields, Some(&refresh_token)).await
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

/// `refresh_token` stays good if the server gives no new one.
async fn request(
    http_client: &Client,
    endpoint: TokenEndpoint,
    fields: &[(&str, &str)],
    refresh_token: Option<&str>,
) -> Result<LoginTokens, TokenError> {
    let TokenEndpoint { url, client, resource } = endpoint;
    let mut fields = fields.to_vec();
    fields.push(("resource", &resource));
    let mut post = http_client.post(url.as_str()).header("accept", "application/json");
    match (client.method, &client.secret) {
        (AuthMethod::ClientSecretBasic, Some(secret)) => {
            // RFC 6749 wants both parts encoded as in forms.
            let encoded = |text: &str| http::form(&[(text, "")]).trim_end_matches('=').to_owned();
            post = post.basic_auth(encoded(&client.id), Some(encoded(secret)));
        }
        (AuthMethod::ClientSecretPost, Some(secret)) => {
            fields.extend([("client_id", client.id.as_str()), ("client_secret", secret.as_str())]);
        }
        _ => fields.push(("client_id", &client.id)),
    }
    let body = http::form(&fields);
    let sent = http::send(post.header("content-type", "application/x-www-form-urlencoded").body(body)).await;
    let answer = sent.map_err(TokenError::Other)?;
    if !answer.status.is_success() {
        let text = http::error_text(&answer);
        let code = answer.json.as_ref().and_then(|json| json["error"].as_str());
        let is_over = matches!(code, Some("invalid_grant" | "invalid_client" | "unauthorized_client"));
        return Err(if is_over && answer.status != StatusCode::TOO_MANY_REQUESTS {
            TokenError::InvalidGrant(text)
        } else {
            TokenError::Other(text)
        });
    }
    // The error of the parser would show a part of the tokens.
    let invalid = || TokenError::Other("the answer has no tokens".to_owned());
    let tokens: TokenResponse = answer.json.and_then(|json| serde_json::from_value(json).ok()).ok_or_else(invalid)?;
    if !tokens.token_type.eq_ignore_ascii_case("bearer") {
        return Err(TokenError::Other("the answer has tokens of another type than `Bearer`".to_owned()));
    }
    Ok(LoginTokens {
        access_token: tokens.access_token,
        refresh_token: tokens.refresh_token.or_else(|| refresh_token.map(str::to_owned)),
        expires_at: tokens.expires_in.map(|seconds| now().saturating_add(seconds)),
        client,
        token_endpoint: url,
        resource,
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
