//! A person logs in to a server, in a browser.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Html;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Client, Url};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::metadata::{self, AuthorizationServer, LoginMetadata};
use super::token_file::TokenFile;
use super::token_request::{LoginTokens, TokenEndpoint, TokenError};
use super::{http, registration};
use crate::servers_file::{OAuthClient, ServerEndpoint, ServerEntry};

const CALLBACK_PATH: &str = "/callback";
/// A person may take this long to log in.
const LOGIN_WAIT: Duration = Duration::from_mins(10);
/// For the last page to reach the browser.
const PAGE_WAIT: Duration = Duration::from_millis(200);
/// The scope that gets refresh tokens from servers of `OpenID` Connect.
const OFFLINE_ACCESS: &str = "offline_access";

/// A login that waits for a person.
pub struct Login {
    client: Client,
    file: TokenFile,
    server: AuthorizationServer,
    endpoint: TokenEndpoint,
    authorization_url: Url,
    redirect: String,
    /// Proves to the authorization server that whoever brings the code has begun the login (PKCE).
    verifier: String,
    /// Binds the browser's return to this login.
    state: String,
    listener: TcpListener,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The server is none that can be logged in to.
    #[error("{0}")]
    NotPossible(String),

    /// The browser cannot come back to us.
    #[error("cannot listen on 127.0.0.1 for the browser")]
    Listen(#[source] std::io::Error),

    /// The authorization server cannot be found, does not know us, or gives no tokens.
    #[error("{0}")]
    Refused(String),

    /// The person or the authorization server has said no.
    #[error("the login was denied: {0}")]
    Denied(String),

    /// Nobody has logged in.
    #[error("nobody has logged in within {} minutes", LOGIN_WAIT.as_secs() / 60)]
    TooLate,
}

impl Login {
    /// Begins a login to a server of a file. Its tokens will be kept in the directory.
    pub async fn start(server: &ServerEntry, tokens: &Path) -> Result<Login, LoginError> {
        let (url, configured) = remote(server)?;
        let file = TokenFile::new(tokens, url);
        let url = Url::parse(url).map_err(|error| LoginError::NotPossible(format!("its `url` is none: {error}")))?;
        let client = http::client().map_err(LoginError::Refused)?;
        let LoginMetadata { server, resource, scopes } =
            metadata::find(&client, &url).await.map_err(LoginError::Refused)?;
        let scope = scope(configured, scopes, &server);

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, configured.callback_port.unwrap_or(0))).await;
        let listener = listener.map_err(LoginError::Listen)?;
        let redirect = format!("http://{}{CALLBACK_PATH}", listener.local_addr().map_err(LoginError::Listen)?);
        let registered = registration::register(&client, &server, configured, &redirect, scope.as_deref()).await;
        let registered = registered.map_err(LoginError::Refused)?;

