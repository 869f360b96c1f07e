//! Programs that the model has just written, and calls that go to the client.

use std::sync::Arc;

use dacapo_replay::{Answer, Call, CompletedCall, JournalEntry, handles_in};
use dacapo_wire::{
    CallDigests, CallRef, CallResult, CallsIssued, CallsPerMessage, GivenRecord, ModelCall, ModelMessage,
    ModelResponse, PackedState, ProgramFinished, ProgramMode, ProgramName, ProgramProgress, ProgramStarted,
    RoundHeader, RunState, Sealer, StoredId, Turn, Wire,
};
use serde_json::{Value, json};

use super::history_replay::HistoryReplay;
use super::owned_calls::{DrivenProgram, NewProgram, ProgramOrigin};
use super::program_run::{ProgramRun, note_attachments_in, show_shapes};
use super::{TurnEnd, TurnRunner, estimated_tokens};
use crate::http::TurnError;
use crate::observe::{Event, ProgramEnd, ProgramOutcome};
use crate::store::StoreFailure;
use crate::store::owned_answers::AnswersBetweenRounds;

/// For a program that has made no calls, although the client's `tool_choice` is `required` or `any`.
const CALL_REQUIRED: &str =
    "this program called no function, but the user requires a function to be called: write a program that does";

/// Whose turn it is after a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The program waits for calls.
    Client,
    /// The model reads the result.
    Model,
}

/// A program that waits for calls.
pub(super) struct WaitingProgram<'a> {
    pub program: ProgramName<'a>,
    pub state: &'a RunState,
    /// The state as earlier ids carried it.
    pub packed: Option<Arc<PackedState>>,
    pub round: RoundHeader,
    pub calls: Vec<Call>,
}

