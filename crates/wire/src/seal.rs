//! Tool-call ids that carry a program's state. A MAC proves that the gateway made them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{ArgsDigest, CallIndex};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::ids::RunId;
use crate::state::{CallRef, RunState};

const PREFIX: &str = "dc1_";
const VERSION: u8 = 1;
const MAC_BYTES: usize = 16;
/// Decompressed. There is room for the largest program that the step function accepts, and for its reasoning.
const STATE_BYTES_MAX: usize = 1 << 20;
const CALLS_MAX: usize = 100_000;
/// Ids of this length or longer carry a state; shorter ones are siblings.
const SIBLING_CHARS_MAX: usize = 40;
/// Part of the format: a new dictionary needs a new version.
const DICTIONARY: &[u8] = include_bytes!("dictionary_1.txt");
/// `litellm` splits ids at this text.
const RESERVED: &str = "__thought__";

/// Makes and opens ids with one secret, for one tenant.
#[derive(Clone)]
pub struct Sealer {
    mac: Hmac<Sha256>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

/// The content of an id that the gateway made.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsealed {
    /// The first call of a round. `answered` is the fingerprint of the journal before the round.
    Round { state: Box<RunState>, run: RunId, round: u32, answered: [u8; 8], calls: Vec<CallRef> },
    /// Another call of the same round. It has no MAC, so it counts only beside the first one.
    Sibling { run: RunId, round: u32, call: CallIndex },
}

impl Sealer {
    /// Ids of another secret or tenant are refused.
    pub fn new(secret: &[u8], tenant: &str) -> Sealer {
        let mut key = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("any length is a key");
        key.update(b"dacapo sealed ids 1\0");
        key.update(tenant.as_bytes());
        let key = key.finalize().into_bytes();
        Sealer { mac: <Hmac<Sha256> as KeyInit>::new_from_slice(&key).expect("any length is a key") }
    }

    /// Whether an id has the prefix of the gateway's ids. Only [`Sealer::unseal`] tells whether it is genuine.
    pub fn is_own_id(id: &str) -> bool {
        id.starts_with(PREFIX)
    }

    /// Whether it has the form of an id that carries a state.
    pub(crate) fn is_sealed(id: &str) -> bool {
        Sealer::is_own_id(id) && id.len() >= SIBLING_CHARS_MAX
    }

    /// Run and round of a short id.
    pub(crate) fn run_and_round(id: &str) -> Option<(RunId, u32)> {
        match sibling(id.strip_prefix(PREFIX).filter(|_| id.len() < SIBLING_CHARS_MAX)?)? {
            Unsealed::Sibling { run, round, .. } => Some((run, round)),
            Unsealed::Round { .. } => None,
        }
    }

    /// The ids of a round's calls, in order; a pure function of its arguments. `answered` is the fingerprint of the
    /// journal before the round.
    pub fn seal(&self, state: &RunState, round: u32, answered: [u8; 8], calls: &[CallRef]) -> Vec<String> {
        let bytes = state.to_bytes();
        let run = RunId::of(&bytes);
        let compressed = deflate(&bytes);
        let mut first = self.payload(0, round, answered, calls, &compressed);
        for mask in 1..=u8::MAX {
            if !first.contains(RESERVED) {
                break;
            }
            first = self.payload(mask, round, answered, calls, &compressed);
        }
        let siblings = calls.iter().skip(1).map(|call| sibling_id(run, round, call.call));
        std::iter::once(first).chain(siblings).collect()
    }

    /// Short ids for all calls, for a state that a store keeps under its run and round.
    pub fn short(run: RunId, round: u32, calls: &[CallRef]) -> Vec<String> {
        calls.iter().map(|call| sibling_id(run, round, call.call)).collect()
    }

