//! Programs as the front end prints them, to compare them whatever they are spelled like.

use dacapo_script::{Diagnostic, prepare};

/// What runs between the opening and the closing line.
pub(crate) fn body(javascript: &str) -> &str {
    javascript.strip_prefix("(async () => {\n").and_then(|rest| rest.strip_suffix("})()")).expect("it is a function")
}

/// A program that is printed, because the engine sees one line where its parser sees two.
pub(crate) fn of(source: &str) -> Result<String, Diagnostic> {
    prepare(&format!("{source}\r")).map(|script| body(&script.javascript).to_owned())
}

/// Whether the body is the source, with blanks.
pub(crate) fn is_kept(source: &str, body: &str) -> bool {
    let is_kept = |(now, before): (u8, u8)| now == before || matches!(now, b' ' | b';');
    body.len() == source.len() + 1 && body.bytes().zip(source.bytes()).all(is_kept)
}
