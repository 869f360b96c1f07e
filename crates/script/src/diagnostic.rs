//! A mistake in the model's own source.

use std::fmt;

use crate::position::{Position, code_frame};

/// A mistake in the model's own source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong and what to do about it.
    pub message: String,
    /// Where, in the text the model wrote.
    pub at: Position,
    /// The lines around it, see [`code_frame`].
    pub frame: String,
}

impl Diagnostic {
    pub(crate) fn new(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let at = Position::of(source, offset);
        Self { message: message.into(), at, frame: code_frame(source, at) }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})\n{}", self.message, self.at.line, self.at.column, self.frame)
    }
}

impl std::error::Error for Diagnostic {}
