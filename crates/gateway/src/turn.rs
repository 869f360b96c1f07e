//! One request of a client in code mode, from its history to its answer.

mod ask;
mod program;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::{ANSWER_TOKENS_DEFAULT, CompletedCall, ShouldContinue, StepError};
use dacapo_wire::{
    Demand, Ended, Head, Intent, Item, Passed, RunId, RunState, Said, Saying, Sealer, Searched, Transcript, Turn, Urge,
    Usage,
};
use serde_json::Value;

use self::program::{Next, Waiting};
use crate::blocks::{Blocks, Calls, Position};
use crate::error::TurnError;
use crate::gateway::{Gateway, now_ms};
use crate::outlet::{Outlet, Stream, call_deltas};
use crate::recall::Recall;
use crate::upstream::Asking;

/// A turn on its way.
pub(crate) struct Running {
    gateway: Arc<Gateway>,
    turn: Arc<Turn>,
    asking: Asking,
    tenant: Tenant,
    outlet: Outlet,
    transcript: Transcript,
    usage: Usage,
    /// Programs that failed, and messages that made no sense.
    attempts: u32,
    so_far: SoFar,
    /// Of the last answer of an upstream.
    pub returned: HeaderMap,
    /// When an upstream answered, by its own clock, in seconds since 1970.
    answered_at: Option<u64>,
    /// A program of this request has come to its end.
    has_run: bool,
}

/// Whose conversation it is.
pub(crate) struct Tenant {
    pub name: String,
    pub sealer: Sealer,
    /// What is kept of this turn, if anything is.
    pub recall: Option<Recall>,
}

/// What the model said in this turn that no id carries yet.
#[derive(Default)]
struct SoFar {
    seed: String,
    started_at_ms: u64,
    sayings: Vec<Saying>,
    /// Programs that explicit clients have seen in this turn.
    shown: usize,
    /// Searches that the client has seen in this turn.
    searches: usize,
    continues: Option<RunId>,
    /// Completed calls of the programs that failed.
    record: Vec<CompletedCall>,
}

/// A turn's answer, if it was not streamed, with the upstream's headers.
pub(crate) struct Done {
    pub body: Option<Value>,
    pub headers: HeaderMap,
    pub usage: Usage,
}

