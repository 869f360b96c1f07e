//! The model that a body names, and where.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The name of a model in a body that is otherwise passed on byte for byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelName {
    pub name: String,
    place: Range<usize>,
    form: BodyForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyForm {
    Json,
    /// A form with files, as for audio and images.
    Multipart,
}

#[derive(Deserialize)]
struct NamedBody<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
}

impl ModelName {
    /// `None` if the body names none.
    pub(super) fn find(body: &[u8]) -> Option<ModelName> {
        ModelName::in_json(body).or_else(|| ModelName::in_form(body))
    }

    fn in_json(body: &[u8]) -> Option<ModelName> {
        let NamedBody { model } = serde_json::from_slice(body).ok()?;
        let start = model.get().as_ptr() as usize - body.as_ptr() as usize;
        let name = serde_json::from_str(model.get()).ok()?;
        Some(ModelName { name, place: start..start + model.get().len(), form: BodyForm::Json })
    }

    /// The field `model` of a form: its value stands between an empty line and the next line break.
    fn in_form(body: &[u8]) -> Option<ModelName> {
        if !body.starts_with(b"--") {
            return None;
        }
        let head = memchr::memmem::find(body, b"name=\"model\"\r\n")?;
        let start = head + memchr::memmem::find(&body[head..], b"\r\n\r\n")? + 4;
        let end = start + memchr::memmem::find(&body[start..], b"\r\n")?;
        let name = std::str::from_utf8(&body[start..end]).ok()?.to_owned();
        Some(ModelName { name, place: start..end, form: BodyForm::Multipart })
    }

    /// The body with another name in this place.
    pub(super) fn replaced(&self, body: &[u8], model: &str) -> Bytes {
        let written = match self.form {
            BodyForm::Json => serde_json::Value::from(model).to_string(),
            BodyForm::Multipart => model.to_owned(),
        };
        let mut replaced = BytesMut::with_capacity(body.len() + written.len());
        replaced.extend_from_slice(&body[..self.place.start]);
        replaced.extend_from_slice(written.as_bytes());
        replaced.extend_from_slice(&body[self.place.end..]);
        replaced.freeze()
    }
}

/// A body for the model's name at an upstream.
pub(super) fn with_model<'a>(body: &'a Bytes, asked: &str, model: &str) -> Cow<'a, Bytes> {
    let found = if asked == model { None } else { ModelName::find(body) };
    found.map_or(Cow::Borrowed(body), |found| Cow::Owned(found.replaced(body, model)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_model_is_replaced() {
        let json = br#"{ "n": 1e400, "model" : "fast\u0021", "messages":[{"model":"x"}]}"#;
        let found = ModelName::find(json).unwrap();
        assert_eq!(found.name, "fast!");
        assert_eq!(
            found.replaced(json, "gpt \"5\""),
            br#"{ "n": 1e400, "model" : "gpt \"5\"", "messages":[{"model":"x"}]}"#.as_slice()
        );
        let form = b"--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\xff\r\n--b\r\n\
            content-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b--\r\n";
        let found = ModelName::find(form).unwrap();
        assert_eq!(found.name, "whisper-1");
        assert!(found.replaced(form, "w").ends_with(b"name=\"model\"\r\n\r\nw\r\n--b--\r\n"));
        for without in [&b"{}"[..], b"", b"[1]", b"--b", br#"{"model": 5}"#, b"model=x", br#"{"model": "cut"#] {
            assert_eq!(ModelName::find(without), None);
        }
    }
}
