//! Calls to a server's process. They do not go through rmcp, which is made for all messages there are: it reads an
//! answer as each kind of result in turn, and has a task for each message that it sends.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::ServiceError;
use rmcp::model::{ErrorData, RequestId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::not_taken;
use super::outbox::{Closed, Outbox};
use crate::ask::Ask;
use crate::lock::lock;

/// Beyond all ids that rmcp gives on the same connection, and small enough for servers that count in 32 bits.
const FIRST_ID: u32 = 1_000_000_000;

pub(super) const IDEMPOTENCY_KEY: &str = "dacapo/idempotency-key";

type Answer = Result<Value, ErrorData>;

#[derive(Debug)]
pub(super) struct Calls {
    outbox: Arc<Outbox>,
    /// `None` when no answers will come any more.
    waiting: Mutex<Option<HashMap<u32, oneshot::Sender<Answer>>>>,
    next: AtomicU32,
}

#[derive(Serialize)]
struct Message<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    method: &'static str,
    params: &'a P,
}

#[derive(Serialize)]
struct CallParams<'a> {
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
    name: &'a str,
    arguments: &'a Map<String, Value>,
}

struct Meta<'a> {
    key: &'a str,
    common: &'a Map<String, Value>,
}

impl Serialize for Meta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let common = self.common.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value)));
        serializer.collect_map(common.chain([(IDEMPOTENCY_KEY, Cow::Owned(Value::from(self.key)))]))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams {
    request_id: u32,
    reason: &'static str,
}

/// A message of a server, as far as it must be read to know whose it is.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

impl Calls {
    pub(super) fn new(outbox: Arc<Outbox>) -> Calls {
        Calls { outbox, waiting: Mutex::new(Some(HashMap::new())), next: AtomicU32::new(FIRST_ID) }
    }

    /// The result of a call, whatever it is. A call that nobody waits for any more is cancelled.
    pub(super) async fn call(&self, ask: &Ask, common: &Map<String, Value>) -> Result<Value, ServiceError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answered) = oneshot::channel();
        match &mut *lock(&self.waiting) {
            Some(waiting) => drop(waiting.insert(id, sender)),
            None => return Err(ServiceError::TransportClosed),
        }
        let _in_flight = InFlight { calls: self, id };
        let params = CallParams { meta: Meta { key: &ask.key, common }, name: &ask.tool, arguments: &ask.args };
        self.say(Some(id), "tools/call", &params).map_err(|Closed| ServiceError::TransportClosed)?;
        match answered.await {
            Ok(answer) => answer.map_err(ServiceError::McpError),
            Err(_dropped) => Err(ServiceError::TransportClosed),
        }
    }

    /// Takes a message if it answers a call.
    pub(super) fn hear(&self, line: &[u8]) -> bool {
        let Ok(Response { id: Some(id), method: None, result, error }) = serde_json::from_slice(line) else {
            return false;
        };
        let Some(id) = number(id.get()) else { return false };
        let error = error.filter(|error| error.get() != "null");
        let answer = match (error, result) {
            (Some(error), _) => serde_json::from_str(error.get()).map(Err),
            (None, Some(result)) => serde_json::from_str(result.get()).map(Ok),
            (None, None) => Ok(Err(not_taken::invalid())),
        };
        self.answer(id, answer.unwrap_or_else(|_invalid| Err(not_taken::invalid())));
        true
    }

    /// Answers a call in the server's place. Gives the error back if no call has this id.
    pub(super) fn refuse(&self, id: &RequestId, error: ErrorData) -> Result<(), ErrorData> {
        match number(&id.to_string()) {
            Some(id) => self.answer(id, Err(error)),
            None => return Err(error),
        }
        Ok(())
    }

    /// No more answers will come.
    pub(super) fn end(&self) {
        lock(&self.waiting).take();
    }

    fn answer(&self, id: u32, answer: Answer) {
        let waiting = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&id));
        // Servers may answer what was cancelled.
        if let Some(waiting) = waiting {
            drop(waiting.send(answer));
        }
    }

    fn say(&self, id: Option<u32>, method: &'static str, params: &impl Serialize) -> Result<(), Closed> {
        self.outbox.push(&Message { jsonrpc: "2.0", id, method, params })
    }
}

/// A call that was sent; dropped before its answer came, it is cancelled.
struct InFlight<'a> {
    calls: &'a Calls,
    id: u32,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let is_open = lock(&self.calls.waiting).as_mut().is_some_and(|waiting| waiting.remove(&self.id).is_some());
        if is_open {
            let params = CancelParams { request_id: self.id, reason: "nobody waits for the answer any more" };
            // If it takes nothing any more, the process is about to end.
            self.calls.say(None, "notifications/cancelled", &params).unwrap_or_default();
        }
    }
}

/// The number of a call. Some servers make texts of numbers.
fn number(id: &str) -> Option<u32> {
    id.trim_matches('"').parse().ok().filter(|id| *id >= FIRST_ID)
}

/// Tells `null` from nothing.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
