//! Logging in to servers over HTTP: OAuth 2.1, as the authorization chapter of MCP wants it.
//!
//! Start reading at [`Login::start`]: [`metadata`] finds the authorization server of a server, [`registration`] makes us
//! known to it, and a person allows us in a browser. [`token_request`] gets the tokens, [`token_file`] keeps them, and
//! [`access_token`] gives the one to send, refreshed when its time is over.

mod access_token;
mod http;
mod login;
mod metadata;
mod registration;
mod token_file;
mod token_request;

pub(crate) use access_token::{AccessTokens, NoToken};
pub use login::{Login, LoginError};
