//! Signatures and encrypted content, which prove that reasoning in a request came from this model.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::ids::letters;
use crate::script_turn::{ScriptTurn, TurnAnswer};

const BODY_CHARS: usize = 32;
const CHECK_CHARS: usize = 8;

/// The signatures that are valid for one script: those that are derived, and those that it contains.
pub(crate) struct Signatures<'a>(pub(crate) &'a [ScriptTurn]);

impl Signatures<'_> {
    /// Derives a signature from a text. Its last characters are a checksum, which can be checked without the text.
    pub(crate) fn make(text: &str) -> String {
        let body = letters(&Sha256::digest(text), BODY_CHARS);
        let check = letters(&Sha256::digest(&body), CHECK_CHARS);
        format!("{body}{check}")
    }

    pub(crate) fn is_valid(&self, text: &str, signature: &str) -> bool {
        let derived = if text.is_empty() { has_checksum(signature) } else { Signatures::make(text) == signature };
        derived || self.is_in_script(signature)
    }

    fn is_in_script(&self, signature: &str) -> bool {
        self.0.iter().any(|turn| match &turn.answer {
            TurnAnswer::Message(template) => {
                template.signature.as_deref() == Some(signature)
                    || template.native.all().any(|native| has_signature(native, signature))
            }
            _ => false,
        })
    }
}

fn has_checksum(signature: &str) -> bool {
    signature.len() == BODY_CHARS + CHECK_CHARS
        && signature.is_char_boundary(BODY_CHARS)
        && letters(&Sha256::digest(&signature[..BODY_CHARS]), CHECK_CHARS) == signature[BODY_CHARS..]
}

fn has_signature(native: &Value, signature: &str) -> bool {
    ["signature", "data", "encrypted_content"]
        .iter()
        .any(|name| native.get(name).and_then(Value::as_str) == Some(signature))
}
