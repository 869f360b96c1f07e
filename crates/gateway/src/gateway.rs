//! What all requests share. Nothing in it is needed by a later request.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use dacapo_replay::{EndedProgram, Limits, SandboxError, ShouldContinue, Stepper, Toolboxes, matches_pattern};
use dacapo_runner::{Policy, ServerConnector, ToolServers};
use dacapo_wire::{CallerRules, CodeModeDefaults, TextTools, ToolLists, ToolMedia};

use crate::config::Config;
use crate::embeddings::Embeddings;
use crate::http::TurnError;
use crate::memory::{MemoryBudget, MemoryVerdict};
use crate::model_routes::Route;
use crate::observe::{EventConsumer, Log, Metrics, MetricsEvents, Recorder, RecorderEvents, TraceExporter, Traces};
use crate::quota::SharedQuota;
use crate::rate_limit::RateCounters;
use crate::request_servers::RequestServers;
use crate::slow_programs::SlowPrograms;
use crate::step_slots::{StepSlot, StepSlots, Tenancy};
use crate::store::{FileStoreError, Store, StoreConfig};
use crate::tool_servers::DeployedServers;
use crate::upstream::Upstreams;

/// Programs that take less time are run by the thread that serves their request: to hand them to another one and to wait
/// for it takes about as long as most of them do. The thread serves nobody else meanwhile, so this must be short.
const AT_ONCE_MAX: Duration = Duration::from_millis(2);

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// What was configured, but for what has moved into the fields below: upstreams, rules for models, embeddings, traces.
    pub(crate) config: Config,
    /// Shared with gateways of later configurations.
    pub(crate) process: Arc<ProcessState>,
    pub(crate) toolboxes: Arc<Toolboxes>,
    pub(crate) upstreams: Upstreams,
    /// A second opinion for searches, if one is configured.
    pub(crate) embeddings: Option<Embeddings>,
    /// For clients that clip ids.
    pub(crate) store: Option<Arc<Store>>,
    /// For answers to calls that are executed here: the same store, or one in memory.
    pub(crate) answer_store: Option<Arc<Store>>,
    /// MCP servers of the deployment.
    pub(crate) servers: Option<Arc<DeployedServers>>,
    /// MCP servers that requests name.
    pub(crate) request_servers: Option<Arc<RequestServers>>,
    pub(crate) quotas: Arc<ClientQuotas>,
}

