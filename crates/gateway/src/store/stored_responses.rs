//! Responses that a client refers to by id instead of sending them, where a store is configured.

use std::borrow::Cow;

use axum::http::StatusCode;
use dacapo_wire::{ClientSide, UnopenedStates, Wire};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Store;
use crate::config::Config;
use crate::http::{TurnError, json_values};

/// A longer chain of responses is no conversation.
const CHAIN_MAX: usize = 1_000;
const REFERENCES_READ_TOGETHER: usize = 64;

/// One turn of a client that lets us keep its history.
#[derive(Debug, Default)]
pub(crate) struct StoredTurn {
    previous: Option<String>,
    /// What the client sent itself.
    sent: Vec<Value>,
}

/// What became of a client's references.
#[derive(Debug, Default)]
pub(crate) struct ResolvedReferences {
    pub is_changed: bool,
    /// `None` if the client does not want its turn to be kept.
    pub turn: Option<StoredTurn>,
}

impl StoredTurn {
    /// Replaces references of a Responses client by what they refer to.
    pub(crate) async fn resolve(
        client: ClientSide,
        store: &Store,
        tenant: &str,
        body: &mut Value,
        config: &Config,
        unopened: &UnopenedStates,
    ) -> Result<ResolvedReferences, TurnError> {
        if client.wire() != Wire::Responses {
            return Ok(ResolvedReferences::default());
        }
        let previous = body.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
        let mut sent = match body.get("input") {
            Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
            Some(Value::Array(items)) => items.clone(),
            // Whoever reads it says what is wrong.
            _ => return Ok(ResolvedReferences::default()),
        };
        let mut left = ReferredSize::new(config);
        let is_referred = referred(store, tenant, &mut sent, &mut left, unopened).await?;
        let mut history = Vec::new();
        let mut earlier = previous.as_deref().map(Cow::Borrowed);
        for _ in 0..CHAIN_MAX {
            let Some(id) = earlier.take() else { break };
            let text = store.get_texts(tenant, &[response_name(&id)], unopened).await?.remove(0);
            left.take(text.as_deref().unwrap_or_default())?;
            let Some(mut kept) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
                // It may be the provider's.
                return Ok(ResolvedReferences::default());
            };
            if let Some(Value::Array(items)) = kept.get_mut("items").map(Value::take) {
                history.splice(0..0, items);
            }
            earlier = kept["previous"].as_str().map(|id| Cow::Owned(id.to_owned()));
        }
        let is_kept = body.get("store") != Some(&Value::Bool(false));
        if let Some(fields) = body.as_object_mut() {
            history.extend(sent.iter().cloned());
            fields.insert("input".to_owned(), Value::Array(history));
            if previous.is_some() {
                fields.shift_remove("previous_response_id");
            }
        }
        let is_changed = is_referred || previous.is_some();
        Ok(ResolvedReferences { is_changed, turn: is_kept.then_some(StoredTurn { previous, sent }) })
    }

    /// A name for the response that no other turn has: providers may repeat theirs, and conversations fork.
    pub(crate) fn response_id(&self, provider_id: &str) -> String {
        let mut hash = Sha256::new_with_prefix(provider_id.as_bytes());
        hash.update(self.previous.as_deref().unwrap_or_default().as_bytes());
        for item in &self.sent {
            hash.update(item.to_string().as_bytes());
        }
        format!("resp_{}", crate::http::hex(&hash.finalize()[..16]))
    }

    /// Keeps the turn under the id of its response, and its items under theirs.
    pub(crate) async fn keep(self, store: &Store, tenant: &str, response: &Value) -> Result<(), TurnError> {
        let (Some(id), Some(output)) = (response["id"].as_str(), response["output"].as_array()) else {
            return Ok(());
        };
        let items: Vec<&Value> = self.sent.iter().chain(output).collect();
        // The output stands among the items.
        let around: Map<String, Value> =
            response.as_object().into_iter().flatten().filter(|(key, _)| *key != "output").map(owned).collect();
        let kept = json!({"previous": self.previous, "items": items, "sent": self.sent.len(), "response": around});
        store.put_text(tenant, &response_name(id), &kept.to_string()).await?;
        for item in output {
            if let Some(id) = item["id"].as_str() {
                store.put_text(tenant, &item_name(id), &item.to_string()).await?;
            }
        }
        Ok(())
    }
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// A response that is kept, as it was sent.
pub(crate) async fn read(
    store: &Store,
    tenant: &str,
    id: &str,
    unopened: &UnopenedStates,
) -> Result<Option<Value>, TurnError> {
    let text = store.get_texts(tenant, &[response_name(id)], unopened).await?.remove(0);
    let Some(mut kept) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else { return Ok(None) };
    let Value::Object(mut response) = kept["response"].take() else { return Ok(None) };
    let sent = kept["sent"].as_u64().and_then(|sent| usize::try_from(sent).ok()).unwrap_or_default();
    let output = match kept["items"].take() {
        Value::Array(items) => items.into_iter().skip(sent).collect(),
        _ => Vec::new(),
    };
    response.insert("output".to_owned(), Value::Array(output));
    response.insert("previous_response_id".to_owned(), kept["previous"].take());
    Ok(Some(Value::Object(response)))
}

