//! Programs that wait for a person, in a store, so that they survive this process: another one goes on with them.
//!
//! A program is kept once it waits for approvals and for nothing else. Then nothing happens to it until somebody answers, so
//! that what is stored stays true until it is taken. Before anybody goes on with it, here or elsewhere, it is taken: nobody
//! can take it a second time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dacapo_replay::{CallIndex, CompletedCall, Journal, JsonText, Program, RecordedOutcome, StoredValues};
use dacapo_runner::{JournalStore, ResumedRun, StoreError, StoreKey, ToolDigest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::program_task::{GivenValues, ProgramDigest, ProgramRunState, RunStateError};
use super::suspended::{APPROVAL_TIMEOUT, random_state};

/// Whether several processes may use a store at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSharing {
    /// Whatever another process has left there is of one that has ended.
    OneProcess,
    /// Another process that has left something there may still run.
    Several,
}

/// The store of programs that wait.
#[derive(Debug)]
pub(super) struct KeptPrograms {
    store: Arc<dyn JournalStore>,
    sharing: StoreSharing,
    /// Tells our own programs from those of processes before.
    process: String,
}

/// A program that waits for approvals, and what it waits for.
#[derive(Debug, Clone)]
pub(super) struct KeptProgram {
    pub(super) run: ResumedRun,
    /// What it began with.
    pub(super) given: Arc<GivenValues>,
    /// The calls that the client was told to ask about, by the key of the question.
    pub(super) asked: BTreeMap<String, AskedCall>,
}

/// A call that a person was asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AskedCall {
    pub(super) idempotency_key: String,
    /// What its server said of the tool then.
    pub(super) definition: Option<ToolDigest>,
}

/// A program that runs, for whoever keeps it once it waits.
pub(super) struct ProgramToKeep {
    pub(super) state: Weak<ProgramRunState>,
    pub(super) given: Arc<GivenValues>,
    pub(super) asked: BTreeMap<String, AskedCall>,
}

/// How a program is found again.
pub(super) enum FoundBy {
    /// By the state that its client sends.
    State,
    /// By its code too, for clients that have to send the request again whose answer they did not get.
    Code,
}

/// What there is under a state.
pub(super) enum Taken {
    Program(Box<KeptProgram>),
    /// The state belongs to another program, which goes on waiting.
    OtherProgram,
    /// There is none, or somebody has taken it.
    Nothing,
}

/// All clients of a server share their programs: whoever knows a state may use it.
const TENANT: &str = "dacapo mcp";
const FORMAT: &str = "dacapo program 1";
/// A client is not answered before its program is kept, unless that takes longer.
const KEEP_WAIT: Duration = Duration::from_millis(200);
/// How often is looked whether a program has come to rest.
const REST_POLL: Duration = Duration::from_millis(10);

impl KeptPrograms {
    pub(super) fn new(store: Arc<dyn JournalStore>, sharing: StoreSharing) -> KeptPrograms {
        KeptPrograms { store, sharing, process: random_state() }
    }

