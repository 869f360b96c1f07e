//! The body of a request for a model.

use std::borrow::Cow;

use dacapo_replay::{json_size, write_json, write_json_string};
use serde_json::Value;

use crate::client_wire::Body;
use crate::unread_entries::UnreadEntries;

/// The body of a request for a model. Its history is most of it, and is borrowed until it is written.
#[derive(Debug)]
pub struct ModelRequestBody<'a> {
    /// With a placeholder where the history stands.
    fields: Body,
    history_field: &'static str,
    /// Stand before the history.
    unread: Option<&'a UnreadEntries>,
    history: Vec<Cow<'a, Value>>,
}

impl<'a> ModelRequestBody<'a> {
    /// The history stands where its field is in `fields`, whatever its value, or else at the end.
    pub(crate) fn new(
        mut fields: Body,
        history_field: &'static str,
        history: Vec<Cow<'a, Value>>,
    ) -> ModelRequestBody<'a> {
        fields.entry(history_field).or_insert(Value::Null);
        ModelRequestBody { fields, history_field, unread: None, history }
    }

    /// With these entries before the history.
    pub(crate) fn after_unread(mut self, unread: Option<&'a UnreadEntries>) -> ModelRequestBody<'a> {
        self.unread = unread;
        self
    }

    /// Asks for another model.
    pub fn set_model(&mut self, model: &str) {
        self.fields.insert("model".to_owned(), Value::from(model));
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let fields: usize = self.fields.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum();
        let history: usize = self.history.iter().map(|entry| json_size(entry) + 1).sum();
        let unread = self.unread.map_or(0, |unread| unread.text().len() + 1);
        let mut json = String::with_capacity(fields + unread + history + 2);
        for (at, (key, value)) in self.fields.iter().enumerate() {
            json.push(if at == 0 { '{' } else { ',' });
            write_json_string(&mut json, key);
            json.push(':');
            if key == self.history_field {
                self.write_history(&mut json);
            } else {
                write_json(&mut json, value);
            }
        }
        json.push('}');
        json.into_bytes()
    }

    fn write_history(&self, json: &mut String) {
        json.push('[');
        if let Some(unread) = self.unread {
            json.push_str(unread.text());
        }
        for (at, entry) in self.history.iter().enumerate() {
            if at > 0 || self.unread.is_some() {
                json.push(',');
            }
            write_json(json, entry);
        }
        json.push(']');
    }

    /// As a value, for whoever looks into it.
    pub fn into_json(self) -> Value {
        let ModelRequestBody { mut fields, history_field, unread, history } = self;
        // What cannot be parsed is for the provider to refuse.
        let unread = unread.and_then(|unread| unread.parse().ok()).unwrap_or_default();
        let history = unread.into_iter().chain(history.into_iter().map(Cow::into_owned));
        fields.insert(history_field.to_owned(), history.collect());
        Value::Object(fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_the_same_as_text_and_as_a_value() {
        let entries = [json!({"role": "user", "content": "Rain in \"Oslo\"?"}), json!({"role": "assistant"})];
        for length in 0..=entries.len() {
            for fields in
                [json!({}), json!({"messages": null}), json!({"model": "m", "messages": null, "stream": true})]
            {
                let Value::Object(fields) = fields else { panic!("an object") };
                let history = entries[..length].iter().map(Cow::Borrowed).collect();
                let body = ModelRequestBody::new(fields, "messages", history);
                let bytes = body.to_bytes();
                let json = body.into_json();
                assert_eq!(String::from_utf8(bytes).unwrap(), json.to_string());
                assert_eq!(json["messages"], json!(entries[..length]));
            }
        }
    }
}