/// Overwrites a response and its items, so that nothing of them can be read. Later responses that build on it cannot be
/// continued.
pub(crate) async fn delete(store: &Store, tenant: &str, response: &Value) -> Result<(), TurnError> {
    let items = response["output"].as_array().into_iter().flatten();
    let names = items.filter_map(|item| item["id"].as_str()).map(item_name);
    for name in names.chain(response["id"].as_str().map(response_name)) {
        store.put_text(tenant, &name, "").await?;
    }
    Ok(())
}

/// Replaces references to items that are stored here by the items.
async fn referred(
    store: &Store,
    tenant: &str,
    items: &mut [Value],
    left: &mut ReferredSize,
    unopened: &UnopenedStates,
) -> Result<bool, TurnError> {
    let mut is_any = false;
    let is_reference = |item: &Value| item["type"] == "item_reference";
    let mut references: Vec<&mut Value> = items.iter_mut().filter(|item| is_reference(item)).collect();
    // Not all at once: each may be large, and many may be the same.
    for some in references.chunks_mut(REFERENCES_READ_TOGETHER) {
        let names: Vec<String> = some.iter().map(|item| item_name(item["id"].as_str().unwrap_or_default())).collect();
        for (reference, text) in some.iter_mut().zip(store.get_texts(tenant, &names, unopened).await?) {
            let Some(text) = text else { continue };
            left.take(&text)?;
            if let Ok(item) = serde_json::from_str(&text) {
                **reference = item;
                is_any = true;
            }
        }
    }
    Ok(is_any)
}

/// What may still be put in the place of references: together as much as a body may have.
struct ReferredSize {
    bytes_max: usize,
    bytes: usize,
    values_max: usize,
    values: usize,
}

impl ReferredSize {
    fn new(config: &Config) -> ReferredSize {
        ReferredSize { bytes_max: config.body_bytes_max, bytes: 0, values_max: config.body_values_max, values: 0 }
    }

    fn take(&mut self, text: &str) -> Result<(), TurnError> {
        self.bytes += text.len();
        self.values += json_values(text.as_bytes());
        let (unit, max, setting) = if self.bytes > self.bytes_max {
            ("bytes", self.bytes_max, "body_bytes_max")
        } else if self.values > self.values_max {
            ("JSON values", self.values_max, "body_values_max")
        } else {
            return Ok(());
        };
        let message = format!(
            "what `previous_response_id` and `item_reference` refer to has more than {max} {unit} ({setting}); start a \
             new conversation, or refer to less"
        );
        Err(TurnError::refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message))
    }
}

fn response_name(id: &str) -> String {
    format!("response:{id}")
}

fn item_name(id: &str) -> String {
    format!("item:{id}")
}
