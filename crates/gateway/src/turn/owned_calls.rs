//! Calls that the gateway executes itself while the client waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode};
use dacapo_replay::{Call, CallIndex, JournalEntry, StepRequest};
use dacapo_runner::{Approval, BoxFuture, StoreError, ToolOutput, gather_answers};
use dacapo_wire::{
    ModelResponse, OwnedAnswers, ProgramMode, ProgramProgress, ResponseMeta, RoundHeader, RunState, ServerCallEnd,
    ServerToolList,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value};

use super::call_execution::{CallExecutor, ExecutedCall, OwnedCall, OwnedTool};
use super::history_replay::{HistoryEnd, HistoryReplay};
use super::program_run::ProgramRun;
use super::repeated_request::ResponsesState;
use super::{TurnRunner, history_replay};
use crate::http::TurnError;
use crate::observe::{CallOutcome, Event, TRACEPARENT, TRACESTATE};
use crate::store::StoreFailure;
use crate::store::attachments;
use crate::store::owned_answers::{self, AnswersBetweenRounds};
use crate::store::turn_records::Begun;

/// Answers up to this size, as JSON, ride in the id of the next call to the client. Larger ones would make it too long for
/// some clients.
const CARRIED_BYTES_MAX: usize = 1_024;
/// The same while the store that would keep them cannot be reached.
const CARRIED_WITHOUT_STORE_BYTES_MAX: usize = 32 << 10;

/// A program that has gone as far as it can without its client.
pub(super) struct DrivenProgram {
    pub run: ProgramRun,
    /// With all answers that it was given.
    pub request: StepRequest,
    /// The answers to calls that were executed here, in the order in which they settled.
    pub answered: Vec<JournalEntry>,
    /// Whether an explicit client has been shown the program.
    pub is_shown: bool,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProgramOrigin<'a> {
    /// The model has written it in this turn. A client that repeats its request knows nothing of it.
    ThisTurn(NewProgram<'a>),
    /// The client's history has it.
    History,
}

/// A program that the model has just written.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewProgram<'a> {
    /// The response that holds it.
    pub response: &'a ModelResponse,
    pub state: &'a RunState,
}

/// Where the answers of a program are kept, from one round of calls to the client to the next.
#[derive(Default)]
struct AnswersPlace {
    program: String,
    round: u32,
    after: [u8; 8],
    /// Those that it was given in earlier requests.
    before: Vec<JournalEntry>,
}

/// Whether it is known what a person says about a call.
enum CallApproval {
    Known(Approval),
    /// The client has to be asked.
    Missing,
}

