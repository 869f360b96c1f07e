//! Errors in OpenAI's shape.

use std::time::Duration;

use serde_json::{Value, json};

use super::file::{Fields, Node, Tree};
use super::turn::header_value;
use super::{Ending, Piece, Reply, ScriptError, content_type};

/// An error as a provider tells it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) kind: String,
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
            kind: fields.text("type")?.unwrap_or_else(|| Failure::kind_of(status).into()),
            param: None,
            code: fields.text("code")?,
            headers: headers.into(),
        })
    }

    /// A request that no strict provider takes.
    pub(super) fn invalid(message: impl Into<String>, param: Option<String>) -> Failure {
        let kind = Failure::kind_of(400).into();
        Failure { status: 400, message: message.into(), kind, param, code: None, headers: Box::default() }
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

    /// The `type` that goes with a status.
    pub(super) fn kind_of(status: u16) -> &'static str {
        match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    pub(super) fn body(&self) -> Value {
        let Failure { message, kind, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }

    pub(super) fn reply(&self, delay: Duration) -> Reply {
        let mut headers = self.headers.to_vec();
        if !headers.iter().any(|(name, _)| name == "content-type") {
            headers.insert(0, content_type("application/json"));
        }
        let pieces = vec![Piece { delay, bytes: self.body().to_string().into() }];
        Reply { status: self.status, headers, pieces, ending: Ending::Complete }
    }
}
