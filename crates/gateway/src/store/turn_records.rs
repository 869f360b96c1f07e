//! Turns that have sent calls with effects. A client that repeats its request, because its connection broke, gets what came
//! of the first one.

use std::sync::Arc;
use std::time::Duration;

use dacapo_runner::StoreError;
use dacapo_wire::Wire;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::Store;
use super::live_record::{LiveRecord, Outcome};
use crate::gateway::now_ms;

/// What is known of the turns of one request.
#[derive(Debug)]
pub(crate) struct TurnRecord {
    record: LiveRecord,
    ttl: Duration,
    /// Set when the first call with effects is about to be sent.
    begun: OnceCell<Begun>,
}

/// Whether a turn may send calls with effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Yes,
    /// Another turn of the same request sends them.
    ByAnother,
}

/// An earlier turn of the same request.
pub(crate) enum EarlierTurn {
    /// There was none, or it has sent nothing with effects.
    None,
    Ended(RecordedResponse),
    /// It was cut off after it had sent calls with effects.
    Interrupted,
}

/// A response that was sent, or would have been.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordedResponse {
    pub status: u16,
    pub is_stream: bool,
    pub body: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct EndedTurn {
    ended_at_ms: u64,
    response: RecordedResponse,
}

impl TurnRecord {
    /// The client's own key names the request, or else all that it says.
    pub(crate) fn new(
        store: &Arc<Store>,
        tenant: &Arc<str>,
        wire: Wire,
        key: Option<&[u8]>,
        body: &[u8],
        ttl: Duration,
    ) -> TurnRecord {
        let (kind, text) = key.map_or((0, body), |key| (1, key));
        let digest = Sha256::new().chain_update([kind]).chain_update(wire.name()).chain_update(text).finalize();
        let name = format!("turn:{}", crate::http::hex(&digest[..16]));
        TurnRecord { record: LiveRecord::new(store, tenant, name), ttl, begun: OnceCell::new() }
    }

    /// Whether the turn has sent calls with effects, so that it goes on without its client.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get() == Some(&Begun::Yes)
    }

    /// What came of an earlier turn; waits for one that still runs.
    pub(crate) async fn earlier(&self) -> Result<EarlierTurn, StoreError> {
        Ok(match self.record.outcome(read).await? {
            Some(Outcome::Known(ended)) if self.is_current(&ended) => EarlierTurn::Ended(ended.response),
            Some(Outcome::Known(_)) | None => EarlierTurn::None,
            Some(Outcome::Unknown) => EarlierTurn::Interrupted,
        })
    }

    /// Records that the turn sends calls with effects, before the first of them.
    pub(crate) async fn begin(&self) -> Result<Begun, StoreError> {
        let begin = || async {
            let Some(known) = self.record.claim().await? else { return Ok(Begun::Yes) };
            if read(&known).is_none_or(|ended| self.is_current(&ended)) {
                return Ok(Begun::ByAnother);
            }
            self.record.put_running().await?;
            Ok(Begun::Yes)
        };
        self.begun.get_or_try_init(begin).await.copied()
    }

    /// Says that the turn runs, once it has begun, until what it returns is dropped.
    pub(crate) fn keep_alive(self: &Arc<Self>) -> JoinSet<()> {
        let turn = Arc::clone(self);
        let mut alive = JoinSet::new();
        alive.spawn(async move {
            while !turn.has_begun() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            turn.record.keep_alive().await;
        });
        alive
    }

    pub(crate) async fn end(&self, response: RecordedResponse) -> Result<(), StoreError> {
        let ended = EndedTurn { ended_at_ms: now_ms(), response };
        self.record.put(&serde_json::to_string(&ended).unwrap_or_default()).await
    }

    fn is_current(&self, ended: &EndedTurn) -> bool {
        Duration::from_millis(now_ms().saturating_sub(ended.ended_at_ms)) <= self.ttl
    }
}

fn read(text: &str) -> Option<EndedTurn> {
    serde_json::from_str(text).ok()
}
