//! Asking a person whether a call may be made.

use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;

use crate::ask::Ask;

/// Whoever can be asked for approval. Questions may come at the same time.
pub trait Approver: Send + Sync {
    fn approve<'a>(&'a self, ask: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Given,
    Declined,
    /// There is nobody to ask.
    Nobody,
}

/// Answers the same to every question.
impl Approver for Approval {
    fn approve<'a>(&'a self, _: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>> {
        Box::pin(std::future::ready(*self))
    }
}

const ARGS_CHARS_MAX: usize = 600;

/// What a person reads before deciding.
pub fn question(ask: &Ask) -> String {
    let args = serde_json::to_string_pretty(&ask.args).unwrap_or_default();
    let mut shown: String = args.chars().take(ARGS_CHARS_MAX).collect();
    if shown.len() < args.len() {
        let more = args.chars().count() - ARGS_CHARS_MAX;
        // Writing to a string cannot fail.
        write!(shown, "… ({more} more characters)").unwrap_or_default();
    }
    // A server names its tools as it likes; what a person reads must not be hidden by control characters.
    format!("A program wants to call `{}` of the server `{}` with\n{shown}", ask.tool.escape_debug(), ask.server)
}
