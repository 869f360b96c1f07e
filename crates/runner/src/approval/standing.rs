//! What a person has decided for the rest of a program.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Approval, ApprovalQuestion, ApprovalVerdict};
use crate::tool_host::ToolDigest;

/// The decisions of a person that hold for further calls of one program.
///
/// ```
/// use dacapo_runner::{Approval, ApprovalQuestion, ApprovalVerdict, DefinitionChange, StandingApprovals, ToolCall};
/// let question = |args: &str| ApprovalQuestion {
///     call: ToolCall {
///         server: "disk".to_owned(),
///         tool: "delete".to_owned(),
///         args: serde_json::from_str(args).unwrap(),
///         idempotency_key: String::new(),
///         approved: None,
///     },
///     definition: None,
///     change: DefinitionChange::None,
/// };
/// let mut standing = StandingApprovals::default();
/// standing.record(&question(r#"{"path": "/tmp/a"}"#), ApprovalVerdict::AllowForProgram);
/// assert_eq!(standing.decide(&question(r#"{"path": "/tmp/b"}"#)), Some(Approval::Given));
/// assert_eq!(standing.decide(&question(r#"{"path": "/", "force": true}"#)), None, "the person is asked again");
/// ```
#[derive(Debug, Default)]
pub struct StandingApprovals {
    all_denied: bool,
    allowed: BTreeSet<AllowedCalls>,
}

/// Which calls are allowed for the rest of a program. Other values of the arguments are allowed too, other names and types
/// are not: an argument that the person has never seen could be the dangerous one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AllowedCalls {
    server: String,
    tool: String,
    definition: Option<ToolDigest>,
    shape: String,
}

impl StandingApprovals {
    /// What an earlier answer of the person decides about this call. `None` if the person has to be asked.
    pub fn decide(&self, question: &ApprovalQuestion) -> Option<Approval> {
        if self.all_denied {
            return Some(Approval::AllDeclined);
        }
        self.allowed.contains(&AllowedCalls::like(question)).then_some(Approval::Given)
    }

    /// Takes the person's answer to a question.
    pub fn record(&mut self, question: &ApprovalQuestion, verdict: ApprovalVerdict) -> Approval {
        match verdict {
            ApprovalVerdict::AllowOnce => Approval::Given,
            ApprovalVerdict::AllowForProgram => {
                self.allowed.insert(AllowedCalls::like(question));
                Approval::Given
            }
            ApprovalVerdict::Deny => Approval::Declined,
            ApprovalVerdict::DenyAll => {
                self.all_denied = true;
                Approval::AllDeclined
            }
            ApprovalVerdict::NoAnswer => Approval::Unavailable,
        }
    }
}

impl AllowedCalls {
    fn like(question: &ApprovalQuestion) -> AllowedCalls {
        let call = &question.call;
        AllowedCalls {
            server: call.server.clone(),
            tool: call.tool.clone(),
            definition: question.definition,
            shape: object_shape(&call.args),
        }
    }
}

/// Names and types of arguments, as a TypeScript type: `{ path: string, tags: string[] }`. Names that are no identifiers
/// are quoted, so two different shapes never have the same text.
pub(super) fn object_shape(fields: &Map<String, Value>) -> String {
    let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    let fields: Vec<String> =
        fields.into_iter().map(|(name, value)| format!("{}: {}", field_name(name), shape(value))).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}

fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "boolean".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(items) => {
            let shapes: BTreeSet<String> = items.iter().map(shape).collect();
            let shapes: Vec<String> = shapes.into_iter().collect();
            match shapes.as_slice() {
                [] => "never[]".to_owned(),
                [only] => format!("{only}[]"),
                _ => format!("({})[]", shapes.join(" | ")),
            }
        }
        Value::Object(fields) => object_shape(fields),
    }
}

fn field_name(name: &str) -> String {
    let is_identifier = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    if is_identifier { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::DefinitionChange;
    use super::*;
    use crate::tool_host::ToolCall;

    fn question(tool: &str, args: &Value, definition: &Value) -> ApprovalQuestion {
        let call = ToolCall {
            server: "s".to_owned(),
            tool: tool.to_owned(),
            args: args.as_object().expect("arguments are an object").clone(),
            idempotency_key: String::new(),
            approved: None,
        };
        ApprovalQuestion { call, definition: Some(ToolDigest::of(definition)), change: DefinitionChange::None }
    }

    #[test]
    fn an_approval_for_a_program_is_for_one_tool_and_one_shape_of_arguments() {
        let asked = question("erase", &json!({ "what": "a", "in": [1, 2] }), &json!(1));
        let mut standing = StandingApprovals::default();
        assert_eq!(standing.decide(&asked), None);
        assert_eq!(standing.record(&asked, ApprovalVerdict::AllowForProgram), Approval::Given);
        let same = question("erase", &json!({ "in": [3], "what": "b" }), &json!(1));
        assert_eq!(standing.decide(&same), Some(Approval::Given));
        for other in [
            question("erase", &json!({ "what": "a", "in": [1], "force": true }), &json!(1)),
            question("erase", &json!({ "what": { "all": true }, "in": [1] }), &json!(1)),
            question("erase", &json!({ "what": "a", "in": ["x"] }), &json!(1)),
            question("erase", &json!({ "what": "a" }), &json!(1)),
            question("wipe", &json!({ "what": "a", "in": [1] }), &json!(1)),
            question("erase", &json!({ "what": "a", "in": [1] }), &json!(2)),
        ] {
            assert_eq!(standing.decide(&other), None, "{other:?}");
        }
    }

    #[test]
    fn whoever_denies_all_is_not_asked_again() {
        let mut standing = StandingApprovals::default();
        let asked = question("erase", &json!({}), &json!(1));
        standing.record(&asked, ApprovalVerdict::AllowForProgram);
        assert_eq!(standing.record(&asked, ApprovalVerdict::DenyAll), Approval::AllDeclined);
        assert_eq!(standing.decide(&asked), Some(Approval::AllDeclined));
        assert_eq!(standing.decide(&question("echo", &json!({ "a": 1 }), &json!(1))), Some(Approval::AllDeclined));
    }

    #[test]
    fn a_shape_has_names_and_types_and_no_values() {
        let args = json!({ "b": [1, "x", null], "a": { "deep": true }, "c": [], "x: string, y": 1 });
        let Value::Object(args) = args else { panic!("it is an object") };
        let expected = r#"{ a: { deep: boolean }, b: (null | number | string)[], c: never[], "x: string, y": number }"#;
        assert_eq!(object_shape(&args), expected);
        assert_eq!(object_shape(&Map::new()), "{}");
    }
}
