//! Calls that the gateway executes itself while the client waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use dacapo_replay::{Answer, Call, JournalEntry, StepRequest, Tool};
use dacapo_runner::with_trace;
use dacapo_wire::{OwnedAnswers, ProgramMode};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::history_replay::HistoryEnd;
use super::program_run::ProgramRun;
use super::{TurnRunner, history_replay};
use crate::gateway::Gateway;
use crate::http::TurnError;
use crate::observe::{Event, TRACEPARENT, TRACESTATE};
use crate::store::call_records::{self, CallRecord, Claim};
use crate::store::owned_answers::{self, AnswersBetweenRounds};
use crate::store::turn_records::{Begun, TurnRecord};
use crate::tool_servers::{OfferedTools, is_write};

/// Answers up to this size, as JSON, ride in the id of the next call to the client. Larger ones would make it too long for
/// some clients.
const CARRIED_BYTES_MAX: usize = 1_024;

/// A program that has gone as far as it can without its client.
pub(super) struct DrivenProgram {
    pub run: ProgramRun,
    /// With all answers that it was given.
    pub request: StepRequest,
    /// The answers to calls that were executed here, in the order in which they settled.
    pub answered: Vec<JournalEntry>,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramOrigin {
    /// The model has written it in this turn. A client that repeats its request knows nothing of it.
    ThisTurn,
    /// The client's history has it.
    History,
}

/// A call that was executed.
struct ExecutedCall {
    call: Call,
    answer: Answer,
    took: Duration,
}

impl TurnRunner {
    /// Runs a program and executes the calls that are the gateway's, all at the same time, until the program ends or waits
    /// for nothing but its client.
    pub(super) async fn drive(
        &mut self,
        mut request: StepRequest,
        origin: ProgramOrigin,
    ) -> Result<DrivenProgram, TurnError> {
        // Dropped with the turn, it cancels the calls.
        let mut open: JoinSet<ExecutedCall> = JoinSet::new();
        let mut open_writes = BTreeSet::new();
        let mut sent = BTreeSet::new();
        let mut answered = Vec::new();
        loop {
            let run;
            (request, run) = self
                .blocking(move |replay| {
                    let run = replay.step(&request)?;
                    Ok((request, run))
                })
                .await?;
            if let ProgramRun::Paused { calls, .. } = &run {
                for call in calls {
                    let Some(tool) = self.owned_tool(&call.tool).filter(|_| sent.insert(call.call)) else { continue };
                    if is_write(tool) {
                        open_writes.insert(call.call);
                    }
                    open.spawn(self.execute(tool.clone(), call.clone(), origin)?);
                }
            }
            // A program that has ended needs no more answers. But what its calls have done has to be known.
            let is_done = matches!(run, ProgramRun::Finished { .. }) && open_writes.is_empty();
            let Some(first) = (if is_done { None } else { self.sink.while_waiting(open.join_next()).await? }) else {
                return Ok(DrivenProgram { run, request, answered });
            };
            let mut next = Some(first);
            while let Some(executed) = next {
                let ExecutedCall { call, answer, took } =
                    executed.map_err(|error| TurnError::Internal(format!("a call could not be executed: {error}")))?;
                open_writes.remove(&call.call);
                let failed = matches!(answer, Answer::Error { .. });
                self.observer.emit(&Event::CallExecuted { tool: &call.tool, failed, took });
                self.usage.calls += 1;
                self.usage.mcp_calls += 1;
                let entry = JournalEntry::answering(&call, answer);
                request.journal.push(entry.clone());
                answered.push(entry);
                // Answers that are there already are taken in one step.
                next = open.try_join_next();
            }
        }
    }

    /// The tool of this name, if its calls are executed here.
    pub(super) fn owned_tool(&self, name: &str) -> Option<&Tool> {
        let catalog = self.turn.toolbox().catalog();
        let index = catalog.find(name).map(|tool| tool.0 as usize).filter(|index| *index >= self.turn.owned_from)?;
        catalog.tools().get(index)
    }

