//! Tool-call ids that carry a program's state. They are encrypted and authenticated: only the gateway can read or make them.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{ArgsDigest, CallIndex};

use crate::call_digests::CallDigests;
use crate::compression::{deflate, inflate};
use crate::ids::RunId;
use crate::opened_states::OpenedStates;
use crate::owned_answers::OwnedAnswers;
use crate::sealing_key::{self, SealPurpose, SealingKey, UnsealError};
use crate::state::{CallRef, RunState};
use crate::wire::ClientSide;

const PREFIX: &str = "dc1_";
/// What ids of providers begin with. Some clients replace ids that do not, so short ids may begin with it as well.
const PROVIDER_PREFIXES: [&str; 2] = ["call_", "toolu_"];
const CALLS_MAX: usize = 100_000;
/// Stands in the place of the number of calls, and says that answers of the gateway's own calls come before it.
const OWNED_ANSWERS: u32 = u32::MAX;
/// Ids of this length or longer carry a state; shorter ones are siblings.
const SIBLING_CHARS_MAX: usize = 40;
/// `litellm` splits ids at this text.
const RESERVED: &str = "__thought__";

/// Makes and opens ids and stored texts, for one tenant.
///
/// ```
/// use dacapo_replay::{ArgsDigest, CallIndex};
/// use dacapo_wire::{CallRef, ModelCall, ModelMessage, RoundHeader, RunState, Sealer, Unsealed};
///
/// let code = "return await get_order({id: 7})";
/// let message = ModelMessage { calls: vec![ModelCall::default()], ..ModelMessage::default() };
/// let state = RunState { code: code.to_owned(), model_messages: vec![message], ..RunState::default() };
/// let call = CallRef { call: CallIndex(0), args: ArgsDigest([0; 4]) };
/// let ids = Sealer::new(b"a secret of some length", "acme").seal(&state, &RoundHeader::default(), &[call]);
/// let opened = Sealer::new(b"a secret of some length", "acme").unseal(&ids[0]);
/// assert!(matches!(opened, Ok(Unsealed::Round { state, .. }) if state.code == code));
/// assert!(Sealer::new(b"a secret of some length", "another tenant").unseal(&ids[0]).is_err());
/// ```
#[derive(Clone)]
pub struct Sealer {
    /// The first one seals; all of them open.
    keys: Arc<[SealingKey]>,
    tenant: Arc<str>,
    states: Arc<OpenedStates>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

/// The content of an id that the gateway made.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsealed {
    /// The first call of a round.
    Round {
        /// What the program is run from, except its answers.
        state: Arc<RunState>,
        /// The same, to be sealed again without compressing it again.
        packed: Arc<PackedState>,
        /// What belongs to this round alone.
        header: RoundHeader,
        /// All calls of the round, this one first.
        calls: Vec<CallRef>,
    },
    /// Another call of the same round. It is not authenticated, so it counts only beside the first one.
    Sibling {
        /// The run whose state the first call carries.
        run: RunId,
        /// The number of the round.
        round: u32,
        /// Which call of the program it is.
        call: CallIndex,
    },
}

/// The part of a program's state that differs from round to round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoundHeader {
    /// From 0 in each program.
    pub number: u32,
    /// Fingerprint of the journal before the round.
    pub answered: [u8; 8],
    /// The program's calls before the round. A client may cut them out of its history.
    pub before: CallDigests,
    /// Answers to calls that the gateway has executed itself since the round before.
    pub owned: OwnedAnswers,
}

impl RoundHeader {
    /// Of a program that has not written anything so far.
    pub fn new(number: u32, answered: [u8; 8]) -> RoundHeader {
        RoundHeader { number, answered, ..RoundHeader::default() }
    }
}

/// A state as ids carry it. All rounds of a program carry the same one, so that it is compressed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedState {
    run: RunId,
    compressed: Vec<u8>,
}

impl PackedState {
    /// Compresses a state.
    pub fn of(state: &RunState) -> PackedState {
        let bytes = state.to_bytes();
        PackedState { run: RunId::of(&bytes), compressed: deflate(&bytes) }
    }

