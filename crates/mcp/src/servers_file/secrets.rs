//! Which values of a configuration are secrets.

use reqwest::Url;

use super::ENVIRONMENT_MINIMUM;
use super::expansion::Expanded;

/// Shorter values are too likely to occur elsewhere.
const SECRET_BYTES_MIN: usize = 6;
/// Words that make a name that of a secret, wherever they occur in it.
const SECRET_WORDS: [&str; 11] = [
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "credential",
    "cookie",
    "bearer",
    "session",
];
/// The same at the end of a word of a name only: `PATH`, `author` and `passive` are no secrets.
const SECRET_ENDINGS: [&str; 6] = ["auth", "creds", "dsn", "pass", "pat", "pwd"];
/// The working directory, whatever its name ends in.
const DIRECTORIES: [&str; 2] = ["PWD", "OLDPWD"];
const SEGMENT_BYTES_MAX: usize = 32;
/// From this length on, a segment of a URL's path with digits and letters may be a credential.
const URL_SEGMENT_BYTES_MIN: usize = 20;

/// Which field of the configuration a value is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigField<'a> {
    /// Not secret, except for variables with the name of a secret.
    Command,
    /// `previous` is the argument before it.
    Argument {
        previous: Option<&'a str>,
    },
    Url,
    /// Parts that come from the environment are secret; all of it is, if the name is that of a secret.
    Variable {
        name: &'a str,
    },
    Header,
}

/// The secrets in one value of the configuration.
pub(super) fn secrets(expanded: &Expanded, field: ConfigField<'_>) -> Vec<String> {
    let text = expanded.text.as_str();
    let mut found: Vec<String> = Vec::new();
    for (name, value) in &expanded.variables {
        // A directory occurs in many results, which would be useless without it.
        let is_known = ENVIRONMENT_MINIMUM.contains(&name.as_str()) || is_path(value);
        if names_a_secret(name) || (matches!(field, ConfigField::Variable { .. } | ConfigField::Header) && !is_known) {
            found.push(value.clone());
        }
    }
    let is_secret = match field {
        ConfigField::Command | ConfigField::Url | ConfigField::Argument { .. } => false,
        ConfigField::Variable { name } => names_a_secret(name) || !found.is_empty(),
        ConfigField::Header => true,
    };
    if is_secret {
        found.push(text.to_owned());
        // The scheme of `Bearer abc` is no secret, and the rest may be echoed without it.
        found.extend(text.split_once(' ').map(|(_scheme, rest)| rest.trim().to_owned()));
    }
    if let ConfigField::Argument { previous } = field {
        found.extend(in_argument(previous, text).map(str::to_owned));
    }
    found.extend(in_url(text));
    found.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
    found
}

/// `--token abc`, `--token=abc`, `-e API_KEY=abc`, `--header "X-Api-Key: abc"`.
fn in_argument<'a>(previous: Option<&str>, text: &'a str) -> impl Iterator<Item = &'a str> {
    let after_flag = previous.is_some_and(|flag| flag.starts_with('-') && !flag.contains('=') && names_a_secret(flag));
    let whole = (after_flag && !text.starts_with("--")).then_some(text);
    let assigned = text.split_once('=').filter(|(name, _)| !name.contains("://") && names_a_secret(name));
    let after_header = previous.is_some_and(|flag| ["-H", "--header"].contains(&flag));
    let headed =
        text.strip_prefix("--header=").or(after_header.then_some(text)).and_then(|header| header.split_once(':'));
    let values = [whole, assigned.map(|(_, value)| value), headed.map(|(_, value)| value.trim())];
    // The number in `--max-tokens 100000` is no secret.
    let is_count = |value: &str| value.bytes().all(|byte| byte.is_ascii_digit());
    values
        .into_iter()
        .flatten()
        .filter(move |value| !is_count(value))
        .flat_map(|value| [Some(value), value.split_once(' ').map(|(_scheme, rest)| rest.trim())].into_iter().flatten())
}

/// The credentials of a URL, percent-encoded and decoded.
fn in_url(text: &str) -> Vec<String> {
    let Some(url) = text.contains("://").then(|| Url::parse(text).ok()).flatten() else { return Vec::new() };
    let mut found = Vec::new();
    // Without a password, the user name is often a token.
    for part in [Some(url.username()).filter(|_| url.password().is_none()), url.password()].into_iter().flatten() {
        found.extend([part.to_owned(), decoded(part)]);
    }
    let written = url.query().into_iter().flat_map(|query| query.split('&'));
    found.extend(written.filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned()));
    found.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    let segments = url.path_segments().into_iter().flatten();
    let may_be_credential = |segment: &&str| {
        segment.len() >= URL_SEGMENT_BYTES_MIN
            && segment.contains(|letter: char| letter.is_ascii_digit())
            && segment.contains(|letter: char| letter.is_ascii_alphabetic())
    };
    if matches!(url.scheme(), "http" | "https") {
        found.extend(segments.filter(may_be_credential).map(str::to_owned));
    }
    found
}

fn decoded(text: &str) -> String {
    let query = format!("a={}", text.replace('+', "%2B"));
    Url::parse("http://localhost/")
        .map(|mut url| {
            url.set_query(Some(&query));
            url.query_pairs().next().map(|(_, value)| value.into_owned()).unwrap_or_default()
        })
        .unwrap_or_default()
}

pub(super) fn names_a_secret(name: &str) -> bool {
    if DIRECTORIES.contains(&name) {
        return false;
    }
    let lower = name.to_lowercase();
    let ends = |word: &str| SECRET_ENDINGS.iter().any(|ending| word.to_lowercase().ends_with(ending));
    SECRET_WORDS.iter().any(|word| lower.contains(word)) || words(name).any(ends)
}

/// The words of a name: `gitlabPat`, `GITLAB_PAT` and `--gitlab-pat` have the same ones.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|letter: char| !letter.is_ascii_alphanumeric()).flat_map(|part| {
        let humps = part.as_bytes().windows(2).enumerate();
        let starts = humps.filter(|(_, pair)| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
        let mut ends: Vec<usize> = starts.map(|(index, _)| index + 1).collect();
        ends.push(part.len());
        let mut begin = 0;
        ends.into_iter().map(move |end| &part[std::mem::replace(&mut begin, end)..end])
    })
}

/// Whether a value looks like a path. Whether the path exists is not checked. Keys in base64 may begin with a slash, too, but
/// names in a path are short, and few of them mix capitals, digits and the other characters of base64.
fn is_path(value: &str) -> bool {
    let is_name = |segment: &str| {
        let has = |kind: fn(&char) -> bool| segment.chars().any(|letter| kind(&letter));
        let is_mixed = has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && has(char::is_ascii_digit);
        segment.len() <= SEGMENT_BYTES_MAX && !segment.contains(['+', '=']) && !(is_mixed && segment.len() >= 8)
    };
    value.starts_with('/')
        && value.split('/').filter(|segment| !segment.is_empty()).count() >= 2
        && value.split('/').all(is_name)
}
