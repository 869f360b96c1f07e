//! Identifiers that depend on nothing but the request.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The source of a reply's identifiers.
pub(super) struct Ids {
    request: [u8; 32],
}

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Ids {
    pub(super) fn of(request: &Value) -> Ids {
        Ids { request: Sha256::digest(request.to_string()).into() }
    }

    pub(super) fn request(&self) -> String {
        format!("req_{}", self.letters("request", 24))
    }

    pub(super) fn completion(&self) -> String {
        format!("chatcmpl-{}", self.letters("completion", 29))
    }

    pub(super) fn call(&self, number: usize) -> String {
        format!("call_{}", self.letters(&format!("call {number}"), 24))
    }

    fn letters(&self, what: &str, length: usize) -> String {
        let digest = Sha256::new().chain_update(self.request).chain_update(what).finalize();
        let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
        digest.iter().take(length).map(letter).collect()
    }
}
