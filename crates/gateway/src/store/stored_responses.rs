//! Responses that a client refers to by id instead of sending them, where a store is configured.

use dacapo_wire::{ClientSide, Wire};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Store;
use crate::http::TurnError;

/// A longer chain of responses is no conversation.
const CHAIN_MAX: usize = 1_000;

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
        let is_referred = referred(store, tenant, &mut sent).await?;
        let mut history = Vec::new();
        let mut earlier = previous.clone();
        for _ in 0..CHAIN_MAX {
            let Some(id) = earlier.take() else { break };
            let text = store.get_texts(tenant, &[response_name(&id)]).await?.remove(0);
            let Some(kept) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
                // It may be the provider's.
                return Ok(ResolvedReferences::default());
            };
            let items = kept["items"].as_array().cloned().unwrap_or_default();
            history.splice(0..0, items);
            earlier = kept["previous"].as_str().map(str::to_owned);
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
        let kept = json!({"previous": self.previous, "items": items});
        store.put_text(tenant, &response_name(id), &kept.to_string()).await?;
        for item in output {
            if let Some(id) = item["id"].as_str() {
                store.put_text(tenant, &item_name(id), &item.to_string()).await?;
            }
        }
        Ok(())
    }
}

/// Items of ours that are referred to stand again where the reference was.
async fn referred(store: &Store, tenant: &str, items: &mut [Value]) -> Result<bool, TurnError> {
    let mut is_any = false;
    let is_reference = |item: &Value| item["type"] == "item_reference";
    let references: Vec<&mut Value> = items.iter_mut().filter(|item| is_reference(item)).collect();
    let names: Vec<String> = references.iter().map(|item| item_name(item["id"].as_str().unwrap_or_default())).collect();
    for (reference, text) in references.into_iter().zip(store.get_texts(tenant, &names).await?) {
        if let Some(item) = text.and_then(|text| serde_json::from_str(&text).ok()) {
            *reference = item;
            is_any = true;
        }
    }
    Ok(is_any)
}

fn response_name(id: &str) -> String {
    format!("response:{id}")
}

fn item_name(id: &str) -> String {
    format!("item:{id}")
}
