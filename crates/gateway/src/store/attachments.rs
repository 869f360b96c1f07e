//! Images and files in answers to calls that the gateway executed, as their servers sent them. A later request shows them to
//! the model again, if a program has returned their handles.

use std::collections::BTreeMap;

use dacapo_runner::{Attachment, StoreError};
use dacapo_wire::UnopenedStates;
use serde_json::Value;

use super::Store;

pub(crate) async fn keep(store: &Store, tenant: &str, attachments: &[Attachment]) -> Result<(), StoreError> {
    for Attachment { handle, block } in attachments {
        store.put_text(tenant, handle, &block.to_string()).await?;
    }
    Ok(())
}

/// Those of these handles that are stored.
pub(crate) async fn load(
    store: &Store,
    tenant: &str,
    handles: Vec<String>,
) -> Result<BTreeMap<String, Value>, StoreError> {
    let texts = store.get_texts(tenant, &handles, &UnopenedStates::default()).await?;
    let block = |(handle, text): (String, Option<String>)| Some((handle, serde_json::from_str(&text?).ok()?));
    Ok(handles.into_iter().zip(texts).filter_map(block).collect())
}
