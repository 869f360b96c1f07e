//! How we authenticate to a server over HTTP.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rmcp::transport::streamable_http_client::{AuthRequiredError, StreamableHttpError};

use super::server::FleetContext;
use crate::oauth::{AccessTokens, NoToken};

type HttpError = StreamableHttpError<reqwest::Error>;

/// The credentials that we send to a server, and the message for people if it rejects them.
pub(super) struct ServerAuth {
    server: String,
    kind: AuthKind,
    context: Arc<FleetContext>,
}

enum AuthKind {
    /// The configuration has an `Authorization`.
    Header,
    /// Somebody logs in, or has done so.
    Login(Box<AccessTokens>),
    /// There is no place for tokens.
    None,
}

impl ServerAuth {
    pub(super) fn new(
        server: &str,
        url: &str,
        headers: &[(String, String)],
        context: Arc<FleetContext>,
    ) -> Result<ServerAuth, String> {
        let has_header = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let kind = match &context.options.tokens_dir {
            _ if has_header => AuthKind::Header,
            Some(directory) => AuthKind::Login(Box::new(AccessTokens::new(directory, url)?)),
            None => AuthKind::None,
        };
        Ok(ServerAuth { server: server.to_owned(), kind, context })
    }

    /// The token to send, if somebody has logged in.
    pub(super) async fn token(&self) -> Result<Option<String>, HttpError> {
        match &self.kind {
            AuthKind::Login(tokens) => self.read(tokens.current().await),
            AuthKind::Header | AuthKind::None => Ok(None),
        }
    }

    /// A token in place of one that the server has rejected. `None` if there is no other.
    pub(super) async fn token_instead_of(&self, rejected: &str) -> Result<Option<String>, HttpError> {
        match &self.kind {
            AuthKind::Login(tokens) => self.read(tokens.instead_of(rejected).await),
            AuthKind::Header | AuthKind::None => Ok(None),
        }
    }

    fn read(&self, token: Result<String, NoToken>) -> Result<Option<String>, HttpError> {
        match token {
            Ok(token) => {
                self.context.mask.add(&token);
                Ok(Some(token))
            }
            Err(NoToken::NotLoggedIn) => Ok(None),
            Err(NoToken::Expired) => Err(self.login_expired()),
            Err(NoToken::Failed(error)) => {
                let text = format!("its token could not be refreshed: {error}");
                Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(text)))
            }
        }
    }

    /// The server has answered 401 to a request with this token, or without any.
    pub(super) fn refused(&self, token: Option<&str>) -> HttpError {
        if token.is_some() {
            return self.login_expired();
        }
        let server = &self.server;
        authorization_required(match &self.kind {
            AuthKind::Header => "it does not accept the `Authorization` in its `headers`".to_owned(),
            AuthKind::None => "it wants authorization, and no token was given for it".to_owned(),
            AuthKind::Login(_) => format!(
                "it wants authorization: log in with `dacapo mcp --login {server}`, or put its token into `headers` as \
                 `Authorization`"
            ),
        })
    }

    /// The server has answered 403 and named what our token lacks.
    pub(super) fn lacks_scope(&self, challenge: &str) -> HttpError {
        let scope = challenge.split_once("scope=").map(|(_, rest)| rest.trim_start_matches('"'));
        let scope = scope.and_then(|rest| rest.split(['"', ',']).next()).filter(|scope| !scope.trim().is_empty());
        let lacks = scope.map_or_else(String::new, |scope| format!(": it lacks the scope `{scope}`"));
        let server = &self.server;
        authorization_required(match &self.kind {
            AuthKind::Login(_) => format!(
                "its login does not allow this{lacks}; put the scopes that you need into `oauth.scopes` of the server and \
                 log in again with `dacapo mcp --login {server}`"
            ),
            AuthKind::Header | AuthKind::None => {
                format!("the `Authorization` in its `headers` does not allow this{lacks}")
            }
        })
    }

    fn login_expired(&self) -> HttpError {
        let server = &self.server;
        authorization_required(format!(
            "its login has expired or was revoked: log in again with `dacapo mcp --login {server}`"
        ))
    }
}

/// rmcp gives up at once on this error. Its text is for people, and not the challenge.
fn authorization_required(reason: String) -> HttpError {
    StreamableHttpError::AuthRequired(AuthRequiredError::new(reason))
}

impl fmt::Debug for ServerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerAuth").field("server", &self.server).finish_non_exhaustive()
    }
}
