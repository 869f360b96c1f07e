//! Turns what a model wrote into JavaScript that runs.
//!
//! A model sends a program as a function body, as a `main` that it forgot to call, as a default export, as a bare arrow
//! function, or as any of these in a Markdown code block. [`prepare`] treats them all as the same program: it strips the
//! TypeScript, finds out what the program's result is, and returns a [`PreparedScript`] whose value is a promise for that
//! result. Where that is not possible it explains why in a [`Diagnostic`], with positions in the text the model wrote.
//!
//! The crate runs nothing, checks no types and does no I/O. Modern JavaScript passes through unchanged. There are no
//! modules: an `import` becomes a question to the sandbox, which knows the tools.
//!
//! Start reading at [`prepare`].

#![warn(missing_docs)]

mod blanks;
mod diagnostic;
mod entry;
mod escapes;
mod expression;
mod fence;
mod front_end;
mod globals;
mod language;
mod nesting;
mod outline;
mod position;
mod source_map;

pub use diagnostic::Diagnostic;
pub use escapes::unescaped;
pub use expression::{called_at, names_at, object_at};
pub use globals::STANDARD_GLOBALS;
pub use position::{SourcePosition, code_frame};
pub use source_map::SourceMap;

use front_end::Mapping;
use position::Cursor;

/// JavaScript that runs in place of what the model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedScript {
    /// A JavaScript script (not a module) whose completion value is a promise for the program's
    /// result.
    pub javascript: String,
    /// Names that the program calls though nothing in it declares, assigns or tests them and they
    /// are not [`STANDARD_GLOBALS`]; sorted and unique.
    pub unknown_calls: Vec<UnknownCall>,
    /// All names that the program reads though nothing in it declares, assigns or tests them and they
    /// are not [`STANDARD_GLOBALS`]. Also `import`, a function that the script needs where the program imports, and
    /// `default`, the argument of its entry function.
    pub free_names: Vec<String>,
}

/// A call of a function that the host has to define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCall {
    /// The function's name.
    pub name: String,
    /// Where the program calls it first.
    pub at: SourcePosition,
}

/// Turns a program into the script that runs in its place.
///
/// ```
/// let script = dacapo_script::prepare("const n: number = 2;\nn + 1").unwrap();
/// assert_eq!(script.javascript, "(async () => {\nconst n = 2;\nreturn n + 1;\n})()");
/// ```
pub fn prepare(source: &str) -> Result<PreparedScript, Diagnostic> {
    let mut compiled = front_end::compile(source, Mapping::Without)?;
    compiled.unknown_calls.sort_unstable_by_key(|(_, offset)| *offset);
    let mut cursor = Cursor::new(source);
    let mut unknown_calls: Vec<_> = compiled
        .unknown_calls
        .into_iter()
        .map(|(name, offset)| UnknownCall { name, at: cursor.advance_to(offset) })
        .collect();
    unknown_calls.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(PreparedScript { javascript: compiled.javascript, unknown_calls, free_names: compiled.free_names })
}