impl TurnRunner {
    /// Runs a program and executes the calls that are the gateway's, all at the same time, until the program ends or waits
    /// for nothing but its client.
    pub(super) async fn drive(
        &mut self,
        mut request: StepRequest,
        origin: ProgramOrigin<'_>,
    ) -> Result<DrivenProgram, TurnError> {
        // Dropped with the turn, it cancels calls without effects.
        let mut running: FuturesUnordered<BoxFuture<'static, ExecutedCall>> = FuturesUnordered::new();
        let mut open: BTreeMap<CallIndex, Arc<OwnedCall>> = BTreeMap::new();
        let mut sent = BTreeSet::new();
        let mut answered = Box::pin(self.answers_of_interrupted(origin)).await?;
        for entry in &answered {
            request.journal.push(entry.clone());
        }
        let mut recorded = answered.len();
        loop {
            let run;
            let step = |replay: &HistoryReplay<'_>, request: &StepRequest| replay.step(request);
            let code = request.program.code.clone();
            (request, run) = self.run_programs(Some(&code), request, step).await?;
            if let ProgramRun::Paused { calls, .. } = &run {
                let new = Box::pin(self.new_calls(calls, &mut sent, origin)).await?;
                open.extend(new.iter().map(|new| (new.call.call, Arc::clone(new))));
                let (writes, reads): (Vec<_>, Vec<_>) = new.into_iter().partition(|new| new.is_write());
                if !reads.is_empty() {
                    let executor = self.call_executor()?;
                    running.extend(reads.into_iter().map(|read| executor.read(read)));
                }
                if !writes.is_empty() {
                    match Box::pin(self.record_before_write(origin, &answered, &mut recorded)).await {
                        Ok(Begun::Yes) => running.extend(self.call_executor()?.writes(writes)),
                        Ok(Begun::ByAnother) => return Err(answered_already()),
                        // An earlier turn may have sent it. Whoever repeats the request once more learns it.
                        Err(error) if self.responses.state == ResponsesState::Resumed => return Err(error.into()),
                        Err(error) => {
                            tracing::warn!(%error, "a call was not sent, because what led to it could not be recorded");
                            running.extend(writes.iter().map(|write| ExecutedCall::not_recorded(&write.call)));
                        }
                    }
                }
            }
            // A program that has ended needs no more answers. But what its calls have done has to be known.
            let is_done = matches!(run, ProgramRun::Finished { .. }) && !open.values().any(|open| open.is_write());
            let Some(first) = (if is_done { None } else { self.sink.while_waiting(running.next()).await? }) else {
                for open in open.values() {
                    self.show_end(open, ServerCallEnd::Cancelled).await?;
                }
                let is_shown = self.turn.mode == ProgramMode::Explicit && !sent.is_empty();
                return Ok(DrivenProgram { run, request, answered, is_shown });
            };
            let mut executed = vec![first];
            gather_answers(&mut running, &mut executed).await;
            for ExecutedCall { index, output: ToolOutput { answer, attachments }, took } in executed {
                let ended = open.remove(&index).ok_or_else(|| TurnError::bug("a call that nobody sent"))?;
                self.show_end(&ended, ServerCallEnd::Answered(&answer)).await?;
                self.add_attachments(attachments.into_iter().map(|it| (it.handle, it.block)))?;
                let outcome = CallOutcome::of(&answer);
                self.observer.emit(&Event::CallExecuted { tool: &ended.call.tool, outcome, took });
                self.usage.calls += 1;
                self.usage.mcp_calls += 1;
                let entry = JournalEntry::answering(&ended.call, answer);
                request.journal.push(entry.clone());
                answered.push(entry);
            }
        }
    }

    /// The calls that are to be executed here now, of those that a program waits for. An explicit client is shown them, and
    /// asked about those that a person has to approve.
    async fn new_calls(
        &mut self,
        calls: &[Call],
        sent: &mut BTreeSet<CallIndex>,
        origin: ProgramOrigin<'_>,
    ) -> Result<Vec<Arc<OwnedCall>>, TurnError> {
        let mut new_calls = Vec::new();
        for call in calls {
            let tool = if sent.contains(&call.call) { None } else { self.owned_tool(&call.tool) };
            let Some(tool) = tool else { continue };
            if self.turn.mode == ProgramMode::Explicit && sent.is_empty() {
                Box::pin(self.show_program(origin)).await?;
            }
            sent.insert(call.call);
            let mut new = OwnedCall { call: call.clone(), tool, approval: Approval::Unavailable };
            match self.approval(&new) {
                CallApproval::Missing => {
                    self.sink.approval_requested(&new.shown()).await?;
                    continue;
                }
                CallApproval::Known(approval) => new.approval = approval,
            }
            if self.turn.mode == ProgramMode::Explicit {
                Box::pin(self.show_call(&new)).await?;
            }
            new_calls.push(Arc::new(new));
        }
        Ok(new_calls)
    }

    /// Where the answers of a program are kept that is run now.
    fn answers_place(&self, origin: ProgramOrigin<'_>) -> AnswersPlace {
        match (origin, self.turn.conversation.live()) {
            (ProgramOrigin::History, Some(block)) => {
                let after = block.journal_of_rounds().map(|journal| journal.fingerprint()).unwrap_or_default();
                let (program, round, before) =
                    (block.state.waiting().id, block.next_round(), block.owned_after.clone());
                AnswersPlace { program, round, after, before }
            }
            (ProgramOrigin::History, None) => AnswersPlace::default(),
            (ProgramOrigin::ThisTurn(new), _) => {
                let (program, after) = (new.state.waiting().id, RoundHeader::default().answered);
                AnswersPlace { program, after, ..AnswersPlace::default() }
            }
        }
    }

