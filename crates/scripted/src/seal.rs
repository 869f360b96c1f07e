//! What shows that reasoning which comes back is this model's own: signatures and encrypted content.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::ids::letters;
use super::turn::{Answer, Turn};

const BODY_CHARS: usize = 32;
const CHECK_CHARS: usize = 8;

/// The seals of one script: those that it makes, and those that it names.
pub(super) struct Seals<'a>(pub(super) &'a [Turn]);

impl Seals<'_> {
    /// The part after the text's makes it possible to tell a seal where the text was left out.
    pub(super) fn make(text: &str) -> String {
        let body = letters(&Sha256::digest(text), BODY_CHARS);
        let check = letters(&Sha256::digest(&body), CHECK_CHARS);
        format!("{body}{check}")
    }

    pub(super) fn fits(&self, text: &str, seal: &str) -> bool {
        let made = if text.is_empty() { is_made(seal) } else { Seals::make(text) == seal };
        made || self.names(seal)
    }

    fn names(&self, seal: &str) -> bool {
        self.0.iter().any(|turn| match &turn.answer {
            Answer::Message(draft) => {
                draft.signature.as_deref() == Some(seal) || draft.native.all().any(|native| holds(native, seal))
            }
            _ => false,
        })
    }
}

fn is_made(seal: &str) -> bool {
    seal.len() == BODY_CHARS + CHECK_CHARS
        && seal.is_char_boundary(BODY_CHARS)
        && letters(&Sha256::digest(&seal[..BODY_CHARS]), CHECK_CHARS) == seal[BODY_CHARS..]
}

fn holds(native: &Value, seal: &str) -> bool {
    ["signature", "data", "encrypted_content"].iter().any(|name| native.get(name).and_then(Value::as_str) == Some(seal))
}
