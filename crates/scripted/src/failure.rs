//! Errors in the shapes of the providers.

use std::time::Duration;

use dacapo_wire::Wire;
use serde_json::{Value, json};

use super::file::{Fields, Node, Tree};
use super::ids::Ids;
use super::turn::header_value;
use super::{Ending, Piece, Reply, ScriptError, content_type};

/// An error as a provider tells it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    /// What the status says, if absent.
    pub(super) kind: Option<String>,
    pub(super) param: Option<String>,
    pub(super) code: Option<String>,
    pub(super) headers: Box<[(String, String)]>,
}

impl Failure {
    /// The `error` of a turn.
    pub(super) fn read(node: Node, path: &str) -> Result<Failure, ScriptError> {
        let known = ["status", "message", "type", "code", "retry_after", "headers"];
        let mut fields = Fields::read(node, path, &known)?;
        let status = fields.whole("status", 400..=599)?.ok_or_else(|| fields.error("needs `status`"))? as u16;
        let mut headers = Vec::new();
        if let Some(node) = fields.take("retry_after") {
            let path = fields.path_of("retry_after");
            let seconds = match &node.tree {
                Tree::Scalar(Value::Number(seconds)) => seconds.to_string(),
                _ => header_value(node, &path)?,
            };
            headers.push(("retry-after".into(), seconds));
        }
        let path = fields.path_of("headers");
        for (line, name, node) in fields.open_table("headers")? {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            if name.is_empty() || !name.bytes().all(token) {
                let message = format!("{path}: `{name}` is no name of a header; use letters, digits, `-` and `_`");
                return Err(ScriptError::new(line, message));
            }
            let value = header_value(node, &path)?;
            headers.push((name.to_ascii_lowercase(), value));
        }
        Ok(Failure {
            status,
            message: fields.required_text("message")?,
            kind: fields.text("type")?,
            param: None,
            code: fields.text("code")?,
            headers: headers.into(),
        })
    }

    /// A request that no strict provider takes.
    pub(super) fn invalid(message: impl Into<String>, param: Option<String>) -> Failure {
        Failure { status: 400, message: message.into(), kind: None, param, code: None, headers: Box::default() }
    }

    pub(super) fn missing(param: String) -> Failure {
        Failure::invalid(format!("Missing required parameter: '{param}'."), Some(param))
            .with_code("missing_required_parameter")
    }

    pub(super) fn wrong_type(param: String, expected: &str, found: &Value) -> Failure {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(number) if number.is_f64() => "a decimal",
            Value::Number(_) => "an integer",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let message = format!("Invalid type for '{param}': expected {expected}, but got {found} instead.");
        Failure::invalid(message, Some(param)).with_code("invalid_type")
    }

    pub(super) fn empty_array(param: String) -> Failure {
        let expected = "Expected an array with minimum length 1, but got an empty array instead.";
        Failure::invalid(format!("Invalid '{param}': empty array. {expected}"), Some(param)).with_code("empty_array")
    }

    pub(super) fn with_code(self, code: &str) -> Failure {
        Failure { code: Some(code.into()), ..self }
    }

    pub(super) fn with_status(self, status: u16) -> Failure {
        Failure { status, ..self }
    }

    fn kind(&self, wire: Wire) -> &str {
        let by_status = || match (wire, self.status) {
            (_, 401) => "authentication_error",
            (_, 403) => "permission_error",
            (_, 404) if wire != Wire::Responses => "not_found_error",
            (_, 429) => "rate_limit_error",
            (Wire::Messages, 402) => "billing_error",
            (Wire::Messages, 413) => "request_too_large",
            (Wire::Messages, 504) => "timeout_error",
            (Wire::Messages, 529) => "overloaded_error",
            (Wire::Messages, 500..) => "api_error",
            (_, 500..) => "server_error",
            _ => "invalid_request_error",
        };
        self.kind.as_deref().unwrap_or_else(by_status)
    }

    pub(super) fn body(&self, wire: Wire, ids: &Ids) -> Value {
        let Failure { message, param, code, .. } = self;
        let kind = self.kind(wire);
        match wire {
            Wire::Chat | Wire::Responses => {
                json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
            }
            Wire::Messages => {
                let mut error = json!({"type": kind, "message": message});
                if let Some(code) = code {
                    error["details"] = json!({"error_code": code});
                }
                json!({"type": "error", "error": error, "request_id": ids.request()})
            }
        }
    }

    pub(super) fn reply(&self, wire: Wire, ids: &Ids, delay: Duration) -> Reply {
        let mut headers = self.headers.to_vec();
        if !headers.iter().any(|(name, _)| name == "content-type") {
            headers.insert(0, content_type("application/json"));
        }
        let pieces = vec![Piece { delay, bytes: self.body(wire, ids).to_string().into() }];
        Reply { status: self.status, headers, pieces, ending: Ending::Complete }
    }
}
