//! Digests of the calls that a program has made. They are so short that ids carry them, because clients cut the calls
//! themselves out of their histories.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dacapo_replay::{CallDigest, Catalog, CompletedCall, Effect, RecordedOutcome};

use crate::seal::{put, take};

/// Digests of calls that write, oldest first. Calls that only read, and those that may be repeated, are not part of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallDigests {
    calls: Vec<(CallDigest, DigestOutcome)>,
    /// Set if there were more calls than digests are kept of, or some of which there is no digest.
    is_partial: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DigestOutcome {
    Completed,
    Unknown,
}

impl CallDigests {
    /// Of more calls the last ones are kept: clients cut the oldest first. A later program that is to know of the others
    /// has its writes refused, unless it asks for them with `fresh`.
    pub const COUNT_MAX: usize = 96;

    /// The digests of those calls of a record that write.
    pub fn of(record: &[CompletedCall], catalog: &Catalog) -> CallDigests {
        let mut digests = CallDigests::default();
        let writes = |call: &&CompletedCall| call.tool().is_none_or(|tool| catalog.effect_of(tool) == Effect::Write);
        for call in record.iter().filter(writes) {
            let outcome = match call.outcome {
                RecordedOutcome::Ok(_) | RecordedOutcome::AnswerLost => DigestOutcome::Completed,
                RecordedOutcome::Unknown => DigestOutcome::Unknown,
            };
            match call.digest() {
                Some(digest) => digests.calls.push((digest, outcome)),
                None => digests.is_partial = true,
            }
        }
        let more = digests.calls.len().saturating_sub(CallDigests::COUNT_MAX);
        digests.is_partial |= more > 0;
        digests.calls.drain(..more);
        digests
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty() && !self.is_partial
    }

    /// The calls before a round that are not in `record`. Those whose outcome was not known were issued again in the round
    /// if they are among its calls.
    pub fn missing_before(&self, record: &[CompletedCall], round: &[CompletedCall]) -> Vec<CompletedCall> {
        let mut issued: Vec<CallDigest> = round.iter().filter_map(CompletedCall::digest).collect();
        let mut missing = self.missing_in(record);
        missing.retain(|call| {
            let issued_at = match call.outcome {
                RecordedOutcome::Unknown => issued.iter().position(|issued| Some(*issued) == call.digest()),
                RecordedOutcome::Ok(_) | RecordedOutcome::AnswerLost => None,
            };
            issued_at.map(|at| issued.swap_remove(at)).is_none()
        });
        missing
    }

    /// The calls that are not in `record`. Their answers are lost.
    pub fn missing_in(&self, record: &[CompletedCall]) -> Vec<CompletedCall> {
        let mut present: Vec<CallDigest> = record.iter().filter_map(CompletedCall::digest).collect();
        let mut missing = Vec::new();
        for (digest, outcome) in &self.calls {
            if let Some(at) = present.iter().position(|present| present == digest) {
                present.swap_remove(at);
                continue;
            }
            missing.push(match outcome {
                DigestOutcome::Completed => CompletedCall::with_digest(*digest, RecordedOutcome::AnswerLost),
                DigestOutcome::Unknown => CompletedCall::with_digest(*digest, RecordedOutcome::Unknown),
            });
        }
        if self.is_partial {
            missing.push(CompletedCall::any_write());
        }
        missing
    }

    pub(crate) fn put_into(&self, bytes: &mut Vec<u8>) {
        put(bytes, (self.calls.len() as u32) << 1 | u32::from(self.is_partial));
        for chunk in self.calls.chunks(8) {
            let unknown = chunk.iter().enumerate().filter(|(_, (_, outcome))| *outcome == DigestOutcome::Unknown);
            bytes.push(unknown.fold(0, |bits, (at, _)| bits | 1 << at));
            bytes.extend(chunk.iter().flat_map(|(digest, _)| digest.0));
        }
    }

    pub(crate) fn take_from(bytes: &mut &[u8]) -> Option<CallDigests> {
        let head = take(bytes)?;
        let mut digests = CallDigests { calls: Vec::new(), is_partial: head & 1 == 1 };
        let count = (head >> 1) as usize;
        let mut unknown = 0;
        for at in 0..count {
            if at % 8 == 0 {
                let (&bits, rest) = bytes.split_first()?;
                (unknown, *bytes) = (bits, rest);
            }
            let (digest, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            let outcome = if unknown >> (at % 8) & 1 == 1 { DigestOutcome::Unknown } else { DigestOutcome::Completed };
            digests.calls.push((CallDigest(*digest), outcome));
        }
        Some(digests)
    }

    /// As text of letters, digits, `-` and `_`; empty if there is nothing to say.
    pub(crate) fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        if !self.is_empty() {
            self.put_into(&mut bytes);
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads [`CallDigests::to_text`].
    pub(crate) fn from_text(text: &str) -> Option<CallDigests> {
        if text.is_empty() {
            return Some(CallDigests::default());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let mut rest = bytes.as_slice();
        CallDigests::take_from(&mut rest).filter(|_| rest.is_empty())
    }
}
