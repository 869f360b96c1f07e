//! What calls of a tool may do.

use serde_json::Value;

use crate::pattern::matches_pattern;

/// What a call of a tool may do. It decides whether a call may be repeated, and whether an earlier answer may be stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing changes.
    Read,
    /// Something may change, but executing the call twice is like executing it once.
    Idempotent,
    /// Everything else, and whatever is not known.
    Write,
}

/// First words of names that mean reading.
const READING_WORDS: [&str; 16] = [
    "get", "list", "read", "find", "search", "fetch", "query", "describe", "count", "check", "show", "lookup", "view",
    "grep", "glob", "is",
];

impl Effect {
    /// All effects.
    pub const ALL: [Effect; 3] = [Effect::Read, Effect::Idempotent, Effect::Write];

    /// The effect's name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Idempotent => "idempotent",
            Effect::Write => "write",
        }
    }

    /// Reads [`Effect::name`].
    pub fn parse(name: &str) -> Option<Effect> {
        Effect::ALL.into_iter().find(|effect| effect.name() == name)
    }

    /// What MCP annotations promise: a tool that says it is destructive reads nothing only. `None` if they say nothing.
    ///
    /// ```
    /// use dacapo_catalog::Effect;
    /// let annotations = serde_json::json!({"readOnlyHint": true});
    /// assert_eq!(Effect::of_annotations(&annotations), Some(Effect::Read));
    /// ```
    pub fn of_annotations(annotations: &Value) -> Option<Effect> {
        let hint = |key: &str| annotations.get(key).and_then(Value::as_bool);
        match (hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint")) {
            (Some(true), Some(true), _) => Some(Effect::Write),
            (Some(true), _, _) => Some(Effect::Read),
            (_, _, Some(true)) => Some(Effect::Idempotent),
            (Some(false), _, _) | (_, Some(_), _) | (_, _, Some(false)) => Some(Effect::Write),
            (None, None, None) => None,
        }
    }

    /// What the name suggests: a first word such as `get` or `list` means reading, anything else writing.
    ///
    /// ```
    /// use dacapo_catalog::Effect;
    /// assert_eq!(Effect::of_name("listIssues"), Effect::Read);
    /// assert_eq!(Effect::of_name("getaway_book"), Effect::Write);
    /// ```
    pub fn of_name(name: &str) -> Effect {
        // `mcp__server__tool` and `server.tool`: the tool's own name comes last.
        let own = name.rsplit("__").next().unwrap_or(name);
        let own = own.rsplit(['.', '/']).next().unwrap_or(own);
        let is_end = |(at, letter): (usize, char)| {
            !letter.is_alphanumeric() || at > 0 && letter.is_uppercase() && !own[..at].ends_with(char::is_uppercase)
        };
        let end = own.char_indices().find(|part| is_end(*part)).map_or(own.len(), |(at, _)| at);
        let word = own[..end].to_lowercase();
        if READING_WORDS.contains(&word.as_str()) { Effect::Read } else { Effect::Write }
    }
}

/// What an operator says of tools, by patterns of their names. It comes before what the tools say of themselves, so that a
/// wrong annotation can be put right.
///
/// ```
/// use dacapo_catalog::{Effect, EffectRules};
/// let rules = EffectRules::new([("get_*".to_owned(), Effect::Read), ("get_and_*".to_owned(), Effect::Write)]);
/// assert_eq!(rules.of("get_user"), Some(Effect::Read));
/// assert_eq!(rules.of("get_and_lock"), Some(Effect::Write));
/// assert_eq!(rules.of("pay"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectRules(Vec<(String, Effect)>);

impl EffectRules {
    /// Rules of a pattern and an effect each. `*` stands for any characters.
    pub fn new(rules: impl IntoIterator<Item = (String, Effect)>) -> EffectRules {
        let mut rules: Vec<(String, Effect)> = rules.into_iter().collect();
        // The most particular pattern is asked first.
        rules.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.chars().filter(|letter| *letter != '*').count()));
        EffectRules(rules)
    }

    /// The effect of a tool with this qualified name, if a pattern fits it.
    pub fn of(&self, qualified_name: &str) -> Option<Effect> {
        self.0.iter().find(|(pattern, _)| matches_pattern(pattern, qualified_name)).map(|(_, effect)| *effect)
    }

    /// The rules, the most particular first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Effect)> {
        self.0.iter().map(|(pattern, effect)| (pattern.as_str(), *effect))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_begin_with_a_reading_word_read() {
        let reads =
            ["get", "get_user", "getUser", "GetUser", "READ", "list-files", "mcp__github__search_code", "fs.read"];
        let writes =
            ["pay", "getaway", "web_search", "reader_add", "", "create_list", "_", "listen", "get_user__delete"];
        assert_eq!(reads.map(Effect::of_name), [Effect::Read; 8]);
        assert_eq!(writes.map(Effect::of_name), [Effect::Write; 9]);
    }

    #[test]
    fn annotations_decide_before_names_and_destruction_before_reading() {
        let cases = [
            (json!({}), None),
            (json!({"title": "x"}), None),
            (json!({"readOnlyHint": true}), Some(Effect::Read)),
            (json!({"readOnlyHint": true, "destructiveHint": true}), Some(Effect::Write)),
            (json!({"readOnlyHint": false}), Some(Effect::Write)),
            (json!({"idempotentHint": true, "destructiveHint": true}), Some(Effect::Idempotent)),
            (json!({"readOnlyHint": "yes"}), None),
        ];
        for (annotations, expected) in cases {
            assert_eq!(Effect::of_annotations(&annotations), expected, "{annotations}");
        }
    }
}
