//! Responses that a client refers to by id instead of sending them, where a store is configured.

use serde_json::{Value, json};

use crate::error::TurnError;
use crate::store::Store;

/// A longer chain of responses is no conversation.
const CHAIN_MAX: usize = 1_000;

/// One turn of a client that lets us keep its history.
#[derive(Debug, Default)]
pub(crate) struct Recall {
    previous: Option<String>,
    /// What the client sent itself.
    sent: Vec<Value>,
}

impl Recall {
    /// Puts what the client refers to in its place. `None` if it does not want its turn to be kept.
    pub(crate) async fn resolve(store: &Store, tenant: &str, body: &mut Value) -> Result<Option<Recall>, TurnError> {
        let previous = body.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
        let mut sent = match body.get("input") {
            Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
            Some(Value::Array(items)) => items.clone(),
            // Whoever reads it says what is wrong.
            _ => return Ok(None),
        };
        referred(store, tenant, &mut sent).await?;
        let mut history = Vec::new();
        let mut earlier = previous.clone();
        for _ in 0..CHAIN_MAX {
            let Some(id) = earlier.take() else { break };
            let text = store.get_texts(tenant, &[response_name(&id)]).await?.remove(0);
            let Some(kept) = text.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
                // It may be the provider's.
                return Ok(None);
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
        Ok(is_kept.then_some(Recall { previous, sent }))
    }

    /// Keeps the turn under the id of its response, and its messages under theirs.
    pub(crate) async fn keep(self, store: &Store, tenant: &str, response: &Value) -> Result<(), TurnError> {
        let (Some(id), Some(output)) = (response["id"].as_str(), response["output"].as_array()) else {
            return Ok(());
        };
        let items: Vec<&Value> = self.sent.iter().chain(output).collect();
        let kept = json!({"previous": self.previous, "items": items});
        store.put_text(tenant, &response_name(id), &kept.to_string()).await?;
        for item in output.iter().filter(|item| item["type"] == "message") {
            if let Some(id) = item["id"].as_str() {
                store.put_text(tenant, &item_name(id), &item.to_string()).await?;
            }
        }
        Ok(())
    }
}

/// Messages of ours that are referred to stand again where the reference was.
async fn referred(store: &Store, tenant: &str, items: &mut [Value]) -> Result<(), TurnError> {
    let is_reference = |item: &Value| item["type"] == "item_reference";
    let references: Vec<&mut Value> = items.iter_mut().filter(|item| is_reference(item)).collect();
    let names: Vec<String> = references.iter().map(|item| item_name(item["id"].as_str().unwrap_or_default())).collect();
    for (reference, text) in references.into_iter().zip(store.get_texts(tenant, &names).await?) {
        if let Some(item) = text.and_then(|text| serde_json::from_str(&text).ok()) {
            *reference = item;
        }
    }
    Ok(())
}

fn response_name(id: &str) -> String {
    format!("response:{id}")
}

fn item_name(id: &str) -> String {
    format!("item:{id}")
}