impl TurnRunner {
    /// Runs the program at position `at` among the calls of a response.
    pub(super) async fn run_program(
        &mut self,
        response: ModelResponse,
        at: usize,
        code: String,
    ) -> Result<NextStep, TurnError> {
        let model_tools = &self.turn.model_tools;
        let is_explicit = self.turn.mode == ProgramMode::Explicit;
        let before = &self.progress.model_messages;
        let whole = response.message.clone().normalized_around((at, &code), model_tools, before);
        let program = &whole.calls[at];
        // A client that takes one call per message gets one of the program, and no direct ones.
        let mut carried = whole.clone();
        let mut direct: Vec<ModelCall> = Vec::new();
        if self.turn.prefs.calls == CallsPerMessage::Any {
            carried = carried.without_direct(model_tools);
            direct.extend(response.message.direct_calls(model_tools).cloned());
        }
        if is_explicit {
            // A program in an explicit history has no room for other calls.
            carried.calls.retain(|call| call == program);
            carried.calls.truncate(1);
        }
        let at = carried.calls.iter().position(|call| call == program).unwrap_or_default();
        let state = self.run_state(&carried, at, code);
        self.show_searches(&response).await?;
        self.usage.programs += 1;
        self.observer.emit(&Event::ProgramStarted);
        let new = NewProgram { response: &response, state: &state };
        let DrivenProgram { run, request, answered, is_shown } =
            Box::pin(self.drive(self.first_request(state.waiting()), ProgramOrigin::ThisTurn(new))).await?;
        let answers = AnswersBetweenRounds {
            program: &state.waiting().id,
            round: 0,
            after: RoundHeader::default().answered,
            entries: &answered,
        };
        // In explicit mode the client's history holds the program, and no id goes with it.
        let may_ride = !is_explicit;
        let owned = self.keep_answers(&answers, may_ride).await?;
        if !is_shown {
            let progress = match run {
                ProgramRun::Paused { .. } => ProgramProgress::Waiting,
                ProgramRun::Finished { .. } => ProgramProgress::Finished,
            };
            self.start_program(new, progress).await?;
        }
        let (mut shown, end) = match run {
            ProgramRun::Paused { calls, .. } => {
                let program = ProgramName::New;
                let record: Vec<CompletedCall> = answered.iter().filter_map(completed).collect();
                let before = CallDigests::of(&record, self.turn.toolbox().catalog());
                let round = RoundHeader { before, owned, ..RoundHeader::new(0, request.journal.fingerprint()) };
                let waiting = WaitingProgram { program, state: &state, packed: None, round, calls };
                self.issue_calls(Some(&response), waiting, &direct).await?;
                return Ok(NextStep::Client);
            }
            ProgramRun::Finished { mut shown, end, record, stored, shapes } => {
                let bytes: usize = answered.iter().map(|entry| entry.answer.size()).sum();
                self.usage.tokens_kept_out += estimated_tokens(bytes.saturating_sub(shown.to_string().len()));
                let progress = &mut self.progress;
                if !is_explicit && !answered.is_empty() {
                    progress.earlier_answers.push((progress.model_messages.len(), owned));
                }
                note_attachments_in(&mut shown, &answered);
                show_shapes(&mut shown, &shapes, end, &mut progress.shapes);
                (progress.record, progress.stored) = (record, stored);
                if is_explicit {
                    // From here on the client's history holds the program, so the next one starts afresh.
                    progress.programs_shown += 1;
                    progress.model_messages.clear();
                    progress.earlier_answers.clear();
                    progress.given_record.clone_from(&progress.record);
                    progress.given_stored.clone_from(&progress.stored);
                    let finished = ProgramFinished { program: ProgramName::New, state: &state, shown: &shown };
                    self.sink.program_finished(&finished).await?;
                }
                (shown, end)
            }
        };
        if self.requires_call() && end == ProgramEnd::Success {
            shown["note"] = json!(CALL_REQUIRED);
            self.attempts += 1;
        }
        self.observer.emit(&Event::ProgramFinished { outcome: ProgramOutcome::of(&shown) });
        match end {
            ProgramEnd::Failed => self.attempts += 1,
            ProgramEnd::Success => self.has_run = true,
        }
        let handles: Vec<String> = handles_in(&shown.to_string()).into_iter().map(str::to_owned).collect();
        if !handles.is_empty() {
            Box::pin(self.load_attachments(handles)).await?;
        }
        let message = if direct.is_empty() || is_explicit { carried } else { whole };
        let (message, replies) = self.replies_with_result(message, shown).await?;
        self.history.push_model_message(&message, &replies, &[]);
        if !is_explicit {
            self.progress.model_messages.push(message);
        }
        Ok(NextStep::Model)
    }

