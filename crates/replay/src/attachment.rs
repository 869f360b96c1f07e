//! Images, sounds and files in answers. A program has an object with a handle for each; the model gets those whose
//! handles are in what the program returns or writes.

use std::collections::BTreeSet;

use serde_json::Value;

/// Content of an answer that is not text: an image, sound, a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// Identifies it in the answer, where the object that stands for it has the field `"handle"`.
    pub handle: String,
    /// The content block, as it came.
    pub block: Value,
}

const PREFIX: &str = "attachment:";

impl Attachment {
    /// The handle of the block at this position of the answer to the call with this key, which has letters, digits, `-`
    /// and `_`. It is the same on every replay.
    pub fn handle(key: &str, position: usize) -> String {
        format!("{PREFIX}{key}/{position}")
    }
}

/// The handles in a text, each once, in their order. The text may be JSON, or hold JSON in its strings.
///
/// ```
/// let text = r#"{"a": "attachment:1f-0/2", "b": "see \"attachment:1f-0/12\" and attachment:1f-0/2"}"#;
/// assert_eq!(dacapo_replay::handles_in(text), ["attachment:1f-0/2", "attachment:1f-0/12"]);
/// ```
pub fn handles_in(text: &str) -> Vec<&str> {
    let is_of_key = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut handles = Vec::new();
    let mut known = BTreeSet::new();
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        rest = &rest[at..];
        let bytes = &rest.as_bytes()[PREFIX.len()..];
        let key = bytes.iter().take_while(|byte| is_of_key(byte)).count();
        let is_separated = bytes.get(key) == Some(&b'/');
        let digits = bytes[key..].iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        if key == 0 || !is_separated || digits == 0 {
            rest = &rest[PREFIX.len()..];
            continue;
        }
        let (handle, after) = rest.split_at(PREFIX.len() + key + 1 + digits);
        if known.insert(handle) {
            handles.push(handle);
        }
        rest = after;
    }
    handles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_like_a_handle_is_none() {
        assert_eq!(
            handles_in("attachment: attachment:a attachment:a/ attachment:/1 attachment:é/1"),
            Vec::<&str>::new()
        );
        assert_eq!(handles_in("attachment:attachment:a-0/1"), ["attachment:a-0/1"]);
        assert_eq!(handles_in(&Attachment::handle("k-7", 10)), ["attachment:k-7/10"]);
    }
}
