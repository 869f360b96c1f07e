//! Cutting texts to a length.

/// The first `chars_max` characters, with `…` in place of the rest.
///
/// ```
/// assert_eq!(dacapo_catalog::shorten("get_weather", 3), "get…");
/// assert_eq!(dacapo_catalog::shorten("add", 3), "add");
/// ```
pub fn shorten(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// As many whole characters as fit into `bytes_max`.
pub(crate) fn prefix(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
