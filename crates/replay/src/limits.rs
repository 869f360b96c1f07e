//! What a program may use.

use std::fmt;

/// The resources that a program can use up, by name. A program that exceeds one ends with
/// [`ErrorKind::Limit`](crate::ErrorKind::Limit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Instructions that the program may execute, from its start on.
    Fuel,
    /// Memory of the engine with all of the program's data.
    MemoryBytes,
    /// Stack of the engine: how deep the program may recurse.
    StackBytes,
    /// Source text of the program.
    ProgramBytes,
    /// All answers in the journal.
    JournalBytes,
    /// Arguments of one call, as JSON.
    ArgsBytes,
    /// The result, as JSON.
    OutputBytes,
    /// All lines that the program logs.
    LogBytes,
    /// Calls that the program makes, from its start on.
    Calls,
    /// Calls that wait for an answer at the same time.
    CallsPerRound,
    /// What this and earlier programs keep for later ones, names included.
    StoredBytes,
}

/// What is known about one limit.
struct Terms {
    name: &'static str,
    default: u64,
    least: u64,
    cap: u64,
    /// What a model can do about a program that exceeded it.
    advice: &'static str,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Limit {
    /// All limits, in the order of [`Limits`]' values.
    pub const ALL: [Limit; 11] = [
        Limit::Fuel,
        Limit::MemoryBytes,
        Limit::StackBytes,
        Limit::ProgramBytes,
        Limit::JournalBytes,
        Limit::ArgsBytes,
        Limit::OutputBytes,
        Limit::LogBytes,
        Limit::Calls,
        Limit::CallsPerRound,
        Limit::StoredBytes,
    ];

    /// Its name in JSON and on the command line, such as `memory_bytes`.
    pub fn name(self) -> &'static str {
        self.terms().name
    }

    /// What to change in a program that exceeded the limit; part of the error message.
    pub fn advice(self) -> &'static str {
        self.terms().advice
    }

    /// The least and the greatest value that may be asked for.
    pub fn range(self) -> std::ops::RangeInclusive<u64> {
        let terms = self.terms();
        terms.least..=terms.cap
    }

    fn terms(self) -> Terms {
        let (name, default, least, cap, advice) = match self {
            Limit::Fuel => (
                "fuel",
                2_000_000_000,
                1,
                1_000_000_000_000,
                "do less work in one program, or look for an endless loop",
            ),
            Limit::MemoryBytes => ("memory_bytes", 64 * MIB, 4 * MIB, 256 * MIB, "keep less data at a time"),
            Limit::StackBytes => ("stack_bytes", 256 * KIB, 16 * KIB, 768 * KIB, "recurse less deeply, or use a loop"),
            Limit::ProgramBytes => {
                ("program_bytes", 256 * KIB, 1, 8 * MIB, "send a shorter program; data belongs in tools' answers")
            }
            Limit::JournalBytes => (
                "journal_bytes",
                64 * MIB,
                1,
                1024 * MIB,
                "ask tools for less, or split the work into several programs",
            ),
            Limit::ArgsBytes => ("args_bytes", MIB, 1, 64 * MIB, "pass less to one call"),
            Limit::OutputBytes => {
                ("output_bytes", MIB, 1, 64 * MIB, "return less: filter, summarise or count inside the program")
            }
            Limit::LogBytes => ("log_bytes", MIB, 1, 64 * MIB, "log less"),
            Limit::Calls => ("calls", 10_000, 1, 1_000_000, "batch the work, or split it into several programs"),
            Limit::CallsPerRound => {
                ("calls_per_round", 1_000, 1, 100_000, "await some of the calls before making more")
            }
            Limit::StoredBytes => {
                ("stored_bytes", MIB, 1, 64 * MIB, "store less, or remove what is not needed: store(name, undefined)")
            }
        };
        Terms { name, default, least, cap, advice }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value for every [`Limit`], each within its range.
///
/// ```
/// use dacapo_replay::{Limit, Limits};
/// let mut limits = Limits::default();
/// limits.set(Limit::Calls, 20).unwrap();
/// assert_eq!(limits.get(Limit::Calls), 20);
/// assert_eq!(limits.set(Limit::Calls, 0), Err(1..=1_000_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits([u64; Limit::ALL.len()]);

impl Default for Limits {
    fn default() -> Limits {
        Limits(Limit::ALL.map(|limit| limit.terms().default))
    }
}

impl Limits {
    /// The value of one limit.
    pub fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    /// Changes one limit; `Err` with the range of possible values if this one is outside of it.
    pub fn set(&mut self, limit: Limit, value: u64) -> Result<(), std::ops::RangeInclusive<u64>> {
        let range = limit.range();
        if !range.contains(&value) {
            return Err(range);
        }
        self.0[limit as usize] = value;
        Ok(())
    }

    pub(crate) fn values(&self) -> &[u64] {
        &self.0
    }
}
