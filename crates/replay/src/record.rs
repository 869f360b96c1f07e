//! The record of completed calls: what earlier programs have executed, and later ones need not execute again.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::canonical;
use crate::journal::{Answer, ArgsDigest, absorb};
use crate::json_text::JsonText;

/// A call that an earlier program sent. It may answer the same call of a later program, so that a tool with effects is
/// not executed again. The same call is one of the same tool whose canonical arguments are equal.
///
/// A record is a list of such calls, oldest first.
///
/// ```
/// use dacapo_replay::{CompletedCall, JsonText, Outcome, Program, StepRequest, Stepper, Toolbox, WarmPrograms};
/// use serde_json::json;
/// let paid = CompletedCall::new("pay", &json!({"n": 1}), JsonText::from(&json!("done")));
/// let toolbox = Toolbox::read(r#"[{"name": "pay"}]"#)?;
/// let request = StepRequest::new(Program::new("return pay({n: 1})"), toolbox).with_reuse(vec![paid]);
/// let step = Stepper::new(WarmPrograms::NONE)?.step(&request, &|| true)?;
/// assert!(matches!(step.outcome, Outcome::Finished { result: Ok(_) }), "nothing is paid twice");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedCall {
    call: RecordedCall,
    /// What is known of its outcome.
    pub outcome: RecordedOutcome,
}

/// Which call it was, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RecordedCall {
    Known {
        tool: String,
        canonical: String,
    },
    ArgsDigest {
        tool: String,
        digest: ArgsDigest,
    },
    Digest(CallDigest),
    /// Nothing is known but that it may have been any call.
    AnyWrite,
}

/// Six bytes that stand for a tool and its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDigest(pub [u8; 6]);

impl CallDigest {
    /// The digest of a call.
    pub fn of(tool: &str, args: &Value) -> CallDigest {
        CallDigest::of_canonical(tool, &canonical(args))
    }

    fn of_canonical(tool: &str, canonical: &str) -> CallDigest {
        let mut hash = Sha256::new_with_prefix(b"dacapo call 1\0");
        absorb(&mut hash, Some(tool));
        absorb(&mut hash, Some(canonical));
        let digest = hash.finalize();
        CallDigest(std::array::from_fn(|at| digest[at]))
    }
}

/// What is known of a call that an earlier program sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// It succeeded with this value.
    Ok(JsonText),
    /// It was completed, but its answer is no longer known.
    AnswerLost,
    /// It was sent, and no answer came: it is not known whether it took effect.
    Unknown,
}

impl CompletedCall {
    /// A call that succeeded.
    pub fn new(tool: impl Into<String>, args: &Value, ok: JsonText) -> CompletedCall {
        CompletedCall::with_outcome(tool, args, RecordedOutcome::Ok(ok))
    }

    /// A call with any outcome.
    pub fn with_outcome(tool: impl Into<String>, args: &Value, outcome: RecordedOutcome) -> CompletedCall {
        CompletedCall::canonical(tool.into(), canonical(args), outcome)
    }

    /// A call of whose arguments only a digest is known.
    pub fn with_args_digest(tool: impl Into<String>, digest: ArgsDigest, outcome: RecordedOutcome) -> CompletedCall {
        CompletedCall { call: RecordedCall::ArgsDigest { tool: tool.into(), digest }, outcome }
    }

    /// A call of which only a digest is known. Only calls with effects are recorded like this.
    pub fn with_digest(digest: CallDigest, outcome: RecordedOutcome) -> CompletedCall {
        CompletedCall { call: RecordedCall::Digest(digest), outcome }
    }

    /// Stands for calls of which nothing is known any more. No write is executed after it, unless a program asks for it.
    pub fn any_write() -> CompletedCall {
        CompletedCall { call: RecordedCall::AnyWrite, outcome: RecordedOutcome::Unknown }
    }

    pub(crate) fn canonical(tool: String, canonical: String, outcome: RecordedOutcome) -> CompletedCall {
        CompletedCall { call: RecordedCall::Known { tool, canonical }, outcome }
    }

