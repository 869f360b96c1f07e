//! Parsed tool lists: clients send the same one with every request, and it is most of the body.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dacapo_lru::{CacheKey, LruCache};
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Map, Value};
use sha2::{Digest, Sha256};

use crate::client_wire::Body;

const TOOLS: &str = "tools";
/// Shorter lists are parsed as fast as they are found.
const TEXT_BYTES_MIN: usize = 512;
/// Copies of one list that are kept: as many requests at the same moment need not parse it.
const COPIES_MAX: usize = 16;

/// Tool lists that were parsed for earlier requests. A request borrows one, by its bytes, and gives it back when it ends.
///
/// ```
/// let lists = std::sync::Arc::new(dacapo_wire::ToolLists::default());
/// let body = lists.parse("tenant", br#"{"model": "m", "tools": []}"#)?;
/// assert_eq!(body.json()["model"], "m");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug)]
pub struct ToolLists(Mutex<LruCache<Vec<Value>>>);

/// A request body, parsed.
#[derive(Debug)]
pub struct RequestBody {
    json: Value,
    pub(crate) borrowed: Option<BorrowedTools>,
}

/// The tool list of a body is to be given back.
#[derive(Debug)]
pub(crate) struct BorrowedTools {
    lists: Arc<ToolLists>,
    digest: CacheKey,
    text_bytes: usize,
}

impl Default for ToolLists {
    fn default() -> ToolLists {
        ToolLists::new(256, 8 << 20)
    }
}

impl ToolLists {
    /// Keeps at most `count_max` different lists, whose copies were made from at most `bytes_max` of JSON. Parsed they
    /// take several times as much.
    pub fn new(count_max: usize, bytes_max: usize) -> ToolLists {
        ToolLists(Mutex::new(LruCache::new(count_max, bytes_max)))
    }

    /// Parses a body of a tenant. What one tenant sent does not hasten a request of another.
    pub fn parse(self: &Arc<Self>, tenant: &str, json: &[u8]) -> serde_json::Result<RequestBody> {
        let mut parser = Deserializer::from_slice(json);
        let body = serde::Deserializer::deserialize_map(&mut parser, BodyVisitor { lists: self, tenant });
        match body.and_then(|body| parser.end().map(|()| body)) {
            Ok(body) => Ok(body),
            // It is no object, or no JSON. Whoever reads the value or the error sees what they would without the cache.
            Err(_) => serde_json::from_slice::<Value>(json).map(RequestBody::from),
        }
    }

    /// The value of a JSON text, from memory if it is there.
    fn borrow(self: &Arc<Self>, tenant: &str, text: &str) -> serde_json::Result<(Value, Option<BorrowedTools>)> {
        if text.len() < TEXT_BYTES_MIN {
            return Ok((serde_json::from_str(text)?, None));
        }
        let digest = list_digest(tenant, text);
        let known = self.take(&digest, text.len());
        let value = known.map_or_else(|| serde_json::from_str(text), Ok)?;
        Ok((value, Some(BorrowedTools { lists: Arc::clone(self), digest, text_bytes: text.len() })))
    }

