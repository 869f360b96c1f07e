//! Requests that run at this moment, for views that show them to people.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dacapo_wire::Wire;

use super::{Event, EventConsumer, RequestInfo};

/// A list of requests that a gateway keeps up to date, if [`crate::Config::with_running_requests`] gives it one.
#[derive(Debug, Clone, Default)]
pub struct RunningRequests(Arc<Mutex<BTreeMap<u64, RunningRequest>>>);

/// A request that has not ended yet. It holds nothing of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRequest {
    /// The id that the log and error messages name it by.
    pub id: String,
    /// The configured client's name; empty if everybody is let in.
    pub client: String,
    /// The name of its wire: `chat`, `responses` or `messages`.
    pub wire: &'static str,
    /// The model that the client asks for; empty until its body is read.
    pub model: String,
    /// What it waits for now.
    pub stage: RequestStage,
    /// How often a model was asked.
    pub model_calls: u32,
    /// Programs that were started.
    pub programs: u32,
    /// Calls that were sent to the client.
    pub calls: usize,
    started: Instant,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestStage {
    /// Its body is being read.
    Body,
    /// A model is asked.
    Model,
    /// A program runs.
    Program,
    /// The client takes its response.
    Client,
}

impl RunningRequests {
    /// The requests that run now, the oldest first.
    pub fn list(&self) -> Vec<RunningRequest> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, RunningRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningRequest {
    /// Since it arrived.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl RequestStage {
    /// One word for a table.
    pub fn name(self) -> &'static str {
        match self {
            RequestStage::Body => "body",
            RequestStage::Model => "model",
            RequestStage::Program => "program",
            RequestStage::Client => "client",
        }
    }
}

impl EventConsumer for RunningRequests {
    fn consume(&self, request: &RequestInfo, event: &Event<'_>) {
        // Pages, health and figures are no requests of clients.
        let Some(wire) = request.wire else { return };
        let mut list = self.lock();
        if let Event::RequestEnded { .. } = event {
            list.remove(&request.number);
            return;
        }
        let running = list.entry(request.number).or_insert_with(|| RunningRequest {
            id: request.id.as_str().to_owned(),
            client: String::new(),
            wire: Wire::name(wire),
            model: String::new(),
            stage: RequestStage::Body,
            model_calls: 0,
            programs: 0,
            calls: 0,
            started: Instant::now(),
        });
        match event {
            Event::RequestRead { client, model, .. } => {
                (*client).clone_into(&mut running.client);
                (*model).clone_into(&mut running.model);
            }
            Event::ModelAsked { .. } => {
                running.stage = RequestStage::Model;
                running.model_calls += 1;
            }
            Event::ModelFinished { .. } => running.stage = RequestStage::Client,
            Event::ProgramStarted | Event::CallsAnswered { .. } => {
                running.stage = RequestStage::Program;
                running.programs += 1;
            }
            Event::ProgramPaused { calls } => {
                running.stage = RequestStage::Client;
                running.calls += calls;
            }
            _ => {}
        }
    }
}
