//! What all requests share. Nothing in it is needed by a later request.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dacapo_replay::{SandboxError, Stepper, Toolboxes};
use dacapo_runner::matches_pattern;
use dacapo_wire::{CodeModeDefaults, TextTools};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::observe::{EventConsumer, Log};
use crate::store::Store;
use crate::upstream::Upstreams;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) config: Config,
    pub(crate) stepper: Stepper,
    pub(crate) toolboxes: Toolboxes,
    pub(crate) upstreams: Upstreams,
    /// For clients that clip ids.
    pub(crate) store: Option<Store>,
    /// Programs that run at the same moment.
    pub(crate) steps: Arc<Semaphore>,
    /// Turns that run at the same moment.
    pub(crate) turns: Arc<Semaphore>,
    /// Who is told what happens to requests.
    pub(crate) consumers: Arc<[Box<dyn EventConsumer>]>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("the HTTP client cannot be made: {0}")]
    Http(#[from] reqwest::Error),
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

impl Gateway {
    pub fn new(config: Config) -> Result<Gateway, StartError> {
        // More than there are cores: a program that is large should not keep small ones waiting.
        let steps = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * 2;
        Ok(Gateway {
            stepper: Stepper::new(config.warm)?,
            toolboxes: Toolboxes::default(),
            upstreams: Upstreams::new(config.upstreams.clone(), config.connect_timeout, config.idle_timeout)?,
            store: config.store.as_ref().map(Store::new),
            steps: Arc::new(Semaphore::new(steps)),
            turns: Arc::new(Semaphore::new(config.turns_max)),
            consumers: Arc::from([Box::new(Log) as Box<dyn EventConsumer>]),
            config,
        })
    }

    /// What holds for a model where a request says nothing.
    pub(crate) fn defaults(&self, model: &str) -> CodeModeDefaults {
        let code_mode = &self.config.code_mode;
        let of_model =
            code_mode.models.iter().find(|(pattern, _)| matches_pattern(pattern, model)).map(|(_, mode)| *mode);
        CodeModeDefaults {
            mode: of_model.unwrap_or(code_mode.default),
            declarations_tokens_max: code_mode.declarations_tokens_max,
            execute_input: self.upstreams.of(model).map_or(TextTools::No, |upstream| upstream.execute_input),
        }
    }
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
