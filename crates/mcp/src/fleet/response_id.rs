//! Finds out which request a response belongs to if it is too long to keep, or no valid JSON.

use rmcp::model::RequestId;

const TOKEN_BYTES_MAX: usize = 64;

/// Finds the id of a JSON-RPC response in a text of any length and keeps nothing else of it.
#[derive(Debug, Default)]
pub(super) struct ResponseId {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The token of the outermost object that is being read, quotes included.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Vec<u8>,
    is_request: bool,
}

impl ResponseId {
    pub(super) fn read(&mut self, text: &[u8]) {
        for byte in text {
            self.read_byte(*byte);
        }
    }

    /// `None` if there was none, or if it is the id of a request.
    pub(super) fn found(self) -> Option<RequestId> {
        if self.is_request { None } else { serde_json::from_slice(&self.id).ok() }
    }

    fn read_byte(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => self.key = std::mem::take(&mut self.token),
            b',' if self.depth == 1 => self.end_value(),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < TOKEN_BYTES_MAX {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        let value = std::mem::take(&mut self.token);
        match self.key.as_slice() {
            b"\"id\"" => self.id = value,
            b"\"method\"" => self.is_request = true,
            _ => {}
        }
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<RequestId> {
        let mut id = ResponseId::default();
        id.read(text.as_bytes());
        id.found()
    }

    #[test]
    fn the_id_of_a_response_is_found_wherever_it_stands() {
        let seven = Some(RequestId::Number(7));
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":7,"result":{"id":8,"a":["}",{"id":9}]}}"#), seven);
        assert_eq!(found(r#"{"result": {"text": "\"id\": 8, {"}, "id" : 7 }"#), seven);
        assert_eq!(found(r#"{"id":7,"result":{"content":[oops"#), seven);
        assert_eq!(found(r#"{"id":"7","result":1}"#), Some(RequestId::String("7".into())));
    }

    #[test]
    fn requests_and_noise_have_none() {
        assert_eq!(found(r#"{"id":7,"method":"ping"}"#), None);
        assert_eq!(found("FleetServer listening on stdio"), None);
        assert_eq!(found(r#"[{"id":7}]"#), None);
    }
}
