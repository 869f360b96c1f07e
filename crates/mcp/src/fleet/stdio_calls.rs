//! Calls to a server's process. They do not go through rmcp, which takes longer than most servers: it tries to read a
//! response as each kind of result in turn, and spawns a task for each message that it sends.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use dacapo_runner::ToolCall;
use rmcp::ServiceError;
use rmcp::model::{ErrorData, RequestId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::outbox::{Closed, Outbox};
use super::rejected_response;
use crate::lock::lock;

/// Greater than all ids that rmcp uses on the same connection, and small enough for servers that read ids as 32-bit integers.
const FIRST_ID: u32 = 1_000_000_000;

pub(super) const IDEMPOTENCY_KEY: &str = "dacapo/idempotency-key";

type CallResponse = Result<Value, ErrorData>;

#[derive(Debug)]
pub(super) struct StdioCalls {
    outbox: Arc<Outbox>,
    /// `None` when no responses will arrive any more.
    waiting: Mutex<Option<HashMap<u32, oneshot::Sender<CallResponse>>>>,
    next: AtomicU32,
}

#[derive(Serialize)]
struct JsonRpcMessage<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    method: &'static str,
    params: &'a P,
}

#[derive(Serialize)]
struct CallParams<'a> {
    #[serde(rename = "_meta")]
    meta: CallMeta<'a>,
    name: &'a str,
    arguments: &'a Map<String, Value>,
}

struct CallMeta<'a> {
    key: &'a str,
    common: &'a Map<String, Value>,
    /// Of this call alone.
    own: &'a Map<String, Value>,
}

impl Serialize for CallMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let given = self.common.iter().chain(self.own).map(|(name, value)| (name.as_str(), Cow::Borrowed(value)));
        serializer.collect_map(given.chain([(IDEMPOTENCY_KEY, Cow::Owned(Value::from(self.key)))]))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams {
    request_id: u32,
    reason: &'static str,
}

/// A message of a server, read only as far as is needed to know whether it is the response to a call.
#[derive(Deserialize)]
struct JsonRpcResponse<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

impl StdioCalls {
    pub(super) fn new(outbox: Arc<Outbox>) -> StdioCalls {
        StdioCalls { outbox, waiting: Mutex::new(Some(HashMap::new())), next: AtomicU32::new(FIRST_ID) }
    }

    /// Sends a call and waits for its result, of whatever kind. If this future is dropped, the call is cancelled.
    pub(super) async fn call(
        &self,
        call: &ToolCall,
        common: &Map<String, Value>,
        own: &Map<String, Value>,
    ) -> Result<Value, ServiceError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        match &mut *lock(&self.waiting) {
            Some(waiting) => drop(waiting.insert(id, sender)),
            None => return Err(ServiceError::TransportClosed),
        }
        let _cancel = CancelCallOnDrop { calls: self, id };
        let params = CallParams {
            meta: CallMeta { key: &call.idempotency_key, common, own },
            name: &call.tool,
            arguments: &call.args,
        };
        self.send(Some(id), "tools/call", &params).map_err(|Closed| ServiceError::TransportClosed)?;
        match response.await {
            Ok(response) => response.map_err(ServiceError::McpError),
            Err(_dropped) => Err(ServiceError::TransportClosed),
        }
    }

    /// Takes a message if it is the response to a call, and returns whether it is.
    pub(super) fn take_response(&self, line: &[u8]) -> bool {
        let Ok(JsonRpcResponse { id: Some(id), method: None, result, error }) = serde_json::from_slice(line) else {
            return false;
        };
        let Some(id) = number(id.get()) else { return false };
        let error = error.filter(|error| error.get() != "null");
        let response = match (error, result) {
            (Some(error), _) => serde_json::from_str(error.get()).map(Err),
            (None, Some(result)) => serde_json::from_str(result.get()).map(Ok),
            (None, None) => Ok(Err(rejected_response::invalid())),
        };
        self.resolve(id, response.unwrap_or_else(|_invalid| Err(rejected_response::invalid())));
        true
    }

    /// Ends a call with an error in the server's place. Returns the error if the id is not that of a call.
    pub(super) fn fail(&self, id: &RequestId, error: ErrorData) -> Result<(), ErrorData> {
        match number(&id.to_string()) {
            Some(id) => self.resolve(id, Err(error)),
            None => return Err(error),
        }
        Ok(())
    }

    /// Ends all calls, because no more responses will arrive.
    pub(super) fn end(&self) {
        lock(&self.waiting).take();
    }

    fn resolve(&self, id: u32, response: CallResponse) {
        let waiting = lock(&self.waiting).as_mut().and_then(|waiting| waiting.remove(&id));
        // A server may respond to a call that was cancelled.
        if let Some(waiting) = waiting {
            drop(waiting.send(response));
        }
    }

    fn send(&self, id: Option<u32>, method: &'static str, params: &impl Serialize) -> Result<(), Closed> {
        self.outbox.push(&JsonRpcMessage { jsonrpc: "2.0", id, method, params })
    }
}

/// Cancels a call if it is dropped before the response arrives.
struct CancelCallOnDrop<'a> {
    calls: &'a StdioCalls,
    id: u32,
}

impl Drop for CancelCallOnDrop<'_> {
    fn drop(&mut self) {
        let is_open = lock(&self.calls.waiting).as_mut().is_some_and(|waiting| waiting.remove(&self.id).is_some());
        if is_open {
            let params = CancelParams { request_id: self.id, reason: "nobody waits for the answer any more" };
            // If the outbox is closed, the process is about to end.
            self.calls.send(None, "notifications/cancelled", &params).unwrap_or_default();
        }
    }
}

/// Reads the id of a call. Some servers return ids as strings.
fn number(id: &str) -> Option<u32> {
    id.trim_matches('"').parse().ok().filter(|id| *id >= FIRST_ID)
}

/// Distinguishes a field that is `null` from one that is absent.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
