//! Reasoning of a model on one wire, carried by a client on another: in the field that its wire keeps opaque.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

const PREFIX: &str = "dcr1_";

/// Text that brings reasoning back as it was. What is in it is the provider's to check.
pub(crate) fn wrap(opaque: &Map<String, Value>) -> String {
    let json = serde_json::to_vec(opaque).unwrap_or_default();
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
}

/// `None` for anything that [`wrap`] did not make.
pub(crate) fn unwrap(text: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
    serde_json::from_slice(&bytes).ok()
}
