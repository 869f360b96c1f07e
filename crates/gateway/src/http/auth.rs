//! Authentication and rate limits of clients.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::errors::TurnError;

/// A client with a key. Its name is the tenant that its conversations are bound to.
#[derive(Debug)]
pub(crate) struct ApiClient {
    pub name: String,
    /// Any of them lets it in, so that a key can be replaced while the old one is still in use.
    keys_sha256: Vec<[u8; 32]>,
    pub requests_per_minute: Option<u32>,
    /// MCP servers that it may use; all if absent.
    pub servers: Option<Vec<String>>,
    bucket: Mutex<RateBucket>,
}

/// Requests that may be made at once; it fills up again over a minute.
#[derive(Debug)]
struct RateBucket {
    left: f64,
    at: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct ApiClients(Vec<ApiClient>);

impl ApiClient {
    /// `None` if a key is not a digest in hex.
    pub(crate) fn new(name: &str, keys_sha256: &[String], requests_per_minute: Option<u32>) -> Option<ApiClient> {
        let keys_sha256: Option<Vec<[u8; 32]>> = keys_sha256.iter().map(|key| unhex(key)).collect();
        let left = f64::from(requests_per_minute.unwrap_or_default());
        let bucket = Mutex::new(RateBucket { left, at: None });
        let name = name.to_owned();
        Some(ApiClient { name, keys_sha256: keys_sha256?, requests_per_minute, servers: None, bucket })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8; 32]> {
        self.keys_sha256.iter()
    }

    pub(crate) fn shares_a_key(&self, other: &ApiClient) -> bool {
        self.keys().any(|key| other.keys_sha256.contains(key))
    }

    /// Seconds to wait, if this is one request too many.
    fn admit(&self, now: Instant) -> Result<(), u64> {
        let Some(rate) = self.requests_per_minute.map(f64::from) else { return Ok(()) };
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = bucket.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        bucket.left = (bucket.left + passed * rate / 60.0).min(rate);
        bucket.at = Some(now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let seconds = (1.0 - bucket.left) * 60.0 / rate.max(f64::MIN_POSITIVE);
        Err(std::time::Duration::try_from_secs_f64(seconds.ceil()).map_or(3_600, |wait| wait.as_secs().clamp(1, 3_600)))
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

    /// The tenant of a request. Without configured clients, everybody is let in as one tenant.
    pub(crate) fn admit(&self, headers: &HeaderMap, now: Instant) -> Result<&str, TurnError> {
        if self.is_empty() {
            return Ok("");
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
        let client = known.ok_or_else(|| refused("the key is not known"))?;
        client.admit(now).map_err(|seconds| TurnError::Refused {
            status: StatusCode::TOO_MANY_REQUESTS,
            kind: "rate_limit_error",
            message: format!(
                "more than {} requests a minute; wait {seconds} s",
                client.requests_per_minute.unwrap_or_default()
            ),
            retry_after_s: Some(seconds),
        })?;
        Ok(&client.name)
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

/// How a key stands in the configuration.
pub fn key_sha256(key: &str) -> String {
    hex(&Sha256::digest(key.trim().as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let pair = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    bytes.iter().flat_map(pair).map(char::from).collect()
}