impl Running {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        turn: Turn,
        mut asking: Asking,
        tenant: Tenant,
        stream: Option<Stream>,
    ) -> Running {
        let outlet = Outlet::new(stream, turn.speaker(call_deltas(&asking.headers)));
        // It stands for the client's request, of which the model's are not copies.
        asking.headers.remove("idempotency-key");
        Running {
            gateway,
            transcript: turn.transcript(),
            turn: Arc::new(turn),
            asking,
            tenant,
            outlet,
            usage: Usage::default(),
            attempts: 0,
            so_far: SoFar::default(),
            returned: HeaderMap::new(),
            answered_at: None,
            has_run: false,
        }
    }

    /// Runs the turn to its end. An error that comes after something was streamed is streamed too.
    pub(crate) async fn run(mut self) -> Result<Done, TurnError> {
        match self.walk().await {
            Ok(()) => {
                let (events, body) = self.outlet.end(&self.usage);
                if let (Some(recall), Some(store), Some(body)) = (self.tenant.recall.take(), &self.gateway.store, &body)
                {
                    recall.keep(store, &self.tenant.name, body).await?;
                }
                let body = self.outlet.finish(events, body).await?;
                Ok(Done { body, headers: self.returned, usage: self.usage })
            }
            Err(error) => {
                if self.outlet.has_begun() {
                    self.outlet.fail(error.body(self.turn.wire)).await;
                }
                Err(error)
            }
        }
    }

    /// What the model would be asked with.
    pub(crate) async fn would_ask(mut self) -> Result<Value, TurnError> {
        self.tell().await?;
        Ok(self.turn.ask(&self.transcript, Urge::AsTheClientSays))
    }

    async fn walk(&mut self) -> Result<(), TurnError> {
        let position = self.tell().await?;
        let turn = Arc::clone(&self.turn);
        let live = turn.conversation.live();
        match position {
            Position::Waiting { calls, answered } => {
                let block = live.ok_or_else(|| TurnError::bug("no program waits"))?;
                let round = block.next_round();
                self.usage.programs += 1;
                let head = Head::resumed(turn.wire, block.run, round, block.state.started_at_ms, turn.model());
                let head = self.own_head(&head);
                self.outlet.head(&head);
                self.hand_out(None, Waiting { program: &block.id, state: &block.state, round, answered, calls }, &[])
                    .await
            }
            Position::Model(after) => {
                if let (Some(block), Some((shown, answer_bytes))) = (live, &after.finished) {
                    self.usage.programs += 1;
                    self.usage.tokens_kept_out += tokens(answer_bytes.saturating_sub(shown.to_string().len()));
                    if turn.explicit {
                        let (run, round) = (block.run, block.next_round());
                        let head = Head::resumed(turn.wire, run, round, block.state.started_at_ms, turn.model());
                        let head = self.own_head(&head);
                        self.outlet.head(&head);
                        self.outlet.result(&Ended { program: &block.id, state: &block.state, shown }).await?;
                    }
                }
                if let Some((run, record)) = after.failed {
                    self.so_far.continues = Some(run);
                    self.so_far.record = record;
                }
                self.talk().await
            }
        }
    }

    /// Writes the history for the model, with what its programs come to.
    async fn tell(&mut self) -> Result<Position, TurnError> {
        let turn = Arc::clone(&self.turn);
        let has_programs = turn.conversation.items.iter().any(|item| matches!(item, Item::Block(_) | Item::Search(_)));
        let tell = move |blocks: &Blocks<'_>| {
            let mut transcript = turn.transcript();
            let position = blocks.tell(&turn.conversation, &mut transcript)?;
            Ok((position, transcript))
        };
        // Without programs it is a matter of copying messages.
        let told = if has_programs {
            self.blocking(tell).await?
        } else {
            tell(&blocks(&self.gateway, &self.turn, &|| true)).map_err(TurnError::from)?
        };
        let (position, transcript) = told;
        self.transcript = transcript;
        Ok(position)
    }

    /// Asks the model until there is something for the client.
    async fn talk(&mut self) -> Result<(), TurnError> {
        loop {
            let code_mode = &self.gateway.config.code_mode;
            let no_calls =
                self.attempts >= code_mode.attempts_max || self.usage.model_calls + 1 >= code_mode.model_calls_max;
            let urge = match self.turn.wanted.demand {
                _ if no_calls => Urge::ToEnd,
                Demand::Calls | Demand::Program if self.has_run => Urge::Freely,
                _ => Urge::AsTheClientSays,
            };
            let said = self.ask(urge).await?;
            self.usage.add(said.usage.as_ref());
            self.begin(&said.head);
            let offer = &self.turn.offer;
            if no_calls || said.is_cut() {
                return self.answer(&said, Passed::Text).await;
            }
            match said.saying.intent(offer) {
                Intent::Answer | Intent::Direct => return self.answer(&said, Passed::All).await,
                Intent::Respond => {
                    self.attempts += u32::from(said.saying.is_mistaken(offer));
                    let saying = said.saying.clone().normalized(offer, &self.so_far.sayings);
                    self.outlet.head(&said.head);
                    self.outlet.aside(&said).await?;
                    self.show_searches(&said).await?;
                    self.respond(saying).await?;
                }
                Intent::Program { at, code } => {
                    if self.program(said, at, code).await? == Next::Client {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The first answer of the turn gives its programs their clock and chance.
    fn begin(&mut self, head: &Head) {
        let so_far = &mut self.so_far;
        if so_far.seed.is_empty() {
            let now = now_ms();
            // Providers tell the time: taking theirs makes the turn the same on every replica.
            so_far.started_at_ms = head
                .created
                .or(self.answered_at)
                .map(|seconds| seconds.saturating_mul(1000))
                .filter(|ms| IS_A_TIME.contains(ms))
                .unwrap_or(now);
            // Where in the conversation we are: some providers repeat their ids.
            let place = self.transcript.entries().len();
            so_far.seed = if head.id.is_empty() { now.to_string() } else { RunState::seed_of(&head.id, place) };
        }
    }

    /// Tells the client of searches, if it knows what they are.
    async fn show_searches(&mut self, said: &Said) -> Result<(), TurnError> {
        let turn = Arc::clone(&self.turn);
        let Some(tool) = &turn.search_tool else { return Ok(()) };
        self.outlet.head(&said.head);
        for search in said.saying.searches(&turn.offer) {
            let results = turn.toolbox().search(&search.query, search.limit(), ANSWER_TOKENS_DEFAULT).0;
            let catalog = turn.toolbox().catalog();
            let found: Vec<String> =
                results.hits.iter().map(|hit| catalog.qualified_name(hit.tool).to_owned()).collect();
            let (query, seed, number) = (search.query.as_str(), self.so_far.seed.clone(), self.so_far.searches);
            self.outlet
                .searched(&Searched { said, tool, number, seed: &seed, query, limit: search.limit, found: &found })
                .await?;
            self.so_far.searches += 1;
        }
        Ok(())
    }

    async fn respond(&mut self, saying: Saying) -> Result<(), TurnError> {
        let asked = saying.clone();
        let told = self.blocking(move |blocks| Ok(blocks.respond(&asked, |_| String::new()))).await?;
        self.transcript.saying(&saying, &told, &[]);
        self.so_far.sayings.push(saying);
        Ok(())
    }

    /// Gives the client what the model said.
    async fn answer(&mut self, said: &Said, passed: Passed) -> Result<(), TurnError> {
        self.outlet.head(&said.head);
        self.outlet.answer(said, passed).await
    }

    /// Runs programs off the threads that serve clients, and stops when nobody waits for them any more.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Blocks<'_>) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, TurnError> {
        let gateway = Arc::clone(&self.gateway);
        let turn = Arc::clone(&self.turn);
        let permit = Arc::clone(&gateway.steps).acquire_owned().await;
        let permit = permit.map_err(|closed| TurnError::upstream(closed.to_string()))?;
        let is_wanted = Wanted::new();
        let still_wanted = Arc::clone(&is_wanted.0);
        let work = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + gateway.config.step_timeout;
            let should_continue = || still_wanted.load(Ordering::Relaxed) && Instant::now() < deadline;
            let done = work(&blocks(&gateway, &turn, &should_continue));
            drop(permit);
            done
        });
        let done = work.await.map_err(|error| {
            tracing::error!(%error, "a program could not be run");
            TurnError::ours(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the program could not be run")
        })?;
        Ok(done?)
    }
}

fn blocks<'a>(gateway: &'a Gateway, turn: &'a Turn, should_continue: ShouldContinue<'a>) -> Blocks<'a> {
    Blocks {
        stepper: &gateway.stepper,
        offer: &turn.offer,
        tools: turn.tools,
        calls: if turn.wanted.demand == Demand::NoCalls { Calls::Refused } else { Calls::Taken },
        limits: &gateway.config.limits,
        should_continue,
    }
}

/// Milliseconds since 1970 that a provider can mean: from 2020 on.
const IS_A_TIME: std::ops::Range<u64> = 1_577_836_800_000..(1 << 43);

/// Says no when it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Wanted {
    fn new() -> Wanted {
        Wanted(Arc::new(AtomicBool::new(true)))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn tokens(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}
