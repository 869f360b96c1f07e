//! How large a JSON text becomes as a tree, counted before it is parsed.
//!
//! A value takes at least 32 bytes in memory and two in a text: 8 MiB of `[0,0,…]` would take hundreds of MiB.

use axum::http::StatusCode;

use super::errors::TurnError;

/// Refuses a text that holds more values than a body may, names of properties included.
pub(crate) fn check_values(json: &[u8], values_max: usize) -> Result<(), TurnError> {
    if json.len() < values_max {
        // A value takes at least a byte, so there cannot be too many.
        return Ok(());
    }
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
    let mut rest = json;
    while let Some(start) = memchr::memchr(b'"', rest) {
        count += structural(&rest[..start]);
        rest = after_text(&rest[start + 1..]);
    }
    count + structural(rest)
}

/// Characters outside of texts after which a value or a name follows.
fn structural(json: &[u8]) -> usize {
    json.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count()
}

/// What follows the quotation mark that ends a text.
fn after_text(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', text) {
        if text[at] == b'"' {
            return &text[at + 1..];
        }
        text = text.get(at + 2..).unwrap_or_default();
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_texts_are_not_looked_into() {
        for (json, count) in [("0", 1), ("[0,0]", 3), (r#"{"a":"[,\",:"}"#, 3), (r#"["\\",{}]"#, 4)] {
            assert_eq!(values(json.as_bytes()), count, "{json}");
        }
        for cut in ["\"", "[\"\\", "[\"a"] {
            assert!(values(cut.as_bytes()) <= 2, "{cut}");
        }
    }
}
