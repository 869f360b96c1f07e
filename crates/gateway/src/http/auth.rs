//! Clients with keys: who they are, and what they may ask for.

use axum::http::{HeaderMap, StatusCode, header};
use dacapo_replay::{Limits, matches_pattern};
use dacapo_wire::CodeMode;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::errors::TurnError;
use crate::rate_limit::RateLimit;

/// A client with a key. Its name is the tenant that its conversations are bound to.
#[derive(Debug)]
pub(crate) struct ApiClient {
    pub name: String,
    /// Any of them lets it in, so that a key can be replaced while the old one is still in use.
    keys_sha256: Vec<[u8; 32]>,
    pub rate: Option<RateLimit>,
    pub rules: ClientRules,
    /// MCP servers that it may use; all if absent.
    pub servers: Option<Vec<String>>,
}

/// What a client may ask for, and what holds for it instead of what holds for others.
#[derive(Debug, Default)]
pub(crate) struct ClientRules {
    /// Patterns of the models that it may ask for; empty: all.
    pub models: Vec<String>,
    pub mode: Option<CodeMode>,
    pub turns_max: Option<usize>,
    /// Of its programs.
    pub limits: Option<Limits>,
}

#[derive(Debug, Default)]
pub(crate) struct ApiClients(Vec<ApiClient>);

impl ApiClient {
    /// `None` if a key is not a digest in hex.
    pub(crate) fn new(
        name: &str,
        keys_sha256: &[String],
        requests_per_minute: Option<u32>,
        rules: ClientRules,
    ) -> Option<ApiClient> {
        let keys_sha256: Option<Vec<[u8; 32]>> = keys_sha256.iter().map(|key| unhex(key)).collect();
        let rate = requests_per_minute.map(RateLimit::new);
        Some(ApiClient { name: name.to_owned(), keys_sha256: keys_sha256?, rate, rules, servers: None })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.keys_sha256.iter()
    }

    pub(crate) fn shares_a_key(&self, other: &ApiClient) -> bool {
        self.keys().any(|key| other.keys_sha256.contains(key))
    }
}

impl ClientRules {
    pub(crate) fn may_ask_for(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|pattern| matches_pattern(pattern, model))
    }

    /// Refuses a model that the client may not ask for. `None`: it is not known which one is asked for.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), TurnError> {
        if model.map_or(self.models.is_empty(), |model| self.may_ask_for(model)) {
            return Ok(());
        }
        let asked = model.map_or_else(|| "a request that names no model".to_owned(), |model| format!("`{model}`"));
        let message = format!("{asked} is not for this key; its models are {}", self.models.join(", "));
        Err(TurnError::refused(StatusCode::FORBIDDEN, "permission_error", message))
    }
}

impl ApiClients {
    pub(crate) fn new(clients: Vec<ApiClient>) -> ApiClients {
        ApiClients(clients)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = &ApiClient> {
        self.0.iter()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = ApiClient> {
        self.0.into_iter()
    }

    /// What holds for the client of this name.
    pub(crate) fn rules(&self, name: &str) -> &ClientRules {
        static ALL_IS_ALLOWED: ClientRules =
            ClientRules { models: Vec::new(), mode: None, turns_max: None, limits: None };
        self.0.iter().find(|client| client.name == name).map_or(&ALL_IS_ALLOWED, |client| &client.rules)
    }

    /// The client of a request. `None` without configured clients: everybody is let in as one tenant.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<Option<&ApiClient>, TurnError> {
        if self.is_empty() {
            return Ok(None);
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|text| text.strip_prefix("Bearer ").or_else(|| text.strip_prefix("bearer ")));
        let key = bearer.or_else(|| headers.get("x-api-key").and_then(|value| value.to_str().ok()));
        let Some(key) = key else {
            return Err(refused("no key was given; send `Authorization: Bearer <key>`"));
        };
        let digest: [u8; 32] = Sha256::digest(key.trim().as_bytes()).into();
        // All are compared, in constant time each.
        let keys = self.0.iter().flat_map(|client| client.keys().map(move |key| (client, key)));
        let known = keys.fold(None, |known, (client, key)| if same(key, &digest) { Some(client) } else { known });
        known.map(Some).ok_or_else(|| refused("the key is not known"))
    }
}

fn refused(message: &str) -> TurnError {
    TurnError::refused(StatusCode::UNAUTHORIZED, "authentication_error", message)
}

/// In constant time: MACs are compared instead of the digests themselves.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let mac = |message: &[u8]| Hmac::<Sha256>::new_from_slice(a).expect("any length is a key").chain_update(message);
    mac(b).verify(&mac(a).finalize().into_bytes()).is_ok()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> =
        text.trim().chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let bytes: Vec<u8> = digits?.chunks(2).map(|pair| pair[0] << 4 | pair.get(1).copied().unwrap_or(0)).collect();
    (text.trim().len() == 64).then(|| bytes.try_into().ok()).flatten()
}

/// 32 random bytes of the operating system, in hex.
pub fn random_hex() -> String {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system has randomness");
    hex(&bytes)
}

/// How a key stands in the configuration: `dacapo key` prints it.
///
/// ```
/// let written = dacapo_gateway::key_sha256("sk-of-ann");
/// assert_eq!(written.len(), 64);
/// assert_eq!(written, dacapo_gateway::key_sha256(" sk-of-ann\n"), "white space around a key does not count");
/// ```
pub fn key_sha256(key: &str) -> String {
    hex(&Sha256::digest(key.trim().as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let pair = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    bytes.iter().flat_map(pair).map(char::from).collect()
}