    /// A state that was compressed, and its bytes.
    pub(crate) fn inflated(compressed: &[u8]) -> Option<(PackedState, Vec<u8>)> {
        let bytes = inflate(compressed)?;
        Some((PackedState { run: RunId::of(&bytes), compressed: compressed.to_vec() }, bytes))
    }

    #[cfg(test)]
    pub(crate) fn compressed(&self) -> &[u8] {
        &self.compressed
    }

    /// The id of the run, a hash of the state.
    pub fn run(&self) -> RunId {
        self.run
    }
}

impl Sealer {
    /// Seals and opens with one secret. [`SealingSecrets::sealer`](crate::SealingSecrets::sealer) makes one that opens with several.
    pub fn new(secret: &[u8], tenant: &str) -> Sealer {
        Sealer::with_keys(std::iter::once(SealingKey::new(secret, tenant)), tenant, Arc::default())
    }

    /// The first key seals, and there has to be one; all of them open.
    pub(crate) fn with_keys(keys: impl Iterator<Item = SealingKey>, tenant: &str, states: Arc<OpenedStates>) -> Sealer {
        Sealer { keys: keys.collect(), tenant: tenant.into(), states }
    }

    /// Whether an id has the prefix of the gateway's ids. Only [`Sealer::unseal`] tells whether it is genuine.
    pub fn is_own_id(id: &str) -> bool {
        without_provider_prefix(id).starts_with(PREFIX)
    }

    /// Whether it has the form of an id that carries a state.
    pub(crate) fn is_sealed(id: &str) -> bool {
        id.starts_with(PREFIX) && id.len() >= SIBLING_CHARS_MAX
    }

    /// Run and round of a short id.
    pub(crate) fn run_and_round(id: &str) -> Option<(RunId, u32)> {
        match sibling(id)? {
            Unsealed::Sibling { run, round, .. } => Some((run, round)),
            Unsealed::Round { .. } => None,
        }
    }

    /// The ids of a round's calls, in order; a pure function of its arguments.
    pub fn seal(&self, state: &RunState, round: &RoundHeader, calls: &[CallRef]) -> Vec<String> {
        self.seal_packed(&PackedState::of(state), round, calls)
    }

    /// Like [`Sealer::seal`], for a state that is packed already.
    pub fn seal_packed(&self, state: &PackedState, round: &RoundHeader, calls: &[CallRef]) -> Vec<String> {
        let content = content(round, calls, &state.compressed);
        let first = first_without(RESERVED, |variant| {
            let sealed = self.key().seal(SealPurpose::CallId, variant, &content);
            format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(sealed))
        });
        std::iter::once(first).chain(Sealer::siblings(state.run, round.number, calls)).collect()
    }

    /// Short ids for all calls, for a state that a store keeps under its run and round. They begin like those of the
    /// client's provider.
    pub fn short(client: ClientSide, run: RunId, round: u32, calls: &[CallRef]) -> Vec<String> {
        let prefix = client.0.capabilities().call_id_prefix;
        calls.iter().map(|call| format!("{prefix}{}", sibling_id(run, round, call.call))).collect()
    }

    /// Ids of the calls of a round that carry no state.
    pub(crate) fn siblings(run: RunId, round: u32, calls: &[CallRef]) -> impl Iterator<Item = String> {
        calls.iter().skip(1).map(move |call| sibling_id(run, round, call.call))
    }

    /// An error for anything that no server with one of these secrets made for this tenant.
    pub fn unseal(&self, id: &str) -> Result<Unsealed, UnsealError> {
        if !Sealer::is_own_id(id) {
            return Err(UnsealError::Foreign);
        }
        if id.len() < SIBLING_CHARS_MAX {
            return sibling(id).ok_or(UnsealError::Damaged);
        }
        let sealed = decode(id.strip_prefix(PREFIX).ok_or(UnsealError::Damaged)?)?;
        let content = sealing_key::open(&self.keys, SealPurpose::CallId, &sealed)?;
        // Only a release with another format of the content, or a defect of ours, can have sealed what is not read here.
        self.round(&content).ok_or(UnsealError::Foreign)
    }

    /// Seals a text that is stored under this name. It can be opened under the same name only.
    pub fn seal_text(&self, name: &str, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.key().seal(SealPurpose::StoredText { name }, 0, text.as_bytes()))
    }

    /// Opens what [`Sealer::seal_text`] sealed under this name.
    pub fn unseal_text(&self, name: &str, sealed: &str) -> Result<String, UnsealError> {
        let text = sealing_key::open(&self.keys, SealPurpose::StoredText { name }, &decode(sealed)?)?;
        String::from_utf8(text).map_err(|_not_a_text| UnsealError::Foreign)
    }

    /// Reads what [`content`] wrote.
    fn round(&self, mut rest: &[u8]) -> Option<Unsealed> {
        let number = take(&mut rest)?;
        let (&answered, after) = rest.split_first_chunk()?;
        rest = after;
        let before = CallDigests::take_from(&mut rest)?;
        let mut count = take(&mut rest)?;
        let mut owned = OwnedAnswers::default();
        if count == OWNED_ANSWERS {
            let bytes = take(&mut rest)? as usize;
            let (compressed, after) = rest.split_at_checked(bytes)?;
            owned = OwnedAnswers::from_text(&String::from_utf8(inflate(compressed)?).ok()?)?;
            rest = after;
            count = take(&mut rest)?;
        }
        if count as usize > CALLS_MAX {
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
        let (packed, state) = self.states.read(&self.tenant, rest)?;
        let header = RoundHeader { number, answered, before, owned };
        Some(Unsealed::Round { state, packed, header, calls })
    }

    fn key(&self) -> &SealingKey {
        self.keys.first().expect("there is a current secret")
    }
}

