//! What the model wrote, and the world it runs in.

use std::fmt::Write;

use sha2::{Digest, Sha256, Sha512};

use crate::journal::CallIndex;

/// When a program without a start time believes to run: 2026-01-01T00:00:00Z.
const STARTED_AT_DEFAULT_MS: f64 = 1_767_225_600_000.0;

/// The TypeScript or JavaScript that the model wrote, with all that its world depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub code: String,
    pub id: String,
    /// Feeds `Math.random` and `crypto`.
    pub seed: String,
    /// Milliseconds since 1970, where the program's clock starts.
    pub started_at_ms: f64,
}

impl Program {
    /// A program that depends on nothing but its text.
    pub fn new(code: impl Into<String>) -> Program {
        let code = code.into();
        let id = hex(&Sha256::digest(code.as_bytes())[..8]);
        Program { seed: id.clone(), id, code, started_at_ms: STARTED_AT_DEFAULT_MS }
    }

    pub(crate) fn entropy(&self) -> [u8; 40] {
        let digest = Sha512::digest([b"dacapo entropy 1\0", self.seed.as_bytes()].concat());
        std::array::from_fn(|i| digest[i])
    }

    /// Identifies one run of one program.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(b"dacapo program 1\0");
        for part in [&self.code, &self.id, &self.seed] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hash.update(self.started_at_ms.to_le_bytes());
        hash.finalize().into()
    }

    /// Idempotency keys of calls: the same on every replay, on every replica.
    pub(crate) fn keys(&self) -> impl Fn(CallIndex) -> String {
        let run = hex(&self.digest()[..12]);
        move |call| format!("{run}-{}", call.0)
    }
}

/// Functions that the program calls and that neither it nor its world defines; none if it does not parse.
pub fn undefined_functions(program: &Program) -> Vec<String> {
    let calls = dacapo_script::prepare(&program.code).map_or_else(|_| Vec::new(), |script| script.unknown_calls);
    calls.into_iter().map(|call| call.name).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