    /// The mask changes every byte of the state. If the text contains [`RESERVED`], another mask avoids it.
    fn payload(&self, mask: u8, round: u32, answered: [u8; 8], calls: &[CallRef], compressed: &[u8]) -> String {
        let mut payload = vec![VERSION, mask];
        put(&mut payload, round);
        payload.extend_from_slice(&answered);
        put(&mut payload, calls.len() as u32);
        let mut next = 0;
        for call in calls {
            // Indexes rise, most of them by one, so the difference takes one byte.
            put(&mut payload, call.call.0.wrapping_sub(next));
            next = call.call.0 + 1;
            payload.extend_from_slice(&call.args.0);
        }
        payload.extend(compressed.iter().map(|byte| byte ^ mask));
        let mac = self.mac(&payload).finalize().into_bytes();
        payload.extend_from_slice(&mac[..MAC_BYTES]);
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(payload))
    }

    /// `None` for anything that no server with this secret and tenant made.
    pub fn unseal(&self, id: &str) -> Option<Unsealed> {
        let text = id.strip_prefix(PREFIX)?;
        if id.len() < SIBLING_CHARS_MAX {
            return sibling(text);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (payload, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        self.mac(payload).verify_truncated_left(mac).ok()?;
        let (&[version, mask], mut rest) = payload.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let round = take(&mut rest)?;
        let (&answered, after) = rest.split_first_chunk()?;
        rest = after;
        let count = take(&mut rest)? as usize;
        if count > CALLS_MAX {
            return None;
        }
        let mut calls = Vec::new();
        let mut next = 0_u32;
        for _ in 0..count {
            let call = next.checked_add(take(&mut rest)?)?;
            next = call.checked_add(1)?;
            let (args, after) = rest.split_first_chunk()?;
            rest = after;
            calls.push(CallRef { call: CallIndex(call), args: ArgsDigest(*args) });
        }
        let compressed: Vec<u8> = rest.iter().map(|byte| byte ^ mask).collect();
        let state = inflate(&compressed)?;
        let run = RunId::of(&state);
        Some(Unsealed::Round { state: Box::new(RunState::from_bytes(&state)?), run, round, answered, calls })
    }

    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        self.mac.clone().chain_update(payload)
    }
}

fn sibling_id(run: RunId, round: u32, call: CallIndex) -> String {
    format!("{PREFIX}{run}_{round}_{}", call.0)
}

fn sibling(text: &str) -> Option<Unsealed> {
    let (run, numbers) = text.split_at_checked(RunId::CHARS)?;
    let (round, call) = numbers.strip_prefix('_')?.split_once('_')?;
    let number = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
    Some(Unsealed::Sibling { run: RunId::parse(run)?, round: number(round)?, call: CallIndex(number(call)?) })
}

/// A hash of the tool list, by which a state knows the tools that its program was written for.
pub(crate) fn tools_digest(tools: &str) -> [u8; 8] {
    let digest = Sha256::digest(tools.as_bytes());
    std::array::from_fn(|i| digest[i])
}

/// Writes a number with seven bits per byte, least significant first. A set top bit says that more bytes follow.
fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put`] wrote.
fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(number).ok();
        }
    }
    None
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    compress.set_dictionary(DICTIONARY).expect("nothing was compressed before");
    // Enough for bytes that do not compress at all.
    let mut compressed = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 64);
    loop {
        let read = compress.total_in() as usize;
        let status = compress.compress_vec(&bytes[read..], &mut compressed, FlushCompress::Finish);
        match status.expect("the stream is in order") {
            Status::StreamEnd => return compressed,
            Status::Ok | Status::BufError => compressed.reserve(compressed.capacity().max(64)),
        }
    }
}

fn inflate(compressed: &[u8]) -> Option<Vec<u8>> {
    let mut decompress = Decompress::new(false);
    decompress.set_dictionary(DICTIONARY).ok()?;
    let mut bytes = Vec::with_capacity((compressed.len() * 4).clamp(64, STATE_BYTES_MAX));
    loop {
        let read = decompress.total_in() as usize;
        match decompress.decompress_vec(&compressed[read..], &mut bytes, FlushDecompress::Finish).ok()? {
            Status::StreamEnd => return (decompress.total_in() as usize == compressed.len()).then_some(bytes),
            Status::Ok | Status::BufError if bytes.len() < bytes.capacity() => return None,
            Status::Ok | Status::BufError if bytes.capacity() >= STATE_BYTES_MAX => return None,
            Status::Ok | Status::BufError => bytes.reserve(bytes.capacity().min(STATE_BYTES_MAX - bytes.len())),
        }
    }
}
