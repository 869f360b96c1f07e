//! One request of a client in code mode, from its history to its response.

mod ask;
mod call_execution;
mod history_replay;
mod owned_calls;
mod program;
mod program_run;
mod repeated_request;
mod replayed_program;
mod sink;

pub(crate) use self::history_replay::{ClientCalls, HistoryReplay, ReplayTrace};
pub(crate) use self::sink::EventStream;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::{CompletedCall, ShouldContinue, StepError, StoredValues};
use dacapo_wire::{
    AnswerParts, CallResult, ConversationItem, Intent, ItemIds, ModelHistory, ModelMessage, ModelResponse,
    OwnedAnswers, ProgramBlock, ProgramFinished, ProgramMode, ProgramName, ResponseMeta, RunState, Sealer, ToolChoice,
    ToolChoiceOverride, ToolsSearched, Turn, TurnUsage, UnopenedStates, may_search,
};

use self::history_replay::HistoryEnd;
use self::program::{NextStep, WaitingProgram};
use self::repeated_request::{ResponsesSoFar, ResponsesState};
use self::sink::{ResponseSink, call_deltas};
use crate::gateway::{Gateway, now_ms};
use crate::http::{TurnDeadline, TurnError, headers, random_hex};
use crate::model_routes::Route;
use crate::observe::{Event, Observer, ProgramOutcome};
use crate::store::stored_responses::StoredTurn;
use crate::store::turn_records::{EarlierTurn, TurnRecord};
use crate::store::{StoreFailure, owned_answers, stored_answers};
use crate::tool_servers::OfferedTools;
use crate::upstream::RequestContext;

/// Runs one turn.
pub(crate) struct TurnRunner {
    gateway: Arc<Gateway>,
    turn: Arc<Turn>,
    /// Who is asked.
    route: Route,
    context: RequestContext,
    tenant: Tenant,
    sink: ResponseSink,
    history: ModelHistory,
    usage: TurnUsage,
    /// Programs that failed, and messages of the model that were mistakes.
    attempts: u32,
    progress: TurnProgress,
    deadline: TurnDeadline,
    observer: Observer,
    /// Of the last upstream response.
    returned: HeaderMap,
    /// A header that names what the model's wire cannot carry.
    dropped: HeaderMap,
    /// Of the last request to a model, estimated.
    request_tokens: u64,
    /// When an upstream responded, by its own clock, in seconds since 1970.
    responded_at: Option<u64>,
    /// Whether a program of this request has finished with success.
    has_run: bool,
    end: TurnEnd,
    responses: ResponsesSoFar,
}

/// What a turn is made of.
pub(crate) struct TurnParts {
    pub turn: Turn,
    pub route: Route,
    pub context: RequestContext,
    pub tenant: Tenant,
    /// The outcome of an earlier turn of the same request.
    pub earlier: EarlierTurn,
}

/// Whose conversation it is.
pub(crate) struct Tenant {
    pub name: Arc<str>,
    pub sealer: Sealer,
    /// Set if the store keeps this turn.
    pub stored_turn: Option<StoredTurn>,
    /// Tools of servers that it may use, which the gateway executes.
    pub offered: Option<Arc<OfferedTools>>,
    /// What is known of the turns of this request, if it may use such tools. Calls with effects are sent only with it.
    pub record: Option<Arc<TurnRecord>>,
}

/// What the model has done in this turn that no id carries yet.
#[derive(Default)]
struct TurnProgress {
    seed: String,
    started_at_ms: u64,
    model_messages: Vec<ModelMessage>,
    /// Programs that an explicit client has seen in this turn.
    programs_shown: usize,
    /// Searches that the client has seen in this turn.
    searches_shown: usize,
    /// Completed calls of earlier programs, as they were before the first model message above.
    given_record: Vec<CompletedCall>,
    /// The same, as they are now.
    record: Vec<CompletedCall>,
    /// Answers to calls that the gateway executed for programs among the model messages above, by their number.
    earlier_answers: Vec<(usize, OwnedAnswers)>,
    /// What programs keep for later ones, before the first model message above and now.
    given_stored: StoredValues,
    stored: StoredValues,
    /// Functions whose shapes of answers the model has been shown.
    shapes: BTreeSet<String>,
    /// Servers whose tools an explicit client has been shown.
    listed_servers: BTreeSet<String>,
}

