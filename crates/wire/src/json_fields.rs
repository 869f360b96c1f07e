//! The fields of a JSON object, read one by one, so that a value whose end is known need not be parsed to find it.

use serde::Deserialize;
use serde_json::Deserializer;

/// A text is no JSON object. Whoever parses it as a whole sees what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotAnObject;

/// Reads an object from its text.
#[derive(Clone)]
pub(crate) struct JsonFields<'a> {
    json: &'a [u8],
    at: usize,
    is_first: bool,
}

impl<'a> JsonFields<'a> {
    pub(crate) fn of(json: &'a [u8]) -> Result<JsonFields<'a>, NotAnObject> {
        let mut fields = JsonFields { json, at: 0, is_first: true };
        fields.expect(b'{')?;
        Ok(fields)
    }

    /// The name of the next field, whose value has to be read then. `None` at the end of the text.
    pub(crate) fn next_name(&mut self) -> Result<Option<String>, NotAnObject> {
        if self.peek() == Some(b'}') {
            self.at += 1;
            return if self.peek().is_none() { Ok(None) } else { Err(NotAnObject) };
        }
        if !std::mem::replace(&mut self.is_first, false) {
            self.expect(b',')?;
        }
        let name = self.value()?;
        self.expect(b':')?;
        // The value begins at its first byte, not at a space.
        self.peek();
        Ok(Some(name))
    }

    /// Reads the value that follows.
    pub(crate) fn value<T: Deserialize<'a>>(&mut self) -> Result<T, NotAnObject> {
        let mut values = Deserializer::from_slice(self.rest()).into_iter();
        let value = values.next().and_then(Result::ok).ok_or(NotAnObject)?;
        self.at += values.byte_offset();
        Ok(value)
    }

    /// The text from the value that follows to the end.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.json[self.at..]
    }

    /// Begins to read an array, whose elements are to be read one by one.
    pub(crate) fn open_array(&mut self) -> Result<(), NotAnObject> {
        self.expect(b'[')?;
        self.is_first = true;
        Ok(())
    }

    /// Whether the array has another element, which has to be read then.
    pub(crate) fn next_element(&mut self) -> Result<bool, NotAnObject> {
        if self.peek() == Some(b']') {
            self.at += 1;
            // A field has been read.
            self.is_first = false;
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_first, false) {
            self.expect(b',')?;
        }
        // The element begins at its first byte, not at a space.
        self.peek();
        Ok(true)
    }

    /// Goes over a value of so many bytes.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn expect(&mut self, byte: u8) -> Result<(), NotAnObject> {
        if self.peek() != Some(byte) {
            return Err(NotAnObject);
        }
        self.at += 1;
        Ok(())
    }

    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.json.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    fn read(json: &str) -> Result<Map<String, Value>, NotAnObject> {
        let mut fields = JsonFields::of(json.as_bytes())?;
        let mut read = Map::new();
        while let Some(name) = fields.next_name()? {
            read.insert(name, fields.value()?);
        }
        Ok(read)
    }

    #[test]
    fn an_object_is_read_as_the_parser_reads_it() {
        for json in [
            "{}",
            " { } ",
            r#"{"a":1}"#,
            "\t{ \"a\" : [1, {\"b\": null}] ,\r\n\"c\":-1.5e3, \"d\" : true,\"e\":\"\\u00e9\\\"\" }\n",
            r#"{"a": 1, "a": 2}"#,
            r#"{"a":{}}"#,
        ] {
            let parsed: Map<String, Value> = serde_json::from_str(json).unwrap();
            assert_eq!(read(json), Ok(parsed), "{json}");
        }
    }

    #[test]
    fn an_array_is_read_element_by_element() {
        for (json, elements) in [("[]", 0), ("[ ]", 0), ("[1]", 1), ("[ 1 , [2] ,{\"b\":[]}\n]", 3)] {
            let text = format!("{{\"a\": {json}, \"c\": true}}");
            let mut fields = JsonFields::of(text.as_bytes()).unwrap();
            assert_eq!(fields.next_name(), Ok(Some("a".to_owned())));
            fields.open_array().unwrap();
            let mut read: Vec<Value> = Vec::new();
            while fields.next_element().unwrap() {
                read.push(fields.value().unwrap());
            }
            assert_eq!((read.len(), Value::Array(read)), (elements, serde_json::from_str(json).unwrap()));
            assert_eq!(fields.next_name(), Ok(Some("c".to_owned())), "{json}");
            assert_eq!((fields.value(), fields.next_name()), (Ok(true), Ok(None)));
        }
        for json in ["[1", "[1 2]", "[1,]", "[,1]", "[", "{}", "1"] {
            let text = format!("{{\"a\": {json}}}");
            let mut fields = JsonFields::of(text.as_bytes()).unwrap();
            let mut read = || {
                fields.next_name()?;
                fields.open_array()?;
                while fields.next_element()? {
                    fields.value::<Value>()?;
                }
                fields.next_name()
            };
            assert_eq!(read(), Err(NotAnObject), "{json}");
        }
    }

    #[test]
    fn what_is_no_object_is_not_read() {
        for json in [
            "",
            " ",
            "[]",
            "3",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{,}",
            "{\"a\" 1}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1}}",
            "{\"a\":1} x",
            "{a:1}",
            "{1:1}",
            "{\"a\":01}",
            "{\"a\":1x}",
            "{\"a\":tru}",
            "{\"a\":\"\u{1}\"}",
            "{\"a\":1;\"b\":2}",
        ] {
            assert!(serde_json::from_str::<Map<String, Value>>(json).is_err(), "{json}");
            assert_eq!(read(json), Err(NotAnObject), "{json}");
        }
    }
}
