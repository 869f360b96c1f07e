//! Programs whose text was escaped once more than needed.

use crate::prepare;

/// The program that was meant, if `source` is none as it stands, but is one when its escapes are read once more. Models
/// that write JSON escape line breaks and quotes, and some do it twice.
///
/// ```
/// let meant = dacapo_script::unescaped(r#"const a = \"x\";\nreturn a;"#);
/// assert_eq!(meant.as_deref(), Some("const a = \"x\";\nreturn a;"));
/// assert_eq!(dacapo_script::unescaped(r#"return "a\nb";"#), None);
/// ```
pub fn unescaped(source: &str) -> Option<String> {
    let is_suspect = !source.contains('\n') && (source.contains("\\n") || source.contains("\\\""));
    let meant = is_suspect.then(|| read_escapes(source))?;
    (prepare(source).is_err() && prepare(&meant).is_ok()).then_some(meant)
}

fn read_escapes(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut letters = source.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some(escaped @ ('"' | '\'' | '\\' | '/' | '`')) => text.push(escaped),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}