    fn execute(
        &self,
        tool: Tool,
        call: Call,
        origin: ProgramOrigin,
    ) -> Result<impl Future<Output = ExecutedCall> + Send + use<>, TurnError> {
        let (gateway, offered) = (Arc::clone(&self.gateway), self.tenant.offered.clone());
        let (Some(offered), Some(store), true) = (offered, &gateway.answer_store, gateway.servers.is_some()) else {
            return Err(TurnError::bug("a tool of a server that nobody has"));
        };
        let record = CallRecord::new(store, &self.tenant.name, &call);
        let turn = self.record.clone().filter(|_| origin == ProgramOrigin::ThisTurn);
        let trace = self.trace();
        let execution = CallExecution { gateway, offered, tool, call, record, trace };
        Ok(async move {
            let started = Instant::now();
            let call = execution.call.clone();
            let answer = if is_write(&execution.tool) {
                // It goes on, and is recorded, when the client leaves.
                let done = tokio::spawn(async move { execution.once(turn).await }).await;
                done.unwrap_or_else(|error| Answer::error(format!("the call failed: {error}")))
            } else {
                execution.send().await
            };
            ExecutedCall { call, answer, took: started.elapsed() }
        })
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

    /// Writes the history, and lets its last program go on as far as it can without its client.
    pub(super) async fn replay_and_drive(&mut self) -> Result<HistoryEnd, TurnError> {
        let end = self.replay_history().await?;
        let is_owned = |call: &Call| self.owned_tool(&call.tool).is_some();
        let request = match end {
            HistoryEnd::Waiting { request, calls, .. } if calls.iter().any(is_owned) => *request,
            end => return Ok(end),
        };
        let driven = self.drive(request, ProgramOrigin::History).await?;
        let turn = Arc::get_mut(&mut self.turn).ok_or_else(|| TurnError::bug("a program still runs"))?;
        let block = turn.conversation.live_mut().ok_or_else(|| TurnError::bug("no program waits"))?;
        block.owned_after.extend(driven.answered);
        let (program, round, entries) = (block.state.waiting().id, block.next_round(), block.owned_after.clone());
        let after = block.journal_of_rounds().map(|journal| journal.fingerprint()).unwrap_or_default();
        let answers = AnswersBetweenRounds { program: &program, round, after, entries: &entries };
        let may_ride = matches!(driven.run, ProgramRun::Paused { .. });
        self.keep_answers(&answers, may_ride).await?;
        self.replay_history().await
    }

    /// Keeps answers for the next request: in the id of the next call if there is one and they are small, or else in the
    /// store.
    pub(super) async fn keep_answers(
        &self,
        answers: &AnswersBetweenRounds<'_>,
        may_ride: bool,
    ) -> Result<OwnedAnswers, TurnError> {
        let carried = self.carried(answers.entries);
        if answers.entries.is_empty() || may_ride && carried != OwnedAnswers::Stored {
            return Ok(carried);
        }
        if let Some(store) = &self.gateway.answer_store {
            owned_answers::keep(store, &self.tenant.name, answers).await?;
        }
        Ok(carried)
    }

    /// How the id of the next call has these answers.
    pub(super) fn carried(&self, entries: &[JournalEntry]) -> OwnedAnswers {
        let bytes = |entry: &JournalEntry| entry.tool.len() + entry.args().map_or(0, |args| args.to_string().len());
        let size: usize = entries.iter().map(|entry| bytes(entry) + answer_bytes(&entry.answer)).sum();
        let has_room = self.turn.mode == ProgramMode::Plain || entries.is_empty();
        if has_room && size <= CARRIED_BYTES_MAX {
            OwnedAnswers::Carried(entries.to_vec())
        } else {
            OwnedAnswers::Stored
        }
    }

    /// The request for the first step of a program that the model has just written.
    pub(super) fn first_request(&self, program: dacapo_replay::Program) -> StepRequest {
        let replay = history_replay(&self.gateway, &self.tenant.name, &self.turn, &|| true);
        replay.first_request(program, &self.progress.record, &self.progress.stored)
    }
}

/// One call on its way.
struct CallExecution {
    gateway: Arc<Gateway>,
    offered: Arc<OfferedTools>,
    tool: Tool,
    call: Call,
    record: CallRecord,
    /// The trace that it belongs to, as `_meta` has it.
    trace: Map<String, Value>,
}

const NOT_RECORDED: &str = "it was not sent, because it could not be recorded before: the store cannot be reached";
const ANSWERED_ALREADY: &str = "it was not sent, because the same request is being answered already";

impl CallExecution {
    async fn send(&self) -> Answer {
        match &self.gateway.servers {
            Some(servers) => with_trace(&self.trace, servers.call(&self.tool, &self.call, &self.offered)).await,
            None => Answer::error("there are no servers"),
        }
    }

    /// Sends a call with effects at most once: it is recorded before it is sent, and its answer after it.
    async fn once(self, turn: Option<Arc<TurnRecord>>) -> Answer {
        let begun = match &turn {
            Some(turn) => turn.begin().await,
            None => Ok(Begun::Yes),
        };
        let claim = match begun {
            Ok(Begun::Yes) => self.record.claim().await,
            Ok(Begun::ByAnother) => return Answer::error(format!("`{}`: {ANSWERED_ALREADY}", self.call.tool)),
            Err(error) => Err(error),
        };
        match claim {
            Err(error) => {
                tracing::warn!(%error, "a call was not sent, because it could not be recorded");
                Answer::error(format!("`{}`: {NOT_RECORDED}", self.call.tool))
            }
            Ok(Claim::Answered(answer)) => answer,
            Ok(Claim::Unknown) => {
                let answer = call_records::unknown(&self.call.tool);
                self.record(&answer).await;
                answer
            }
            Ok(Claim::Send) => {
                let answer = tokio::select! {
                    answer = self.send() => answer,
                    () = self.record.keep_alive() => Answer::error("the call was given up"),
                };
                self.record(&answer).await;
                answer
            }
        }
    }

    async fn record(&self, answer: &Answer) {
        if let Err(error) = self.record.answered(&self.call, answer).await {
            tracing::warn!(%error, "the answer to a call could not be recorded");
        }
    }
}

pub(super) fn answer_bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Ok(json) => json.as_str().len(),
        Answer::Error { message, data } => message.len() + data.as_ref().map_or(0, |data| data.as_str().len()),
    }
}
