//! What stands at a position of the source, for messages that name it.

use crate::position::SourcePosition;

/// The names joined by dots that are called at a position, such as `orders.data.map`. The position is that of the last
/// name or of the first. `None` where something else stands there, or where the call is one of several in a row.
///
/// ```
/// use dacapo_script::{SourcePosition, called_at};
/// let at = |column| SourcePosition { line: 1, column };
/// assert_eq!(called_at("return orders.map(f)", at(8)), Some("orders.map"));
/// assert_eq!(called_at("return orders.map(f).join()", at(15)), Some("orders.map"));
/// assert_eq!(called_at("return orders.map(f).join()", at(8)), None);
/// ```
pub fn called_at(source: &str, at: SourcePosition) -> Option<&str> {
    let place = offset_of(source, at)?;
    let start = names_before(source, place);
    if start < place {
        let name = source[place..].find(|letter| !is_name(letter)).filter(|length| *length > 0)?;
        return Some(source[start..place + name].trim_start_matches(['.', '?', '!']));
    }
    let names = names_after(&source[place..])?;
    let rest = &source[place + names.len()..];
    let rest = rest.strip_prefix("?.").unwrap_or(rest).strip_prefix('(')?;
    let mut depth = 1;
    let end = rest.char_indices().find(|(_, letter)| {
        depth += match letter {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    let after = end.map_or("", |(end, _)| &rest[end + 1..]);
    let goes_on = after.trim_start().starts_with(['.', '(', '[']) || after.starts_with("?.");
    (!goes_on).then_some(names)
}

/// The names before `.property` or `[…]` at a position: `orders.data` for `orders.data.map` and `map`.
pub fn object_at<'s>(source: &'s str, at: SourcePosition, property: &str) -> Option<&'s str> {
    let place = offset_of(source, at)?;
    let start = names_before(source, place);
    let before = source[start..place].trim_end_matches(['.', '?', '!']);
    if !before.is_empty() && (source[place..].starts_with('[') || source[place..].starts_with(property)) {
        return before.starts_with(is_name).then_some(before);
    }
    let names = names_after(&source[place..])?;
    let found = names.match_indices(property).find(|(start, found)| {
        let ends = names[start + found.len()..].chars().next().is_none_or(|next| !is_name(next));
        ends && names[..*start].ends_with('.')
    });
    let is_indexed = || source[place + names.len()..].starts_with('[');
    match found {
        Some((start, _)) => Some(names[..start].trim_end_matches(['.', '?', '!'])),
        None => is_indexed().then_some(names),
    }
}

/// The names that begin at a position, if they are all of an expression: `page.orders` for `of page.orders)`.
pub fn names_at(source: &str, at: SourcePosition) -> Option<&str> {
    let place = offset_of(source, at)?;
    let names = names_after(&source[place..])?;
    let goes_on = source[place + names.len()..].trim_start().starts_with(['.', '(', '[', '?']);
    let begins = names_before(source, place) == place || source[..place].ends_with("...");
    (begins && !goes_on).then_some(names)
}

fn offset_of(source: &str, at: SourcePosition) -> Option<usize> {
    let line = source.split_inclusive('\n').nth(at.line.checked_sub(1)? as usize)?;
    let column = line.char_indices().nth(at.column.checked_sub(1)? as usize)?.0;
    Some(line.as_ptr() as usize - source.as_ptr() as usize + column)
}

/// Where the names begin that end at `place`.
fn names_before(source: &str, place: usize) -> usize {
    source[..place]
        .rfind(|letter| !is_part(letter))
        .map_or(0, |at| at + source[at..].chars().next().map_or(1, char::len_utf8))
}

fn names_after(text: &str) -> Option<&str> {
    let end = text.find(|letter| !is_part(letter)).unwrap_or(text.len());
    Some(text[..end].trim_end_matches(['.', '?', '!'])).filter(|names| names.starts_with(is_name))
}

fn is_part(letter: char) -> bool {
    is_name(letter) || matches!(letter, '.' | '?' | '!')
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}
