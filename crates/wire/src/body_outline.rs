//! A request body of which only the small fields were parsed: enough to see that it is forwarded as it came.

use std::fmt;

use memchr::memmem;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::client_wire::Body;
use crate::json_fields::JsonFields;
use crate::wire::ClientSide;

const TOOLS: &str = "tools";

/// A body that holds nothing of the gateway: no ids, no fields, no programs. Its history and its tools were not parsed.
#[derive(Debug)]
pub struct BodyOutline {
    /// All but the history and the tools.
    pub(crate) fields: Body,
    pub(crate) tools: OutlinedTools,
}

/// Whether a body has tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutlinedTools {
    None,
    Some,
}

/// Text that is in every body which the gateway has to read, on all wires: its ids, and fields that only it understands. A
/// text with escapes could hold them under another spelling.
const MARKS: [&str; 6] = ["dc1_", "dcr1_", "_dc", "code_mode", "allowed_callers", "\\u"];

impl BodyOutline {
    /// `None` if the body may have to be read, or has something wrong that is to be told.
    pub fn of(client: ClientSide, json: &[u8]) -> Option<BodyOutline> {
        let capabilities = client.0.capabilities();
        // Values that are not parsed are not checked either.
        std::str::from_utf8(json).ok()?;
        if MARKS.iter().chain(capabilities.read_marks).any(|mark| memmem::find(json, mark.as_bytes()).is_some()) {
            return None;
        }
        let mut outline = BodyOutline { fields: Body::new(), tools: OutlinedTools::None };
        let mut fields = JsonFields::of(json).ok()?;
        let mut has_history = false;
        while let Some(name) = fields.next_name().ok()? {
            if name == capabilities.history {
                fields.value::<Vec<SkippedObject>>().ok()?;
                has_history = true;
            } else if name == TOOLS {
                let tools = fields.value::<Vec<IgnoredAny>>().ok()?;
                outline.tools = if tools.is_empty() { OutlinedTools::None } else { OutlinedTools::Some };
            } else {
                outline.fields.insert(name, fields.value().ok()?);
            }
        }
        has_history.then_some(outline)
    }

    /// The model that is asked for; empty if there is none.
    pub fn model(&self) -> &str {
        self.fields.get("model").and_then(Value::as_str).unwrap_or_default()
    }
}

/// An object that is not parsed.
struct SkippedObject;

impl<'de> Deserialize<'de> for SkippedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SkippedObject, D::Error> {
        struct Skip;
        impl<'de> Visitor<'de> for Skip {
            type Value = SkippedObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SkippedObject, A::Error> {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(SkippedObject)
            }
        }
        deserializer.deserialize_map(Skip)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_that_may_concern_the_gateway_has_no_outline() {
        let chat = |body: Value| BodyOutline::of(ClientSide::CHAT, body.to_string().as_bytes());
        let entries = json!([{"role": "user", "content": "Rain in Oslo? \"Yes\".\n"}]);
        let outline = chat(json!({"model": "m", "messages": entries, "tools": [{"type": "function"}]})).unwrap();
        assert_eq!((outline.model(), outline.tools), ("m", OutlinedTools::Some));
        assert_eq!(chat(json!({"messages": [], "tools": []})).unwrap().tools, OutlinedTools::None);
        for body in [
            json!({"messages": [{"role": "tool", "tool_call_id": "call_dc1_x"}]}),
            json!({"messages": [{"role": "code", "content": "f()"}]}),
            json!({"messages": entries, "code_mode": false}),
            json!({"messages": entries, "tools": [{"type": "function", "allowed_callers": ["direct"]}]}),
            json!({"messages": [1]}),
            json!({"messages": "text"}),
            json!({"messages": entries, "tools": {}}),
            json!({"model": "m"}),
            json!([]),
        ] {
            assert!(chat(body.clone()).is_none(), "{body}");
        }
        let texts: [&[u8]; 4] = [
            br#"{"messages": [], "\u0063ode_mode": false}"#,
            br#"{"messages": [{"content": "\xff"}]}"#,
            b"{\"messages\": [{\"content\": \"\xff\"}]}",
            b"{\"messages\": [}",
        ];
        for text in texts {
            assert!(BodyOutline::of(ClientSide::CHAT, text).is_none(), "{}", String::from_utf8_lossy(text));
        }
    }
}