        let (verifier, state) = (random(), random());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let mut authorization_url = Url::parse(&server.authorization_endpoint)
            .map_err(|error| LoginError::Refused(format!("the address of the login is none: {error}")))?;
        let mut query = authorization_url.query_pairs_mut();
        query.append_pair("response_type", "code").append_pair("client_id", &registered.id);
        query.append_pair("redirect_uri", &redirect).append_pair("state", &state);
        query.append_pair("code_challenge", &challenge).append_pair("code_challenge_method", "S256");
        query.append_pair("resource", &resource);
        if let Some(scope) = &scope {
            query.append_pair("scope", scope);
            if scope.split(' ').any(|scope| scope == OFFLINE_ACCESS) {
                // Without it, OpenID Connect ignores the scope.
                query.append_pair("prompt", "consent");
            }
        }
        drop(query);
        let endpoint = TokenEndpoint { url: server.token_endpoint.clone(), client: registered, resource };
        Ok(Login { client, file, server, endpoint, authorization_url, redirect, verifier, state, listener })
    }

    /// The address to open in a browser.
    pub fn authorization_url(&self) -> &str {
        self.authorization_url.as_str()
    }

    /// Waits until the browser comes back, and keeps the tokens. A person whose browser is on another machine may also give
    /// the address at which it ended: `pasted` yields it.
    pub async fn finish(self, mut pasted: mpsc::Receiver<String>) -> Result<(), LoginError> {
        let Login { client, file, server, endpoint, redirect, verifier, state, listener, .. } = self;
        let (sender, mut callbacks) = mpsc::channel(8);
        let routes = Router::new().route(CALLBACK_PATH, get(receive_callback)).with_state(sender);
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        let called_back = async {
            loop {
                let (callback, reply) = tokio::select! {
                    Some((address, reply)) = callbacks.recv() => (LoginCallback::of(&address), Some(reply)),
                    Some(address) = pasted.recv() => (LoginCallback::of(&address), None),
                    else => std::future::pending().await,
                };
                // Anybody on this machine may call. The person may still come.
                if callback.state.as_deref() == Some(state.as_str()) {
                    return (callback.code(&server), reply);
                }
                answer(reply, StatusCode::BAD_REQUEST, "This is not the login that dacapo waits for.");
            }
        };
        let Ok((code, reply)) = timeout(LOGIN_WAIT, called_back).await else {
            serving.abort();
            return Err(LoginError::TooLate);
        };
        let logged_in = match code {
            Ok(code) => match LoginTokens::for_code(&client, endpoint, &code, &verifier, &redirect).await {
                Ok(tokens) => file.save(&tokens).map_err(LoginError::Refused),
                Err(TokenError::InvalidGrant(why) | TokenError::Other(why)) => {
                    Err(LoginError::Refused(format!("{} gives no tokens: {why}", server.issuer)))
                }
            },
            Err(error) => Err(error),
        };
        match &logged_in {
            Ok(()) => answer(reply, StatusCode::OK, "You are logged in. You can close this page."),
            Err(_) => {
                answer(reply, StatusCode::BAD_REQUEST, "The login has failed. Dacapo says why where it was started.");
            }
        }
        tokio::time::sleep(PAGE_WAIT).await;
        serving.abort();
        logged_in
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The address of a server that can be logged in to, and how we are known to its authorization server.
fn remote(server: &ServerEntry) -> Result<(&str, &OAuthClient), LoginError> {
    let name = &server.name;
    let problem = match server.spec.as_ref().map(|spec| spec.endpoint.as_ref()) {
        Ok(Some(ServerEndpoint::Http { url, headers, oauth })) => {
            if !headers.iter().any(|(header, _)| header.eq_ignore_ascii_case("authorization")) {
                return Ok((url, oauth));
            }
            format!("`{name}` has an `Authorization` in its `headers`; take it out to log in")
        }
        Ok(Some(ServerEndpoint::Stdio { .. })) => {
            format!("`{name}` is a process on this machine; only servers with a `url` can be logged in to")
        }
        Ok(None) => format!("`{name}` is disabled, and its entry cannot be read"),
        Err(invalid) => invalid.to_string(),
    };
    Err(LoginError::NotPossible(problem))
}

/// What we ask for: what the configuration says, else what the server wants. `None`: what the authorization server gives.
fn scope(configured: &OAuthClient, wanted: Option<Vec<String>>, server: &AuthorizationServer) -> Option<String> {
    let scopes = if configured.scopes.is_empty() { wanted } else { Some(configured.scopes.clone()) };
    let mut scopes = scopes.filter(|scopes| !scopes.is_empty())?;
    let is_offered = server.scopes_supported.iter().any(|scope| scope == OFFLINE_ACCESS);
    if is_offered && !scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    Some(scopes.join(" "))
}

fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A request of the browser at our callback address: the address with its query, and where the page to show is sent.
type CallbackRequest = (String, oneshot::Sender<(StatusCode, &'static str)>);

async fn receive_callback(
    State(sender): State<mpsc::Sender<CallbackRequest>>,
    uri: Uri,
) -> (StatusCode, Html<&'static str>) {
    let (reply, replied) = oneshot::channel();
    let gone = (StatusCode::GONE, "Nobody waits for this login any more.");
    let (status, page) = match sender.send((format!("http://127.0.0.1{uri}"), reply)).await {
        Ok(()) => replied.await.unwrap_or(gone),
        Err(_) => gone,
    };
    (status, Html(page))
}

fn answer(reply: Option<oneshot::Sender<(StatusCode, &'static str)>>, status: StatusCode, page: &'static str) {
    if let Some(reply) = reply {
        // A browser that is gone reads no page.
        reply.send((status, page)).unwrap_or_default();
    }
}

/// What a browser brings back.
#[derive(Default)]
struct LoginCallback {
    state: Option<String>,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

impl LoginCallback {
    fn of(address: &str) -> LoginCallback {
        let Ok(url) = Url::parse(address.trim()) else { return LoginCallback::default() };
        let value = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        LoginCallback {
            state: value("state"),
            code: value("code"),
            issuer: value("iss"),
            error: value("error"),
            error_description: value("error_description"),
        }
    }

    /// The code, if it is from the authorization server that was asked (RFC 9207).
    fn code(self, server: &AuthorizationServer) -> Result<String, LoginError> {
        match &self.issuer {
            Some(issuer) if *issuer != server.issuer => {
                let message = format!("the answer is from {issuer}, and {} was asked", server.issuer);
                return Err(LoginError::Refused(message));
            }
            None if server.authorization_response_iss_parameter_supported => {
                let message = format!("the answer does not say that it is from {}", server.issuer);
                return Err(LoginError::Refused(message));
            }
            _ => {}
        }
        if let Some(error) = self.error {
            return Err(LoginError::Denied(match self.error_description {
                Some(why) => format!("{error}: {why}"),
                None => error,
            }));
        }
        self.code.ok_or_else(|| LoginError::Refused("the browser came back without a code".to_owned()))
    }
}
