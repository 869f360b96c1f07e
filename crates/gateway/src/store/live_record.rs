//! Records of work that is in progress, in the store. Its worker renews the record while it works, so that others know
//! whether to wait for the outcome.

use std::sync::Arc;
use std::time::Duration;

use dacapo_runner::StoreError;
use dacapo_wire::UnopenedStates;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Store;

/// How often a worker renews its record.
const BEAT: Duration = Duration::from_secs(2);
/// A worker that has not renewed its record for this long counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(7);
/// How often a record is read while its outcome is awaited.
const POLL: Duration = Duration::from_millis(200);

/// A text under a name: that the work is in progress, and then its outcome.
#[derive(Debug, Clone)]
pub(super) struct LiveRecord {
    store: Arc<Store>,
    tenant: Arc<str>,
    name: String,
    /// Names this worker, so that it recognises a claim of its own whose confirmation was lost.
    claimant: String,
    /// Held while something is written: what was written first must not arrive last.
    writing: Arc<Mutex<()>>,
}

impl LiveRecord {
    pub(super) fn new(store: &Arc<Store>, tenant: &Arc<str>, name: String) -> LiveRecord {
        let (store, tenant, claimant) = (Arc::clone(store), Arc::clone(tenant), crate::http::random_hex());
        LiveRecord { store, tenant, name, claimant, writing: Arc::default() }
    }

    /// Records that the work is in progress, and with it a text under another name, unless there is a record already, which is
    /// returned. It is replaced if it `is_over`. If others find the same, only one of them replaces it.
    pub(super) async fn claim(
        &self,
        with: Option<(&str, &str)>,
        is_over: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, StoreError> {
        let running = self.running(0);
        let known = self.store.put_new_text_with(&self.tenant, (&self.name, &running), with, is_over).await?;
        Ok(known.filter(|known| *known != running))
    }

    /// Records that work is in progress, for several records of a tenant at once.
    pub(super) async fn claim_all(
        store: &Store,
        tenant: &str,
        records: impl Iterator<Item = &LiveRecord> + Clone,
    ) -> Vec<Result<Option<String>, StoreError>> {
        let claims = records.clone().map(|record| (&*record.name, record.running(0)));
        let known = store.put_new_texts(tenant, claims).await;
        let of_others = |(record, known): (&LiveRecord, Result<Option<String>, StoreError>)| {
            known.map(|known| known.filter(|known| *known != record.running(0)))
        };
        records.zip(known).map(of_others).collect()
    }

    /// Puts another text in the place of what is recorded.
    pub(super) async fn put(&self, text: &str) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        self.store.put_text(&self.tenant, &self.name, text).await
    }

    /// Puts another text in the place of what is recorded, if that is as it should be. Who finds the same does it once.
    pub(super) async fn replace(&self, text: &str, is_expected: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        self.store.replace_text(&self.tenant, &self.name, text, is_expected).await
    }

    /// Whether this was recorded by this worker, while it worked.
    pub(super) fn is_mine(&self, known: &str) -> bool {
        serde_json::from_str::<Value>(known).is_ok_and(|known| known["by"] == self.claimant)
    }

    /// Like [`LiveRecord::put`]. After a crash the text may be missing: then the record says that the work is in progress.
    pub(super) async fn put_soon(&self, text: &str) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        self.store.put_text_soon(&self.tenant, &self.name, text).await
    }

    /// Renews the record until the future is dropped. Never returns.
    pub(super) async fn keep_alive(&self) {
        for beat in 1_u64.. {
            tokio::time::sleep(BEAT).await;
            let (record, writing) = (self.clone(), Arc::clone(&self.writing).lock_owned().await);
            // In a task of its own, which is not dropped in the middle of it.
            let written = tokio::spawn(async move {
                let put = record.store.put_text_soon(&record.tenant, &record.name, &record.running(beat)).await;
                drop(writing);
                put
            });
            // One that fails is followed by others.
            drop(written.await);
        }
    }

    fn running(&self, beat: u64) -> String {
        json!({"running": beat, "by": self.claimant}).to_string()
    }

    /// What the record says now. `None` if there is none.
    pub(super) async fn look<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<Option<Look<T>>, StoreError> {
        let names = std::slice::from_ref(&self.name);
        let found = self.store.get_texts(&self.tenant, names, &UnopenedStates::default()).await?.pop().flatten();
        Ok(found.map(|text| read(&text).map_or(Look::Running(text), Look::Ended)))
    }

    /// Waits for the outcome, as `read` finds it in the text, while a worker renews the record. `None` if there is no record.
    pub(super) async fn outcome<T>(
        &self,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<WorkOutcome<T>>, StoreError> {
        let (mut last, mut changed_at) = (None, Instant::now());
        loop {
            let text = match self.look(&read).await? {
                None => return Ok(None),
                Some(Look::Ended(outcome)) => return Ok(Some(WorkOutcome::Known(outcome))),
                Some(Look::Running(text)) => text,
            };
            if last.as_ref() != Some(&text) {
                (last, changed_at) = (Some(text), Instant::now());
            } else if changed_at.elapsed() > DEAD_AFTER {
                return Ok(Some(WorkOutcome::Unknown));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// What a record says.
pub(super) enum Look<T> {
    Ended(T),
    /// The work is in progress, or its worker has died. The text changes whenever a worker renews it.
    Running(String),
}

/// The outcome of recorded work.
pub(super) enum WorkOutcome<T> {
    Known(T),
    /// Its worker has died.
    Unknown,
}