/// What stays as long as the process runs, whatever configuration is read meanwhile.
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) stepper: Stepper,
    slow_programs: SlowPrograms,
    pub(crate) tool_lists: Arc<ToolLists>,
    /// Turns that run at the same moment.
    pub(crate) turns: Arc<SharedQuota>,
    pub(crate) memory: MemoryBudget,
    /// Requests per minute.
    pub(crate) rates: RateCounters,
    pub(crate) metrics: Arc<Metrics>,
    /// Set if conversations are recorded for the inspector page.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Set if requests are traced.
    pub(crate) traces: Option<Arc<TraceExporter>>,
    /// The consumers of events.
    pub(crate) consumers: Arc<[Box<dyn EventConsumer>]>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Programs cannot be run on this machine.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Upstreams cannot be asked.
    #[error("the HTTP client cannot be made")]
    Http(#[from] reqwest::Error),
    /// Nothing that is https could be asked.
    #[error(
        "the upstream `{upstream}` has an https address, but no CA certificates were found on this machine; install \
         ca-certificates, or set SSL_CERT_FILE to a file that holds them"
    )]
    NoCaCertificates {
        /// The first configured upstream that needs them.
        upstream: String,
        /// What the HTTP client says.
        source: reqwest::Error,
    },
    /// A metric is invalid, or has the name of another one.
    #[error("the metrics cannot be made")]
    Metrics(#[from] prometheus::Error),
    /// The directory of a file store cannot be used.
    #[error(transparent)]
    Store(#[from] FileStoreError),
    /// The address is taken, or not one of this machine.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
    /// A new configuration that would be unsafe beside what stays as it was started.
    #[error("{0}")]
    Unsafe(&'static str),
}

impl Gateway {
    /// Prepares what the configuration names: the store, memory for programs, consumers of events. It does not listen yet.
    pub fn new(mut config: Config) -> Result<Gateway, StartError> {
        let stepper = Stepper::new(config.warm)?.with_disposal(drop_later);
        if let Some(shortage) = stepper.shortage() {
            tracing::warn!("{shortage}");
        }
        let recorder = config.recorder.map(Recorder::new);
        let metrics = Arc::new(Metrics::new()?);
        let mut consumers: Vec<Box<dyn EventConsumer>> =
            vec![Box::new(Log), Box::new(MetricsEvents(Arc::clone(&metrics)))];
        if let Some(recorder) = &recorder {
            consumers.push(Box::new(RecorderEvents(Arc::clone(recorder))));
        }
        let traces = config.traces.take().map(TraceExporter::new).transpose()?.map(Arc::new);
        if let Some(running) = config.running.take() {
            // Before the log: a request whose line is written runs no more.
            consumers.insert(0, Box::new(running));
        }
        if let Some(exporter) = &traces {
            consumers.push(Box::new(Traces(Arc::clone(exporter))));
        }
        let (upstreams, embeddings) = upstreams(&mut config, None)?;
        let new_store = |store: &StoreConfig| Store::new(store, config.secrets.clone(), Arc::clone(&metrics));
        let store = config.store.as_ref().map(new_store).transpose()?.map(Arc::new);
        let process = ProcessState {
            stepper,
            slow_programs: SlowPrograms::default(),
            tool_lists: Arc::default(),
            turns: SharedQuota::new(config.turns_max, config.turns_max_per_client),
            memory: MemoryBudget::new(config.memory_bytes_max),
            rates: RateCounters::shared(config.store.as_ref().and_then(StoreConfig::redis)),
            consumers: consumers.into(),
            metrics,
            recorder,
            traces,
        };
        Ok(Gateway {
            process: Arc::new(process),
            toolboxes: toolboxes(&config),
            upstreams,
            embeddings,
            store,
            answer_store: None,
            servers: None,
            request_servers: None,
            quotas: Arc::new(ClientQuotas::new(&config)),
            config,
        })
    }

    /// A gateway with another configuration, which shares with this one what holds for the whole process: programs in
    /// memory, connections, counters, the store. Settings of these stay as they are; those that would differ are named.
    pub(crate) fn with_config(&self, mut config: Config) -> Result<(Gateway, Vec<&'static str>), StartError> {
        let unchanged = config.keep_of_process(&self.config);
        if let Some(reason) = config.exposes() {
            return Err(StartError::Unsafe(reason));
        }
        let (upstreams, embeddings) = upstreams(&mut config, Some(&self.upstreams))?;
        let is_same_tenancy = config.tenancy() == self.config.tenancy();
        let has_same_effects = config.effects == self.config.effects;
        let with_secrets = |store: &Option<Arc<Store>>| {
            store.as_ref().map(|store| Arc::new(store.with_secrets(config.secrets.clone())))
        };
        let gateway = Gateway {
            process: Arc::clone(&self.process),
            toolboxes: if has_same_effects { Arc::clone(&self.toolboxes) } else { toolboxes(&config) },
            upstreams,
            embeddings,
            store: with_secrets(&self.store),
            answer_store: with_secrets(&self.answer_store),
            servers: self.servers.clone(),
            request_servers: self.request_servers.clone(),
            quotas: if is_same_tenancy { Arc::clone(&self.quotas) } else { Arc::new(ClientQuotas::new(&config)) },
            config,
        };
        Ok((gateway, unchanged))
    }

    /// Offers the tools of these servers to clients, beside their own. The gateway executes their calls, as far as the
    /// policy allows them.
    #[must_use]
    pub fn with_servers(mut self, servers: Arc<dyn ToolServers>, policy: Policy) -> Gateway {
        self.keep_answers();
        self.servers = Some(Arc::new(DeployedServers::new(servers, policy)));
        self
    }

    /// Connects to MCP servers that requests name, as far as `[mcp] allow_urls` allows it.
    #[must_use]
    pub fn with_connector(mut self, connector: Arc<dyn ServerConnector>) -> Gateway {
        if !self.config.mcp_allowed.is_empty() {
            self.keep_answers();
            self.request_servers = Some(Arc::new(RequestServers::new(connector)));
        }
        self
    }

    /// Answers of calls that the gateway executes are kept in the store, or in memory if there is none.
    fn keep_answers(&mut self) {
        if self.answer_store.is_some() {
            return;
        }
        let in_memory = || {
            tracing::warn!(
                "answers of MCP tools are kept in memory, for this process alone: several replicas, or a restart in the \
                 middle of a program, need a [store]"
            );
            let memory = StoreConfig::memory();
            let store = Store::new(&memory, self.config.secrets.clone(), Arc::clone(&self.process.metrics));
            store.map(Arc::new).ok()
        };
        self.answer_store = self.store.clone().or_else(in_memory);
    }

    /// A token that lets one browser see recorded conversations: the inspector page takes it as `/#token=…`.
    pub fn inspector_token(&self) -> Option<String> {
        self.process.recorder.as_ref()?.token()
    }

    /// Runs programs of a client, when it is the client's turn: on this thread if they take little time, else from the
    /// start on one that may block. `work` must not block. `code` is the source of the program that starts or continues.
    pub(crate) async fn run_short_programs<I: Send + 'static, T: Send + 'static>(
        self: &Arc<Self>,
        client: &Arc<str>,
        code: Option<&str>,
        input: I,
        work: impl Fn(&Gateway, ShouldContinue<'_>, &I) -> T + Send + 'static,
    ) -> Result<(I, T), TurnError> {
        let slot = self.quotas.steps.acquire(client).await;
        let slow_programs = &self.process.slow_programs;
        if !code.is_some_and(|code| slow_programs.has(client, code)) {
            if let Some(done) = self.run_at_once(|should_continue| work(self, should_continue, &input))? {
                return Ok((input, done));
            }
            code.inspect(|code| slow_programs.add(client, code));
        }
        let work = move |gateway: &Gateway, should_continue: ShouldContinue<'_>| {
            let done = work(gateway, should_continue, &input);
            (input, done)
        };
        self.run_in_slot(slot, work).await
    }

    /// `None` if it took too long, and was interrupted.
    fn run_at_once<T>(&self, work: impl FnOnce(ShouldContinue<'_>) -> T) -> Result<Option<T>, TurnError> {
        let deadline = Instant::now() + AT_ONCE_MAX.min(self.config.step_timeout);
        let is_over = Cell::new(false);
        let should_continue = || {
            is_over.set(is_over.get() || Instant::now() >= deadline);
            !is_over.get()
        };
        match panic::catch_unwind(AssertUnwindSafe(|| work(&should_continue))) {
            Ok(done) => Ok((!is_over.get()).then_some(done)),
            // The panic itself was written to the log.
            Err(_) => Err(TurnError::Internal("a program could not be run: it panicked".to_owned())),
        }
    }

    /// Runs programs of a client on a thread that may block, when it is the client's turn.
    pub(crate) async fn run_programs<T: Send + 'static>(
        self: &Arc<Self>,
        client: &Arc<str>,
        work: impl FnOnce(&Gateway, ShouldContinue<'_>) -> T + Send + 'static,
    ) -> Result<T, TurnError> {
        let slot = self.quotas.steps.acquire(client).await;
        self.run_in_slot(slot, work).await
    }

    /// They are interrupted when they take too long, and when the future is dropped, because the client has disconnected.
    async fn run_in_slot<T: Send + 'static>(
        self: &Arc<Self>,
        slot: StepSlot,
        work: impl FnOnce(&Gateway, ShouldContinue<'_>) -> T + Send + 'static,
    ) -> Result<T, TurnError> {
        let gateway = Arc::clone(self);
        let cancel = CancelOnDrop::default();
        let is_cancelled = Arc::clone(&cancel.0);
        let work = tokio::task::spawn_blocking(move || {
            let deadline = Instant::now() + gateway.config.step_timeout;
            let done = work(&gateway, &|| !is_cancelled.load(Ordering::Relaxed) && Instant::now() < deadline);
            drop(slot);
            done
        });
        work.await.map_err(|error| TurnError::Internal(format!("a program could not be run: {error}")))
    }

    /// Takes their memory from paused programs whose answers do not come, as long as it runs. They are replayed or brought
    /// back if the answers come later.
    pub(crate) async fn release_unused_programs(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(UNUSED_PROGRAMS_EVERY).await;
            let gateway = Arc::clone(self);
            // It has no result, and if it panics the next one is as good.
            tokio::task::spawn_blocking(move || gateway.process.stepper.release_unused()).await.unwrap_or_default();
        }
    }

    /// Refuses a request if the process has no memory for it. What is only kept to save time is given up then.
    pub(crate) fn check_memory(&self) -> Result<(), TurnError> {
        match self.process.memory.check(Instant::now()) {
            MemoryVerdict::Enough => Ok(()),
            MemoryVerdict::LetIn => {
                self.process.stepper.release_memory();
                self.config.secrets.release_memory();
                Ok(())
            }
            MemoryVerdict::Short { resident_bytes, bytes_max } => Err(TurnError::Refused {
                status: StatusCode::SERVICE_UNAVAILABLE,
                kind: "server_error",
                message: format!(
                    "{resident_bytes} of {bytes_max} bytes of memory are in use (memory_bytes_max of the gateway); try \
                     again in a second"
                ),
                retry_after_s: Some(1),
            }),
        }
    }

    /// Whether requests may have tools of MCP servers.
    pub(crate) fn has_servers(&self) -> bool {
        self.servers.is_some() || self.request_servers.is_some()
    }

    /// Who calls the tools of a client that does not say it.
    pub(crate) fn caller_rules(&self, model: &str) -> CallerRules<'_> {
        let code_mode = &self.config.code_mode;
        let of_model = code_mode.model_callers.iter().find(|(pattern, _)| matches_pattern(pattern, model));
        CallerRules {
            callers: of_model.map_or(code_mode.callers, |(_, callers)| *callers),
            direct_tools: &code_mode.direct_tools,
        }
    }

    /// How much text of a model's stream is held back until it is known that no program follows.
    pub(crate) fn hold_text_chars(&self, route: &Route) -> usize {
        route.upstream().hold_text_chars.unwrap_or(self.config.code_mode.hold_text_chars)
    }

    /// Whether a model takes images and files of tools.
    pub(crate) fn tool_media(&self, model: &str) -> ToolMedia {
        let mut text_models = self.config.code_mode.text_models.iter();
        if text_models.any(|pattern| matches_pattern(pattern, model)) { ToolMedia::Refused } else { ToolMedia::Taken }
    }

    /// The limits of a client's programs.
    pub(crate) fn limits(&self, client: &str) -> &Limits {
        self.config.clients.rules(client).limits.as_ref().unwrap_or(&self.config.limits)
    }

    /// What holds for a model where a request says nothing. It depends on the name that the client asks for, not on who
    /// answers, so that a conversation stays the same when another upstream takes over.
    pub(crate) fn defaults(&self, client: &str, model: &str) -> CodeModeDefaults {
        let code_mode = &self.config.code_mode;
        let of_client = self.config.clients.rules(client).mode;
        let of_model =
            code_mode.models.iter().find(|(pattern, _)| matches_pattern(pattern, model)).map(|(_, mode)| *mode);
        CodeModeDefaults {
            mode: of_client.or(of_model).unwrap_or(code_mode.default),
            declarations_tokens_max: code_mode.declarations_tokens_max,
            execute_input: TextTools::No,
        }
    }
}

/// What is shared out differently among one and several clients.
#[derive(Debug)]
pub(crate) struct ClientQuotas {
    /// Programs that run at the same moment.
    pub(crate) steps: Arc<StepSlots>,
    /// Bodies that are being read at the same moment.
    pub(crate) bodies: Arc<SharedQuota>,
    /// What has arrived of them.
    pub(crate) body_bytes: Arc<SharedQuota>,
}

impl ClientQuotas {
    fn new(config: &Config) -> ClientQuotas {
        // More than there are cores: a program that is large should not keep small ones waiting.
        let steps = std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * 2;
        let tenancy = config.tenancy();
        let body_bytes_per_client_max = match tenancy {
            Tenancy::Single => config.bodies_bytes_max,
            Tenancy::Several => (config.bodies_bytes_max / 2).max(config.body_bytes_max),
        };
        ClientQuotas {
            steps: StepSlots::new(steps, tenancy),
            bodies: SharedQuota::new(config.turns_max * BODIES_PER_TURN, config.turns_max_per_client * BODIES_PER_TURN),
            body_bytes: SharedQuota::new(config.bodies_bytes_max, body_bytes_per_client_max),
        }
    }
}

/// Moves what is configured about upstreams out of the configuration.
fn upstreams(config: &mut Config, before: Option<&Upstreams>) -> Result<(Upstreams, Option<Embeddings>), StartError> {
    let timeouts = (config.connect_timeout, config.idle_timeout);
    let (list, rules) = (std::mem::take(&mut config.upstreams), std::mem::take(&mut config.models));
    let upstreams = Upstreams::new(list, rules, timeouts, before)?;
    let embeddings = config.embeddings.take().map(|config| Embeddings::new(config, upstreams.client().clone()));
    Ok((upstreams, embeddings))
}

/// Drops a program while the request that it was of goes on.
fn drop_later(program: EndedProgram) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { drop(program) });
    }
}

fn toolboxes(config: &Config) -> Arc<Toolboxes> {
    Arc::new(Toolboxes::default().with_effects(Arc::clone(&config.effects)))
}

/// A paused program stays in memory for once to twice this time after its last step.
const UNUSED_PROGRAMS_EVERY: Duration = Duration::from_mins(5);

/// Bodies that may be on their way for each turn that may run. Most wait for a slow network, and take little room.
const BODIES_PER_TURN: usize = 8;

/// Cancels programs when it is dropped: their request was cancelled.
#[derive(Default)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
