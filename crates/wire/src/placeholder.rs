//! Texts that clients put in the place of old tool results, to save context.

use dacapo_replay::Answer;

/// Longer texts say more than that something is gone.
const BYTES_MAX: usize = 300;

const BRACKETS: [(char, char); 3] = [('[', ']'), ('(', ')'), ('<', '>')];

/// What clients call it: "[cleared]", "[Old tool result content cleared]", "<output omitted>".
const WORDS: [&str; 9] =
    ["cleared", "compacted", "elided", "masked", "omitted", "pruned", "removed", "trimmed", "truncated"];

/// Whether an answer stands for one that the client has thrown away.
pub(crate) fn is_placeholder(answer: &Answer) -> bool {
    let Answer::Ok(json) = answer else { return false };
    json.size() <= BYTES_MAX && json.as_string().is_some_and(|text| is_placeholder_text(text.trim()))
}

fn is_placeholder_text(text: &str) -> bool {
    let is_bracketed = BRACKETS.iter().any(|(open, close)| text.starts_with(*open) && text.ends_with(*close));
    let text = text.to_lowercase();
    let has_word = || text.split(|char: char| !char.is_alphanumeric()).any(|word| WORDS.contains(&word));
    let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
    is_bracketed && has_word() && !is_json()
}

#[cfg(test)]
mod tests {
    use super::is_placeholder_text;

    #[test]
    fn only_a_bracketed_notice_is_a_placeholder() {
        let placeholders =
            ["[cleared]", "[Old tool result content cleared]", "<output omitted>", "(result removed to save context)"];
        for text in placeholders {
            assert!(is_placeholder_text(text), "{text}");
        }
        for text in ["cleared", "[\"cleared\"]", "[order 7 shipped]", "removed 3 files", "[]", "[1] removed [2]x"] {
            assert!(!is_placeholder_text(text), "{text}");
        }
    }
}