/// A turn that has ended.
pub(crate) struct TurnDone {
    /// JSON; `None` if the response was streamed.
    pub body: Option<String>,
    /// What the response tells about the model's.
    pub headers: HeaderMap,
    pub end: TurnEnd,
}

/// What the client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Answer,
    /// Tool calls of a program.
    Calls,
}

impl TurnRunner {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        parts: TurnParts,
        stream: Option<EventStream>,
        deadline: TurnDeadline,
        observer: Observer,
    ) -> TurnRunner {
        let TurnParts { mut turn, route, mut context, tenant, earlier } = parts;
        if tenant.stored_turn.is_some() {
            turn.item_ids = ItemIds::Names;
        }
        let encoder = turn.encoder(call_deltas(&context.headers));
        let sink = ResponseSink::new(stream, encoder, gateway.config.keep_alive, tenant.record.clone());
        // It names the client's request; the requests to models are other ones.
        context.headers.remove("idempotency-key");
        let mut runner = TurnRunner {
            gateway,
            route,
            dropped: headers::dropped_params(&turn, &observer),
            history: turn.model_history(),
            turn: Arc::new(turn),
            context,
            tenant,
            sink,
            usage: TurnUsage::default(),
            attempts: 0,
            progress: TurnProgress::default(),
            deadline,
            observer,
            returned: HeaderMap::new(),
            request_tokens: 0,
            responded_at: None,
            has_run: false,
            end: TurnEnd::Answer,
            responses: ResponsesSoFar::default(),
        };
        runner.go_on_after(earlier);
        runner
    }

    /// The headers of a response for which no model is asked.
    pub(crate) fn first_headers(&self) -> HeaderMap {
        self.dropped.clone()
    }

    /// Runs the turn to its end. An error after something was streamed is sent to the client as an event.
    pub(crate) async fn run(mut self) -> Result<TurnDone, TurnError> {
        let alive = self.tenant.record.as_ref().map(TurnRecord::keep_alive);
        let client = self.turn.client;
        let (done, streamed) = self.run_to_end().await;
        drop(alive);
        // A turn that was cancelled or failed gives nothing back, which costs the next one a little time.
        if done.is_ok() {
            Arc::into_inner(self.turn).map(Turn::end).unwrap_or_default();
        }
        if let Some(record) = self.tenant.record.filter(|record| record.has_begun()) {
            let request_id = self.observer.request_id();
            self.responses.record_end(&record, &done, streamed, client, request_id).await;
        }
        done
    }

    /// Also what was streamed, if anything was.
    async fn run_to_end(&mut self) -> (Result<TurnDone, TurnError>, Option<String>) {
        let done = self.respond_or_fail().await;
        (done, self.sink.recorded())
    }

    async fn respond_or_fail(&mut self) -> Result<TurnDone, TurnError> {
        let responded = self.deadline.limit(self.respond_to_end()).await;
        let tokens = self.usage.tokens(self.turn.provider);
        self.observer.emit(&Event::TurnUsed { usage: &self.usage, tokens });
        let body = match responded {
            Ok(body) => body,
            Err(error) => {
                if self.sink.has_sent() {
                    let event = self.sink.error(error.body(self.turn.client, self.observer.request_id()));
                    // A client that has stopped reading does not get it.
                    tokio::time::timeout(LAST_EVENT_TIMEOUT, event).await.unwrap_or_default();
                }
                return Err(error);
            }
        };
        Ok(TurnDone { body, headers: self.last_headers(), end: self.end })
    }

    /// The body, if the response is not streamed.
    async fn respond_to_end(&mut self) -> Result<Option<String>, TurnError> {
        self.respond().await?;
        let is_whole_needed = self.tenant.stored_turn.is_some() || self.gateway.process.recorder.is_some();
        let (events, body) = self.sink.end(&self.usage, is_whole_needed);
        if let (Some(recorder), Some(body)) = (&self.gateway.process.recorder, &body) {
            recorder.response(self.observer.request(), body);
        }
        if let (Some(stored), Some(store), Some(body)) = (self.tenant.stored_turn.take(), &self.gateway.store, &body) {
            stored.keep(store, &self.tenant.name, body).await?;
        }
        self.sink.finish(&self.usage, events, body).await
    }

    /// The request that the model would be sent.
    pub(crate) async fn model_request(mut self) -> Result<Vec<u8>, TurnError> {
        self.restore_answers().await?;
        self.replay_history().await?;
        Ok(self.turn.model_request(&self.history, ToolChoiceOverride::Keep).to_bytes())
    }

    /// With a store, puts answers back that the client has replaced in its history, or never had, and keeps those of this
    /// request. Without what it holds, a program whose answers are gone is abandoned, as without a store.
    async fn restore_answers(&mut self) -> Result<(), TurnError> {
        let Some(turn) = Arc::get_mut(&mut self.turn) else { return Ok(()) };
        let unopened = UnopenedStates::default();
        let conversation = &mut turn.conversation;
        if let Some(store) = &self.gateway.answer_store {
            let tenant = &self.tenant.name;
            let is_strict = self.gateway.config.store_failure == StoreFailure::Refuse;
            let needs_store = |block: &ProgramBlock| is_strict || owned_answers::needs_stored(block);
            match owned_answers::restore(store, tenant, conversation, turn.mode, &unopened).await {
                Ok(()) => {}
                // Only a program that would continue now needs them.
                Err(error) if conversation.live().is_some_and(needs_store) => return Err(error.into()),
                Err(error) => self.observer.emit(&Event::StoreFailed { error: &error }),
            }
        }
        if let Some(store) = &self.gateway.store {
            let mut done = stored_answers::restore(store, &self.tenant.name, conversation, &unopened).await;
            if let Some(block) = conversation.live().filter(|_| done.is_ok()) {
                done = stored_answers::keep(store, &self.tenant.name, block).await;
            }
            if let Err(error) = done {
                self.observer.emit(&Event::StoreFailed { error: &error });
            }
        }
        if !unopened.is_empty() {
            self.observer.emit(&Event::StatesUnopened { states: &unopened });
        }
        Ok(())
    }

    async fn respond(&mut self) -> Result<(), TurnError> {
        if self.responses.state == ResponsesState::Lost {
            return Err(repeated_request::interrupted());
        }
        self.restore_answers().await?;
        if let Some(block) = self.turn.conversation.live() {
            let turn = &self.turn;
            let answers = block.rounds.last().into_iter().flat_map(|round| &round.calls);
            let answers: Vec<_> = answers.filter_map(|call| call.answer.as_ref().map(|(_, answer)| answer)).collect();
            let failed = answers.iter().filter(|answer| !turn.client.has_succeeded(answer)).count();
            self.observer.emit(&Event::CallsAnswered { count: answers.len(), failed });
        }
        let (end, owned) = self.replay_and_drive().await?;
        let turn = Arc::clone(&self.turn);
        let live = turn.conversation.live();
        match end {
            HistoryEnd::Waiting { mut round, calls, .. } => {
                let block = live.ok_or_else(|| TurnError::bug("no program waits"))?;
                self.usage.programs += 1;
                self.usage.carried = block.state.context;
                round.owned = owned;
                let meta = ResponseMeta::resumed(turn.client, block.run, &block.state, round.number, turn.model());
                self.sink.meta(&self.own_meta(meta));
                let program = ProgramName::Known(&block.id);
                let packed = block.packed.clone();
                let waiting = WaitingProgram { program, state: &block.state, packed, round, calls };
                self.issue_calls(None, waiting, &[]).await
            }
            HistoryEnd::Model(inherited) => {
                if let (Some(block), Some(finished)) = (live, &inherited.finished) {
                    self.usage.programs += 1;
                    let kept_out = finished.answer_bytes.saturating_sub(finished.shown.to_string().len());
                    self.usage.tokens_kept_out += estimated_tokens(kept_out);
                    self.observer.emit(&Event::ProgramFinished { outcome: ProgramOutcome::of(&finished.shown) });
                    if turn.mode == ProgramMode::Explicit {
                        let (run, round) = (block.run, block.next_round());
                        let meta = ResponseMeta::resumed(turn.client, run, &block.state, round, turn.model());
                        self.sink.meta(&self.own_meta(meta));
                        let program = ProgramName::Known(&block.id);
                        let finished = ProgramFinished { program, state: &block.state, shown: &finished.shown };
                        self.sink.program_finished(&finished).await?;
                    }
                }
                self.progress.given_record.clone_from(&inherited.record);
                self.progress.record = inherited.record;
                self.progress.given_stored.clone_from(&inherited.stored);
                self.progress.stored = inherited.stored;
                self.progress.shapes = inherited.shapes;
                // Whoever falls back to a model on another wire changes the turn.
                drop(turn);
                self.ask_until_done().await
            }
        }
    }

    /// Writes the history for the model, with the results of its programs.
    async fn replay_history(&mut self) -> Result<HistoryEnd, TurnError> {
        let (end, missing) = self.write_history().await?;
        // Which images programs return is known only now. What ran is known, so that running it again costs little.
        if !missing.is_empty() && Box::pin(self.load_attachments(missing)).await? {
            return Ok(Box::pin(self.write_history()).await?.0);
        }
        Ok(end)
    }

    /// Returns also the handles whose images and files the conversation does not have.
    async fn write_history(&mut self) -> Result<(HistoryEnd, Vec<String>), TurnError> {
        let turn = Arc::clone(&self.turn);
        let is_replayed =
            |item: &ConversationItem| matches!(item, ConversationItem::Program(_) | ConversationItem::Search(_));
        let has_programs = turn.conversation.items.iter().any(is_replayed);
        let write = move |replay: &HistoryReplay<'_>| {
            let mut history = turn.model_history();
            let end = replay.write(&mut history)?;
            Ok((end, history, replay.missing.take().into_iter().collect()))
        };
        // Without programs, entries are only copied.
        let (end, history, missing) = if has_programs {
            let code = self.turn.conversation.live().map(|block| block.state.code.as_str());
            self.run_programs(code, (), move |replay, ()| write(replay)).await?.1
        } else {
            write(&history_replay(&self.gateway, &self.tenant.name, &self.turn, &|| true)).map_err(TurnError::from)?
        };
        self.history = history;
        Ok((end, missing))
    }

    /// Asks the model until there is something for the client.
    async fn ask_until_done(&mut self) -> Result<(), TurnError> {
        loop {
            let limits = &self.gateway.config.code_mode;
            let no_calls = self.attempts >= limits.attempts_max || self.usage.model_calls + 1 >= limits.model_calls_max;
            let choice_override = match self.turn.prefs.tool_choice {
                _ if no_calls => ToolChoiceOverride::NoCalls,
                ToolChoice::Program if self.has_run => ToolChoiceOverride::Auto,
                // An explicit client sees the program as the call that it required.
                ToolChoice::Required if self.has_run && self.turn.mode == ProgramMode::Explicit => {
                    ToolChoiceOverride::Auto
                }
                _ => ToolChoiceOverride::Keep,
            };
            if no_calls && self.requires_call() {
                return Err(TurnError::upstream(
                    "`tool_choice` requires a tool call, and the model wrote only programs without calls",
                ));
            }
            let response = self.ask(choice_override).await?;
            self.usage.add(response.usage.as_ref());
            self.set_seed(&response.meta);
            self.note_response(&response);
            let model_tools = &self.turn.model_tools;
            if no_calls || response.is_cut() {
                return self.answer(&response, AnswerParts::Text).await;
            }
            match response.message.intent(model_tools) {
                // The model takes its program for the call that the client requires.
                Intent::Answer if self.requires_call() && self.has_run => self.attempts += 1,
                Intent::Answer | Intent::Direct => return self.answer(&response, AnswerParts::All).await,
                // The model imitates the programs of the history, but was offered no tool for them.
                _ if !model_tools.is_on() => return self.answer(&response, AnswerParts::Text).await,
                Intent::Reply => {
                    self.attempts += u32::from(response.message.is_mistaken(model_tools));
                    self.sink.meta(&response.meta);
                    self.show_searches(&response).await?;
                    self.sink.preamble(&response).await?;
                    let model_tools = &self.turn.model_tools;
                    let message = response.message.normalized(model_tools, &self.progress.model_messages);
                    self.reply(message).await?;
                }
                Intent::Program { at, code } => {
                    if self.run_program(response, at, code).await? == NextStep::Client {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Whether the client's next message has to have a tool call.
    fn requires_call(&self) -> bool {
        self.turn.prefs.tool_choice == ToolChoice::Required && self.turn.mode == ProgramMode::Plain
    }

    /// The first response of the turn gives its programs their seed and start time.
    fn set_seed(&mut self, meta: &ResponseMeta) {
        if !self.progress.seed.is_empty() {
            return;
        }
        let now = now_ms();
        // With the provider's time the turn is the same on every replica.
        self.progress.started_at_ms = meta
            .created
            .or(self.responded_at)
            .map(|seconds| seconds.saturating_mul(1000))
            .filter(|ms| PLAUSIBLE_TIMES_MS.contains(ms))
            .unwrap_or(now);
        // Some providers repeat their ids, so the position in the conversation is part of the seed.
        let position = self.history.entry_count();
        self.progress.seed = if meta.id.is_empty() { now.to_string() } else { RunState::seed_of(&meta.id, position) };
        if self.tenant.offered.is_some() {
            // What is executed here is stored under this name, so no other program may ever have it.
            self.progress.seed.push_str(&random_hex()[..16]);
        }
    }

    /// Reports searches to clients that declared a tool search.
    async fn show_searches(&mut self, response: &ModelResponse) -> Result<(), TurnError> {
        let turn = Arc::clone(&self.turn);
        let Some(tool) = &turn.search_tool else { return Ok(()) };
        self.sink.meta(&response.meta);
        for search in response.message.searches(&turn.model_tools) {
            let find = move |replay: &HistoryReplay<'_>| {
                let results = replay.search(&search).0;
                Ok((search, results))
            };
            let (search, results) = self.blocking(find).await?;
            let catalog = turn.toolbox().catalog();
            let found: Vec<String> =
                results.hits.iter().map(|hit| catalog.qualified_name(hit.tool).to_owned()).collect();
            let (text, limit, number) = (&search.text, search.limit, self.progress.searches_shown);
            let seed = self.progress.seed.as_str();
            let searched = ToolsSearched { response, tool, number, seed, text, limit, found: &found };
            self.sink.tools_searched(&searched).await?;
            self.progress.searches_shown += 1;
        }
        Ok(())
    }

    /// Replies to searches and mistakes of the model.
    async fn reply(&mut self, message: ModelMessage) -> Result<(), TurnError> {
        let (message, replies) = self
            .blocking(move |replay| {
                let replies = replay.replies(&message, |_| CallResult::default());
                Ok((message, replies))
            })
            .await?;
        self.history.push_model_message(&message, &replies, &[]);
        self.progress.model_messages.push(message);
        Ok(())
    }

    /// Gives the client what the model wrote.
    async fn answer(&mut self, response: &ModelResponse, parts: AnswerParts) -> Result<(), TurnError> {
        self.sink.meta(&response.meta);
        self.sink.answer(response, parts).await
    }

    /// Runs programs of this turn, in this thread if that takes little time. `code` is the source of the program that starts or
    /// continues.
    async fn run_programs<I: Send + 'static, T: Send + 'static>(
        &self,
        code: Option<&str>,
        input: I,
        work: impl Fn(&HistoryReplay<'_>, &I) -> Result<T, StepError> + Send + 'static,
    ) -> Result<(I, T), TurnError> {
        let conversation = &self.turn.conversation;
        let answer_bytes = conversation.answer_bytes();
        let catalog = self.turn.toolbox().catalog();
        let goes_over_tools = || {
            code.is_some_and(may_search)
                || conversation.has_searches()
                || conversation.tool_names().any(|name| catalog.find(name).is_none())
        };
        let tools = catalog.tools().len();
        let is_large = conversation.items.len() > AT_ONCE_ITEMS_MAX
            || tools > AT_ONCE_TOOLS_MAX
            || tools > AT_ONCE_SEARCHED_TOOLS_MAX && goes_over_tools()
            || answer_bytes.new > AT_ONCE_NEW_BYTES_MAX
            || answer_bytes.all > AT_ONCE_ANSWER_BYTES_MAX;
        // Searches wait for a model that makes embeddings.
        if is_large || self.gateway.embeddings.is_some() {
            let work = move |replay: &HistoryReplay<'_>| {
                let done = work(replay, &input)?;
                Ok((input, done))
            };
            return self.blocking(work).await;
        }
        let (turn, tenant) = (Arc::clone(&self.turn), Arc::clone(&self.tenant.name));
        let work = move |gateway: &Gateway, should_continue: ShouldContinue<'_>, input: &I| {
            work(&history_replay(gateway, &tenant, &turn, should_continue), input)
        };
        let (input, done) = self.gateway.run_short_programs(&self.tenant.name, code, input, work).await?;
        Ok((input, done?))
    }

    /// Runs programs of this turn, or searches, on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&HistoryReplay<'_>) -> Result<T, StepError> + Send + 'static,
    ) -> Result<T, TurnError> {
        let (turn, tenant) = (Arc::clone(&self.turn), Arc::clone(&self.tenant.name));
        let done = self.gateway.run_programs(&self.tenant.name, move |gateway, should_continue| {
            work(&history_replay(gateway, &tenant, &turn, should_continue))
        });
        Ok(done.await??)
    }
}

fn history_replay<'a>(
    gateway: &'a Gateway,
    tenant: &str,
    turn: &'a Turn,
    should_continue: ShouldContinue<'a>,
) -> HistoryReplay<'a> {
    HistoryReplay {
        client: turn.client,
        conversation: &turn.conversation,
        stepper: &gateway.process.stepper,
        model_tools: &turn.model_tools,
        owned_from: turn.owned_from,
        tools_digest: turn.tools_digest,
        client_calls: match turn.prefs.tool_choice {
            ToolChoice::None => ClientCalls::Refused,
            _ if !turn.model_tools.is_on() => ClientCalls::Refused,
            _ => ClientCalls::Taken,
        },
        limits: gateway.limits(tenant),
        embeddings: gateway.embeddings.as_ref().map(|embeddings| (embeddings, gateway.store.as_deref())),
        should_continue,
        trace: &*gateway.process.metrics,
        missing: RefCell::default(),
    }
}

/// Conversations of more entries take time that cannot be interrupted.
const AT_ONCE_ITEMS_MAX: usize = 256;
/// The same holds for more tools.
const AT_ONCE_TOOLS_MAX: usize = 2_000;
/// And for fewer, where they are searched, or where a list is made with tools that the client has taken away.
const AT_ONCE_SEARCHED_TOOLS_MAX: usize = 1_000;
/// A program that gets more than this takes so long that it would be interrupted, and have to be replayed from its start.
const AT_ONCE_NEW_BYTES_MAX: usize = 32 << 10;
/// Answers that are read and compared again, although no program waits for them.
const AT_ONCE_ANSWER_BYTES_MAX: usize = 512 << 10;

/// How long the last event of a turn that failed waits for a slow client.
const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Milliseconds since 1970 that a provider can mean: from 2020 on.
const PLAUSIBLE_TIMES_MS: std::ops::Range<u64> = 1_577_836_800_000..(1 << 43);

/// Tokens of a tool result, estimated.
fn estimated_tokens(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}
