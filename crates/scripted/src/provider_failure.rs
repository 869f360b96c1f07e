//! Error responses in the format of each provider.

use std::time::Duration;

use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::ids::IdGenerator;
use crate::script_file::{TomlFields, TomlNode, TomlValue};
use crate::script_turn::header_value;
use crate::{BodyChunk, ReplyEnding, ScriptFileError, ScriptedReply, content_type};

/// An error of a provider.
#[derive(Debug, Clone)]
pub(crate) struct ProviderFailure {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// `type` of the error. If absent, it follows from the status.
    pub(crate) kind: Option<String>,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) headers: Box<[(String, String)]>,
}

impl ProviderFailure {
    /// Reads the `error` of a turn.
    pub(crate) fn read(node: TomlNode, path: &str) -> Result<ProviderFailure, ScriptFileError> {
        let known = ["status", "message", "type", "code", "retry_after", "headers"];
        let mut fields = TomlFields::read(node, path, &known)?;
        let status = fields.whole("status", 400..=599)?.ok_or_else(|| fields.error("needs `status`"))? as u16;
        let mut headers = Vec::new();
        if let Some(node) = fields.take("retry_after") {
            let path = fields.path_of("retry_after");
            let seconds = match &node.value {
                TomlValue::Scalar(Value::Number(seconds)) => seconds.to_string(),
                _ => header_value(node, &path)?,
            };
            headers.push(("retry-after".into(), seconds));
        }
        let path = fields.path_of("headers");
        for (line, name, node) in fields.open_table("headers")? {
            let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            if name.is_empty() || !name.bytes().all(token) {
                let message = format!("{path}: `{name}` is not a valid header name; use letters, digits, `-` and `_`");
                return Err(ScriptFileError::new(line, message));
            }
            let value = header_value(node, &path)?;
            headers.push((name.to_ascii_lowercase(), value));
        }
        Ok(ProviderFailure {
            status,
            message: fields.required_text("message")?,
            kind: fields.text("type")?,
            param: None,
            code: fields.text("code")?,
            headers: headers.into(),
        })
    }

    /// The error for an invalid request.
    pub(crate) fn invalid(message: impl Into<String>, param: Option<String>) -> ProviderFailure {
        ProviderFailure { status: 400, message: message.into(), kind: None, param, code: None, headers: Box::default() }
    }

    pub(crate) fn missing(param: String) -> ProviderFailure {
        ProviderFailure::invalid(format!("Missing required parameter: '{param}'."), Some(param))
            .with_code("missing_required_parameter")
    }

    pub(crate) fn wrong_type(param: String, expected: &str, found: &Value) -> ProviderFailure {
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
        ProviderFailure::invalid(message, Some(param)).with_code("invalid_type")
    }

    pub(crate) fn empty_array(param: String) -> ProviderFailure {
        let expected = "Expected an array with minimum length 1, but got an empty array instead.";
        ProviderFailure::invalid(format!("Invalid '{param}': empty array. {expected}"), Some(param))
            .with_code("empty_array")
    }

    pub(crate) fn with_code(self, code: &str) -> ProviderFailure {
        ProviderFailure { code: Some(code.into()), ..self }
    }

    pub(crate) fn with_status(self, status: u16) -> ProviderFailure {
        ProviderFailure { status, ..self }
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

    pub(crate) fn body(&self, wire: Wire, ids: &IdGenerator) -> Value {
        let ProviderFailure { message, param, code, .. } = self;
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

    pub(crate) fn reply(&self, wire: Wire, ids: &IdGenerator, delay: Duration) -> ScriptedReply {
        let mut headers = self.headers.to_vec();
        if !headers.iter().any(|(name, _)| name == "content-type") {
            headers.insert(0, content_type("application/json"));
        }
        let chunks = vec![BodyChunk { delay, bytes: self.body(wire, ids).to_string().into() }];
        ScriptedReply { status: self.status, headers, chunks, ending: ReplyEnding::Complete }
    }
}
