//! Patterns for names in configuration files.

/// Whether a whole name matches a pattern, in which `*` stands for any text, also for none. All other characters stand for
/// themselves.
///
/// ```
/// # use dacapo_catalog::matches_pattern;
/// assert!(matches_pattern("delete_*", "delete_repository"));
/// assert!(!matches_pattern("delete_*", "undelete_repository"));
/// ```
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(name) = name.strip_prefix(start) else { return false };
    let Some(mut name) = name.strip_suffix(end) else { return false };
    // Leftmost matches leave the most for the parts that follow.
    for part in middle.split('*') {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "x", false),
            ("read", "read", true),
            ("read", "read_file", false),
            ("read*", "read", true),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("a*b*c", "a-bb-c", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("**x**", "x", true),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aba", false),
            ("gpt-*", "gpt-5", true),
            ("gpt-*", "o3", false),
            ("*mini", "gpt-mini", true),
            ("demo", "demo2", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }
}
