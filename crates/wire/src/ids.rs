//! Ids of runs, and of the calls that the model sees.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{Call, CallIndex, Catalog, CompletedCall};
use sha2::{Digest, Sha256};

use crate::call_digests::CallDigests;
use crate::seal::RoundHeader;
use crate::state::RunState;

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

    /// Twelve letters and digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made of alphanumerics")
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The record of completed calls that a program was given, in short: enough to tell whether a history still has it, and
/// to know of its writes if not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenRecord {
    id: [u8; RunId::CHARS],
    /// Its calls that may have changed something.
    pub writes: CallDigests,
}

impl GivenRecord {
    /// `None` for an empty record.
    pub fn of(record: &[CompletedCall], catalog: &Catalog) -> Option<GivenRecord> {
        Some(GivenRecord { id: record_id(record)?, writes: CallDigests::of(record, catalog) })
    }

    /// Whether it is this record.
    pub fn is(&self, record: &[CompletedCall]) -> bool {
        record_id(record) == Some(self.id)
    }

    pub(crate) fn parse(text: &str) -> Option<GivenRecord> {
        let (id, writes) = text.split_at_checked(RunId::CHARS)?;
        let RunId(id) = RunId::parse(id)?;
        Some(GivenRecord { id, writes: CallDigests::from_text(writes)? })
    }
}

impl fmt::Display for GivenRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", RunId(self.id), self.writes.to_text())
    }
}

fn record_id(record: &[CompletedCall]) -> Option<[u8; RunId::CHARS]> {
    let mut hash = Sha256::new_with_prefix(b"dacapo record 1\0");
    for call in record {
        call.absorb_into(&mut hash);
    }
    (!record.is_empty()).then(|| alphanumerics(hash))
}

/// The id of a call that does not carry the state of its program: an entry of the client's history does. The first call
/// of a round has what a sealed id has of the round, because the client may cut all else out of its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsealedCallId {
    pub run: RunId,
    pub call: CallIndex,
    pub round: u32,
    pub carried: Option<CarriedRound>,
}

/// What the id of a round's first call carries of the round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CarriedRound {
    /// Fingerprint of the journal before the round.
    pub answered: [u8; 8],
    /// The program's calls before the round.
    pub before: CallDigests,
    /// The calls of earlier programs that it was given.
    pub given: CallDigests,
}

impl UnsealedCallId {
    /// The ids of a round's calls.
    pub(crate) fn of(state: &RunState, round: &RoundHeader, calls: &[Call]) -> Vec<String> {
        let run = state.run();
        let carried = CarriedRound::of(state, round);
        let is_first = round.number == 0 && carried.given == CallDigests::default() && round.owned.is_empty();
        let mut carried = (!is_first).then_some(carried);
        let id = |call: &Call| UnsealedCallId { run, call: call.call, round: round.number, carried: carried.take() };
        calls.iter().map(id).map(|id| id.to_string()).collect()
    }

    pub(crate) fn parse(id: &str) -> Option<UnsealedCallId> {
        let (run, rest) = id.strip_prefix("call_")?.split_at_checked(RunId::CHARS)?;
        let mut numbers = rest.strip_prefix('_')?.splitn(3, '_');
        let (round, call) = (numbers.next()?.parse().ok()?, CallIndex(numbers.next()?.parse().ok()?));
        let carried = match numbers.next() {
            Some(carried) => Some(CarriedRound::parse(carried)?),
            None => None,
        };
        Some(UnsealedCallId { run: RunId::parse(run)?, call, round, carried })
    }
}

impl fmt::Display for UnsealedCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnsealedCallId { run, call: CallIndex(call), round, carried } = self;
        write!(f, "call_{run}_{round}_{call}")?;
        let Some(CarriedRound { answered, before, given }) = carried else { return Ok(()) };
        let mut bytes = answered.to_vec();
        before.put_into(&mut bytes);
        given.put_into(&mut bytes);
        write!(f, "_{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl CarriedRound {
    pub(crate) fn of(state: &RunState, round: &RoundHeader) -> CarriedRound {
        let given = state.record.as_ref().map_or_else(CallDigests::default, |record| record.writes.clone());
        CarriedRound { answered: round.answered, before: round.before.clone(), given }
    }

    fn parse(text: &str) -> Option<CarriedRound> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (&answered, mut rest) = bytes.split_first_chunk()?;
        let (before, given) = (CallDigests::take_from(&mut rest)?, CallDigests::take_from(&mut rest)?);
        rest.is_empty().then_some(CarriedRound { answered, before, given })
    }

    /// The calls that are not in `record`.
    pub(crate) fn missing_in(&self, record: &[CompletedCall]) -> Vec<CompletedCall> {
        let mut missing = self.given.missing_in(record);
        missing.extend(self.before.missing_in(record));
        missing
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
