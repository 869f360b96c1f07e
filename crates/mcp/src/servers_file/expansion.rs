//! `${NAME}` in other people's files.

use std::collections::BTreeMap;

/// A text with its variables filled in, and which ones they were.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    pub(super) text: String,
    /// Name and value, for those that came from the environment. A default stands in the file for all to read.
    pub(super) variables: Vec<(String, String)>,
}

/// Fills in `${NAME}`, `${NAME:-default}` and `${env:NAME}`. The error says what is wrong, not where.
pub(super) fn expand(text: &str, environment: &BTreeMap<String, String>) -> Result<Expanded, String> {
    let mut expanded = Expanded::default();
    let mut rest = text;
    while let Some((before, inside, after)) = next_variable(rest) {
        expanded.text.push_str(before);
        let written = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = written.split_once(":-").map_or((written, None), |(name, default)| (name, Some(default)));
        if !is_name(name) {
            return Err(format!(
                "`${{{inside}}}` cannot be filled in here; write ${{NAME}} or ${{NAME:-default}} for an environment variable"
            ));
        }
        // As in a shell, an empty variable counts as unset where there is a default.
        match (environment.get(name), default) {
            (Some(value), default) if !(value.is_empty() && default.is_some()) => {
                expanded.text.push_str(value);
                expanded.variables.push((name.to_owned(), value.clone()));
            }
            (_, Some(default)) => expanded.text.push_str(default),
            (_, None) => {
                return Err(format!(
                    "the environment variable `{name}` is not set; set it, or write ${{{name}:-default}}"
                ));
            }
        }
        rest = after;
    }
    expanded.text.push_str(rest);
    Ok(expanded)
}

/// What stands before the next `${…}`, inside it, and after it.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, opened) = text.split_once("${")?;
    let (inside, after) = opened.split_once('}')?;
    Some((before, inside, after))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
