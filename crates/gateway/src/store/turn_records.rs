//! Turns that have sent calls with effects. A client that repeats its request, because its connection broke, gets what came
//! of the first one.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dacapo_runner::StoreError;
use dacapo_wire::{ModelResponse, UnopenedStates, Wire};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::Store;
use super::live_record::{LiveRecord, Look, WorkOutcome};
use crate::gateway::now_ms;

/// What is known of the turns of one request.
#[derive(Debug)]
pub(crate) struct TurnRecord {
    store: Arc<Store>,
    tenant: Arc<str>,
    name: String,
    /// Of this turn: the first, or one that goes on where another was cut off.
    record: OnceLock<LiveRecord>,
    ttl: Duration,
    /// When the request arrived. Whether an earlier one was long ago does not change while this one is answered.
    arrived_at_ms: u64,
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
    /// It was cut off after it had sent calls with effects. This one goes on with the responses of the model, if that is
    /// known.
    Interrupted(Option<TurnResponses<'static>>),
}

/// The responses of a model in a turn, before the last call with effects: all that is needed to run its programs again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TurnResponses<'a> {
    /// Of its programs.
    pub seed: Cow<'a, str>,
    pub started_at_ms: u64,
    /// The wire that it was asked on.
    pub wire: Wire,
    pub responses: Cow<'a, [ModelResponse]>,
}

impl TurnResponses<'_> {
    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// So many turns of one request may die, until the client is told that it was cut off.
const DEATHS_MAX: u32 = 5;
/// Turns of one request in all. Most of them have failed because the model or the store could not be reached.
const ATTEMPTS_MAX: u32 = 100;

/// A response that was sent, or would have been.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordedResponse {
    pub status: u16,
    pub is_stream: bool,
    pub body: String,
}

/// What is recorded of a turn that does not run any more.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnOutcome {
    Ended {
        at_ms: u64,
        response: RecordedResponse,
    },
    /// There was no response that a client could use. All that the turn has sent is recorded, or will be when it is answered.
    Failed {
        at_ms: u64,
    },
    /// It has failed, or was cut off, and a later one has taken its place.
    Superseded {
        has_failed: bool,
    },
}

