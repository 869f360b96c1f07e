//! Which calls a program may make: decided call by call, not program by program.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Rules, of which the first that matches decides. What none matches is decided by its annotations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// The later, the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    Allow,
    /// Ask a person; where there is nobody to ask, deny.
    Ask,
    Deny,
}

/// What is left out matches everything.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    #[serde(default)]
    server: Option<Pattern>,
    #[serde(default)]
    tool: Option<Pattern>,
    /// Each must have the value that stands here; `null` stands for an annotation that is absent.
    #[serde(default)]
    annotations: Map<String, Value>,
    decision: Decision,
}

/// A name in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
struct Pattern(String);

impl Policy {
    pub fn new(rules: Vec<Rule>) -> Policy {
        Policy { rules }
    }

    pub(crate) fn decide(&self, server: &str, tool: &str, annotations: &Map<String, Value>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(server, tool, annotations));
        rule.map_or_else(|| by_annotations(annotations), |rule| rule.decision)
    }
}

impl Rule {
    fn matches(&self, server: &str, tool: &str, annotations: &Map<String, Value>) -> bool {
        let named = |pattern: &Option<Pattern>, name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
        named(&self.server, server)
            && named(&self.tool, tool)
            && self.annotations.iter().all(|(key, value)| annotations.get(key).unwrap_or(&Value::Null) == value)
    }
}

/// A server that speaks of what a tool changes is taken at its word, with the defaults of MCP for what it leaves open:
/// not read-only, and then destructive. A server that does not speak of it says nothing, and silence is no warning.
fn by_annotations(annotations: &Map<String, Value>) -> Decision {
    let hint = |key| annotations.get(key).and_then(Value::as_bool);
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (Some(true), _) | (_, Some(false)) | (None, None) => Decision::Allow,
        (_, Some(true)) | (Some(false), None) => Decision::Ask,
    }
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
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
}

/// Why a call was not made, in words for the model and for the person it works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    ByPolicy,
    ByPerson,
    /// It should be asked for, and there is nobody.
    NobodyToAsk,
}

impl Denial {
    pub(crate) fn message(self, server: &str, tool: &str) -> String {
        match self {
            Denial::ByPolicy => format!("not allowed: the configured policy denies `{server}.{tool}`"),
            Denial::ByPerson => format!("not allowed: the user was asked about `{server}.{tool}` and declined"),
            Denial::NobodyToAsk => format!(
                "not allowed: `{server}.{tool}` needs the user's approval, and this client has no way to ask; to allow \
                 it, the user can add {} to `dacapo.policy` in the configuration",
                json!({ "server": server, "tool": tool, "decision": "allow" })
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: Value) -> Policy {
        Policy::new(serde_json::from_value(rules).expect("these are rules"))
    }

    fn decide(policy: &Policy, server: &str, tool: &str, annotations: Value) -> Decision {
        let Value::Object(annotations) = annotations else { panic!("annotations are an object") };
        policy.decide(server, tool, &annotations)
    }

    #[test]
    fn without_rules_destructive_tools_are_asked_for_and_others_allowed() {
        let policy = Policy::default();
        let cases = [
            (json!({}), Decision::Allow),
            (json!({ "title": "Drop", "openWorldHint": true, "idempotentHint": false }), Decision::Allow),
            (json!({ "readOnlyHint": true }), Decision::Allow),
            (json!({ "readOnlyHint": true, "destructiveHint": true }), Decision::Allow),
            (json!({ "readOnlyHint": false, "destructiveHint": false }), Decision::Allow),
            (json!({ "destructiveHint": false }), Decision::Allow),
            (json!({ "destructiveHint": true }), Decision::Ask),
            (json!({ "readOnlyHint": false }), Decision::Ask),
            (json!({ "readOnlyHint": false, "destructiveHint": true }), Decision::Ask),
        ];
        for (annotations, decision) in cases {
            assert_eq!(decide(&policy, "fs", "write_file", annotations.clone()), decision, "{annotations}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(json!([
            { "server": "github", "tool": "delete_*", "decision": "deny" },
            { "server": "github", "annotations": { "destructiveHint": true }, "decision": "ask" },
            { "server": "git*", "decision": "allow" },
            { "annotations": { "readOnlyHint": null }, "decision": "ask" },
        ]));
        let destructive = || json!({ "destructiveHint": true });
        assert_eq!(decide(&policy, "github", "delete_repo", json!({ "readOnlyHint": true })), Decision::Deny);
        assert_eq!(decide(&policy, "github", "merge", destructive()), Decision::Ask);
        assert_eq!(decide(&policy, "github", "list", json!({})), Decision::Allow);
        assert_eq!(decide(&policy, "gitlab", "merge", destructive()), Decision::Allow);
        assert_eq!(decide(&policy, "sqlite", "read_query", json!({})), Decision::Ask);
        assert_eq!(decide(&policy, "sqlite", "read_query", json!({ "readOnlyHint": true })), Decision::Allow);
    }

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
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("**x**", "x", true),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aba", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(Pattern(pattern.to_owned()).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn rules_are_read_strictly() {
        for wrong in [
            json!({ "server": "x", "decision": "maybe" }),
            json!({ "server": "x" }),
            json!({ "servers": "x", "decision": "allow" }),
            json!({ "server": 1, "decision": "allow" }),
        ] {
            assert!(serde_json::from_value::<Rule>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
