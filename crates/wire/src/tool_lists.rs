//! Parsed tool lists: clients send the same one with every request, and it is most of the body.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dacapo_lru::{CacheKey, LruCache};
use dacapo_replay::json_text;
use memchr::memmem;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::allowed_callers::{ListContents, ProgramEntries, ToolPlace, ToolSplit};
use crate::body_outline::OutlinedTools;
use crate::client_wire::Body;
use crate::json_fields::{JsonFields, NotAnObject};
use crate::marks::is_marked;
use crate::unread_entries::{OutlinedHistory, UnreadEntries};
use crate::wire::{ClientSide, Wire};

pub(crate) const TOOLS: &str = "tools";
/// Lists are looked up by so many of their first bytes. Shorter ones are parsed as fast as they are found.
const BEGINNING_BYTES: usize = 512;
/// Lists that begin alike, as those of an agent and its helpers do.
const ALIKE_MAX: usize = 16;
/// JSON that such lists and their copies were made from.
const ALIKE_BYTES_MAX: usize = 4 << 20;
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
pub struct ToolLists(Mutex<LruCache<Vec<KnownList>>>);

/// A list, and copies of it that no request has borrowed.
#[derive(Debug)]
struct KnownList {
    list: Arc<ListText>,
    copies: Vec<Value>,
}

/// The text that a list is known by.
#[derive(Debug)]
pub(crate) struct ListText {
    text: Box<str>,
    /// Of the text, and of the tenant.
    digest: CacheKey,
    /// Whether it holds nothing that only the gateway understands.
    is_plain: bool,
    /// Whether a response may repeat it: tools that the provider connects to may hold credentials.
    is_repeatable: bool,
    /// Whether functions were made of its tools.
    was_read: AtomicBool,
    /// The client wires on which it was found to be [`ListContents::ForPrograms`].
    is_for_programs: [AtomicBool; Wire::ALL.len()],
}

/// A request body, parsed.
#[derive(Debug)]
pub struct RequestBody {
    json: Value,
    pub(crate) borrowed: Option<BorrowedTools>,
    unread: Option<UnreadEntries>,
}

/// The tool list of a body is to be given back.
#[derive(Debug)]
pub(crate) struct BorrowedTools {
    lists: Arc<ToolLists>,
    /// What the list is looked up by.
    beginning: CacheKey,
    list: Arc<ListText>,
}

impl Default for ToolLists {
    fn default() -> ToolLists {
        ToolLists::new(256, 8 << 20)
    }
}

impl ToolLists {
    /// Keeps at most `count_max` lists that begin in different ways, whose texts and copies were made from at most
    /// `bytes_max` of JSON. Parsed they take several times as much.
    pub fn new(count_max: usize, bytes_max: usize) -> ToolLists {
        ToolLists(Mutex::new(LruCache::new(count_max, bytes_max)))
    }

    /// Parses a body of a tenant. What one tenant sent does not hasten a request of another.
    pub fn parse(self: &Arc<Self>, tenant: &str, json: &[u8]) -> serde_json::Result<RequestBody> {
        self.parse_fields(tenant, json, |_, fields| fields.value()).or_else(|NotAnObject| parse_whole(json))
    }

