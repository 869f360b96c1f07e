//! A response that arrived and cannot be used: too long, or no JSON. The transport responds with an error in the server's
//! place, so that the call does not wait for ever.

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::{Value, json};

/// The key in the data of an error that distinguishes our errors from the server's.
const MARK: &str = "dacapo/rejected-response";

/// `bytes` is `None` if the length is not known.
pub(super) fn too_long(bytes: Option<usize>) -> ErrorData {
    error("its answer is too long", &json!(bytes))
}

pub(super) fn invalid() -> ErrorData {
    error("its answer is no valid JSON-RPC message", &json!("invalid"))
}

fn error(message: &'static str, why: &Value) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, message, Some(json!({ MARK: why })))
}

/// Why a response was rejected, if the error is one of ours.
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
