//! Who may call which tool.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

/// The client's tools by who may call them.
#[derive(Debug, Default)]
pub(crate) struct Split<'a> {
    /// For programs.
    pub tools: Vec<Cow<'a, Value>>,
    /// Where each of them stands in the request.
    pub places: Vec<String>,
    /// Names of those that the model may call by itself, the provider's included.
    pub direct: BTreeSet<String>,
    /// Entries that the model sees as they are.
    pub passed: Vec<Value>,
    /// One of them declares tools without their names.
    pub has_open_toolset: bool,
    /// Some entry has a field that no provider understands.
    pub has_ours: bool,
    /// Positions among the tools for programs of those that the model is to search for.
    pub deferred: BTreeSet<usize>,
    /// What the client calls its provider's search for tools, which we do instead.
    pub search_tool: Option<String>,
}

impl Split<'_> {
    /// A place among the tools for programs, as a place in the request.
    pub(crate) fn path(&self, path: &str) -> String {
        let moved = || {
            let (number, rest) = path.strip_prefix("tools[")?.split_once(']')?;
            let place = self.places.get(number.parse::<usize>().ok()?)?;
            Some(format!("{place}{rest}"))
        };
        moved().unwrap_or_else(|| path.to_owned())
    }
}

/// Who may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Callers {
    pub direct: bool,
    pub programs: bool,
    pub are_given: bool,
}

impl Callers {
    /// `otherwise` holds where the entry says nothing.
    pub(crate) fn of(callers: Option<&Value>, otherwise: Callers) -> Result<Callers, String> {
        let names = match callers {
            None | Some(Value::Null) => return Ok(otherwise),
            Some(Value::Array(names)) if !names.is_empty() => names,
            Some(_) => return Err("must be an array of \"direct\" and \"programmatic\"".to_owned()),
        };
        let mut callers = Callers { direct: false, programs: false, are_given: true };
        for name in names {
            match name.as_str() {
                Some("direct") => callers.direct = true,
                Some("programmatic" | "execute") => callers.programs = true,
                Some(name) if name.starts_with("code_execution") => callers.programs = true,
                _ => return Err(format!("{name} is not known; use \"direct\" or \"programmatic\"")),
            }
        }
        Ok(callers)
    }

    pub(crate) const PROGRAMS: Callers = Callers { direct: false, programs: true, are_given: false };
    pub(crate) const DIRECT: Callers = Callers { direct: true, programs: false, are_given: false };
}
