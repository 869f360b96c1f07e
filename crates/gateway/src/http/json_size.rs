//! How large a JSON text becomes as a tree, counted before it is parsed.
//!
//! A value takes at least 32 bytes in memory and two in a text: 8 MiB of `[0,0,…]` would take hundreds of MiB.

use axum::http::StatusCode;

use super::errors::TurnError;

/// Refuses a text that holds more values than a body may, names of properties included.
pub(crate) fn check_values(json: &[u8], values_max: usize) -> Result<(), TurnError> {
    let values = values(json);
    if values <= values_max {
        return Ok(());
    }
    let message = format!(
        "the body has {values} JSON values, and no more than {values_max} are read (body_values_max); send lists of \
         many small values as text"
    );
    Err(TurnError::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message))
}

/// Exact for JSON. Whatever is not JSON is refused by the parser.
pub(crate) fn values(json: &[u8]) -> usize {
    let mut count = 1;
    let mut in_text = false;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_text = !in_text,
            b'\\' if in_text => _ = bytes.next(),
            b',' | b':' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_are_not_looked_into() {
        for (json, count) in [("0", 1), ("[0,0]", 3), (r#"{"a":"[,\",:"}"#, 3), (r#"["\\",{}]"#, 4)] {
            assert_eq!(values(json.as_bytes()), count, "{json}");
        }
    }
}
