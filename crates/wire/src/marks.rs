//! Text that may concern the gateway. A body, or a part of one, that has none of it can be forwarded without being read.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Text of which some is in every body that the gateway has to read. Where it means something else, a body is read in vain.
const MARKS: [&str; 5] = [
    // Ids and reasoning that the gateway made.
    "dc1_",
    "dcr1_",
    "_dc",
    "srvtoolu_",
    // A field that it understands.
    "allowed_callers",
];

/// Marks only where a JSON string begins: inside of one, as in the answers of tools, the quotation mark is escaped.
const FIRST_WORDS: [&str; 3] = [
    // Programs in a history, or declared, and the field `code_mode`.
    "\"code",
    "\"program",
    // Another field that it understands.
    "\"thread\"",
];

/// Whether a text has one of the marks, in whatever way it is spelled.
pub(crate) fn is_marked(text: &[u8]) -> bool {
    // One search for each is faster than one for all: most of the bytes they begin with are frequent.
    static MARK_FINDERS: LazyLock<[Finder<'static>; MARKS.len()]> = LazyLock::new(|| MARKS.map(Finder::new));
    static WORD_FINDERS: LazyLock<[Finder<'static>; FIRST_WORDS.len()]> =
        LazyLock::new(|| FIRST_WORDS.map(Finder::new));
    static ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    let is_first = |at: usize| at.checked_sub(1).is_none_or(|before| text[before] != b'\\');
    MARK_FINDERS.iter().any(|finder| finder.find(text).is_some())
        || WORD_FINDERS.iter().any(|finder| finder.find_iter(text).any(is_first))
        || ESCAPES.find_iter(text).any(|at| spells_mark(&text[at..]))
}

/// Whether the underscore at this place of a text is that of a mark. All marks but the first words have one.
pub(crate) fn is_mark_around(text: &[u8], underscore: usize) -> bool {
    MARKS.iter().any(|mark| {
        let start = mark.find('_').and_then(|offset| underscore.checked_sub(offset));
        start.is_some_and(|start| text[start..].starts_with(mark.as_bytes()))
    })
}

/// Whether a text that begins with the quotation mark of a string begins with a mark.
pub(crate) fn begins_with_mark(text: &[u8]) -> bool {
    FIRST_WORDS.iter().any(|word| text.starts_with(word.as_bytes()))
}

/// Whether an escape, with which a text begins, stands for a character that marks are made of. Most escapes are of other
/// characters: some clients escape all that is not ASCII, or what means something in HTML.
pub(crate) fn spells_mark(escape: &[u8]) -> bool {
    let Some(digits) = escape.strip_prefix(b"\\u00") else { return false };
    let code = digits.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
    code.is_none_or(|code| matches!(code, b'"' | b'_' | b'0'..=b'9' | b'a'..=b'z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_by_its_underscore() {
        for mark in MARKS {
            let text = format!("__ x_{mark}_y");
            let found = text.match_indices('_').filter(|(at, _)| is_mark_around(text.as_bytes(), *at));
            assert!(found.count() > 0, "{mark}");
            assert!(is_marked(text.as_bytes()));
        }
        assert!(!is_mark_around(b"_", 0));
        assert!(!is_mark_around(b"a_dx _d", 1));
    }
}
