//! An answer that came and could not be taken. The transport answers in the server's place, so that nobody waits.

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Value, json};

/// Tells our errors from the server's. A server that uses it itself is only understood as if it were we.
const MARK: &str = "dacapo/not-taken";

/// `bytes` is `None` if nobody knows how many.
pub(super) fn too_long(bytes: Option<usize>) -> ErrorData {
    error("its answer is too long", &json!(bytes))
}

pub(super) fn invalid() -> ErrorData {
    error("its answer is no valid JSON-RPC message", &json!("invalid"))
}

fn error(message: &'static str, why: &Value) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, message, Some(json!({ MARK: why })))
}

/// Why an answer was not taken, if that is what the error says.
pub(super) fn reason(error: &ErrorData, bytes_max: usize) -> Option<String> {
    match error.data.as_ref()?.get(MARK)? {
        Value::Null => Some(too_large(None, bytes_max)),
        Value::Number(bytes) => Some(too_large(bytes.as_u64(), bytes_max)),
        _ => Some("it is no valid JSON-RPC message".to_owned()),
    }
}

pub(super) fn too_large(bytes: Option<u64>, bytes_max: usize) -> String {
    let has = bytes.map_or_else(|| "it is longer than that".to_owned(), |bytes| format!("it has {bytes} bytes"));
    format!("at most {bytes_max} bytes are taken and {has}; ask for less: a page, a filter, fewer fields")
}