impl TurnOutcome {
    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
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
        let (store, tenant) = (Arc::clone(store), Arc::clone(tenant));
        TurnRecord {
            store,
            tenant,
            name,
            record: OnceLock::new(),
            ttl,
            arrived_at_ms: now_ms(),
            begun: OnceCell::new(),
        }
    }

    fn attempt(&self, number: u32) -> LiveRecord {
        let name = if number == 0 { self.name.clone() } else { format!("{}:{number}", self.name) };
        LiveRecord::new(&self.store, &self.tenant, name)
    }

    fn record(&self) -> &LiveRecord {
        self.record.get_or_init(|| self.attempt(0))
    }

    /// Whether the turn has sent calls with effects, so that it goes on without its client.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get() == Some(&Begun::Yes)
    }

    /// Whether an earlier turn has sent calls with effects, and may still run.
    pub(crate) async fn may_run(&self) -> Result<bool, StoreError> {
        for number in 0..ATTEMPTS_MAX {
            match self.attempt(number).look(read).await? {
                Some(Look::Running(_)) => return Ok(true),
                Some(Look::Ended(TurnOutcome::Superseded { .. })) => {}
                Some(Look::Ended(_)) | None => break,
            }
        }
        Ok(false)
    }

    /// The outcome of an earlier turn; waits for one that still runs. If it was cut off or has failed, only the caller goes on
    /// with it.
    pub(crate) async fn earlier(&self) -> Result<EarlierTurn, StoreError> {
        // Those that the caller takes the place of, and whether they have failed.
        let mut before: Vec<(LiveRecord, bool)> = Vec::new();
        let (mut number, mut deaths) = (0, 0);
        while number < ATTEMPTS_MAX && deaths < DEATHS_MAX {
            let attempt = self.attempt(number);
            match attempt.outcome(read).await? {
                None if number == 0 => return Ok(EarlierTurn::None),
                Some(WorkOutcome::Known(TurnOutcome::Ended { at_ms, response })) if self.is_current(at_ms) => {
                    return Ok(EarlierTurn::Ended(response));
                }
                Some(WorkOutcome::Known(TurnOutcome::Failed { at_ms })) if self.is_current(at_ms) => {
                    before.push((attempt, true));
                }
                Some(WorkOutcome::Known(TurnOutcome::Superseded { has_failed })) => deaths += u32::from(!has_failed),
                Some(WorkOutcome::Unknown) => {
                    before.push((attempt, false));
                    deaths += 1;
                }
                // That was long ago, and the request is a new one.
                Some(WorkOutcome::Known(_)) if before.is_empty() => {
                    self.forget(number).await?;
                    return Ok(EarlierTurn::None);
                }
                // No turn was here, or one of long ago.
                None | Some(WorkOutcome::Known(_)) => {
                    match attempt.claim(None, |known| self.is_over(known)).await? {
                        None => {}
                        // Nobody can open it.
                        Some(known) if known.is_empty() => break,
                        // Another repetition was faster, and is waited for.
                        Some(_) => continue,
                    }
                    // Before anything is sent: whoever does not know what the model said must not go on.
                    let responses = self.responses().await?;
                    // Whoever comes after us need not wait until it is known that these are gone.
                    for (before, has_failed) in before {
                        let superseded = TurnOutcome::Superseded { has_failed }.to_json();
                        // Unless a new turn has taken its place, because the old one has become one of long ago.
                        before.replace(&superseded, |known| !has_failed || self.has_failed_lately(known)).await?;
                    }
                    // Nobody else sets them: a turn looks for earlier ones before it does anything else.
                    self.record.get_or_init(|| attempt);
                    self.begun.set(Begun::Yes).unwrap_or_default();
                    return Ok(EarlierTurn::Interrupted(responses));
                }
            }
            number += 1;
        }
        Ok(EarlierTurn::Interrupted(None))
    }

    /// Forgets turns of long ago: those up to this number. The last one first: as long as the first one refers to it, all of
    /// them are known to be old.
    async fn forget(&self, number: u32) -> Result<(), StoreError> {
        let long_ago = TurnOutcome::Failed { at_ms: 0 }.to_json();
        // One alone says by itself that it is old.
        for number in (0..=number).rev().filter(|_| number > 0) {
            let is_of_earlier =
                |known: &str| self.is_over(known) || matches!(read(known), Some(TurnOutcome::Superseded { .. }));
            self.attempt(number).replace(&long_ago, is_of_earlier).await?;
        }
        Ok(())
    }

    /// Keeps the responses of the model, before programs in them send calls with effects.
    pub(crate) async fn keep_responses(&self, responses: &TurnResponses<'_>) -> Result<(), StoreError> {
        self.store.put_text(&self.tenant, &self.responses_name(), &responses.to_json()).await
    }

    async fn responses(&self) -> Result<Option<TurnResponses<'static>>, StoreError> {
        let names = [self.responses_name()];
        let found = self.store.get_texts(&self.tenant, &names, &UnopenedStates::default()).await?.pop().flatten();
        Ok(found.and_then(|text| serde_json::from_str(&text).ok()))
    }

    fn responses_name(&self) -> String {
        format!("{}:said", self.name)
    }

    /// Records that the turn sends calls with effects, before the first of them, together with the responses of the model
    /// that have led to it. What another turn of the same request has kept stays.
    pub(crate) async fn begin(&self, responses: &TurnResponses<'_>) -> Result<Begun, StoreError> {
        let begin = || async {
            let (name, text) = (self.responses_name(), responses.to_json());
            let known = self.record().claim(Some((&name, &text)), |known| self.is_over(known)).await?;
            Ok(if known.is_none() { Begun::Yes } else { Begun::ByAnother })
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
            turn.record().keep_alive().await;
        });
        alive
    }

    /// Records the response. If the gateway dies before that is on its disk, a repeated request goes on where the last call
    /// with effects was.
    pub(crate) async fn end(&self, response: RecordedResponse) -> Result<(), StoreError> {
        self.record().put_soon(&TurnOutcome::Ended { at_ms: now_ms(), response }.to_json()).await
    }

    /// Records that the turn has failed: a repeated request goes on where the last call with effects was.
    pub(crate) async fn fail(&self) -> Result<(), StoreError> {
        let record = self.record();
        // Unless it was taken for dead, and another turn has taken its place.
        record.replace(&TurnOutcome::Failed { at_ms: now_ms() }.to_json(), |known| record.is_mine(known)).await
    }

    fn has_failed_lately(&self, known: &str) -> bool {
        matches!(read(known), Some(TurnOutcome::Failed { at_ms }) if self.is_current(at_ms))
    }

    /// Whether this is recorded of a turn that was so long ago that the request is a new one.
    fn is_over(&self, known: &str) -> bool {
        match read(known) {
            Some(TurnOutcome::Ended { at_ms, .. } | TurnOutcome::Failed { at_ms }) => !self.is_current(at_ms),
            Some(TurnOutcome::Superseded { .. }) | None => false,
        }
    }

    fn is_current(&self, at_ms: u64) -> bool {
        Duration::from_millis(self.arrived_at_ms.saturating_sub(at_ms)) <= self.ttl
    }
}

/// `None` if the turn runs, or did.
fn read(text: &str) -> Option<TurnOutcome> {
    serde_json::from_str(text).ok()
}