    /// Its answer is not what it was, or not known to be.
    pub fn forget_answer(&mut self) {
        if let RecordedOutcome::Ok(_) = self.outcome {
            self.outcome = RecordedOutcome::AnswerLost;
        }
    }

    /// The tool's qualified name, if it is known.
    pub fn tool(&self) -> Option<&str> {
        match &self.call {
            RecordedCall::Known { tool, .. } | RecordedCall::ArgsDigest { tool, .. } => Some(tool),
            RecordedCall::Digest(_) | RecordedCall::AnyWrite => None,
        }
    }

    /// The arguments, if they are known.
    pub fn args(&self) -> Option<Value> {
        match &self.call {
            RecordedCall::Known { canonical, .. } => serde_json::from_str(canonical).ok(),
            RecordedCall::ArgsDigest { .. } | RecordedCall::Digest(_) | RecordedCall::AnyWrite => None,
        }
    }

    /// The digest of the call, if it can be made.
    pub fn digest(&self) -> Option<CallDigest> {
        match &self.call {
            RecordedCall::Known { tool, canonical } => Some(CallDigest::of_canonical(tool, canonical)),
            RecordedCall::Digest(digest) => Some(*digest),
            RecordedCall::ArgsDigest { .. } | RecordedCall::AnyWrite => None,
        }
    }

    /// The answer for the same call of a later program.
    pub(crate) fn answer(&self, tool: &str) -> Answer {
        const FRESH: &str = "pass {fresh: true} as the second argument";
        let message = match (&self.outcome, &self.call) {
            (RecordedOutcome::Ok(ok), _) => return Answer::Ok(ok.clone()),
            (RecordedOutcome::AnswerLost, _) => format!(
                "{tool} was completed with the same arguments by an earlier program, and its answer is no longer in the conversation; it was not executed again. To execute it again, {FRESH}"
            ),
            (RecordedOutcome::Unknown, RecordedCall::AnyWrite) => format!(
                "calls of earlier programs are no longer in the conversation, so it is not known whether {tool} was completed with the same arguments; it was not executed. To execute it all the same, {FRESH}"
            ),
            (RecordedOutcome::Unknown, _) => format!(
                "{tool} was sent with the same arguments by an earlier program, and no answer came, so it is not known whether it took effect; it was not executed again. To execute it all the same, {FRESH}"
            ),
        };
        Answer::Error { message, data: None }
    }

    pub(crate) fn is_of(&self, name: &str, args: &str) -> bool {
        match &self.call {
            RecordedCall::Known { tool, canonical } => tool == name && canonical == args,
            RecordedCall::ArgsDigest { tool, digest } => tool == name && *digest == ArgsDigest::of(args),
            RecordedCall::Digest(digest) => *digest == CallDigest::of_canonical(name, args),
            RecordedCall::AnyWrite => true,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let call = match &self.call {
            RecordedCall::Known { tool, canonical } => tool.len() + canonical.len(),
            RecordedCall::ArgsDigest { tool, .. } => tool.len(),
            RecordedCall::Digest(_) | RecordedCall::AnyWrite => 0,
        };
        let ok = match &self.outcome {
            RecordedOutcome::Ok(ok) => ok.as_str().len(),
            RecordedOutcome::AnswerLost | RecordedOutcome::Unknown => 0,
        };
        size_of::<CompletedCall>() + call + ok
    }

    /// Adds the call to a digest of all that a step depends on.
    pub fn absorb_into(&self, hash: &mut Sha256) {
        match &self.call {
            RecordedCall::Known { tool, canonical } => {
                absorb(hash, Some(tool));
                absorb(hash, Some(canonical));
            }
            RecordedCall::ArgsDigest { tool, digest } => {
                absorb(hash, Some(tool));
                absorb(hash, None);
                hash.update(digest.0);
            }
            RecordedCall::Digest(digest) => {
                absorb(hash, None);
                hash.update(digest.0);
            }
            RecordedCall::AnyWrite => hash.update([3; 8]),
        }
        match &self.outcome {
            RecordedOutcome::Ok(ok) => absorb(hash, Some(ok.as_str())),
            RecordedOutcome::AnswerLost => hash.update([1; 8]),
            RecordedOutcome::Unknown => hash.update([2; 8]),
        }
    }
}
