//! Which calls a program may make. Each call is decided on its own.

use dacapo_replay::matches_pattern;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Rules, of which the first that matches a call decides. A call that no rule matches is decided by the annotations of its
/// tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Policy {
    rules: Vec<PolicyRule>,
}

/// What to do with a call, in order of strictness: the later, the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Make the call.
    Allow,
    /// Ask a person. If nobody can be asked, the call is denied.
    Ask,
    /// Do not make the call.
    Deny,
}

/// One rule of a [`Policy`], as it is written in the configuration. A field that is left out matches every call.
///
/// ```
/// # use dacapo_runner::PolicyRule;
/// let rule: PolicyRule = serde_json::from_str(r#"{"server": "github", "tool": "delete_*", "decision": "deny"}"#)?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    tool: Option<String>,
    /// Each must have the value that is given here. `null` matches an annotation that is absent.
    #[serde(default)]
    annotations: Map<String, Value>,
    decision: Decision,
}

impl Policy {
    /// A policy of these rules, the first of which has precedence.
    pub fn new(rules: Vec<PolicyRule>) -> Policy {
        Policy { rules }
    }

    pub(crate) fn decide(&self, server: &str, tool: &str, annotations: &Map<String, Value>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(server, tool, annotations));
        rule.map_or_else(|| by_annotations(annotations), |rule| rule.decision)
    }
}

impl PolicyRule {
    fn matches(&self, server: &str, tool: &str, annotations: &Map<String, Value>) -> bool {
        let matches =
            |pattern: &Option<String>, name| pattern.as_ref().is_none_or(|pattern| matches_pattern(pattern, name));
        matches(&self.server, server)
            && matches(&self.tool, tool)
            && self.annotations.iter().all(|(key, value)| annotations.get(key).unwrap_or(&Value::Null) == value)
    }
}

/// A tool that says it is destructive is asked for, whatever else it says, and so is one whose hints are no booleans. If
/// a tool has one of the two hints, the other has the default of MCP: not read-only, and then destructive. A tool without hints is allowed: most servers give none, and asking for each of their calls would teach
/// people to approve without reading.
fn by_annotations(annotations: &Map<String, Value>) -> Decision {
    let hints = ["readOnlyHint", "destructiveHint"].map(|key| annotations.get(key).filter(|hint| !hint.is_null()));
    match hints.map(|hint| hint.map(Value::as_bool)) {
        [Some(None), _] | [_, Some(None | Some(true))] | [Some(Some(false)), None] => Decision::Ask,
        [Some(Some(true)), _] | [_, Some(Some(false))] | [None, None] => Decision::Allow,
    }
}

/// Why a call was not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    ByPolicy,
    ByPerson,
    /// The person denied all further calls of the program that need an approval.
    ByPersonForAll,
    /// The tool changed each time while the person was asked.
    KeepsChanging,
    /// It needs an approval, and nobody can be asked.
    NobodyToAsk,
}

impl Denial {
    /// For the model, and for the person it works for.
    pub(crate) fn message(self, server: &str, tool: &str) -> String {
        match self {
            Denial::ByPolicy => format!("not allowed: the configured policy denies `{server}.{tool}`"),
            Denial::ByPerson => format!("not allowed: the user was asked about `{server}.{tool}` and declined"),
            Denial::ByPersonForAll => format!(
                "not allowed: `{server}.{tool}` needs the user's approval, and the user has denied all further calls of \
                 this program that need one; do not ask again, end the program"
            ),
            Denial::KeepsChanging => format!(
                "not allowed: what the server says of `{server}.{tool}` changed each time while the user was asked about it"
            ),
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

    fn decide(policy: &Policy, server: &str, tool: &str, annotations: &Value) -> Decision {
        policy.decide(server, tool, annotations.as_object().expect("annotations are an object"))
    }

    #[test]
    fn without_rules_destructive_tools_are_asked_for_and_others_allowed() {
        let policy = Policy::default();
        let cases = [
            (json!({}), Decision::Allow),
            (json!({ "title": "Drop", "openWorldHint": true, "idempotentHint": false }), Decision::Allow),
            (json!({ "readOnlyHint": true }), Decision::Allow),
            (json!({ "readOnlyHint": true, "destructiveHint": true }), Decision::Ask),
            (json!({ "readOnlyHint": true, "destructiveHint": "true" }), Decision::Ask),
            (json!({ "readOnlyHint": "yes" }), Decision::Ask),
            (json!({ "readOnlyHint": null, "destructiveHint": null }), Decision::Allow),
            (json!({ "readOnlyHint": true, "destructiveHint": false }), Decision::Allow),
            (json!({ "readOnlyHint": false, "destructiveHint": false }), Decision::Allow),
            (json!({ "destructiveHint": false }), Decision::Allow),
            (json!({ "destructiveHint": true }), Decision::Ask),
            (json!({ "readOnlyHint": false }), Decision::Ask),
            (json!({ "readOnlyHint": false, "destructiveHint": true }), Decision::Ask),
        ];
        for (annotations, decision) in cases {
            assert_eq!(decide(&policy, "fs", "write_file", &annotations), decision, "{annotations}");
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
        assert_eq!(decide(&policy, "github", "delete_repo", &json!({ "readOnlyHint": true })), Decision::Deny);
        assert_eq!(decide(&policy, "github", "merge", &destructive()), Decision::Ask);
        assert_eq!(decide(&policy, "github", "list", &json!({})), Decision::Allow);
        assert_eq!(decide(&policy, "gitlab", "merge", &destructive()), Decision::Allow);
        assert_eq!(decide(&policy, "sqlite", "read_query", &json!({})), Decision::Ask);
        assert_eq!(decide(&policy, "sqlite", "read_query", &json!({ "readOnlyHint": true })), Decision::Allow);
    }

    #[test]
    fn rules_are_read_strictly() {
        for wrong in [
            json!({ "server": "x", "decision": "maybe" }),
            json!({ "server": "x" }),
            json!({ "servers": "x", "decision": "allow" }),
            json!({ "server": 1, "decision": "allow" }),
        ] {
            assert!(PolicyRule::deserialize(&wrong).is_err(), "{wrong}");
        }
    }
}