    fn take(&self, digest: &CacheKey, text_bytes: usize) -> Option<Value> {
        let mut cache = self.cache();
        let mut copies = cache.take(digest)?;
        let value = copies.pop();
        if !copies.is_empty() {
            let bytes = copies.len() * text_bytes;
            drop(cache.put(*digest, copies, bytes));
        }
        value
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, LruCache<Vec<Value>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Value> for RequestBody {
    fn from(json: Value) -> RequestBody {
        RequestBody { json, borrowed: None }
    }
}

impl RequestBody {
    /// The whole body, its tool list included.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// To change other fields than the tools.
    pub fn json_mut(&mut self) -> &mut Value {
        &mut self.json
    }

    pub(crate) fn into_parts(self) -> (Value, Option<BorrowedTools>) {
        (self.json, self.borrowed)
    }
}

impl BorrowedTools {
    /// Keeps the tool list of a body for the next request. It must be as it came.
    pub(crate) fn give_back(self, body: &mut Body) {
        let Some(list) = body.get_mut(TOOLS).map(Value::take) else { return };
        let mut cache = self.lists.cache();
        let mut copies = cache.take(&self.digest).unwrap_or_default();
        if copies.len() < COPIES_MAX {
            copies.push(list);
        }
        let bytes = copies.len() * self.text_bytes;
        let evicted = cache.put(self.digest, copies, bytes);
        // Large values are dropped after the lock.
        drop(cache);
        drop(evicted);
    }

    /// Identifies some tools of a list, without writing those that stand in it as they came.
    pub(crate) fn digest_of(&self, body: &Body, tools: &[Cow<'_, Value>]) -> CacheKey {
        let entries = body.get(TOOLS).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut hash = Sha256::new_with_prefix(b"dacapo tools of a list\0");
        hash.update(self.digest);
        let mut next = 0;
        for tool in tools {
            let at = match tool {
                Cow::Borrowed(tool) => entries[next..].iter().position(|entry| std::ptr::eq(entry, *tool)),
                Cow::Owned(_) => None,
            };
            if let Some(at) = at {
                hash.update([0]);
                hash.update((next + at).to_le_bytes());
                next += at + 1;
            } else {
                let text = crate::sse::json_text(tool);
                hash.update([1]);
                hash.update(text.len().to_le_bytes());
                hash.update(text);
            }
        }
        hash.finalize().into()
    }
}

fn list_digest(tenant: &str, text: &str) -> CacheKey {
    Sha256::new().chain_update(Sha256::digest(tenant)).chain_update(text).finalize().into()
}

/// Reads the fields of a body.
struct BodyVisitor<'a> {
    lists: &'a Arc<ToolLists>,
    tenant: &'a str,
}

impl<'de> Visitor<'de> for BodyVisitor<'_> {
    type Value = RequestBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RequestBody, A::Error> {
        let (mut fields, mut borrowed) = (Map::new(), None);
        while let Some(key) = entries.next_key::<String>()? {
            let value = if key == TOOLS {
                let text: &RawValue = entries.next_value()?;
                let (value, list) = self.lists.borrow(self.tenant, text.get()).map_err(A::Error::custom)?;
                borrowed = list;
                value
            } else {
                entries.next_value()?
            };
            fields.insert(key, value);
        }
        Ok(RequestBody { json: Value::Object(fields), borrowed })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn copies(lists: &Arc<ToolLists>, text: &str) -> usize {
        let digest = list_digest("ann", text);
        lists.cache().get(&digest).map_or(0, Vec::len)
    }

    #[test]
    fn a_list_that_was_given_back_is_not_parsed_again() {
        let lists = Arc::new(ToolLists::default());
        let tools = json!([{"name": "a", "description": "x".repeat(600)}]).to_string();
        let text = format!(r#"{{"model": "m", "tools": {tools}, "n": 1}}"#);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        for expected in [0, 1, 1] {
            assert_eq!(copies(&lists, &tools), expected);
            let (json, borrowed) = lists.parse("ann", text.as_bytes()).unwrap().into_parts();
            assert_eq!(json.to_string(), parsed.to_string(), "in the same order");
            assert_eq!(copies(&lists, &tools), 0);
            let Value::Object(mut body) = json else { panic!("an object") };
            borrowed.unwrap().give_back(&mut body);
        }
        // Two requests at the same moment have a copy each.
        let both = [lists.parse("ann", text.as_bytes()).unwrap(), lists.parse("ann", text.as_bytes()).unwrap()];
        assert!(both.iter().all(|body| *body.json() == parsed));
        // Another tenant's list is another one.
        assert_ne!(list_digest("bob", &tools), list_digest("ann", &tools));
    }

    #[test]
    fn tools_are_known_by_their_places_or_by_their_text() {
        let lists = Arc::new(ToolLists::default());
        let tool = |name: &str| json!({"name": name, "description": "x".repeat(600)});
        let text = json!({"tools": [tool("a"), tool("b")]}).to_string();
        let (json, borrowed) = lists.parse("ann", text.as_bytes()).unwrap().into_parts();
        let (Value::Object(body), Some(borrowed)) = (json, borrowed) else { panic!("an object with tools") };
        let entries = body["tools"].as_array().unwrap();
        let digest = |tools: &[Cow<'_, Value>]| borrowed.digest_of(&body, tools);
        let (a, b) = (Cow::Borrowed(&entries[0]), Cow::Borrowed(&entries[1]));
        let all = [
            digest(&[]),
            digest(std::slice::from_ref(&a)),
            digest(std::slice::from_ref(&b)),
            digest(&[a.clone(), b.clone()]),
            digest(&[b.clone(), a.clone()]),
            digest(&[Cow::Owned(tool("c"))]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(digest(&[a, b]), all[3]);
    }

    #[test]
    fn what_is_no_body_is_read_as_ever() {
        let lists = Arc::new(ToolLists::default());
        for text in ["[1]", "3", "{\"tools\": [1,}", "{} x", "", "{\"tools\": 3}", "{\"a\": 1, \"a\": 2}"] {
            let plain = serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
            let parsed = lists.parse("ann", text.as_bytes()).map(|body| body.json).map_err(|error| error.to_string());
            assert_eq!(parsed, plain, "{text}");
        }
    }
}
