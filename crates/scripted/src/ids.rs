//! Identifiers that are derived from the request, so that the same request gets the same bytes.

use dacapo_wire::{BASE62, Wire};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Derives the identifiers of a reply.
pub(crate) struct IdGenerator {
    request: [u8; 32],
}

impl IdGenerator {
    pub(crate) fn of(request: &Value) -> IdGenerator {
        IdGenerator { request: Sha256::digest(request.to_string()).into() }
    }

    pub(crate) fn request(&self) -> String {
        format!("req_{}", self.letters("request", 24))
    }

    /// The id of the whole response.
    pub(crate) fn response(&self, wire: Wire) -> String {
        let (prefix, length) = match wire {
            Wire::Chat => ("chatcmpl-", 29),
            Wire::Responses => ("resp_", 32),
            Wire::Messages => ("msg_", 24),
        };
        format!("{prefix}{}", self.letters("completion", length))
    }

    pub(crate) fn call(&self, wire: Wire, number: usize) -> String {
        let prefix = match wire {
            Wire::Chat | Wire::Responses => "call_",
            Wire::Messages => "toolu_",
        };
        format!("{prefix}{}", self.letters(&format!("call {number}"), 24))
    }

    /// The id of an output item, such as `fc_…`.
    pub(crate) fn item(&self, prefix: &str, number: usize) -> String {
        format!("{prefix}_{}", self.letters(&format!("item {number}"), 32))
    }

    fn letters(&self, what: &str, length: usize) -> String {
        letters(&Sha256::new().chain_update(self.request).chain_update(what).finalize(), length)
    }
}

/// A base-62 digit for each byte of the digest, up to `length`.
pub(crate) fn letters(digest: &[u8], length: usize) -> String {
    let letter = |byte: &u8| char::from(BASE62[usize::from(*byte) % BASE62.len()]);
    digest.iter().take(length).map(letter).collect()
}
