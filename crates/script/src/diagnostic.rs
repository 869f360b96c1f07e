//! Errors in the model's source.

use std::fmt;

use crate::position::{SourcePosition, code_frame};

/// An error in the model's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong and what to do about it.
    pub message: String,
    /// Where, in the text the model wrote.
    pub at: SourcePosition,
    /// The lines around it, see [`code_frame`].
    pub frame: String,
}

impl Diagnostic {
    pub(crate) fn of(error: SourceError, source: &str) -> Self {
        let at = SourcePosition::of(source, error.offset);
        Self { message: error.message, at, frame: code_frame(source, at) }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})\n{}", self.message, self.at.line, self.at.column, self.frame)
    }
}

impl std::error::Error for Diagnostic {}

/// An error at a byte offset, before its line and column are known.
#[derive(Debug)]
pub(crate) struct SourceError {
    pub(crate) offset: usize,
    pub(crate) message: String,
}

impl SourceError {
    pub(crate) fn at(offset: u32, message: impl Into<String>) -> Self {
        Self { offset: offset as usize, message: message.into() }
    }
}
