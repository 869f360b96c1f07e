//! A program with everything that its run depends on besides tools and answers.

use std::fmt::Write;

use sha2::{Digest, Sha256, Sha512};

use crate::journal::CallIndex;
use crate::toolbox::is_habit;

/// Where the clock of a program without a start time begins: 2026-01-01T00:00:00Z.
const STARTED_AT_DEFAULT_MS: f64 = 1_767_225_600_000.0;

/// The TypeScript or JavaScript that a model wrote, with everything that its run depends on besides tools and answers.
/// Programs with equal fields behave in the same way on every machine.
///
/// ```
/// use dacapo_replay::Program;
/// let mut program = Program::new("return Math.random()");
/// program.seed = "another sequence of random numbers".to_owned();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// What the model wrote: a function body, a `main`, a default export, or any of these in a Markdown code block.
    pub code: String,
    /// Tells runs of the same text apart; part of the idempotency keys of calls.
    pub id: String,
    /// Source of `Math.random` and `crypto`.
    pub seed: String,
    /// Where the program's clock starts, in milliseconds since 1970. It advances only with the program's own timers.
    pub started_at_ms: f64,
}

impl Program {
    /// A program whose id and seed are derived from its text, and whose clock starts at a fixed time.
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

/// Functions that the program calls, and that neither the program nor the sandbox defines; none if the program does not
/// parse.
///
/// ```
/// use dacapo_replay::{Program, undefined_functions};
/// assert_eq!(undefined_functions(&Program::new("return parseInt(await price())")), ["price"]);
/// ```
pub fn undefined_functions(program: &Program) -> Vec<String> {
    let calls = dacapo_script::prepare(&program.code).map_or_else(|_| Vec::new(), |script| script.unknown_calls);
    calls.into_iter().map(|call| call.name).filter(|name| !is_habit(name)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}