    /// Keeps a program under a state as soon as it waits for approvals and for nothing else. Calls that are on their way may
    /// take longer than the caller waits here; then it is kept after that.
    pub(super) async fn keep(self: &Arc<Self>, state: &str, program: ProgramToKeep, found_by: FoundBy) {
        let (kept, state) = (Arc::clone(self), state.to_owned());
        let keeping = tokio::spawn(async move {
            let not_kept = "a program that waits for a person will not survive this process";
            match program.at_rest().await {
                Ok(Some(program)) => {
                    if let Err(error) = kept.put(&state, program, found_by).await {
                        tracing::warn!(%error, "{not_kept}");
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "{not_kept}"),
            }
        });
        // It goes on by itself.
        tokio::time::timeout(KEEP_WAIT, keeping).await.map(drop).unwrap_or_default();
    }

    async fn put(&self, state: &str, program: KeptProgram, found_by: FoundBy) -> Result<(), StoreError> {
        let code_key = code_key(&program.run.program.code);
        let text = KeptProgramText::of(program, &self.process);
        self.store.put(&waiting_key(state), &serde_json::to_string(&text).unwrap_or_default()).await?;
        if let (FoundBy::Code, StoreSharing::OneProcess) = (found_by, self.sharing) {
            self.store.put(&code_key, state).await?;
        }
        Ok(())
    }

    /// Takes a program of any process, once.
    pub(super) async fn take(&self, state: &str, code: &str) -> Result<Taken, StoreError> {
        let Some(text) = self.get(waiting_key(state)).await? else { return Ok(Taken::Nothing) };
        let Some(program) = serde_json::from_str(&text).ok().and_then(KeptProgramText::read) else {
            return Ok(Taken::Nothing);
        };
        if program.run.program.code != code {
            return Ok(Taken::OtherProgram);
        }
        let is_first = self.claim(state).await?.is_none();
        Ok(if is_first { Taken::Program(Box::new(program)) } else { Taken::Nothing })
    }

    /// Takes a program that was left by a process before this one.
    pub(super) async fn take_by_code(&self, code: &str) -> Result<Option<KeptProgram>, StoreError> {
        if self.sharing == StoreSharing::Several {
            return Ok(None);
        }
        let Some(state) = self.get(code_key(code)).await? else { return Ok(None) };
        let text = self.get(waiting_key(&state)).await?;
        let text = text.and_then(|text| serde_json::from_str::<KeptProgramText>(&text).ok());
        if text.is_none_or(|text| text.process == self.process) {
            return Ok(None);
        }
        match self.take(&state, code).await? {
            Taken::Program(program) => Ok(Some(*program)),
            Taken::OtherProgram | Taken::Nothing => Ok(None),
        }
    }

    /// Takes a program that this process has in memory. Returns whether no other process has taken it. If it fails, it may be
    /// tried again.
    pub(super) async fn take_own(&self, state: &str) -> Result<bool, StoreError> {
        Ok(self.claim(state).await?.is_none_or(|process| process == self.process))
    }

    /// Notes that this process has taken a program, unless one has, which is returned.
    async fn claim(&self, state: &str) -> Result<Option<String>, StoreError> {
        let taken = self.store.put_new(&StoreKey::new(TENANT, &format!("taken:{state}")), &self.process).await?;
        // What it was is of no use to anybody any more.
        self.store.put(&waiting_key(state), "").await?;
        Ok(taken)
    }

    async fn get(&self, key: StoreKey) -> Result<Option<String>, StoreError> {
        let found = self.store.get(&[key]).await?.pop().flatten();
        Ok(found.filter(|text| !text.is_empty()))
    }
}

fn waiting_key(state: &str) -> StoreKey {
    StoreKey::new(TENANT, &format!("waiting:{state}"))
}

fn code_key(code: &str) -> StoreKey {
    StoreKey::new(TENANT, &format!("code:{}", ProgramDigest::of(code).to_text()))
}

impl ProgramToKeep {
    /// Waits until the program waits for approvals and for nothing else. `None` if it ends before, or nobody would wait for
    /// it any longer.
    async fn at_rest(self) -> Result<Option<KeptProgram>, RunStateError> {
        let resting = async {
            loop {
                let Some(state) = self.state.upgrade() else { return Ok(None) };
                if let Some(run) = state.at_rest()? {
                    return Ok(Some(run));
                }
                drop(state);
                tokio::time::sleep(REST_POLL).await;
            }
        };
        let run = tokio::time::timeout(APPROVAL_TIMEOUT, resting).await.unwrap_or(Ok(None))?;
        Ok(run.map(|run| KeptProgram { run, given: self.given, asked: self.asked }))
    }
}

/// A program as it is stored.
#[derive(Serialize, Deserialize)]
struct KeptProgramText {
    format: String,
    process: String,
    code: String,
    id: String,
    seed: String,
    started_at_ms: f64,
    journal: String,
    refused: Vec<u32>,
    stored: BTreeMap<String, String>,
    reuse: Vec<RecordText>,
    asked: BTreeMap<String, AskedCall>,
}

/// A call of an earlier program.
#[derive(Serialize, Deserialize)]
struct RecordText {
    /// The tool and its arguments. `None` stands for a call of which nothing is known.
    call: Option<(String, Value)>,
    outcome: OutcomeText,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeText {
    Ok(String),
    AnswerLost,
    Unknown,
}

impl KeptProgramText {
    fn of(program: KeptProgram, process: &str) -> KeptProgramText {
        let KeptProgram { run, given, asked } = program;
        let GivenValues { stored, reuse } = &*given;
        let Program { code, id, seed, started_at_ms } = run.program;
        let stored = stored.names().filter_map(|name| Some((name.to_owned(), stored.get(name)?.as_str().to_owned())));
        KeptProgramText {
            format: FORMAT.to_owned(),
            process: process.to_owned(),
            code,
            id,
            seed,
            started_at_ms,
            journal: run.journal.to_json(),
            refused: run.refused.iter().map(|call| call.0).collect(),
            stored: stored.collect(),
            reuse: reuse.iter().map(RecordText::of).collect(),
            asked,
        }
    }

    /// `None` if it is of another release that writes something else.
    fn read(self) -> Option<KeptProgram> {
        if self.format != FORMAT {
            return None;
        }
        let (code, id, seed, started_at_ms) = (self.code, self.id, self.seed, self.started_at_ms);
        let program = Program { code, id, seed, started_at_ms };
        let journal = Journal::from_json(&self.journal).ok()?;
        let mut stored = StoredValues::default();
        for (name, value) in self.stored {
            stored.insert(name, JsonText::parse(value)?);
        }
        let reuse = self.reuse.into_iter().map(RecordText::read).collect::<Option<_>>()?;
        let refused = self.refused.into_iter().map(CallIndex).collect();
        let (run, given) = (ResumedRun { program, journal, refused }, Arc::new(GivenValues { stored, reuse }));
        Some(KeptProgram { run, given, asked: self.asked })
    }
}

impl RecordText {
    fn of(call: &CompletedCall) -> RecordText {
        let outcome = match &call.outcome {
            RecordedOutcome::Ok(ok) => OutcomeText::Ok(ok.as_str().to_owned()),
            RecordedOutcome::AnswerLost => OutcomeText::AnswerLost,
            RecordedOutcome::Unknown => OutcomeText::Unknown,
        };
        RecordText { call: call.tool().map(str::to_owned).zip(call.args()), outcome }
    }

    fn read(self) -> Option<CompletedCall> {
        let outcome = match self.outcome {
            OutcomeText::Ok(ok) => RecordedOutcome::Ok(JsonText::parse(ok)?),
            OutcomeText::AnswerLost => RecordedOutcome::AnswerLost,
            OutcomeText::Unknown => RecordedOutcome::Unknown,
        };
        Some(match self.call {
            Some((tool, args)) => CompletedCall::with_outcome(tool, &args, outcome),
            None => CompletedCall::any_write(),
        })
    }
}
