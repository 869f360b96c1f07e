//! References to environment variables: `${NAME}`.

use std::collections::BTreeMap;

/// A text with its variables filled in, and which ones they were.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    pub(crate) text: String,
    /// Name and value of those that came from the environment. Defaults are not among them: they are in the file, so they are
    /// no secrets.
    pub(crate) variables: Vec<(String, String)>,
}

/// Fills in `${NAME}`, `${NAME:-default}` and `${env:NAME}`; a default may have variables of its own. The error says what is wrong, not where.
pub(crate) fn expand(text: &str, environment: &BTreeMap<String, String>) -> Result<Expanded, String> {
    let mut expanded = Expanded::default();
    let mut rest = text;
    while let Some((before, inside, after)) = next_variable(rest)? {
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
            (_, Some(default)) => {
                let default = expand(default, environment)?;
                expanded.text.push_str(&default.text);
                expanded.variables.extend(default.variables);
            }
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

/// The text before the next `${…}`, inside it, and after it.
fn next_variable(text: &str) -> Result<Option<(&str, &str, &str)>, String> {
    let Some((before, opened)) = text.split_once("${") else { return Ok(None) };
    let (mut depth, mut from) = (0, 0);
    while let Some(found) = opened[from..].find(['$', '}']) {
        let at = from + found;
        from = at + 1;
        if opened[at..].starts_with("${") {
            depth += 1;
        } else if opened[at..].starts_with('}') {
            if depth == 0 {
                return Ok(Some((before, &opened[..at], &opened[from..])));
            }
            depth -= 1;
        }
    }
    Err("a `${` has no `}` of its own; write ${NAME} or ${NAME:-default} for an environment variable".to_owned())
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
