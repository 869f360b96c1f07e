//! The last conversations, in memory, for the inspector page. Only there are programs, arguments and answers kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dacapo_wire::Wire;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{Event, EventConsumer, RequestInfo, RequestOutcome};
use crate::gateway::now_ms;
use crate::http::random_hex;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecorderLimits {
    pub conversations_max: usize,
    pub bytes_max: usize,
    /// Although clients are configured, or others can reach the gateway.
    pub is_forced: bool,
}

/// Keeps the last conversations, and tells pages about them as they go on.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub limits: RecorderLimits,
    kept: Mutex<Kept>,
    changes: broadcast::Sender<Arc<str>>,
    access: Mutex<Access>,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    conversations: BTreeMap<u64, RecordedConversation>,
    /// Which conversation a running request belongs to, by their numbers.
    requests: BTreeMap<u64, u64>,
}

/// Who may read recordings: browsers with a session. A token is exchanged for a session once.
#[derive(Debug, Default)]
struct Access {
    tokens: Vec<String>,
    sessions: Vec<String>,
}

/// A conversation, with its last request and response.
#[derive(Debug, Clone)]
pub(crate) struct RecordedConversation {
    pub client: Arc<str>,
    pub request: Bytes,
    pub response: Option<Value>,
    pub requests: Vec<RecordedRequest>,
    wire: Wire,
    model: String,
    title: String,
    /// What happens to its last request.
    state: Cow<'static, str>,
    is_running: bool,
    updated_ms: u64,
    response_bytes: usize,
    /// Of its last request.
    history: History,
}

/// The entries of a request's history, as they are written in its body.
#[derive(Debug, Clone, Default)]
struct History {
    /// From the first entry to the end of the last.
    entries: Bytes,
    /// Where they begin in the body; `None` if they were written otherwise there.
    at: Option<usize>,
}

/// What happened to a request, with the time since its start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RecordedRequest {
    #[serde(skip)]
    number: u64,
    pub request_id: String,
    /// Milliseconds since 1970.
    pub started_at: u64,
    pub ms: Option<u64>,
    pub events: Vec<(u64, Cow<'static, str>)>,
}

/// Requests and their events that are kept of one conversation.
const REQUESTS_MAX: usize = 200;
const EVENTS_MAX: usize = 200;
/// Sessions of browsers at the same time.
const SESSIONS_MAX: usize = 16;
const TITLE_CHARS_MAX: usize = 120;
/// Changes that a slow page may be behind; then it gets the whole list again.
const CHANGES_MAX: usize = 256;

impl Recorder {
    pub(crate) fn new(limits: RecorderLimits) -> Arc<Recorder> {
        let access = Access { tokens: vec![random_hex()], sessions: Vec::new() };
        let changes = broadcast::channel(CHANGES_MAX).0;
        Arc::new(Recorder { limits, kept: Mutex::default(), changes, access: Mutex::new(access) })
    }

    /// A token that lets one browser in, once.
    pub(crate) fn token(&self) -> Option<String> {
        self.access().tokens.first().cloned()
    }

    /// Another token.
    pub(crate) fn new_token(&self) -> String {
        let token = random_hex();
        let tokens = &mut self.access().tokens;
        tokens.truncate(SESSIONS_MAX);
        tokens.insert(0, token.clone());
        token
    }

    /// Exchanges a token for a session.
    pub(crate) fn open_session(&self, token: &str) -> Option<String> {
        let mut access = self.access();
        let at = access.tokens.iter().position(|known| known == token)?;
        access.tokens.remove(at);
        let session = random_hex();
        if access.sessions.len() == SESSIONS_MAX {
            access.sessions.remove(0);
        }
        access.sessions.push(session.clone());
        Some(session)
    }

    pub(crate) fn has_session(&self, session: &str) -> bool {
        self.access().sessions.iter().any(|known| known == session)
    }

    /// Records a request: as one more of a conversation that it continues, or of a new one. Of a body that continues
    /// another only the new entries are read.
    pub(crate) fn request(&self, request: &RequestInfo, client: &Arc<str>, wire: Wire, body: &Bytes) {
        let known = self.kept().history_before(client, wire, body);
        // A large body is read while others may record.
        let (history, title) = known.and_then(|known| known.continued(body)).unwrap_or_else(|| History::read(body));
        let mut kept = self.kept();
        let number = kept.number_of(client, wire, &history);
        let earlier = kept.conversations.remove(&number);
        let (mut requests, title) = earlier.map_or((Vec::new(), title), |earlier| (earlier.requests, earlier.title));
        if requests.len() == REQUESTS_MAX {
            requests.remove(0);
        }
        let now = now_ms();
        requests.push(RecordedRequest {
            number: request.number,
            request_id: request.id.as_str().to_owned(),
            started_at: now,
            ms: None,
            events: Vec::new(),
        });
        let conversation = RecordedConversation {
            client: Arc::clone(client),
            request: body.clone(),
            response: None,
            requests,
            wire,
            model: request.summary().model.clone(),
            title,
            state: Cow::Borrowed("request read"),
            is_running: true,
            updated_ms: now,
            response_bytes: 0,
            history,
        };
        kept.conversations.insert(number, conversation);
        kept.requests.insert(request.number, number);
        self.forget_oldest(&mut kept);
        self.announce(&kept, number);
    }