    /// The results of a message's calls, of which one is the program with this result.
    async fn replies_with_result(
        &self,
        message: ModelMessage,
        shown: Value,
    ) -> Result<(ModelMessage, Vec<CallResult>), TurnError> {
        // Searches may stand beside the program.
        let is_alone = message.calls.len() == 1;
        let replies = move |replay: &HistoryReplay<'_>, message: &ModelMessage| {
            Ok(replay.replies(message, |_| replay.result(&shown)))
        };
        if is_alone {
            return self.run_programs(None, message, replies).await;
        }
        let replies = move |replay: &HistoryReplay<'_>| {
            let replies = replies(replay, &message)?;
            Ok((message, replies))
        };
        self.blocking(replies).await
    }

    /// Gives the client what stands before a new program, and the program itself to an explicit one.
    pub(super) async fn start_program(
        &mut self,
        program: NewProgram<'_>,
        progress: ProgramProgress,
    ) -> Result<(), TurnError> {
        let NewProgram { response, state } = program;
        self.sink.meta(&response.meta);
        self.sink.preamble(response).await?;
        if self.turn.mode == ProgramMode::Explicit {
            let sealed = self.tenant.sealer.seal(state, &RoundHeader::default(), &[]).remove(0);
            self.sink.program_started(&ProgramStarted { state, sealed: &sealed, progress }).await?;
        }
        Ok(())
    }

    /// The state of a new program: the call at position `at` of a message of the model.
    fn run_state(&self, carried: &ModelMessage, at: usize, code: String) -> RunState {
        let mut model_messages = self.progress.model_messages.clone();
        model_messages.push(carried.clone());
        // Any of the turn's programs may load what earlier ones have stored.
        let codes: String =
            model_messages.iter().flat_map(|it| &it.calls).map(|call| call.arguments.as_str()).collect();
        // Other states are fields that explicit clients read, and have what a replay cannot do without.
        let is_sealed = self.turn.mode == ProgramMode::Plain || self.turn.client.wire() != Wire::Chat;
        RunState {
            seed: self.seed(),
            started_at_ms: self.progress.started_at_ms,
            tools: self.turn.tools_digest,
            mentioned: if is_sealed {
                self.turn.toolbox().catalog().mentioned_in(&code).map(str::to_owned).collect()
            } else {
                Vec::new()
            },
            record: GivenRecord::of(&self.progress.given_record, self.turn.toolbox().catalog()),
            stored: StoredId::of(&self.progress.given_stored, &codes),
            context: self.usage.context(self.turn.provider),
            model_messages,
            at,
            code,
            earlier_answers: self.progress.earlier_answers.clone(),
        }
    }

    /// Programs of explicit clients each have a seed of their own; those of plain clients differ by their position.
    fn seed(&self) -> String {
        let progress = &self.progress;
        match self.turn.mode {
            ProgramMode::Explicit => format!("{}-{}", progress.seed, progress.programs_shown),
            ProgramMode::Plain => progress.seed.clone(),
        }
    }

    /// Gives the client the calls that the program waits for, which are all its own.
    pub(super) async fn issue_calls(
        &mut self,
        response: Option<&ModelResponse>,
        waiting: WaitingProgram<'_>,
        direct: &[ModelCall],
    ) -> Result<(), TurnError> {
        let WaitingProgram { program, state, packed, round, mut calls } = waiting;
        // Calls of servers that the client has to approve have been shown to it.
        calls.retain(|call| self.owned_tool(&call.tool).is_none());
        if self.turn.prefs.calls == CallsPerMessage::One {
            calls.truncate(1);
        }
        let ids = if self.turn.seals_call_ids() {
            let refs: Vec<CallRef> = calls.iter().map(CallRef::from).collect();
            let packed = packed.unwrap_or_else(|| Arc::new(PackedState::of(state)));
            let mut ids = self.tenant.sealer.seal_packed(&packed, &round, &refs);
            if let Some(store) = &self.gateway.store {
                let run = packed.run();
                match store.put(&self.tenant.name, run, round.number, &ids[0]).await {
                    Ok(()) => ids = Sealer::short(self.turn.client, run, round.number, &refs),
                    // The ids stay long, and carry the state.
                    Err(error) if self.gateway.config.store_failure == StoreFailure::Continue => {
                        self.observer.emit(&Event::StoreFailed { error: &error });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            ids
        } else {
            Turn::unsealed_ids(state, &round, &calls)
        };
        self.usage.rounds += 1;
        self.usage.calls += calls.len() as u64;
        self.end = TurnEnd::Calls;
        self.observer.emit(&Event::ProgramPaused { calls: calls.len() });
        for call in &calls {
            self.observer.emit(&Event::CallSent { tool: &call.tool });
        }
        let issued = CallsIssued { response, state, program, ids: &ids, calls: &calls, direct };
        self.sink.calls_issued(&issued).await
    }
}

/// A call that the gateway executed, as later programs may reuse it.
fn completed(entry: &JournalEntry) -> Option<CompletedCall> {
    match &entry.answer {
        Answer::Ok(ok) => Some(CompletedCall::new(&entry.tool, &entry.args()?, ok.clone())),
        Answer::Error { .. } => None,
    }
}
