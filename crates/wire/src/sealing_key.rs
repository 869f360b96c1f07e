//! Keys that seal what leaves the gateway: nobody else can read it, change it or make it.
//!
//! The cipher is AES-256-GCM-SIV (RFC 8452). It is deterministic here: the same content gives the same bytes, so that a
//! repeated request gets the same ids. The nonce is therefore no secret and not unique, which this cipher is made for: who
//! sees two sealed contents learns whether they are equal, and nothing else.

use std::sync::Arc;

use aes_gcm_siv::{AeadInOut, Aes256GcmSiv, KeyInit as _, Nonce, Tag};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::opened_states::OpenedStates;
use crate::seal::Sealer;

/// Of what is sealed. Version 1 was authenticated, but not encrypted.
const VERSION: u8 = 2;
const HEADER_BYTES: usize = 4;
const TAG_BYTES: usize = 16;

/// The secrets of a deployment, which all its replicas share. The first one seals; all of them open, so that secrets can
/// be replaced without losing conversations.
#[derive(Clone)]
pub struct SealingSecrets {
    secrets: Vec<Box<[u8]>>,
    /// What was opened with them.
    states: Arc<OpenedStates>,
}

impl SealingSecrets {
    /// `current` seals. What was sealed with one of `old` can still be opened.
    pub fn new<'a>(current: &'a str, old: impl IntoIterator<Item = &'a str>) -> SealingSecrets {
        let secrets = std::iter::once(current).chain(old).map(|secret| secret.as_bytes().into()).collect();
        SealingSecrets { secrets, states: Arc::default() }
    }

    /// Seals and opens for a tenant. What was sealed for another one, or with none of the secrets, is refused.
    pub fn sealer(&self, tenant: &str) -> Sealer {
        let keys = self.secrets.iter().map(|secret| SealingKey::new(secret, tenant));
        Sealer::with_keys(keys, tenant, Arc::clone(&self.states))
    }

    /// Gives up what was opened with them and is only kept to save time.
    pub fn release_memory(&self) {
        self.states.release();
    }
}

impl std::fmt::Debug for SealingSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealingSecrets({})", self.secrets.len())
    }
}

/// Why something sealed cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum UnsealError {
    /// No key of this tenant has its key id, or another release sealed it.
    #[error("it was sealed with a secret that is not known here, for another client, or by another release")]
    Foreign,
    /// It was cut or changed, or stands where something else was.
    #[error("it was cut or changed since it was sealed")]
    Damaged,
}

/// What is sealed. Something sealed for one purpose cannot be opened for another one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SealPurpose<'a> {
    /// The state of a program, in the id of a tool call.
    CallId,
    /// A text that is stored under this name.
    StoredText { name: &'a str },
}

/// One secret, for one tenant.
pub(crate) struct SealingKey {
    id: [u8; 2],
    cipher: Aes256GcmSiv,
}

impl SealingKey {
    pub(crate) fn new(secret: &[u8], tenant: &str) -> SealingKey {
        let of_tenant = hmac(secret, &[b"dacapo sealing 2\0", tenant.as_bytes()]);
        let [first, second, ..] = hmac(&of_tenant, &[b"key id"]);
        SealingKey { id: [first, second], cipher: Aes256GcmSiv::new(&hmac(&of_tenant, &[b"key"]).into()) }
    }

    /// Version, key id and variant, then the encrypted content and its tag. Each variant gives other bytes for the same
    /// content.
    pub(crate) fn seal(&self, purpose: SealPurpose<'_>, variant: u8, content: &[u8]) -> Vec<u8> {
        let header = [VERSION, self.id[0], self.id[1], variant];
        let mut sealed = Vec::with_capacity(HEADER_BYTES + content.len() + TAG_BYTES);
        sealed.extend_from_slice(&header);
        sealed.extend_from_slice(content);
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce(variant), &associated(header, purpose), (&mut sealed[HEADER_BYTES..]).into())
            .expect("it has less than 64 GiB");
        sealed.extend_from_slice(&tag);
        sealed
    }
}

/// Opens with whichever key has the key id. Key ids are short: several keys may have the same one.
pub(crate) fn open(keys: &[SealingKey], purpose: SealPurpose<'_>, sealed: &[u8]) -> Result<Vec<u8>, UnsealError> {
    let (&header, rest) = sealed.split_first_chunk::<HEADER_BYTES>().ok_or(UnsealError::Damaged)?;
    let (content, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(UnsealError::Damaged)?;
    let [version, id @ .., variant] = header;
    let mut error = UnsealError::Foreign;
    for key in keys.iter().filter(|key| version == VERSION && key.id == id) {
        // The tag is verified before anything of the content is used: a failure leaves it encrypted.
        let mut opened = content.to_vec();
        let associated = associated(header, purpose);
        let is_genuine = key
            .cipher
            .decrypt_inout_detached(&nonce(variant), &associated, opened.as_mut_slice().into(), &Tag::from(*tag))
            .is_ok();
        if is_genuine {
            return Ok(opened);
        }
        error = UnsealError::Damaged;
    }
    Err(error)
}

fn nonce(variant: u8) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[0] = variant;
    nonce
}

/// What is authenticated besides the content.
fn associated(header: [u8; HEADER_BYTES], purpose: SealPurpose<'_>) -> Vec<u8> {
    let (label, name): (&[u8], &str) = match purpose {
        SealPurpose::CallId => (b"call id\0", ""),
        SealPurpose::StoredText { name } => (b"stored text\0", name),
    };
    [&header, label, name.as_bytes()].concat()
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}
