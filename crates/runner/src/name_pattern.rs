//! Patterns for names in configuration files.

use serde::Deserialize;

/// A name in which `*` stands for any text, also for none. All other characters stand for themselves.
///
/// ```
/// # use dacapo_runner::NamePattern;
/// assert!(NamePattern::from("delete_*").matches("delete_repository"));
/// assert!(!NamePattern::from("delete_*").matches("undelete_repository"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct NamePattern(String);

impl NamePattern {
    /// Does the whole name match?
    pub fn matches(&self, name: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == name };
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

    /// The pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for NamePattern {
    fn from(pattern: T) -> NamePattern {
        NamePattern(pattern.into())
    }
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
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(NamePattern::from(pattern).matches(name), expected, "{pattern} {name}");
        }
    }
}