    /// The answers that a program of a turn was given that was cut off. Those of a program in the history are in it.
    async fn answers_of_interrupted(&self, origin: ProgramOrigin<'_>) -> Result<Vec<JournalEntry>, TurnError> {
        let is_resumed =
            self.responses.state == ResponsesState::Resumed && matches!(origin, ProgramOrigin::ThisTurn(_));
        let Some(store) = self.gateway.answer_store.as_ref().filter(|_| is_resumed) else { return Ok(Vec::new()) };
        let place = self.answers_place(origin);
        Ok(owned_answers::load(store, &self.tenant.name, &place.program, place.round, place.after).await?)
    }

    /// Keeps all that has led to a call with effects, before it is sent: the model's responses in this turn, and the
    /// answers that the program was given. A gateway that runs the program again after this one has died comes to the same
    /// call, and not to another one.
    async fn record_before_write(
        &mut self,
        origin: ProgramOrigin<'_>,
        answered: &[JournalEntry],
        recorded: &mut usize,
    ) -> Result<Begun, StoreError> {
        match self.keep_before_write(origin, answered, recorded).await {
            Err(error) if self.gateway.config.store_failure == StoreFailure::Continue => {
                self.observer.emit(&Event::StoreFailed { error: &error });
                Ok(Begun::Yes)
            }
            kept => kept,
        }
    }

    async fn keep_before_write(
        &mut self,
        origin: ProgramOrigin<'_>,
        answered: &[JournalEntry],
        recorded: &mut usize,
    ) -> Result<Begun, StoreError> {
        // First of all: what another turn of the same request has kept must stay.
        if self.record_responses(origin).await? == Begun::ByAnother {
            return Ok(Begun::ByAnother);
        }
        let Some(store) = &self.gateway.answer_store else { return Ok(Begun::Yes) };
        // Programs that ended earlier in this turn have their answers nowhere yet, if they are small.
        for (message, answers) in self.progress.earlier_answers.iter().skip(self.responses.answers_kept) {
            if let Some(entries) = answers.entries() {
                let program = RunState::program_id(&self.progress.seed, *message);
                let (round, after) = (0, RoundHeader::default().answered);
                let answers = AnswersBetweenRounds { program: &program, round, after, entries };
                owned_answers::keep(store, &self.tenant.name, &answers).await?;
            }
        }
        self.responses.answers_kept = self.progress.earlier_answers.len();
        if *recorded < answered.len() {
            let place = self.answers_place(origin);
            let entries = [&place.before[..], answered].concat();
            let answers = AnswersBetweenRounds {
                program: &place.program,
                round: place.round,
                after: place.after,
                entries: &entries,
            };
            owned_answers::keep(store, &self.tenant.name, &answers).await?;
            *recorded = answered.len();
        }
        Ok(Begun::Yes)
    }

    /// Shows an explicit client the program whose calls follow.
    async fn show_program(&mut self, origin: ProgramOrigin<'_>) -> Result<(), TurnError> {
        match origin {
            ProgramOrigin::ThisTurn(program) => self.start_program(program, ProgramProgress::Running).await,
            ProgramOrigin::History => {
                let turn = &self.turn;
                let block = turn.conversation.live().ok_or_else(|| TurnError::bug("no program waits"))?;
                let (run, round) = (block.run, block.next_round());
                let meta = ResponseMeta::resumed(turn.client, run, &block.state, round, turn.model());
                self.sink.meta(&self.own_meta(meta));
                Ok(())
            }
        }
    }

    /// Shows an explicit client a call that is about to be sent, after the tools of its server.
    async fn show_call(&mut self, open: &OwnedCall) -> Result<(), TurnError> {
        let call = open.shown();
        if self.progress.listed_servers.insert(call.server.to_owned()) {
            let turn = Arc::clone(&self.turn);
            let owned = turn.toolbox().catalog().tools().iter().skip(turn.owned_from);
            let tools = owned.filter(|tool| tool.server.as_deref() == Some(call.server)).collect();
            let list = ServerToolList { server: call.server, tools };
            if !turn.conversation.tool_lists.contains(&list.id()) {
                self.sink.tools_listed(&list).await?;
            }
        }
        self.sink.server_call_started(&call).await
    }

