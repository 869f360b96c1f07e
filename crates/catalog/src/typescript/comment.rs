//! Descriptions from tool lists, made safe to stand in a comment.

use std::borrow::Cow;

use crate::text::prefix;

/// The text on one line.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    if is_plain_line(text) {
        return Cow::Borrowed(text);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    Cow::Owned(harmless(&words.join(" ")).trim().to_owned())
}

/// The first sentence of the text, on one line of at most `bytes_max`.
pub(super) fn summary(text: &str, bytes_max: usize) -> String {
    // What follows is not looked at: descriptions can be long.
    let start = one_line(prefix(text.trim_start(), bytes_max.saturating_mul(2)));
    let sentence = start.split_once(". ").map_or(&*start, |(first, _)| first).trim_end_matches('.');
    cut(sentence, bytes_max)
}

/// As many whole sentences of the text as fit into `bytes_max`, or else words.
pub(super) fn sentences(text: &str, bytes_max: usize) -> &str {
    let start = prefix(text, bytes_max);
    if start.len() == text.len() {
        return text;
    }
    let ends = |mark: &str| start.rfind(mark).map(|at| at + mark.trim_end().len());
    let end = [".\n", ". ", "!\n", "! ", "?\n", "? ", "\n\n"].into_iter().filter_map(ends).max();
    // A sentence that ends early would leave most of the room empty.
    let end = end.filter(|end| *end >= bytes_max / 2).or_else(|| start.rfind(char::is_whitespace));
    start[..end.unwrap_or(start.len())].trim_end()
}

/// Whether there is nothing to do about the text: most are of this kind.
fn is_plain_line(text: &str) -> bool {
    let (mut before, mut has_fence_letter) = (b' ', false);
    for byte in text.bytes() {
        if !matches!(byte, b' '..=b'~') || before == b' ' && byte == b' ' || before == b'*' && byte == b'/' {
            return false;
        }
        has_fence_letter |= matches!(byte, b'`' | b'~');
        before = byte;
    }
    before != b' ' && !(has_fence_letter && (text.contains("```") || text.contains("~~~")))
}

/// The lines of the text that are not empty, without the indentation they have in common.
pub(super) fn lines(text: &str) -> Vec<String> {
    let text = harmless(text);
    let indent = |line: &&str| line.len() - line.trim_start().len();
    // The first line of a docstring begins after its quotes.
    let shared = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(|line| indent(&line)).min();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let shared = if index == 0 { indent(&line) } else { shared.unwrap_or_default() };
        let line = line.get(shared..).unwrap_or_else(|| line.trim_start()).trim_end();
        if !line.is_empty() {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// A comment above a declaration, ending its own line; nothing for no lines.
pub(super) fn block(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        [line] => format!("/** {line} */\n"),
        lines => format!("/**\n * {}\n */\n", lines.join("\n * ")),
    }
}

pub(super) fn cut(text: &str, bytes_max: usize) -> String {
    match prefix(text, bytes_max) {
        whole if whole.len() == text.len() => text.to_owned(),
        part => format!("{}…", part.trim_end()),
    }
}

/// Takes away what ends a comment or a Markdown code block, and what no reader can see.
fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !is_invisible(*letter)) {
        match letter {
            '/' if clean.ends_with('*') => clean.push_str(" /"),
            '`' if clean.ends_with("``") => {
                clean.truncate(clean.len() - 2);
                clean.push_str("'''");
            }
            '~' if clean.ends_with("~~") => {
                clean.truncate(clean.len() - 2);
                clean.push_str("---");
            }
            '\t' => clean.push(' '),
            '\r' | '\u{0b}' | '\u{0c}' | '\u{85}' | '\u{2028}' | '\u{2029}' if !clean.ends_with('\n') => {
                clean.push('\n');
            }
            '\r' | '\u{0b}' | '\u{0c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {}
            '\n' if clean.ends_with('\n') => {}
            letter => clean.push(letter),
        }
    }
    clean
}

/// Controls, marks that reverse the order of letters, and letters without a picture: text that
/// only a machine would read.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\0'..='\u{08}' | '\u{0e}'..='\u{1f}' | '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{ad}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}
