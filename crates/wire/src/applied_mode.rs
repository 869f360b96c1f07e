//! How code mode applies to a request.

use std::fmt;

/// How code mode applies to a request. The text is the value of the response header `x-dacapo-mode`.
///
/// ```
/// use dacapo_wire::{AppliedMode, OffReason};
/// assert_eq!(AppliedMode::Off(OffReason::Field("stop")).to_string(), "off; reason=stop");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliedMode {
    /// Programs run, and the client sees ordinary tool calls.
    Plain,
    /// Programs run, and the client reads them in its history.
    Explicit,
    /// The programs are the provider's.
    Native,
    /// No programs: the request goes on as it came, or translated to another wire.
    Off(OffReason),
}

/// Why code mode does not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffReason {
    /// The request says so in its body.
    Body,
    /// The request says so in its header.
    Header,
    /// The configuration says so.
    Configuration,
    /// There are no functions that a program could call.
    NoTools,
    /// A program cannot promise what this field demands.
    Field(&'static str),
}

impl AppliedMode {
    /// As the header `x-dacapo-mode`, the log and the metrics name it.
    pub fn name(self) -> &'static str {
        match self {
            AppliedMode::Plain => "plain",
            AppliedMode::Explicit => "explicit",
            AppliedMode::Native => "native",
            AppliedMode::Off(_) => "off",
        }
    }

    /// Why it is off.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            AppliedMode::Plain | AppliedMode::Explicit | AppliedMode::Native => None,
            AppliedMode::Off(OffReason::Body) => Some("code_mode"),
            AppliedMode::Off(OffReason::Header) => Some("x-dacapo-mode"),
            AppliedMode::Off(OffReason::Configuration) => Some("configuration"),
            AppliedMode::Off(OffReason::NoTools) => Some("no-tools"),
            AppliedMode::Off(OffReason::Field(key)) => Some(key),
        }
    }
}

impl fmt::Display for AppliedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}; reason={reason}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}