    async fn show_end(&mut self, open: &OwnedCall, end: ServerCallEnd<'_>) -> Result<(), TurnError> {
        match self.turn.mode {
            ProgramMode::Explicit => self.sink.server_call_ended(&open.shown(), end).await,
            ProgramMode::Plain => Ok(()),
        }
    }

    /// Adds images and files of executed calls to what the model can be shown.
    fn add_attachments(&mut self, blocks: impl IntoIterator<Item = (String, Value)>) -> Result<(), TurnError> {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            return Ok(());
        }
        let client = self.turn.client;
        let turn = Arc::get_mut(&mut self.turn).ok_or_else(|| TurnError::bug("a program still runs"))?;
        let known = &mut turn.conversation.executed_attachments;
        known.extend(blocks.filter_map(|(handle, block)| Some((handle, client.attachment_block(&block)?))));
        Ok(())
    }

    /// Takes images and files of calls that were executed in an earlier request out of the store. Returns whether there are
    /// any.
    pub(super) async fn load_attachments(&mut self, mut handles: Vec<String>) -> Result<bool, TurnError> {
        handles.retain(|handle| !self.turn.conversation.executed_attachments.contains_key(handle));
        let (Some(store), false) = (&self.gateway.answer_store, handles.is_empty()) else { return Ok(false) };
        match attachments::load(store, &self.tenant.name, handles).await {
            Ok(found) => {
                let is_any = !found.is_empty();
                self.add_attachments(found)?;
                Ok(is_any)
            }
            Err(error) => {
                self.observer.emit(&Event::StoreFailed { error: &error });
                Ok(false)
            }
        }
    }

    /// The tool of this name, if its calls are executed here.
    pub(super) fn owned_tool(&self, name: &str) -> Option<OwnedTool> {
        let toolbox = self.turn.toolbox();
        let index = toolbox.catalog().find(name).map(|tool| tool.0 as usize);
        index.filter(|index| *index >= self.turn.owned_from).and_then(|index| OwnedTool::new(toolbox, index))
    }

    /// What a person has decided about a call that needs an approval. Explicit clients can be asked.
    fn approval(&self, open: &OwnedCall) -> CallApproval {
        let can_ask = self.turn.mode == ProgramMode::Explicit;
        let asks = self.tenant.offered.as_ref().is_some_and(|offered| offered.asks(&open.tool));
        if !(can_ask && asks) {
            return CallApproval::Known(Approval::Unavailable);
        }
        match self.turn.conversation.approvals.get(&open.shown().approval_id()) {
            Some(true) => CallApproval::Known(Approval::Given),
            Some(false) => CallApproval::Known(Approval::Declined),
            None => CallApproval::Missing,
        }
    }

    /// What executes calls of this turn.
    fn call_executor(&self) -> Result<Arc<CallExecutor>, TurnError> {
        let (Some(offered), Some(store)) = (&self.tenant.offered, &self.gateway.answer_store) else {
            return Err(TurnError::bug("a tool of a server that nobody has"));
        };
        Ok(Arc::new(CallExecutor {
            gateway: Arc::clone(&self.gateway),
            store: Arc::clone(store),
            tenant: Arc::clone(&self.tenant.name),
            offered: Arc::clone(offered),
            trace: self.trace(),
            is_resumed: self.responses.state == ResponsesState::Resumed,
        }))
    }

    /// Names the trace that calls of servers belong to: ours, or the client's if requests are not traced.
    fn trace(&self) -> Map<String, Value> {
        let ours = self.observer.trace_headers();
        let ours = ours.iter().map(|(name, value)| (*name, value));
        let given = [TRACEPARENT, TRACESTATE].into_iter();
        let given = given.filter_map(|name| Some((name, self.context.headers.get(name)?)));
        let trace: Vec<_> = if ours.len() > 0 { ours.collect() } else { given.collect() };
        let text = |(name, value): (&str, &HeaderValue)| Some((name.to_owned(), Value::from(value.to_str().ok()?)));
        trace.into_iter().filter_map(text).collect()
    }

    /// Writes the history, and lets its last program go on as far as it can without its client. Returns also how the next id
    /// has the answers that it was given since its last round.
    pub(super) async fn replay_and_drive(&mut self) -> Result<(HistoryEnd, OwnedAnswers), TurnError> {
        let end = self.replay_history().await?;
        let is_owned = |call: &Call| self.owned_tool(&call.tool).is_some();
        let request = match end {
            HistoryEnd::Waiting { request, calls, .. } if calls.iter().any(is_owned) => *request,
            end => {
                let entries = self.turn.conversation.live().map_or(&[][..], |block| &block.owned_after);
                return Ok((end, self.carried(entries, CARRIED_BYTES_MAX)));
            }
        };
        let driven = Box::pin(self.drive(request, ProgramOrigin::History)).await?;
        let turn = Arc::get_mut(&mut self.turn).ok_or_else(|| TurnError::bug("a program still runs"))?;
        let block = turn.conversation.live_mut().ok_or_else(|| TurnError::bug("no program waits"))?;
        block.owned_after.extend(driven.answered);
        let block = self.turn.conversation.live().ok_or_else(|| TurnError::bug("no program waits"))?;
        let (program, round, entries) = (block.state.waiting().id, block.next_round(), &block.owned_after);
        let after = block.journal_of_rounds().map(|journal| journal.fingerprint()).unwrap_or_default();
        let answers = AnswersBetweenRounds { program: &program, round, after, entries };
        let may_ride = matches!(driven.run, ProgramRun::Paused { .. });
        let owned = self.keep_answers(&answers, may_ride).await?;
        Ok((self.replay_history().await?, owned))
    }

    /// Keeps answers for the next request: in the id of the next call if there is one and they are small, or else in the
    /// store. Returns how the id has them.
    pub(super) async fn keep_answers(
        &self,
        answers: &AnswersBetweenRounds<'_>,
        may_ride: bool,
    ) -> Result<OwnedAnswers, TurnError> {
        let carried = self.carried(answers.entries, CARRIED_BYTES_MAX);
        if answers.entries.is_empty() || may_ride && carried != OwnedAnswers::Stored {
            return Ok(carried);
        }
        let Some(store) = &self.gateway.answer_store else { return Ok(carried) };
        match owned_answers::keep(store, &self.tenant.name, answers).await {
            Ok(()) => Ok(carried),
            Err(error) if self.gateway.config.store_failure == StoreFailure::Continue => {
                self.observer.emit(&Event::StoreFailed { error: &error });
                Ok(self.carried(answers.entries, CARRIED_WITHOUT_STORE_BYTES_MAX))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// How the id of the next call has these answers.
    fn carried(&self, entries: &[JournalEntry], bytes_max: usize) -> OwnedAnswers {
        let bytes = |entry: &JournalEntry| entry.tool.len() + entry.args().map_or(0, |args| args.to_string().len());
        let size: usize = entries.iter().map(|entry| bytes(entry) + entry.answer.size()).sum();
        let has_room = self.turn.mode == ProgramMode::Plain || entries.is_empty();
        if has_room && size <= bytes_max { OwnedAnswers::Carried(entries.to_vec()) } else { OwnedAnswers::Stored }
    }

    /// The request for the first step of a program that the model has just written.
    pub(super) fn first_request(&self, program: dacapo_replay::Program) -> StepRequest {
        let replay = history_replay(&self.gateway, &self.tenant.name, &self.turn, &|| true);
        replay.first_request(program, &self.progress.record, &self.progress.stored)
    }
}

/// Another turn of the same request was faster. Nothing with effects was sent in this one; the client is to ask again, and
/// gets the response of the other.
fn answered_already() -> TurnError {
    let (kind, message) = ("server_error", "the same request is being answered already; try again".to_owned());
    TurnError::Refused { status: StatusCode::SERVICE_UNAVAILABLE, kind, message, retry_after_s: Some(1) }
}
