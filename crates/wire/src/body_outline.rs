//! A request body of which only the small fields were parsed: enough to see that it is forwarded as it came.

use std::fmt;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::client_wire::Body;
use crate::json_fields::{JsonFields, NotAnObject};
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

/// Text of which some is in every body that the gateway has to read. Where it means something else, a body is read in vain.
const MARKS: [&str; 5] = [
    // Ids and reasoning that the gateway made.
    "dc1_",
    "dcr1_",
    "_dc",
    "srvtoolu_",
    // A field that it understands.
    "allowed_callers",
];

/// Marks only where a JSON string begins: inside of one, as in the answers of tools, the quotation mark is escaped.
const FIRST_WORDS: [&str; 3] = [
    // Programs in a history, or declared, and the field `code_mode`.
    "\"code",
    "\"program",
    // Another field that it understands.
    "\"thread\"",
];

/// Whether a text has one of the marks, in whatever way it is spelled.
pub(crate) fn is_marked(text: &[u8]) -> bool {
    first_mark(text) < text.len()
}

/// Where the first of the marks begins, in whatever way it is spelled, or another in the same string; the end of the text if
/// it has none.
pub(crate) fn first_mark(text: &[u8]) -> usize {
    // One search for each is faster than one for all: most of the bytes they begin with are frequent.
    static MARK_FINDERS: LazyLock<[Finder<'static>; MARKS.len()]> = LazyLock::new(|| MARKS.map(Finder::new));
    static WORD_FINDERS: LazyLock<[Finder<'static>; FIRST_WORDS.len()]> =
        LazyLock::new(|| FIRST_WORDS.map(Finder::new));
    static ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    // Each is looked for only before what was found already. One that overlaps with it is in the same string.
    let mut end = text.len();
    for finder in &*MARK_FINDERS {
        end = finder.find(&text[..end]).unwrap_or(end);
    }
    for finder in &*WORD_FINDERS {
        end = first_word(&text[..end], finder).unwrap_or(end);
    }
    ESCAPES.find_iter(&text[..end]).find(|at| spells_marks(&text[at + 4..])).unwrap_or(end)
}

/// Where a text first has words that begin with a quotation mark. Inside of a string, the mark is escaped.
pub(crate) fn first_word(text: &[u8], finder: &Finder<'_>) -> Option<usize> {
    finder.find_iter(text).find(|at| at.checked_sub(1).is_none_or(|before| text[before] != b'\\'))
}

/// Whether the last two digits of an escape `\u00xx` are those of a character that marks are made of. Most escapes are of
/// other characters: some clients escape all that is not ASCII, or what means something in HTML.
fn spells_marks(digits: &[u8]) -> bool {
    let code = digits.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
    code.is_none_or(|code| matches!(code, b'"' | b'_' | b'0'..=b'9' | b'a'..=b'z'))
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
            if name == history {
                fields.value::<Vec<SkippedObject>>()?;
                has_history = true;
            } else if name == TOOLS {
                let before = &unsearched[..unsearched.len() - fields.rest().len()];
                if is_marked(before) {
                    return Ok(None);
                }
                let Some(tools) = lists.skip_plain(tenant, &mut fields)? else { return Ok(None) };
                outline.tools = tools;
                unsearched = fields.rest();
            } else {
                outline.fields.insert(name, fields.value()?);
            }
        }
        Ok((has_history && !is_marked(unsearched)).then_some(outline))
    }

    /// The model that is asked for; empty if there is none.
    pub fn model(&self) -> &str {
        self.fields.get("model").and_then(Value::as_str).unwrap_or_default()
    }
}

/// An object that is not parsed.
pub(crate) struct SkippedObject {
    /// Whether it has a field `role`, as messages do.
    pub has_role: bool,
}

impl<'de> Deserialize<'de> for SkippedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SkippedObject, D::Error> {
        struct Skip;
        impl<'de> Visitor<'de> for Skip {
            type Value = SkippedObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SkippedObject, A::Error> {
                let mut has_role = false;
                while let Some((IsRole(is_role), IgnoredAny)) = entries.next_entry()? {
                    has_role |= is_role;
                }
                Ok(SkippedObject { has_role })
            }
        }
        deserializer.deserialize_map(Skip)
    }
}

/// Whether a key is `role`.
struct IsRole(bool);

impl<'de> Deserialize<'de> for IsRole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IsRole, D::Error> {
        struct Compare;
        impl Visitor<'_> for Compare {
            type Value = IsRole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<IsRole, E> {
                Ok(IsRole(key == "role"))
            }
        }
        deserializer.deserialize_str(Compare)
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
