//! One request of a client in code mode, from its history to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use dacapo_replay::{Call, Journal, Reused};
use dacapo_wire::chat::{Delivery, Head, Listener, Reply, Said, Transcript, Turn, Usage};
use dacapo_wire::{Asked, Intent, RunId, RunState, Saying, Sealer, SseReader};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::blocks::{After, Blocks, Position, Run};
use crate::error::TurnError;
use crate::gateway::{Gateway, now_ms};
use crate::outlet::{CallDeltas, Outlet};
use crate::upstream::Answer;

const PATH: &str = "/chat/completions";
/// No provider answers with more.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an answer that make a token, about.
const BYTES_PER_TOKEN: usize = 4;

/// A turn on its way.
pub(crate) struct Running {
    gateway: Arc<Gateway>,
    turn: Arc<Turn>,
    headers: HeaderMap,
    tenant: Tenant,
    outlet: Outlet,
    transcript: Transcript,
    usage: Usage,
    /// Programs that failed, and messages that made no sense.
    attempts: u32,
    so_far: SoFar,
    /// Of the last answer of an upstream.
    pub returned: HeaderMap,
}

/// Whose conversation it is.
pub(crate) struct Tenant {
    pub name: String,
    pub sealer: Sealer,
}

/// What the model said in this turn that no id carries yet.
#[derive(Default)]
struct SoFar {
    seed: String,
    started_at_ms: u64,
    sayings: Vec<Saying>,
    /// Programs that explicit clients have seen in this turn.
    shown: usize,
    continues: Option<RunId>,
    /// Completed calls of the programs that failed.
    record: Vec<Reused>,
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
        headers: HeaderMap,
        tenant: Tenant,
        stream: Option<mpsc::Sender<Bytes>>,
    ) -> Running {
        let outlet = Outlet::new(stream, CallDeltas::for_client(&headers), turn.explicit);
        Running {
            gateway,
            turn: Arc::new(turn),
            headers,
            tenant,
            outlet,
            transcript: Transcript::default(),
            usage: Usage::default(),
            attempts: 0,
            so_far: SoFar::default(),
            returned: HeaderMap::new(),
        }
    }

    /// Runs the turn to its end. An error that comes after something was streamed is streamed too.
    pub(crate) async fn run(mut self) -> Result<Done, TurnError> {
        match self.walk().await {
            Ok(()) => {
                let include_usage = self.turn.delivery == Delivery::StreamWithUsage;
                let body = self.outlet.finish(self.usage.to_json(), include_usage).await?;
                Ok(Done { body, headers: self.returned, usage: self.usage })
            }
            Err(error) => {
                if self.outlet.begun {
                    self.outlet.fail(&error).await;
                }
                Err(error)
            }
        }
    }

    async fn walk(&mut self) -> Result<(), TurnError> {
        let turn = Arc::clone(&self.turn);
        let told = self.blocking(move |blocks| {
            let mut transcript = Transcript::default();
            let position = blocks.tell(&turn.conversation, &mut transcript)?;
            Ok((position, transcript))
        });
        let (position, transcript) = told.await?;
        self.transcript = transcript;
        let turn = Arc::clone(&self.turn);
        match (position, turn.conversation.live()) {
            (Position::Waiting { calls }, Some(block)) => {
                self.usage.programs += 1;
                let round = block.next_round();
                self.outlet.head(Head::resumed(block.run, round, block.state.started_at_ms, turn.model()));
                self.hand_out(None, &block.state, round, calls, &[]).await
            }
            (Position::Model(after), live) => {
                if let (Some(block), Some(result)) = (live, &after.finished) {
                    self.usage.programs += 1;
                    self.kept_out(block.answer_bytes(), result);
                    if turn.explicit {
                        self.outlet.head(Head::resumed(
                            block.run,
                            block.next_round(),
                            block.state.started_at_ms,
                            turn.model(),
                        ));
                        self.outlet.message(Reply::code_result(&block.id, result)).await?;
                    }
                }
                self.inherit(after);
                self.talk().await
            }
            (Position::Waiting { .. }, None) => Err(TurnError::upstream("no program waits")),
        }
    }

    fn inherit(&mut self, after: After) {
        self.so_far.continues = after.continues;
        self.so_far.record = after.record;
    }

    /// Asks the model until there is something for the client.
    async fn talk(&mut self) -> Result<(), TurnError> {
        loop {
            let code_mode = &self.gateway.config.code_mode;
            let no_calls =
                self.attempts >= code_mode.attempts_max || self.usage.model_calls + 1 >= code_mode.model_calls_max;
            let said = self.ask(no_calls).await?;
            self.usage.add(said.usage.as_ref());
            self.begin(&said.head);
            let offer = &self.turn.offer;
            if no_calls || said.is_cut() {
                return self.answer(said, Calls::Dropped).await;
            }
            match said.saying.intent(offer) {
                Intent::Answer | Intent::Direct => return self.answer(said, Calls::Kept).await,
                Intent::Respond => {
                    self.attempts += u32::from(said.saying.is_mistaken(offer));
                    let saying = said.saying.normalized(offer);
                    self.respond(saying).await?;
                }
                Intent::Program { code, .. } => {
                    if self.program(said, code).await? == Next::Client {
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
                .created()
                .map(|seconds| seconds.saturating_mul(1000))
                .filter(|ms| IS_A_TIME.contains(ms))
                .unwrap_or(now);
            so_far.seed = if head.id().is_empty() { now.to_string() } else { RunState::seed_of(head.id()) };
        }
    }

    async fn respond(&mut self, saying: Saying) -> Result<(), TurnError> {
        let asked = saying.clone();
        let told = self.blocking(move |blocks| blocks.respond(&asked, |_| Ok(String::new()))).await?;
        self.transcript.saying(&saying, &told, &[]);
        self.so_far.sayings.push(saying);
        Ok(())
    }

    /// Runs what the model wrote.
    async fn program(&mut self, said: Said, code: String) -> Result<Next, TurnError> {
        let offer = &self.turn.offer;
        let direct: Vec<Value> = direct_calls(&said, &self.turn);
        let whole = said.saying.clone().normalized(offer);
        let carried = whole.clone().without_direct(offer);
        let Intent::Program { at, .. } = carried.intent(offer) else {
            return Err(TurnError::upstream("the program is gone"));
        };
        let mut sayings = self.so_far.sayings.clone();
        sayings.push(carried.clone());
        let state = RunState {
            seed: self.seed(),
            started_at_ms: self.so_far.started_at_ms,
            tools: self.turn.tools,
            continues: self.so_far.continues,
            sayings,
            at,
            code,
        };
        self.usage.programs += 1;
        let (program, record) = (state.waiting(), self.so_far.record.clone());
        let run = self.blocking(move |blocks| blocks.run(program, &Journal::default(), &record)).await?;
        if self.turn.explicit {
            self.outlet.head(said.head.clone());
            self.outlet.message(Reply::code(&state)).await?;
        }
        let (told, is_error) = match run {
            Run::Paused(calls) => {
                self.outlet.head(said.head.clone());
                self.hand_out(Some(&said), &state, 0, calls, &direct).await?;
                return Ok(Next::Client);
            }
            Run::Finished { told, result, is_error, record } => {
                let so_far = &mut self.so_far;
                so_far.record = if is_error { record } else { Vec::new() };
                if self.turn.explicit {
                    // The client carries it from here on: the next program begins anew.
                    so_far.shown += 1;
                    so_far.sayings.clear();
                    so_far.continues = if is_error { Some(state.run()) } else { None };
                    self.outlet.message(Reply::code_result(&Reply::code_id(state.run()), &result)).await?;
                }
                (told, is_error)
            }
        };
        self.attempts += u32::from(is_error || self.turn.must_call);
        let shown = if direct.is_empty() { carried } else { whole };
        let asked = shown.clone();
        let told = self.blocking(move |blocks| blocks.respond(&asked, |_| Ok(told.clone()))).await?;
        self.transcript.saying(&shown, &told, &[]);
        if !self.turn.explicit {
            self.so_far.sayings.push(shown);
        }
        Ok(Next::Model)
    }

    fn seed(&self) -> String {
        let so_far = &self.so_far;
        if self.turn.explicit { format!("{}-{}", so_far.seed, so_far.shown) } else { so_far.seed.clone() }
    }

    /// Gives the client the calls that the program waits for.
    async fn hand_out(
        &mut self,
        said: Option<&Said>,
        state: &RunState,
        round: u32,
        mut calls: Vec<Call>,
        direct: &[Value],
    ) -> Result<(), TurnError> {
        if self.turn.one_call {
            calls.truncate(1);
        }
        let ids = if self.turn.explicit {
            Reply::explicit_ids(state.run(), round, &calls)
        } else {
            let asked: Vec<Asked> = calls.iter().map(Asked::from).collect();
            let mut ids = self.tenant.sealer.seal(state, round, &asked);
            if let Some(store) = &self.gateway.store {
                let run = state.run();
                store.put(&self.tenant.name, run, round, &ids[0]).await?;
                ids = Sealer::short(run, round, &asked);
            }
            ids
        };
        self.usage.rounds += 1;
        self.usage.calls += calls.len() as u64;
        let said = said.and_then(|said| said.choice.get("message"));
        self.outlet.calls(Reply::calls(said, &ids, &calls, direct)).await
    }

    /// Gives the client what the model said.
    async fn answer(&mut self, said: Said, calls: Calls) -> Result<(), TurnError> {
        let finish_reason = said.finish_reason.unwrap_or_else(|| "stop".to_owned());
        let mut message = said.choice.get("message").cloned().unwrap_or_else(|| {
            let mut message = json!({"role": "assistant", "content": said.saying.text});
            if let Some(fields) = message.as_object_mut() {
                fields.extend(said.saying.opaque.clone());
            }
            message
        });
        self.outlet.head(said.head);
        if calls == Calls::Kept && !said.saying.calls.is_empty() {
            if let Some(fields) = message.as_object_mut() {
                let calls = said.saying.calls.iter().map(|call| {
                    let mut fields = json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}});
                    if let Some(fields) = fields.as_object_mut() {
                        fields.extend(call.opaque.clone());
                    }
                    fields
                });
                fields.entry("tool_calls").or_insert_with(|| calls.collect());
            }
            return self.outlet.calls(message).await;
        }
        if let Some(fields) = message.as_object_mut() {
            fields.shift_remove("tool_calls");
        }
        let finish_reason = if finish_reason == "tool_calls" { "stop" } else { &finish_reason };
        self.outlet.answer(said.choice, message, finish_reason).await
    }

    /// Asks the model with the history as it is now.
    async fn ask(&mut self, no_calls: bool) -> Result<Said, TurnError> {
        let body = Bytes::from(self.turn.ask(&self.transcript, no_calls).to_string());
        let upstreams = &self.gateway.upstreams;
        let upstream = upstreams.of(self.turn.model())?;
        let answer = upstreams.post(upstream, PATH, &self.headers, body).await?;
        self.returned.clone_from(&answer.headers);
        if !answer.status.is_success() {
            return Err(answer.into_error().await);
        }
        if answer.is_stream() {
            return self.listen(answer, no_calls).await;
        }
        let body = answer.whole(ANSWER_BYTES_MAX).await.map_err(TurnError::upstream)?;
        let body: Value = serde_json::from_slice(&body)
            .map_err(|error| TurnError::upstream(format!("the upstream's answer is not JSON: {error}")))?;
        if body.get("error").is_some_and(|error| !error.is_null()) && body.get("choices").is_none() {
            let body = Bytes::from(body.to_string());
            return Err(TurnError::passed(StatusCode::BAD_GATEWAY, self.returned.clone(), body));
        }
        Said::read(body).map_err(TurnError::upstream)
    }

    /// Passes on what is surely part of the answer, as it arrives.
    async fn listen(&mut self, mut answer: Answer, no_calls: bool) -> Result<Said, TurnError> {
        let hold_chars = if no_calls { 0 } else { self.gateway.config.code_mode.hold_text_chars };
        let mut reader = SseReader::default();
        let mut listener = Listener::default();
        let mut held = Vec::new();
        let mut chars = 0;
        let (mut is_over, mut was_told) = (false, false);
        while !is_over {
            let piece = answer.body.next().await;
            is_over = piece.is_none();
            let events = match piece {
                Some(piece) => {
                    let piece =
                        piece.map_err(|reason| TurnError::upstream(format!("the upstream broke off: {reason}")))?;
                    reader.read(&piece).map_err(|error| TurnError::upstream(error.to_string()))?
                }
                None => reader.finish().into_iter().collect(),
            };
            for event in events {
                if event.data.trim() == "[DONE]" {
                    (is_over, was_told) = (true, true);
                    break;
                }
                let chunk: Value = serde_json::from_str(&event.data)
                    .map_err(|error| TurnError::upstream(format!("the upstream's stream is not JSON: {error}")))?;
                if chunk.get("error").is_some_and(|error| !error.is_null()) {
                    let body = Bytes::from(chunk.to_string());
                    return Err(TurnError::passed(StatusCode::BAD_GATEWAY, HeaderMap::new(), body));
                }
                let heard = listener.hear(chunk);
                if let Some(head) = listener.head() {
                    self.outlet.head(head.clone());
                }
                chars += heard.text_chars;
                let Some(chunk) = heard.chunk.filter(|_| self.outlet.is_stream()) else { continue };
                if heard.text_chars > 0 && chars <= hold_chars {
                    held.push(chunk);
                    continue;
                }
                if heard.text_chars > 0 {
                    for chunk in held.drain(..) {
                        self.outlet.pass(chunk).await?;
                    }
                }
                self.outlet.pass(chunk).await?;
            }
        }
        let said = listener
            .finish(was_told)
            .ok_or_else(|| TurnError::upstream("the upstream's stream ended before the answer did"))?;
        let is_for_client = no_calls
            || said.is_cut()
            || matches!(said.saying.intent(&self.turn.offer), Intent::Answer | Intent::Direct);
        if is_for_client {
            for chunk in held {
                self.outlet.pass(chunk).await?;
            }
        }
        Ok(said)
    }

    fn kept_out(&mut self, answer_bytes: usize, result: &Value) {
        let shown = result.to_string().len();
        self.usage.tokens_kept_out += (answer_bytes.saturating_sub(shown) / BYTES_PER_TOKEN) as u64;
    }

    /// Runs programs off the threads that serve clients, and stops when nobody waits for them any more.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Blocks<'_>) -> Result<T, dacapo_replay::StepError> + Send + 'static,
    ) -> Result<T, TurnError> {
        let gateway = Arc::clone(&self.gateway);
        let turn = Arc::clone(&self.turn);
        let permit = Arc::clone(&gateway.steps).acquire_owned().await;
        let permit = permit.map_err(|closed| TurnError::upstream(closed.to_string()))?;
        let is_wanted = Wanted::new();
        let still_wanted = Arc::clone(&is_wanted.0);
        let work = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + gateway.config.step_timeout;
            let patience = || still_wanted.load(Ordering::Relaxed) && Instant::now() < deadline;
            let blocks = Blocks {
                stepper: &gateway.stepper,
                offer: &turn.offer,
                limits: &gateway.config.limits,
                patience: &patience,
            };
            let done = work(&blocks);
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

/// Milliseconds since 1970 that a provider can mean: from 2020 on.
const IS_A_TIME: std::ops::Range<u64> = 1_577_836_800_000..(1 << 43);

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Client,
    Model,
}

#[derive(Debug, PartialEq, Eq)]
enum Calls {
    Kept,
    Dropped,
}

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

/// The model's calls for the client, as they came.
fn direct_calls(said: &Said, turn: &Turn) -> Vec<Value> {
    let raw = said.choice.get("message").and_then(|message| message.get("tool_calls")).and_then(Value::as_array);
    let direct = said.saying.direct_calls(&turn.offer).map(|call| {
        let known = raw.and_then(|raw| raw.iter().find(|raw| raw.get("id").and_then(Value::as_str) == Some(&call.id)));
        known.cloned().unwrap_or_else(
            || json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}),
        )
    });
    direct.collect()
}
