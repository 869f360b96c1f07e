//! Identifiers that depend on nothing but the request.

use dacapo_wire::{BASE62, Wire};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The source of a reply's identifiers.
pub(super) struct Ids {
    request: [u8; 32],
}

impl Ids {
    pub(super) fn of(request: &Value) -> Ids {
        Ids { request: Sha256::digest(request.to_string()).into() }
    }

    pub(super) fn request(&self) -> String {
        format!("req_{}", self.letters("request", 24))
    }

    /// The answer as a whole.
    pub(super) fn answer(&self, wire: Wire) -> String {
        let (prefix, length) = match wire {
            Wire::Chat => ("chatcmpl-", 29),
            Wire::Responses => ("resp_", 32),
            Wire::Messages => ("msg_", 24),
        };
        format!("{prefix}{}", self.letters("completion", length))
    }

    pub(super) fn call(&self, wire: Wire, number: usize) -> String {
        let prefix = match wire {
            Wire::Chat | Wire::Responses => "call_",
            Wire::Messages => "toolu_",
        };
        format!("{prefix}{}", self.letters(&format!("call {number}"), 24))
    }

    /// A part of the answer that has an id of its own, such as `fc_…`.
    pub(super) fn item(&self, prefix: &str, number: usize) -> String {
        format!("{prefix}_{}", self.letters(&format!("item {number}"), 32))
    }

    fn letters(&self, what: &str, length: usize) -> String {
        letters(&Sha256::new().chain_update(self.request).chain_update(what).finalize(), length)
    }
}

/// At most as many as the digest has bytes.
pub(super) fn letters(digest: &[u8], length: usize) -> String {
    let letter = |byte: &u8| char::from(BASE62[usize::from(*byte) % BASE62.len()]);
    digest.iter().take(length).map(letter).collect()
}