/// The first of all variants of a text in which `reserved` does not occur.
fn first_without(reserved: &str, variant: impl Fn(u8) -> String) -> String {
    let mut texts = (0..=u8::MAX).map(variant);
    // Each variant is encrypted anew, so that 256 texts with this in common do not come up.
    texts.find(|text| !text.contains(reserved)).expect("encrypted texts have nothing in common")
}

fn decode(text: &str) -> Result<Vec<u8>, UnsealError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_not_base64| UnsealError::Damaged)
}

/// What is encrypted in an id.
fn content(round: &RoundHeader, calls: &[CallRef], compressed: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(16 + calls.len() * 5 + compressed.len());
    put(&mut content, round.number);
    content.extend_from_slice(&round.answered);
    round.before.put_into(&mut content);
    if !round.owned.is_empty() {
        let owned = deflate(round.owned.to_text().as_bytes());
        put(&mut content, OWNED_ANSWERS);
        put(&mut content, owned.len() as u32);
        content.extend_from_slice(&owned);
    }
    put(&mut content, calls.len() as u32);
    let mut next = 0;
    for call in calls {
        // Indexes rise, most of them by one, so the difference takes one byte.
        put(&mut content, call.call.0.wrapping_sub(next));
        next = call.call.0 + 1;
        content.extend_from_slice(&call.args.0);
    }
    content.extend_from_slice(compressed);
    content
}

fn sibling_id(run: RunId, round: u32, call: CallIndex) -> String {
    format!("{PREFIX}{run}_{round}_{}", call.0)
}

fn without_provider_prefix(id: &str) -> &str {
    PROVIDER_PREFIXES.iter().find_map(|prefix| id.strip_prefix(prefix)).unwrap_or(id)
}

/// Reads a short id.
fn sibling(id: &str) -> Option<Unsealed> {
    let text = without_provider_prefix(id).strip_prefix(PREFIX).filter(|_| id.len() < SIBLING_CHARS_MAX)?;
    let (run, numbers) = text.split_at_checked(RunId::CHARS)?;
    let (round, call) = numbers.strip_prefix('_')?.split_once('_')?;
    let number = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
    Some(Unsealed::Sibling { run: RunId::parse(run)?, round: number(round)?, call: CallIndex(number(call)?) })
}

/// Writes a number with seven bits per byte, least significant first. A set top bit says that more bytes follow.
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads what [`put`] wrote.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u32> {
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

#[cfg(test)]
mod tests {
    use super::first_without;

    #[test]
    fn a_text_that_others_reserve_is_avoided_by_the_next_variant() {
        let texts = ["a__thought__b", "__thought__", "c", "d"];
        assert_eq!(first_without("__thought__", |variant| texts[usize::from(variant)].to_owned()), "c");
    }
}