    /// Records the response to a request.
    pub(crate) fn response(&self, request: &RequestInfo, body: &Value) {
        let (response, response_bytes) = (body.clone(), text_bytes(body));
        let mut kept = self.kept();
        let Some(number) = kept.requests.get(&request.number).copied() else { return };
        if let Some(conversation) = kept.conversations.get_mut(&number) {
            conversation.response_bytes = response_bytes;
            conversation.response = Some(response);
        }
        self.forget_oldest(&mut kept);
    }

    pub(crate) fn conversation(&self, number: u64) -> Option<RecordedConversation> {
        self.kept().conversations.get(&number).cloned()
    }

    pub(crate) fn forget_all(&self) {
        let mut kept = self.kept();
        *kept = Kept { next: kept.next, ..Kept::default() };
        drop(kept);
        self.send(|| json!({"kind": "list", "conversations": []}));
    }

    /// All conversations, and changes from now on.
    pub(crate) fn watch(&self) -> (Value, broadcast::Receiver<Arc<str>>) {
        let kept = self.kept();
        (list(&kept), self.changes.subscribe())
    }

    pub(crate) fn list(&self) -> Value {
        list(&self.kept())
    }

    fn forget_oldest(&self, kept: &mut Kept) {
        let bytes = |kept: &Kept| kept.conversations.values().map(RecordedConversation::bytes).sum::<usize>();
        while kept.conversations.len() > self.limits.conversations_max || bytes(kept) > self.limits.bytes_max {
            let oldest = kept.conversations.iter().min_by_key(|(_, known)| known.updated_ms).map(|(number, _)| *number);
            let Some(oldest) = oldest else { return };
            kept.conversations.remove(&oldest);
            kept.requests.retain(|_, number| *number != oldest);
            self.send(|| json!({"kind": "forgotten", "id": oldest}));
        }
    }

    fn announce(&self, kept: &Kept, number: u64) {
        let conversation = kept.conversations.get(&number);
        self.send(|| json!({"kind": "conversation", "conversation": conversation.map(|known| known.summary(number))}));
    }

    /// Sends a change to open pages. It is serialised only if there are any.
    fn send(&self, change: impl FnOnce() -> Value) {
        if self.changes.receiver_count() > 0 {
            // Who looked may have gone.
            drop(self.changes.send(Arc::from(change().to_string())));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn access(&self) -> MutexGuard<'_, Access> {
        self.access.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn list(kept: &Kept) -> Value {
    let conversations: Vec<Value> =
        kept.conversations.iter().map(|(number, conversation)| conversation.summary(*number)).collect();
    json!({"kind": "list", "conversations": conversations})
}

impl RecordedConversation {
    fn bytes(&self) -> usize {
        self.request.len() + self.response_bytes
    }

    fn summary(&self, number: u64) -> Value {
        json!({"id": number, "title": self.title, "wire": self.wire.name(), "model": self.model, "client": &*self.client,
               "requests": self.requests.len(), "state": self.state, "running": self.is_running, "updated": self.updated_ms,
               "bytes": self.bytes()})
    }
}

impl Kept {
    /// The history of the last request, if this body begins as that one did, up to the end of its last entry.
    fn history_before(&self, client: &str, wire: Wire, body: &Bytes) -> Option<History> {
        let begins_alike = |known: &&RecordedConversation| {
            let end = known.history.at.map_or(0, |at| at + known.history.entries.len());
            end > 0 && known.request.get(..end).is_some_and(|known| begins_with(body, known))
        };
        self.of_client(client, wire).map(|(_, known)| known).find(begins_alike).map(|known| known.history.clone())
    }

    /// The conversation that a request with this history belongs to.
    fn number_of(&mut self, client: &str, wire: Wire, history: &History) -> u64 {
        let is_continued = |known: &History| !known.entries.is_empty() && begins_with(&history.entries, &known.entries);
        let known = self.of_client(client, wire).find(|(_, known)| is_continued(&known.history));
        if let Some((number, _)) = known {
            return *number;
        }
        self.next += 1;
        self.next
    }

    /// The newest first.
    fn of_client(&self, client: &str, wire: Wire) -> impl Iterator<Item = (&u64, &RecordedConversation)> {
        self.conversations.iter().rev().filter(move |(_, known)| &*known.client == client && known.wire == wire)
    }
}

/// Histories of different conversations have much in common, but not the last bytes of one: they are compared first.
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    const LAST_BYTES: usize = 64;
    let last = start.len().saturating_sub(LAST_BYTES);
    text.get(last..start.len()) == Some(&start[last..]) && text.starts_with(start)
}

/// How many bytes the entries take that follow an entry, in a list.
fn entries_after(rest: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let space = rest[end..].iter().position(|byte| !byte.is_ascii_whitespace())?;
        match rest[end + space] {
            b']' => return Some(end),
            b',' => {
                let from = end + space + 1;
                let mut values = serde_json::Deserializer::from_slice(&rest[from..]).into_iter::<IgnoredAny>();
                values.next()?.ok()?;
                end = from + values.byte_offset();
            }
            _ => return None,
        }
    }
}

/// Where a history stands in a body, on all wires.
#[derive(Deserialize)]
struct BodyHistory<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl History {
    /// The history of a body that begins with this one, which has its title already.
    fn continued(self, body: &Bytes) -> Option<(History, String)> {
        let at = self.at?;
        let end = at + self.entries.len();
        let end = end + entries_after(body.get(end..)?)?;
        Some((History { entries: body.slice(at..end), at: Some(at) }, String::new()))
    }

