//! The last conversations, in memory, for the inspector page. Only there are programs, arguments and answers kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dacapo_wire::Wire;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::broadcast;

use super::{Event, EventConsumer, RequestId, RequestInfo, RequestOutcome};
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
    /// Which conversation a running request belongs to.
    requests: BTreeMap<String, u64>,
}

/// Who may look: whoever has a session, which a token is exchanged for, once.
#[derive(Debug, Default)]
struct Access {
    tokens: Vec<String>,
    sessions: Vec<String>,
}

/// A conversation, with its last request and response.
#[derive(Debug, Clone)]
pub(crate) struct RecordedConversation {
    pub client: String,
    pub request: Bytes,
    pub response: Option<Value>,
    pub requests: Vec<RecordedRequest>,
    wire: Wire,
    model: String,
    title: String,
    /// What happens to its last request.
    state: String,
    is_running: bool,
    updated_ms: u64,
    response_bytes: usize,
    entries: usize,
    digest: [u8; 32],
}

/// What happened to a request, with the time since its start.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RecordedRequest {
    pub request_id: String,
    /// Milliseconds since 1970.
    pub started_at: u64,
    pub ms: Option<u64>,
    pub events: Vec<(u64, String)>,
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

    /// Records a request: as one more of a conversation that it continues, or of a new one.
    pub(crate) fn request(&self, id: &RequestId, client: &str, wire: Wire, body: &Bytes) {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let history = match (&json["messages"], &json["input"]) {
            (Value::Array(entries), _) | (_, Value::Array(entries)) => entries.clone(),
            (_, Value::String(text)) => vec![json!({"role": "user", "content": text})],
            _ => Vec::new(),
        };
        let digests = digests(&history);
        let mut kept = self.kept();
        let continued = kept.conversations.iter().rev().find(|(_, known)| {
            known.client == client && known.wire == wire && digests.get(known.entries) == Some(&known.digest)
        });
        let number = if let Some((number, _)) = continued {
            *number
        } else {
            kept.next += 1;
            kept.next
        };
        let earlier = kept.conversations.remove(&number);
        let mut requests = earlier.map(|earlier| earlier.requests).unwrap_or_default();
        if requests.len() == REQUESTS_MAX {
            requests.remove(0);
        }
        let request_id = id.as_str().to_owned();
        requests.push(RecordedRequest { request_id, started_at: now_ms(), ms: None, events: Vec::new() });
        let conversation = RecordedConversation {
            client: client.to_owned(),
            request: body.clone(),
            response: None,
            requests,
            wire,
            model: json["model"].as_str().unwrap_or_default().to_owned(),
            title: title(&history),
            state: "request read".to_owned(),
            is_running: true,
            updated_ms: now_ms(),
            response_bytes: 0,
            entries: history.len(),
            digest: digests.last().copied().unwrap_or_default(),
        };
        kept.conversations.insert(number, conversation);
        kept.requests.insert(id.as_str().to_owned(), number);
        self.forget_oldest(&mut kept);
        self.tell(&kept, number);
    }

    /// Records the response to a request.
    pub(crate) fn response(&self, id: &RequestId, body: &Value) {
        let mut kept = self.kept();
        let Some(number) = kept.requests.get(id.as_str()).copied() else { return };
        if let Some(conversation) = kept.conversations.get_mut(&number) {
            conversation.response_bytes = body.to_string().len();
            conversation.response = Some(body.clone());
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
        self.send(&json!({"kind": "list", "conversations": []}));
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
            self.send(&json!({"kind": "forgotten", "id": oldest}));
        }
    }

    fn tell(&self, kept: &Kept, number: u64) {
        if let Some(conversation) = kept.conversations.get(&number) {
            self.send(&json!({"kind": "conversation", "conversation": conversation.summary(number)}));
        }
    }

    fn send(&self, change: &Value) {
        // Nobody may be looking.
        drop(self.changes.send(Arc::from(change.to_string())));
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
        json!({"id": number, "title": self.title, "wire": self.wire.name(), "model": self.model, "client": self.client,
               "requests": self.requests.len(), "state": self.state, "running": self.is_running, "updated": self.updated_ms,
               "bytes": self.bytes()})
    }
}

/// A digest of each beginning of a history.
fn digests(history: &[Value]) -> Vec<[u8; 32]> {
    let mut digests = vec![[0; 32]];
    for entry in history {
        let before = digests.last().copied().unwrap_or_default();
        digests.push(Sha256::new_with_prefix(before).chain_update(entry.to_string()).finalize().into());
    }
    digests
}

fn title(history: &[Value]) -> String {
    let user = history.iter().find(|entry| entry["role"] == "user").map(|entry| &entry["content"]);
    let text = user.and_then(|content| content.as_str().or_else(|| content.pointer("/0/text")?.as_str()));
    text.unwrap_or_default().chars().take(TITLE_CHARS_MAX).collect()
}

/// Feeds a recorder with what happens to requests.
#[derive(Debug)]
pub(crate) struct RecorderEvents(pub Arc<Recorder>);

impl EventConsumer for RecorderEvents {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        let Some(state) = state_of(event) else { return };
        let mut kept = self.0.kept();
        let Some(number) = kept.requests.get(request.id.as_str()).copied() else { return };
        let ms = request.elapsed().as_millis() as u64;
        if let Some(conversation) = kept.conversations.get_mut(&number) {
            conversation.state.clone_from(&state);
            conversation.updated_ms = now_ms();
            let of_request = |known: &&mut RecordedRequest| known.request_id == request.id.as_str();
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
            kept.requests.remove(request.id.as_str());
        }
        self.0.tell(&kept, number);
    }
}

/// What a page shows of an event; `None` for those that it does not need.
fn state_of(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::ModelAsked { upstream } => format!("model asked at {upstream}"),
        Event::ModelRetried { status, .. } => format!("model answered {}, is asked again", status.as_u16()),
        Event::ModelResponded { .. } => "model responds".to_owned(),
        Event::ProgramStarted => "program started".to_owned(),
        Event::ProgramPaused { calls } => format!("program waits for {calls} answers"),
        Event::CallsAnswered { count, .. } => format!("{count} calls answered"),
        Event::ProgramFinished { .. } => "program finished".to_owned(),
        Event::RequestEnded { outcome } => match outcome {
            RequestOutcome::Answer { status } if status.is_success() => "answered".to_owned(),
            RequestOutcome::Answer { status } => format!("answered with {}", status.as_u16()),
            RequestOutcome::Calls => "client executes calls".to_owned(),
            RequestOutcome::Error { status, failure } => format!("failed with {}: {failure}", status.as_u16()),
            RequestOutcome::Left => "client left".to_owned(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;

    use super::*;

    fn limits(conversations_max: usize, bytes_max: usize) -> RecorderLimits {
        RecorderLimits { conversations_max, bytes_max, is_forced: false }
    }

    fn request(recorder: &Recorder, messages: &[&str]) {
        let messages: Vec<Value> = messages.iter().map(|text| json!({"role": "user", "content": text})).collect();
        let body = Bytes::from(json!({"model": "m", "messages": messages}).to_string());
        recorder.request(&RequestId::of(&HeaderMap::new()), "", Wire::Chat, &body);
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
