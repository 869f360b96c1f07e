//! A program that the model has just written, and calls on their way to the client.

use dacapo_replay::{Call, Journal};
use dacapo_wire::{Announced, Asked, Ended, Handing, ModelCall, RunState, Said, Sealer, Turn};

use super::Running;
use crate::blocks::Run;
use crate::error::TurnError;

/// Who goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Client,
    Model,
}

/// A program that waits for calls.
pub(super) struct Waiting<'a> {
    /// What an explicit client calls it.
    pub program: &'a str,
    pub state: &'a RunState,
    pub round: u32,
    /// Stands for the answers so far.
    pub answered: [u8; 8],
    pub calls: Vec<Call>,
}

impl Running {
    /// Runs what the model wrote.
    pub(super) async fn program(&mut self, said: Said, at: usize, code: String) -> Result<Next, TurnError> {
        let offer = &self.turn.offer;
        let whole = said.saying.clone().normalized(offer, &self.so_far.sayings);
        let program = whole.calls[at].clone();
        let mut direct: Vec<ModelCall> = said.saying.direct_calls(offer).cloned().collect();
        let mut carried = if self.turn.wanted.one_call { whole.clone() } else { whole.clone().without_direct(offer) };
        if self.turn.wanted.one_call {
            // One call of the program is all that this client takes.
            direct.clear();
        }
        if self.turn.explicit {
            // All that a `code` message has room for.
            carried.calls = vec![program.clone()];
        }
        let at = carried.calls.iter().position(|call| *call == program).unwrap_or_default();
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
        self.show_searches(&said).await?;
        self.usage.programs += 1;
        let (waiting, record) = (state.waiting(), self.so_far.record.clone());
        let run = self.blocking(move |blocks| blocks.run(waiting, &Journal::default(), &record)).await?;
        self.outlet.head(&said.head);
        self.outlet.aside(&said).await?;
        if self.turn.explicit {
            let sealed = self.tenant.sealer.seal(&state, 0, [0; 8], &[]).remove(0);
            let is_finished = matches!(run, Run::Finished { .. });
            self.outlet.program(&Announced { state: &state, sealed: &sealed, is_finished }).await?;
        }
        let (shown, is_error) = match run {
            Run::Paused(calls) => {
                let waiting = Waiting { program: "", state: &state, round: 0, answered: [0; 8], calls };
                self.hand_out(Some(&said), waiting, &direct).await?;
                return Ok(Next::Client);
            }
            Run::Finished { shown, is_error, record } => {
                let so_far = &mut self.so_far;
                so_far.record = if is_error { record } else { Vec::new() };
                if self.turn.explicit {
                    // The client carries it from here on: the next program begins anew.
                    so_far.shown += 1;
                    so_far.sayings.clear();
                    so_far.continues = if is_error { Some(state.run()) } else { None };
                    self.outlet.result(&Ended { program: "", state: &state, shown: &shown }).await?;
                }
                (shown, is_error)
            }
        };
        self.attempts += u32::from(is_error);
        self.has_run |= !is_error;
        let asked = if direct.is_empty() || self.turn.explicit { carried } else { whole };
        let answered = asked.clone();
        let told = self.blocking(move |blocks| Ok(blocks.respond(&answered, |_| shown.to_string()))).await?;
        self.transcript.saying(&asked, &told, &[]);
        if !self.turn.explicit {
            self.so_far.sayings.push(asked);
        }
        Ok(Next::Model)
    }

    fn seed(&self) -> String {
        let so_far = &self.so_far;
        if self.turn.explicit { format!("{}-{}", so_far.seed, so_far.shown) } else { so_far.seed.clone() }
    }

    /// Gives the client the calls that the program waits for.
    pub(super) async fn hand_out(
        &mut self,
        said: Option<&Said>,
        waiting: Waiting<'_>,
        direct: &[ModelCall],
    ) -> Result<(), TurnError> {
        let Waiting { program, state, round, answered, mut calls } = waiting;
        if self.turn.wanted.one_call {
            calls.truncate(1);
        }
        let ids = if self.turn.seals_calls() {
            let asked: Vec<Asked> = calls.iter().map(Asked::from).collect();
            let mut ids = self.tenant.sealer.seal(state, round, answered, &asked);
            if let Some(store) = &self.gateway.store {
                let run = state.run();
                store.put(&self.tenant.name, run, round, &ids[0]).await?;
                ids = Sealer::short(run, round, &asked);
            }
            ids
        } else {
            Turn::open_ids(state.run(), round, &calls)
        };
        self.usage.rounds += 1;
        self.usage.calls += calls.len() as u64;
        self.outlet.calls(&Handing { said, state, program, ids: &ids, calls: &calls, direct }).await
    }
}
