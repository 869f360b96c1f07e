//! Ids of runs, and of the calls that the model sees.

use std::fmt;

use dacapo_replay::CompletedCall;
use sha2::{Digest, Sha256};

/// Digits of ids that contain only letters and digits, which every provider accepts.
pub const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Identifies one run of one program: a hash of the run's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; RunId::CHARS]);

impl RunId {
    pub(crate) const CHARS: usize = 12;

    pub(crate) fn of(state: &[u8]) -> RunId {
        RunId(alphanumerics(Sha256::new_with_prefix(b"dacapo run 1\0").chain_update(state)))
    }

    pub(crate) fn parse(text: &str) -> Option<RunId> {
        let id: [u8; RunId::CHARS] = text.as_bytes().try_into().ok()?;
        id.iter().all(u8::is_ascii_alphanumeric).then_some(RunId(id))
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of alphanumerics")
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Stands for the record of completed calls that a program was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordId([u8; RunId::CHARS]);

impl RecordId {
    /// `None` for an empty record.
    pub fn of(record: &[CompletedCall]) -> Option<RecordId> {
        let mut hash = Sha256::new_with_prefix(b"dacapo record 1\0");
        for call in record {
            call.absorb_into(&mut hash);
        }
        (!record.is_empty()).then(|| RecordId(alphanumerics(hash)))
    }

    pub(crate) fn parse(text: &str) -> Option<RecordId> {
        RunId::parse(text).map(|RunId(id)| RecordId(id))
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RunId(self.0).as_str())
    }
}

/// The id of a call as the model sees it. Nine alphanumerics are accepted by every provider. It depends on the call and
/// on the number of calls before it, so that a history that is rebuilt later has the same ids.
pub(crate) fn short_id(name: &str, arguments: &str, position: usize) -> String {
    let hash = Sha256::new_with_prefix(b"dacapo call 1\0")
        .chain_update((position as u64).to_le_bytes())
        .chain_update(name.as_bytes())
        .chain_update([0])
        .chain_update(arguments.as_bytes());
    let id: [u8; 9] = alphanumerics(hash);
    id.iter().map(|byte| char::from(*byte)).collect()
}

fn alphanumerics<const N: usize>(hash: Sha256) -> [u8; N] {
    let digest = hash.finalize();
    let mut number = u128::from_le_bytes(std::array::from_fn(|i| digest[i]));
    std::array::from_fn(|_| {
        let digit = (number % 62) as usize;
        number /= 62;
        BASE62[digit]
    })
}
