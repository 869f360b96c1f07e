//! The access token of a server that somebody has logged in to.

use std::path::Path;

use reqwest::Client;
use tokio::sync::Mutex;

use super::http;
use super::token_file::TokenFile;
use super::token_request::{LoginTokens, TokenError};

/// Gives the token to send, and refreshes it before it expires.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    file: TokenFile,
    client: Client,
    /// Held while tokens are refreshed.
    refreshing: Mutex<()>,
}

/// Why there is no token.
#[derive(Debug)]
pub(crate) enum NoToken {
    NotLoggedIn,
    /// The login is over.
    Expired,
    /// It could not be refreshed now.
    Failed(String),
}

impl AccessTokens {
    /// Of the server at this URL, whose tokens are kept in the directory.
    pub(crate) fn new(directory: &Path, url: &str) -> Result<AccessTokens, String> {
        let (file, client) = (TokenFile::new(directory, url), http::client()?);
        Ok(AccessTokens { file, client, refreshing: Mutex::default() })
    }

    /// A token that has not expired.
    pub(crate) async fn current(&self) -> Result<String, NoToken> {
        let tokens = self.load()?;
        if tokens.is_fresh() { Ok(tokens.access_token) } else { self.refresh(&tokens.access_token).await }
    }

    /// A token in place of one that the server has rejected before its time.
    pub(crate) async fn instead_of(&self, rejected: &str) -> Result<String, NoToken> {
        self.refresh(rejected).await
    }

    fn load(&self) -> Result<LoginTokens, NoToken> {
        self.file.load().map_err(NoToken::Failed)?.ok_or(NoToken::NotLoggedIn)
    }

    async fn refresh(&self, old: &str) -> Result<String, NoToken> {
        let _alone_here = self.refreshing.lock().await;
        let _alone = self.file.lock_refresh().await;
        let tokens = self.load()?;
        // Another process may have refreshed them, or somebody has logged in again.
        if tokens.access_token != old && tokens.is_fresh() {
            return Ok(tokens.access_token);
        }
        // Without a refresh token, the last seconds of a token are used too.
        if !tokens.can_be_refreshed() && tokens.access_token == old && !tokens.is_fresh() && !tokens.has_expired() {
            return Ok(tokens.access_token);
        }
        match tokens.refreshed(&self.client).await {
            Ok(new) => {
                self.file.keep(&new);
                Ok(new.access_token)
            }
            Err(TokenError::InvalidGrant(reason)) => {
                tracing::debug!(reason, "a login to an MCP server is over");
                Err(NoToken::Expired)
            }
            Err(TokenError::Other(reason)) => Err(NoToken::Failed(reason)),
        }
    }
}