    /// The same for a body of a client on this wire. The beginning of a long history is not parsed if nothing in it concerns
    /// the gateway.
    pub fn parse_outlined(
        self: &Arc<Self>,
        client: ClientSide,
        tenant: &str,
        json: &[u8],
    ) -> serde_json::Result<RequestBody> {
        let history = client.0.capabilities().history;
        let mut unread = None;
        let read = |name: &str, fields: &mut JsonFields<'_>| {
            if name != history {
                return fields.value();
            }
            let outlined = OutlinedHistory::of(client.0, fields)?;
            unread = outlined.unread;
            Ok(outlined.read)
        };
        match self.parse_fields(tenant, json, read) {
            Ok(body) => Ok(RequestBody { unread, ..body }),
            Err(NotAnObject) => parse_whole(json),
        }
    }

    /// `read` reads fields other than the tools, by their names.
    fn parse_fields(
        self: &Arc<Self>,
        tenant: &str,
        json: &[u8],
        mut read: impl FnMut(&str, &mut JsonFields<'_>) -> Result<Value, NotAnObject>,
    ) -> Result<RequestBody, NotAnObject> {
        let (mut values, mut borrowed) = (Map::new(), None);
        let mut fields = JsonFields::of(json)?;
        while let Some(name) = fields.next_name()? {
            let value = if name == TOOLS {
                let (value, list) = self.borrow(tenant, &mut fields)?;
                borrowed = list;
                value
            } else {
                read(&name, &mut fields)?
            };
            values.insert(name, value);
        }
        Ok(RequestBody { json: Value::Object(values), borrowed, unread: None })
    }

    /// The value that follows, from memory if it is there. One that is known is compared, and not parsed.
    fn borrow(
        self: &Arc<Self>,
        tenant: &str,
        fields: &mut JsonFields<'_>,
    ) -> Result<(Value, Option<BorrowedTools>), NotAnObject> {
        let Some(beginning) = fields.rest().get(..BEGINNING_BYTES) else { return Ok((fields.value()?, None)) };
        let beginning = digest(tenant, beginning);
        let parse = |text: &str| serde_json::from_str::<Value>(text).ok().ok_or(NotAnObject);
        let (list, value) = if let Some(list) = self.find(&beginning, fields.rest()) {
            fields.skip(list.text.len());
            let value = self.take(&beginning, &list).map_or_else(|| parse(&list.text), Ok)?;
            (list, value)
        } else {
            let text = fields.value::<&RawValue>()?.get();
            let value = parse(text)?;
            // Only the end of an array can be told by its text: a longer number may begin with a shorter one.
            if text.len() < BEGINNING_BYTES || !value.is_array() {
                return Ok((value, None));
            }
            (Arc::new(ListText::new(tenant, text)), value)
        };
        Ok((value, Some(BorrowedTools { lists: Arc::clone(self), beginning, list })))
    }

    /// Goes over the tools that follow, without parsing them. `None` if they may concern the gateway.
    pub(crate) fn skip_plain(
        &self,
        tenant: &str,
        fields: &mut JsonFields<'_>,
    ) -> Result<Option<OutlinedTools>, NotAnObject> {
        let beginning = fields.rest().get(..BEGINNING_BYTES).map(|beginning| digest(tenant, beginning));
        if let Some(known) = beginning.and_then(|beginning| self.find(&beginning, fields.rest())) {
            fields.skip(known.text.len());
            // One without tools, but with many spaces, is read as if it had some.
            return Ok(known.is_plain.then_some(OutlinedTools::Some));
        }
        let text = fields.value::<&RawValue>()?.get();
        let entries: Vec<IgnoredAny> = serde_json::from_str(text).ok().ok_or(NotAnObject)?;
        let list = ListText::new(tenant, text);
        let is_plain = list.is_plain;
        if let Some(beginning) = beginning.filter(|_| text.len() >= BEGINNING_BYTES) {
            self.keep(&beginning, Arc::new(list), None);
        }
        let tools = if entries.is_empty() { OutlinedTools::None } else { OutlinedTools::Some };
        Ok(is_plain.then_some(tools))
    }

    /// The list that a text begins with. A text that begins with a whole list has that list there.
    fn find(&self, beginning: &CacheKey, text: &[u8]) -> Option<Arc<ListText>> {
        let alike: Vec<_> = self.cache().get(beginning)?.iter().map(|known| Arc::clone(&known.list)).collect();
        // Large texts are compared after the lock.
        alike.into_iter().find(|list| text.starts_with(list.text.as_bytes()))
    }

    /// A copy of a list, if one is left.
    fn take(&self, beginning: &CacheKey, list: &Arc<ListText>) -> Option<Value> {
        self.change(beginning, |alike| alike.iter_mut().find(|known| known.is(list))?.copies.pop())
    }

    /// Keeps a list, and a copy of it.
    fn keep(&self, beginning: &CacheKey, list: Arc<ListText>, copy: Option<Value>) {
        // What is not kept is dropped after the lock.
        let _not_kept = self.change(beginning, |alike| {
            let known = match alike.iter().position(|known| known.is(&list)) {
                Some(at) => alike.remove(at),
                None => KnownList { list, copies: Vec::new() },
            };
            alike.push(known);
            let mut dropped = Vec::new();
            while alike.len() > 1 && (alike.len() > ALIKE_MAX || bytes_of(alike) > ALIKE_BYTES_MAX) {
                dropped.push(alike.remove(0));
            }
            let has_room = bytes_of(alike) < ALIKE_BYTES_MAX;
            let left = match alike.last_mut() {
                Some(known) if has_room && known.copies.len() < COPIES_MAX => {
                    known.copies.extend(copy);
                    None
                }
                _ => copy,
            };
            (dropped, left)
        });
    }

    /// Changes the lists that begin alike.
    fn change<T>(&self, beginning: &CacheKey, change: impl FnOnce(&mut Vec<KnownList>) -> T) -> T {
        let mut cache = self.cache();
        let mut alike = cache.take(beginning).unwrap_or_default();
        let result = change(&mut alike);
        if alike.is_empty() {
            return result;
        }
        let bytes = bytes_of(&alike);
        let evicted = cache.put(*beginning, alike, bytes);
        // Large values are dropped after the lock.
        drop(cache);
        drop(evicted);
        result
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, LruCache<Vec<KnownList>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListText {
    fn new(tenant: &str, text: &str) -> ListText {
        let bytes = text.as_bytes();
        // One that is plain does not spell its letters as escapes.
        let is_plain = !is_marked(bytes);
        let is_repeatable = is_plain && memmem::find(bytes, b"\"mcp\"").is_none();
        let digest = digest(tenant, bytes);
        let (was_read, is_for_programs) = Default::default();
        ListText { text: text.into(), digest, is_plain, is_repeatable, was_read, is_for_programs }
    }

    /// As the client wrote it.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Whoever reads the value or the error sees what they would without the cache.
fn parse_whole(json: &[u8]) -> serde_json::Result<RequestBody> {
    serde_json::from_slice::<Value>(json).map(RequestBody::from)
}

/// Of JSON that lists were made from.
fn bytes_of(lists: &[KnownList]) -> usize {
    lists.iter().map(|known| known.list.text.len() * (1 + known.copies.len())).sum()
}

impl KnownList {
    fn is(&self, list: &Arc<ListText>) -> bool {
        Arc::ptr_eq(&self.list, list) || self.list.digest == list.digest
    }
}

impl From<Value> for RequestBody {
    fn from(json: Value) -> RequestBody {
        RequestBody { json, borrowed: None, unread: None }
    }
}

impl RequestBody {
    /// The body, its tool list included, but without entries of its history that were not parsed.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Bytes of entries of its history that were not parsed.
    pub fn unread_bytes(&self) -> usize {
        self.unread.as_ref().map_or(0, |unread| unread.text().len())
    }

    /// Bytes of its tool list if functions have to be made of the tools, because no earlier request had them.
    pub fn new_tools_bytes(&self) -> usize {
        let list = self.borrowed.as_ref().map(|borrowed| &borrowed.list);
        list.filter(|list| !list.was_read.load(Ordering::Relaxed)).map_or(0, |list| list.text.len())
    }

    /// To change other fields than the tools.
    pub fn json_mut(&mut self) -> &mut Value {
        &mut self.json
    }

    pub(crate) fn into_parts(self) -> (Value, Option<BorrowedTools>, Option<UnreadEntries>) {
        (self.json, self.borrowed, self.unread)
    }
}

impl BorrowedTools {
    /// Keeps the tool list of a body for the next request. It must be as it came.
    pub(crate) fn give_back(self, body: &mut Body) {
        let Some(copy) = body.get_mut(TOOLS).map(Value::take) else { return };
        self.lists.keep(&self.beginning, self.list, Some(copy));
    }

    /// The text of the list, if a response may repeat it.
    pub(crate) fn repeatable(&self) -> Option<Arc<ListText>> {
        self.list.is_repeatable.then(|| Arc::clone(&self.list))
    }

    /// Whether no tool of the list can say who may call it.
    pub(crate) fn is_plain(&self) -> bool {
        self.list.is_plain
    }

    /// What was found out about the list when an earlier request had it.
    pub(crate) fn contents(&self, client: ClientSide) -> ListContents {
        let is_for_programs = self.list.is_for_programs[client.0.wire() as usize].load(Ordering::Relaxed);
        if is_for_programs { ListContents::ForPrograms } else { ListContents::Unknown }
    }

    /// Notes what it is to clients on this wire, whose tools were split in this way.
    pub(crate) fn note_contents(&self, client: ClientSide, body: &Body, split: &ToolSplit<'_>) {
        if split.contents(entries(body).len()) == ListContents::ForPrograms {
            self.list.is_for_programs[client.0.wire() as usize].store(true, Ordering::Relaxed);
        }
    }

    /// Notes that functions were made of its tools.
    pub(crate) fn note_read(&self) {
        self.list.was_read.store(true, Ordering::Relaxed);
    }

    /// Identifies some tools of a list, without writing those that stand in it as they came.
    pub(crate) fn digest_of(&self, body: &Body, tools: &ProgramEntries<'_>) -> CacheKey {
        let mut hash = Sha256::new_with_prefix(b"dacapo tools of a list\0");
        hash.update(self.list.digest);
        match tools {
            ProgramEntries::List(list) => hash_places(&mut hash, &(0..list.len())),
            ProgramEntries::Chosen(chosen) => hash_chosen(&mut hash, body, chosen),
        }
        hash.finalize().into()
    }
}

fn hash_chosen(hash: &mut Sha256, body: &Body, tools: &[(Cow<'_, Value>, ToolPlace)]) {
    let entries = entries(body);
    // Tools that follow each other in the list are written together: often it is the whole list.
    let mut following = 0..0;
    for (tool, _) in tools {
        let at = match tool {
            Cow::Borrowed(tool) => entries[following.end..].iter().position(|entry| std::ptr::eq(entry, *tool)),
            Cow::Owned(_) => None,
        };
        if at == Some(0) {
            following.end += 1;
            continue;
        }
        hash_places(hash, &following);
        following.start = following.end;
        if let Some(at) = at {
            following = following.end + at..following.end + at + 1;
        } else {
            let text = json_text(tool);
            hash.update([1]);
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
    }
    hash_places(hash, &following);
}

fn entries(body: &Body) -> &[Value] {
    body.get(TOOLS).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn hash_places(hash: &mut Sha256, places: &Range<usize>) {
    if !places.is_empty() {
        hash.update([0]);
        hash.update(places.start.to_le_bytes());
        hash.update(places.end.to_le_bytes());
    }
}

fn digest(tenant: &str, text: &[u8]) -> CacheKey {
    Sha256::new().chain_update(Sha256::digest(tenant)).chain_update(text).finalize().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn copies(lists: &Arc<ToolLists>, text: &str) -> usize {
        let rest = format!("{text}, \"n\": 1}}");
        let beginning = digest("ann", &rest.as_bytes()[..BEGINNING_BYTES]);
        lists.cache().get(&beginning).map_or(0, |alike| alike.iter().map(|known| known.copies.len()).sum())
    }

    #[test]
    fn a_list_that_was_given_back_is_not_parsed_again() {
        let lists = Arc::new(ToolLists::default());
        let tools = json!([{"name": "a", "description": "x".repeat(600)}]).to_string();
        let text = format!(r#"{{"model": "m", "tools": {tools}, "n": 1}}"#);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        for expected in [0, 1, 1] {
            assert_eq!(copies(&lists, &tools), expected);
            let (json, borrowed, _) = lists.parse("ann", text.as_bytes()).unwrap().into_parts();
            assert_eq!(json.to_string(), parsed.to_string(), "in the same order");
            assert_eq!(copies(&lists, &tools), 0);
            let Value::Object(mut body) = json else { panic!("an object") };
            borrowed.unwrap().give_back(&mut body);
        }
        // Two requests at the same moment have a copy each.
        let both = [lists.parse("ann", text.as_bytes()).unwrap(), lists.parse("ann", text.as_bytes()).unwrap()];
        assert!(both.iter().all(|body| *body.json() == parsed));
        // Another tenant's list is another one.
        assert_ne!(digest("bob", tools.as_bytes()), digest("ann", tools.as_bytes()));
    }

    #[test]
    fn lists_that_begin_alike_are_different_ones() {
        let lists = Arc::new(ToolLists::default());
        let list =
            |number: usize| json!([{"name": "a", "description": "x".repeat(600)}, {"name": format!("b{number}")}]);
        for number in [1, 2, 11, 1, 2, 11].into_iter().chain(20..40).chain([1]) {
            let text = json!({"tools": list(number), "n": number}).to_string();
            let (json, borrowed, _) = lists.parse("ann", text.as_bytes()).unwrap().into_parts();
            assert_eq!(json.to_string(), text);
            let Value::Object(mut body) = json else { panic!("an object") };
            borrowed.unwrap().give_back(&mut body);
        }
        assert_eq!(copies(&lists, &list(1).to_string()), ALIKE_MAX);
    }

    #[test]
    fn a_large_list_stays_known_however_many_requests_have_it_at_once() {
        let lists = Arc::new(ToolLists::default());
        let tools = json!([{"name": "a", "description": "x".repeat(ALIKE_BYTES_MAX / 3)}]);
        let text = json!({"tools": tools, "n": 1}).to_string();
        let parsed: Vec<_> = (0..8).map(|_| lists.parse("ann", text.as_bytes()).unwrap().into_parts()).collect();
        for (json, borrowed, _) in parsed {
            let Value::Object(mut body) = json else { panic!("an object") };
            borrowed.unwrap().give_back(&mut body);
        }
        assert_eq!(copies(&lists, &tools.to_string()), 2);
    }

    #[test]
    fn tools_are_known_by_their_places_or_by_their_text() {
        let lists = Arc::new(ToolLists::default());
        let tool = |name: &str| json!({"name": name, "description": "x".repeat(600)});
        let text = json!({"tools": [tool("a"), tool("b")]}).to_string();
        let (json, borrowed, _) = lists.parse("ann", text.as_bytes()).unwrap().into_parts();
        let (Value::Object(body), Some(borrowed)) = (json, borrowed) else { panic!("an object with tools") };
        let entries = body["tools"].as_array().unwrap();
        let place = ToolPlace { entry: 0, member: None };
        let digest = |tools: &[Cow<'_, Value>]| {
            let chosen = tools.iter().map(|tool| (tool.clone(), place)).collect();
            borrowed.digest_of(&body, &ProgramEntries::Chosen(chosen))
        };
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
        assert_eq!(borrowed.digest_of(&body, &ProgramEntries::List(entries)), all[3]);
    }

    #[test]
    fn what_is_no_body_is_read_as_ever() {
        let lists = Arc::new(ToolLists::default());
        let long = "x".repeat(600);
        let cut = [format!("{{\"tools\": [\"{long}\"}}"), format!("{{\"tools\": [\"{long}\"] x}}")];
        let texts = ["[1]", "3", "{\"tools\": [1,}", "{} x", "", "{\"tools\": 3}", "{\"a\": 1, \"a\": 2}"];
        for text in texts.into_iter().chain(cut.iter().map(String::as_str)) {
            let plain = serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
            let parsed = lists.parse("ann", text.as_bytes()).map(|body| body.json).map_err(|error| error.to_string());
            assert_eq!(parsed, plain, "{text}");
        }
    }
}