    /// The history of any body, and its title. It is empty if there is none: in a body that is refused later.
    fn read(body: &Bytes) -> (History, String) {
        History::find(body).unwrap_or_default()
    }

    fn find(body: &Bytes) -> Option<(History, String)> {
        let BodyHistory { messages, input } = serde_json::from_slice(body).ok()?;
        let history = messages.or(input)?.get();
        if history.starts_with('"') {
            let entry = format!(r#"{{"role":"user","content":{history}}}"#);
            let title = title(&[serde_json::from_str(&entry).ok()?]);
            return Some((History { entries: entry.into(), at: None }, title));
        }
        let entries: Vec<&RawValue> = serde_json::from_str(history).ok()?;
        let (first, last) = (entries.first()?.get(), entries.last()?.get());
        let offset = |text: &str| text.as_ptr().addr() - body.as_ptr().addr();
        let (at, end) = (offset(first), offset(last) + last.len());
        Some((History { entries: body.slice(at..end), at: Some(at) }, title(&entries)))
    }
}

/// The first text of the user.
fn title(entries: &[&RawValue]) -> String {
    let mut entries = entries.iter().filter_map(|entry| serde_json::from_str::<Value>(entry.get()).ok());
    let user = entries.find(|entry| entry["role"] == "user");
    let content = user.as_ref().map(|entry| &entry["content"]);
    let text = content.and_then(|content| content.as_str().or_else(|| content.pointer("/0/text")?.as_str()));
    text.unwrap_or_default().chars().take(TITLE_CHARS_MAX).collect()
}

/// About as many bytes as a value has as text.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 6,
        Value::String(text) => text.len() + 3,
        Value::Array(values) => 2 + values.iter().map(text_bytes).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(name, value)| name.len() + 4 + text_bytes(value)).sum::<usize>()
        }
    }
}

/// Feeds a recorder with what happens to requests.
#[derive(Debug)]
pub(crate) struct RecorderEvents(pub Arc<Recorder>);

impl EventConsumer for RecorderEvents {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        let Some(state) = state_of(event) else { return };
        let mut kept = self.0.kept();
        let Some(number) = kept.requests.get(&request.number).copied() else { return };
        let ms = request.elapsed().as_millis() as u64;
        if let Some(conversation) = kept.conversations.get_mut(&number) {
            conversation.state.clone_from(&state);
            conversation.updated_ms = now_ms();
            let of_request = |known: &&mut RecordedRequest| known.number == request.number;
            if let Some(recorded) = conversation.requests.iter_mut().rev().find(of_request) {
                if recorded.events.len() < EVENTS_MAX {
                    recorded.events.push((ms, state));
                }
                if let Event::RequestEnded { .. } = event {
                    recorded.ms = Some(ms);
                    conversation.is_running = false;
                }
            }
        }
        if let Event::RequestEnded { .. } = event {
            kept.requests.remove(&request.number);
        }
        self.0.announce(&kept, number);
    }
}

