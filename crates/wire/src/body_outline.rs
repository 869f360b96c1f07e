//! A request body of which only the small fields were parsed: enough to see that it is forwarded as it came.

use std::sync::Arc;

use serde_json::Value;

use crate::client_wire::Body;
use crate::json_fields::{JsonFields, NotAnObject};
use crate::marks::is_marked;
use crate::object_scan::ScannedObject;
use crate::tool_lists::{TOOLS, ToolLists};
use crate::wire::ClientSide;

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

impl BodyOutline {
    /// `None` if the body may have to be read, or is invalid: whoever reads it says what is wrong. A known tool list is
    /// compared, and not searched again.
    pub fn of(client: ClientSide, lists: &Arc<ToolLists>, tenant: &str, json: &[u8]) -> Option<BodyOutline> {
        // What is not parsed is not checked either.
        std::str::from_utf8(json).ok()?;
        BodyOutline::read(client.0.capabilities().history, lists, tenant, json).ok()?
    }

    fn read(
        history: &str,
        lists: &Arc<ToolLists>,
        tenant: &str,
        json: &[u8],
    ) -> Result<Option<BodyOutline>, NotAnObject> {
        let mut outline = BodyOutline { fields: Body::new(), tools: OutlinedTools::None };
        let mut fields = JsonFields::of(json)?;
        let mut has_history = false;
        // Marks are still to be looked for from here to the field that is read.
        let mut unsearched = json;
        while let Some(name) = fields.next_name()? {
            if name != history && name != TOOLS {
                outline.fields.insert(name, fields.value()?);
                continue;
            }
            if is_marked(&unsearched[..unsearched.len() - fields.rest().len()]) {
                return Ok(None);
            }
            if name == history {
                fields.open_array()?;
                while fields.next_element()? {
                    let ScannedObject::Unmarked { bytes, .. } = ScannedObject::of(fields.rest(), &[])? else {
                        return Ok(None);
                    };
                    fields.skip(bytes);
                }
                has_history = true;
            } else {
                let Some(tools) = lists.skip_plain(tenant, &mut fields)? else { return Ok(None) };
                outline.tools = tools;
            }
            unsearched = fields.rest();
        }
        Ok((has_history && !is_marked(unsearched)).then_some(outline))
    }

    /// The model that is asked for; empty if there is none.
    pub fn model(&self) -> &str {
        self.fields.get("model").and_then(Value::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_that_may_concern_the_gateway_has_no_outline() {
        let lists = Arc::new(ToolLists::default());
        let read = |text: &[u8]| BodyOutline::of(ClientSide::CHAT, &lists, "", text);
        let chat = |body: Value| read(body.to_string().as_bytes());
        let entries = json!([{"role": "user", "content": "Rain in Oslo? \"Yes\".\n"}]);
        let outline = chat(json!({"model": "m", "messages": entries, "tools": [{"type": "function"}]})).unwrap();
        assert_eq!((outline.model(), outline.tools), ("m", OutlinedTools::Some));
        assert_eq!(chat(json!({"messages": [], "tools": []})).unwrap().tools, OutlinedTools::None);
        let long = json!([{"type": "function", "function": {"name": "f", "description": "x".repeat(600)}}]);
        for _ in 0..3 {
            let body = json!({"messages": entries, "tools": long, "n": 1});
            assert_eq!(chat(body.clone()).unwrap().tools, OutlinedTools::Some);
            assert!(chat(json!({"messages": entries, "tools": long, "code_mode": true})).is_none());
            assert!(chat(json!({"code_mode": true, "messages": entries, "tools": long})).is_none());
            assert_eq!(*lists.parse("", body.to_string().as_bytes()).unwrap().json(), body);
        }
        for body in [
            json!({"messages": [{"role": "tool", "tool_call_id": "call_dc1_x"}]}),
            json!({"messages": [{"role": "code", "content": "f()"}]}),
            json!({"messages": entries, "code_mode": false}),
            json!({"messages": entries, "thread": {"type": "new"}}),
            json!({"messages": entries, "tools": [{"type": "function", "allowed_callers": ["direct"]}]}),
            json!({"messages": [1]}),
            json!({"messages": "text"}),
            json!({"messages": entries, "tools": {}}),
            json!({"model": "m"}),
            json!([]),
        ] {
            assert!(chat(body.clone()).is_none(), "{body}");
        }
        let texts: [&[u8]; 7] = [
            br#"{"messages": [], "\u0063ode_mode": false}"#,
            br#"{"messages": [{"tool_call_id": "call_dc\u0031\u005fx"}]}"#,
            br#"{"messages": [], "a\u006Clowed_callers": []}"#,
            br#"{"messages": [], "\u00"#,
            br#"{"messages": [{"content": "\xff"}]}"#,
            b"{\"messages\": [{\"content\": \"\xff\"}]}",
            b"{\"messages\": [}",
        ];
        for text in texts {
            assert!(read(text).is_none(), "{}", String::from_utf8_lossy(text));
        }
    }
    #[test]
    fn answers_of_tools_and_escapes_of_other_characters_are_not_marks() {
        let lists = Arc::new(ToolLists::default());
        let read = |text: &str| BodyOutline::of(ClientSide::CHAT, &lists, "", text.as_bytes());
        let answer = json!({"code": 200, "program": "x", "thread": 1, "text": "\u{e9}"}).to_string();
        let body = json!({"messages": [{"role": "tool", "tool_call_id": "call_1", "content": answer}]});
        assert!(read(&body.to_string()).is_some());
        assert!(
            read(r#"{"messages": [{"content": "\u00e9 \u2019 \u003cb\u003e \u001b[0m \u0026 \ud83d\ude00"}]}"#)
                .is_some()
        );
        assert!(read(&body.to_string().replace("call_1", "call_dc1_x")).is_none());
    }
}
