//! Asking a person whether a call may be made.

mod question_text;
mod standing;

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::BoxFuture;

use crate::lock::lock;
use crate::tool_host::{ToolCall, ToolDigest};

pub use question_text::QuestionText;
pub use standing::StandingApprovals;

/// Asks a person whether a call may be made. It may be asked about several calls at the same time.
pub trait Approver: Send + Sync {
    /// Waits for the person's decision.
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval>;
}

/// A call that needs a person's approval, and what the person should know of its tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalQuestion {
    /// The call.
    pub call: ToolCall,
    /// What the server says of the tool now. `None` if it does not list the tool.
    pub definition: Option<ToolDigest>,
    /// Whether the server said something else when the tool was approved the last time.
    pub change: DefinitionChange,
}

/// Whether a tool is still what it was when it was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionChange {
    /// It is the same, or it was not approved before.
    None,
    /// Its description, schema or annotations are others than when it was approved.
    SinceApproval,
}

/// What comes of a person's decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The call may be made.
    Given,
    /// The person said no, or anything but a clear yes.
    Declined,
    /// The person said no to all further questions of this program, to this one or to an earlier one.
    AllDeclined,
    /// Nobody can be asked, or nobody answered.
    Unavailable,
}

/// What a person answers to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// This call.
    AllowOnce,
    /// This call, and all calls of this program that are of the same tool and whose arguments have the same shape.
    AllowForProgram,
    /// Not this call.
    Deny,
    /// Not this call, and no further call of this program that needs an approval.
    DenyAll,
    /// Nobody could be asked, or nobody answered.
    NoAnswer,
}

/// An approver that decides the same about every call.
impl Approver for Approval {
    fn approve(&self, _: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(std::future::ready(*self))
    }
}

/// The tools that people have approved since this process started, by server and name, as they were then.
#[derive(Debug, Default)]
pub(crate) struct ApprovedDefinitions(Mutex<BTreeMap<String, BTreeMap<String, Option<ToolDigest>>>>);

impl ApprovedDefinitions {
    pub(crate) fn change(&self, call: &ToolCall, definition: Option<ToolDigest>) -> DefinitionChange {
        match lock(&self.0).get(&call.server).and_then(|tools| tools.get(&call.tool)) {
            Some(approved) if *approved != definition => DefinitionChange::SinceApproval,
            _ => DefinitionChange::None,
        }
    }

    pub(crate) fn insert(&self, call: &ToolCall, definition: Option<ToolDigest>) {
        lock(&self.0).entry(call.server.clone()).or_default().insert(call.tool.clone(), definition);
    }
}