/// What a page shows of an event; `None` for those that it does not need.
fn state_of(event: &Event<'_>) -> Option<Cow<'static, str>> {
    Some(match event {
        Event::ModelAsked { upstream } => format!("model asked at {upstream}").into(),
        Event::ModelRetried { status, .. } => format!("model answered {}, is asked again", status.as_u16()).into(),
        Event::ModelResponded { .. } => "model responds".into(),
        Event::ProgramStarted => "program started".into(),
        Event::ProgramPaused { calls } => format!("program waits for {calls} answers").into(),
        Event::CallsAnswered { count, .. } => format!("{count} calls answered").into(),
        Event::ProgramFinished { .. } => "program finished".into(),
        Event::RequestEnded { outcome } => match outcome {
            RequestOutcome::Answer { status } if status.is_success() => "answered".into(),
            RequestOutcome::Answer { status } => format!("answered with {}", status.as_u16()).into(),
            RequestOutcome::Calls => "client executes calls".into(),
            RequestOutcome::Error { status, failure } => format!("failed with {}: {failure}", status.as_u16()).into(),
            RequestOutcome::Left => "client left".into(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::super::OpenRequest;
    use super::*;

    fn limits(conversations_max: usize, bytes_max: usize) -> RecorderLimits {
        RecorderLimits { conversations_max, bytes_max, is_forced: false }
    }

    fn request(recorder: &Recorder, messages: &[&str]) {
        let messages: Vec<Value> = messages.iter().map(|text| json!({"role": "user", "content": text})).collect();
        body(recorder, &json!({"model": "m", "messages": messages, "n": 1}).to_string());
    }

    fn body(recorder: &Recorder, body: &str) {
        let nobody: Arc<[Box<dyn EventConsumer>]> = Arc::new([]);
        let open = OpenRequest::start(&nobody, Some(Wire::Chat), "", &HeaderMap::new());
        recorder.request(open.observer().request(), &Arc::from(""), Wire::Chat, &Bytes::from(body.to_owned()));
    }

    fn titles(recorder: &Recorder) -> Vec<(String, u64)> {
        let list = recorder.list();
        let conversations = list["conversations"].as_array().expect("a list");
        let title =
            |one: &Value| (one["title"].as_str().unwrap_or_default().to_owned(), one["requests"].as_u64().unwrap_or(0));
        conversations.iter().map(title).collect()
    }

    #[test]
    fn a_request_that_continues_another_belongs_to_its_conversation() {
        let recorder = Recorder::new(limits(2, 1 << 20));
        request(&recorder, &["a"]);
        request(&recorder, &["b"]);
        request(&recorder, &["a", "a2"]);
        assert_eq!(titles(&recorder), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        request(&recorder, &["c"]);
        assert_eq!(titles(&recorder).len(), 2);
        recorder.forget_all();
        assert_eq!(titles(&recorder), []);
    }

    #[test]
    fn a_conversation_is_found_however_its_bodies_are_written() {
        let recorder = Recorder::new(limits(10, 1 << 20));
        let said = r#"{"role":"user","content":"a"} , {"role":"assistant","content":"]"}"#;
        body(&recorder, r#"{"input": "a"}"#);
        body(&recorder, r#"{"temperature": 0, "input": [{"role":"user","content":"a"}]}"#);
        body(&recorder, &format!(r#"{{"input": [{said}]}}"#));
        body(&recorder, &format!(r#"{{"input": [{said}, 1, {{}} ], "n": []}}"#));
        // Others went on differently, or have no history.
        body(&recorder, &format!(r#"{{"n": 1, "input": [{said}, 1]}}"#));
        body(&recorder, &format!(r#"{{"input": [{}]}}"#, said.replace(']', "[")));
        body(&recorder, r#"{"input": []}"#);
        body(&recorder, r#"{"messages": 7}"#);
        let expected = [("a", 4), ("a", 1), ("a", 1), ("", 1), ("", 1)];
        assert_eq!(titles(&recorder), expected.map(|(title, requests)| (title.to_owned(), requests)));
    }

    #[test]
    fn no_more_bytes_are_kept_than_allowed() {
        let recorder = Recorder::new(limits(10, 150));
        request(&recorder, &["a"]);
        request(&recorder, &["b"]);
        request(&recorder, &[&"x".repeat(200)]);
        assert_eq!(titles(&recorder), []);
    }

    #[test]
    fn a_token_lets_one_browser_in() {
        let recorder = Recorder::new(limits(1, 1));
        let token = recorder.token().expect("a token");
        let session = recorder.open_session(&token).expect("a session");
        assert!(recorder.has_session(&session) && !recorder.has_session(&token));
        assert_eq!((recorder.open_session(&token), recorder.token()), (None, None));
        assert!(recorder.open_session(&recorder.new_token()).is_some());
    }
}
