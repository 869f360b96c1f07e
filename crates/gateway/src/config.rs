//! What is true of the gateway: everything that was written, checked once.

mod allowed_urls;
mod clients;
mod code_mode;
mod models;
mod print;
mod upstreams;

pub(crate) use allowed_urls::{AllowedUrl, Connectors};
pub(crate) use code_mode::CodeModeConfig;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dacapo_replay::{Effect, EffectRules, Limit, Limits, WarmPrograms};
use dacapo_scripted::ScriptedModel;
use dacapo_wire::{ErrorTexts, SealingSecrets};
use tracing::level_filters::LevelFilter;

use crate::embeddings::EmbeddingsConfig;
use crate::http::{self, AllowedOrigins, ApiClients};
use crate::memory;
use crate::model_routes::ModelRule;
use crate::observe::{RecorderLimits, RunningRequests, TraceSettings};
use crate::options::{ConfigError, Environment, ErrorTextsOptions, GatewayOptions, InspectorOptions};
use crate::step_slots::Tenancy;
use crate::store::{StoreConfig, StoreFailure};
use crate::tls::Tls;
use crate::upstream::{Upstream, UpstreamKind};

/// What is in force.
#[derive(Debug)]
pub struct Config {
    /// The address that clients connect to.
    pub listen: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// Where metrics are served, if not on the main listener.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) secrets: SealingSecrets,
    secrets_old: usize,
    /// The secret was made up at start.
    pub secret_is_random: bool,
    pub(crate) clients: ApiClients,
    pub(crate) cors_origins: AllowedOrigins,
    /// Patterns of paths that pass to an upstream although the gateway has no such route.
    pub(crate) other_routes: Vec<String>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) models: Vec<ModelRule>,
    pub(crate) code_mode: CodeModeConfig,
    pub(crate) store: Option<StoreConfig>,
    pub(crate) store_failure: StoreFailure,
    /// How long the repetition of a request gets the response of the first.
    pub(crate) turn_ttl: Duration,
    /// The file of the MCP servers whose tools clients get.
    pub mcp_servers: Option<PathBuf>,
    /// MCP servers that requests may name.
    pub(crate) mcp_allowed: Vec<AllowedUrl>,
    pub(crate) mcp_connectors: Connectors,
    pub(crate) embeddings: Option<EmbeddingsConfig>,
    pub(crate) limits: Limits,
    pub(crate) effects: Arc<EffectRules>,
    pub(crate) error_texts: ErrorTexts,
    pub(crate) warm: WarmPrograms,
    pub(crate) body_bytes_max: usize,
    pub(crate) body_values_max: usize,
    pub(crate) memory_bytes_max: Option<u64>,
    pub(crate) turns_max: usize,
    pub(crate) turns_max_per_client: usize,
    pub(crate) bodies_bytes_max: usize,
    /// How long requests are still taken after the process was asked to stop.
    pub drain: Duration,
    /// After `drain`: how long turns that run may take to finish. Then they are cut off.
    pub shutdown: Duration,
    pub(crate) step_timeout: Duration,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) turn_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Duration,
    /// The least severe lines that the log has.
    pub log: LevelFilter,
    /// Lines for people, or for machines.
    pub log_format: LogFormat,
    pub(crate) step_endpoint: StepEndpoint,
    /// Set if conversations are recorded.
    pub(crate) recorder: Option<RecorderLimits>,
    /// Set if the requests that run are shown on a terminal.
    pub(crate) running: Option<RunningRequests>,
    /// Set if the environment asks for traces.
    pub(crate) traces: Option<TraceSettings>,
    has_demo_model: bool,
    allow_unauthenticated: bool,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people, in colour on a terminal.
    Text,
    /// One JSON object per line.
    Json,
}

/// Whether clients may run programs of their own with `POST /v1/step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepEndpoint {
    Served,
    Off,
}

const BODY_BYTES_MAX: usize = 64 << 20;
const BODIES_BYTES_MAX: usize = 256 << 20;
const TURNS_MAX: usize = 1_024;
const SECRET_BYTES_MIN: usize = 16;
/// Conversations that the inspector keeps by default.
const CONVERSATIONS_MAX: usize = 100;
const RECORDED_BYTES_MAX: usize = 64 << 20;
/// What a program may return by default: the model has to read it.
const OUTPUT_BYTES: u64 = 128 << 10;

impl GatewayOptions {
    /// Checks everything at once.
    ///
    /// ```
    /// use dacapo_gateway::{Environment, GatewayOptions};
    /// let options = GatewayOptions { turns_max: Some(0), log: Some("loud".to_owned()), ..GatewayOptions::default() };
    /// let mistakes = options.resolve(&Environment::default()).unwrap_err().to_string();
    /// assert!(mistakes.contains("turns_max: must be at least 1") && mistakes.contains("log: `loud` is not a level"));
    /// ```
    pub fn resolve(mut self, environment: &Environment) -> Result<Config, ConfigError> {
        let mut errors = Vec::new();
        let listen = self.listen.as_deref().unwrap_or("127.0.0.1:8787");
        let listen: SocketAddr = listen.parse().unwrap_or_else(|_| {
            errors.push(format!("listen: `{listen}` is not an address; write it like 127.0.0.1:8787"));
            SocketAddr::from(([127, 0, 0, 1], 0))
        });
        let metrics_listen = self.metrics_listen.as_deref().and_then(|address| {
            let parsed = address.parse().ok();
            if parsed.is_none() {
                errors.push(format!("metrics_listen: `{address}` is not an address; write it like 127.0.0.1:9090"));
            }
            parsed
        });
        let tls = self.tls(&mut errors);
        let limits = self.limits(&mut errors);
        let clients = self.clients(&limits, &mut errors);
        if !listen.ip().is_loopback() && self.clients.is_empty() && self.allow_unauthenticated != Some(true) {
            errors.push(format!(
                "listen: {listen} can be reached by others, and no [[client]] is configured, so anybody could use your models; add clients (`dacapo key` makes one), or set allow_unauthenticated = true"
            ));
        }
        let secret_is_random = self.secret.is_none();
        let secret = self.secret.take().unwrap_or_else(http::random_hex);
        let secrets = std::iter::once(("secret".to_owned(), &secret))
            .chain(self.secrets_old.iter().enumerate().map(|(at, secret)| (format!("secrets_old[{at}]"), secret)));
        for (key, secret) in secrets {
            if secret.len() < SECRET_BYTES_MIN {
                errors.push(format!(
                    "{key}: must have at least {SECRET_BYTES_MIN} characters; `openssl rand -hex 32` makes one"
                ));
            }
        }
        if self.memory_bytes_max == Some(0) {
            errors.push("memory_bytes_max: must be at least 1".to_owned());
        }
        let memory_bytes_max = self.memory_bytes_max.or_else(memory::container_bytes);
        let body_bytes_max = positive("body_bytes_max", self.body_bytes_max.unwrap_or(BODY_BYTES_MAX), &mut errors);
        let turns_max = positive("turns_max", self.turns_max.unwrap_or(TURNS_MAX), &mut errors);
        let has_demo_model = self.demo_model != Some(false);
        let upstreams = self.upstreams(environment, clients.is_empty(), &mut errors);
        let config = Config {
            listen,
            tls,
            metrics_listen,
            secrets: SealingSecrets::new(&secret, self.secrets_old.iter().map(String::as_str)),
            secrets_old: self.secrets_old.len(),
            secret_is_random,
            embeddings: self.embeddings(&upstreams, &mut errors),
            models: self.model_rules(&upstreams, &mut errors),
            upstreams,
            other_routes: self.other_routes(&mut errors),
            turns_max_per_client: self.turns_max_per_client(turns_max, &clients, &mut errors),
            cors_origins: self.cors_origins(clients.is_empty(), &mut errors),
            clients,
            code_mode: self.code_mode(&mut errors),
            store: self.store(&mut errors),
            store_failure: self.store_failure(&mut errors),
            turn_ttl: seconds("store.turn_ttl_seconds", self.store.turn_ttl_seconds, 300, &mut errors),
            mcp_servers: self.mcp_servers(&mut errors),
            mcp_allowed: self.mcp_allowed(&mut errors),
            mcp_connectors: self.mcp_connectors(&mut errors),
            limits,
            effects: self.effects(&mut errors).into(),
            error_texts: self.error_texts(&mut errors),
            warm: WarmPrograms {
                count_max: self.warm.programs_max.unwrap_or(WarmPrograms::default().count_max),
                bytes_max: self.warm.bytes_max.unwrap_or(warm_bytes_max(memory_bytes_max)),
            },
            bodies_bytes_max: self.bodies_bytes_max(body_bytes_max, &mut errors),
            body_bytes_max,
            body_values_max: positive("body_values_max", self.body_values_max.unwrap_or(1_000_000), &mut errors),
            memory_bytes_max,
            turns_max,
            drain: seconds("drain_seconds", self.drain_seconds, 5, &mut errors),
            shutdown: seconds("shutdown_seconds", self.shutdown_seconds, 30, &mut errors),
            step_timeout: seconds("step_seconds_max", self.step_seconds_max, 30, &mut errors),
            header_timeout: deadline("timeouts.header_seconds", self.timeouts.header_seconds, 30, &mut errors),
            body_timeout: deadline("timeouts.body_seconds", self.timeouts.body_seconds, 60, &mut errors),
            turn_timeout: deadline("timeouts.turn_seconds", self.timeouts.turn_seconds, 1_800, &mut errors),
            connect_timeout: seconds("timeouts.connect_seconds", self.timeouts.connect_seconds, 10, &mut errors),
            idle_timeout: seconds("timeouts.idle_seconds", self.timeouts.idle_seconds, 600, &mut errors),
            keep_alive: deadline("timeouts.keep_alive_seconds", self.timeouts.keep_alive_seconds, 5, &mut errors),
            log: self.log(&mut errors),
            log_format: self.log_format(&mut errors),
            step_endpoint: match self.step.enabled {
                Some(false) => StepEndpoint::Off,
                Some(true) | None => StepEndpoint::Served,
            },
            recorder: self.recorder(listen, &mut errors),
            running: None,
            traces: TraceSettings::read(environment, &mut errors),
            has_demo_model,
            allow_unauthenticated: self.allow_unauthenticated == Some(true),
        };
        if errors.is_empty() { Ok(config) } else { Err(ConfigError(errors)) }
    }

    fn tls(&self, errors: &mut Vec<String>) -> Option<Tls> {
        let read = match (&self.tls_cert, &self.tls_key) {
            (None, None) => return None,
            (Some(cert), Some(key)) => Tls::read(cert, key),
            (Some(_), None) => Err("tls_key: is missing; tls_cert needs it".to_owned()),
            (None, Some(_)) => Err("tls_cert: is missing; tls_key needs it".to_owned()),
        };
        read.map_err(|mistake| errors.push(mistake)).ok()
    }

    fn other_routes(&mut self, errors: &mut Vec<String>) -> Vec<String> {
        let Some(patterns) = self.other_routes.take() else { return vec!["/v1/*".to_owned()] };
        for pattern in patterns.iter().filter(|pattern| !pattern.starts_with("/v1/")) {
            errors.push(format!("other_routes: `{pattern}` is not below /v1/; write it like /v1/audio/*"));
        }
        patterns
    }

    fn cors_origins(&self, lets_everybody_in: bool, errors: &mut Vec<String>) -> AllowedOrigins {
        let origins = AllowedOrigins::new(&self.cors_origins).unwrap_or_else(|wrong| {
            errors.push(format!("cors_origins: `{wrong}` is not an origin; write it like https://app.example.com"));
            AllowedOrigins::default()
        });
        if origins.has_any() && lets_everybody_in {
            errors.push(
                "cors_origins: with `*` and no [[client]] every web page could use your models; name the origins, or \
                 add clients (`dacapo key` makes one)"
                    .to_owned(),
            );
        }
        origins
    }

    /// Recording shows what clients say, so it is for one's own machine.
    fn recorder(&self, listen: SocketAddr, errors: &mut Vec<String>) -> Option<RecorderLimits> {
        let InspectorOptions { enabled, conversations_max, bytes_max, force } = &self.inspector;
        let conversations_max = conversations_max.unwrap_or(CONVERSATIONS_MAX);
        let limits = RecorderLimits {
            conversations_max: positive("inspector.conversations_max", conversations_max, errors),
            bytes_max: positive("inspector.bytes_max", bytes_max.unwrap_or(RECORDED_BYTES_MAX), errors),
            is_forced: *force == Some(true),
        };
        if *enabled != Some(true) {
            return None;
        }
        if !limits.is_forced && !self.clients.is_empty() {
            errors.push(
                "inspector.enabled: clients are configured, and their conversations would be recorded; set \
                 inspector.force = true if they know"
                    .to_owned(),
            );
        } else if !limits.is_forced && !listen.ip().is_loopback() {
            errors.push(format!(
                "inspector.enabled: {listen} can be reached by others; set inspector.force = true if that is meant"
            ));
        }
        Some(limits)
    }

    /// With several clients, one may have half of the turns.
    fn turns_max_per_client(&self, turns_max: usize, clients: &ApiClients, errors: &mut Vec<String>) -> usize {
        let default = if clients.list().count() > 1 { turns_max.div_ceil(2) } else { turns_max };
        let value = self.turns_max_per_client.unwrap_or(default);
        if value > turns_max {
            errors.push(format!("turns_max_per_client: must be at most turns_max, which is {turns_max}"));
        }
        positive("turns_max_per_client", value, errors)
    }

    fn bodies_bytes_max(&self, body_bytes_max: usize, errors: &mut Vec<String>) -> usize {
        let value = self.bodies_bytes_max.unwrap_or(BODIES_BYTES_MAX.max(body_bytes_max));
        if value < body_bytes_max {
            errors.push(format!("bodies_bytes_max: must be at least body_bytes_max, which is {body_bytes_max}"));
        }
        value
    }

    fn log(&self, errors: &mut Vec<String>) -> LevelFilter {
        let Some(text) = &self.log else { return LevelFilter::INFO };
        text.parse().unwrap_or_else(|_| {
            errors.push(format!("log: `{text}` is not a level; use off, error, warn, info, debug or trace"));
            LevelFilter::INFO
        })
    }

    fn log_format(&self, errors: &mut Vec<String>) -> LogFormat {
        match self.log_format.as_deref() {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => {
                errors.push(format!("log_format: `{other}` is not known; use text or json"));
                LogFormat::Text
            }
        }
    }

    pub(crate) fn store(&self, errors: &mut Vec<String>) -> Option<StoreConfig> {
        let ttl = self.store.ttl_seconds.map_or(StoreConfig::TTL, |seconds| Duration::from_secs(seconds.max(1)));
        match (self.store.kind.as_deref().unwrap_or("off"), &self.store.url) {
            ("off", _) => None,
            ("memory", _) => {
                Some(StoreConfig::Memory { bytes_max: self.store.bytes_max.unwrap_or(StoreConfig::BYTES_MAX), ttl })
            }
            ("file", _) => {
                let path = self.store.path.as_ref().map(PathBuf::from);
                if path.is_none() {
                    errors.push("store.path: is missing; write it like /var/lib/dacapo/store.redb".to_owned());
                }
                path.map(|path| StoreConfig::File { path, ttl })
            }
            ("redis", Some(url)) => {
                let client = redis::Client::open(url.as_str()).ok();
                if client.is_none() {
                    errors.push("store.url: is not an address; write it like redis://127.0.0.1:6379/0".to_owned());
                }
                client.map(|client| StoreConfig::Redis { client, ttl })
            }
            ("redis", None) => {
                errors.push("store.url: is missing; write it like redis://127.0.0.1:6379/0".to_owned());
                None
            }
            (kind, _) => {
                errors.push(format!("store.kind: `{kind}` is not known; use off, memory, file or redis"));
                None
            }
        }
    }

    fn store_failure(&self, errors: &mut Vec<String>) -> StoreFailure {
        let written = self.store.on_failure.as_deref();
        written.map_or(Some(StoreFailure::default()), StoreFailure::parse).unwrap_or_else(|| {
            let written = written.unwrap_or_default();
            errors.push(format!("store.on_failure: `{written}` is not known; use refuse or continue"));
            StoreFailure::default()
        })
    }

    fn mcp_allowed(&self, errors: &mut Vec<String>) -> Vec<AllowedUrl> {
        let mut allowed = Vec::new();
        for (at, written) in self.mcp.allow_urls.iter().enumerate() {
            match AllowedUrl::parse(written) {
                Ok(url) => allowed.push(url),
                Err(reason) => {
                    errors.push(format!("mcp.allow_urls[{at}]: {reason}; write it like https://mcp.example.com/*"));
                }
            }
        }
        allowed
    }

    fn mcp_connectors(&self, errors: &mut Vec<String>) -> Connectors {
        let written = self.mcp.connectors.as_deref();
        written.map_or(Some(Connectors::default()), Connectors::parse).unwrap_or_else(|| {
            let written = written.unwrap_or_default();
            errors.push(format!("mcp.connectors: `{written}` is not known; use provider or gateway"));
            Connectors::default()
        })
    }

    fn mcp_servers(&self, errors: &mut Vec<String>) -> Option<PathBuf> {
        let file = self.mcp.servers.as_ref().map(PathBuf::from);
        if let Some(missing) = file.as_ref().filter(|file| !file.is_file()) {
            errors.push(format!("mcp.servers: there is no file {}", missing.display()));
        }
        for (at, client) in self.clients.iter().enumerate() {
            if file.is_none() && client.servers.is_some() {
                errors.push(format!("client[{at}].servers: there are none; name their file in mcp.servers"));
            }
        }
        file
    }

    fn effects(&mut self, errors: &mut Vec<String>) -> EffectRules {
        let mut rules = Vec::new();
        for (pattern, name) in std::mem::take(&mut self.tools.effects) {
            match Effect::parse(&name) {
                Some(effect) => rules.push((pattern, effect)),
                None => errors.push(format!(
                    "tools.effects.\"{pattern}\": `{name}` is not an effect; use read, idempotent or write"
                )),
            }
        }
        EffectRules::new(rules)
    }

    pub(crate) fn error_texts(&self, errors: &mut Vec<String>) -> ErrorTexts {
        let mut rules = ErrorTexts::default();
        let by_tool: Vec<(&str, &Vec<String>)> = match &self.tools.errors {
            ErrorTextsOptions::AllTools(expressions) => vec![("*", expressions)],
            ErrorTextsOptions::ByTool(by_tool) => by_tool.iter().map(|(tools, list)| (tools.as_str(), list)).collect(),
        };
        for (tools, expressions) in by_tool {
            for expression in expressions {
                if let Err(reason) = rules.add(tools, expression) {
                    errors.push(format!("tools.errors, for `{tools}`: {reason}"));
                }
            }
        }
        rules
    }

    pub(crate) fn limits(&self, errors: &mut Vec<String>) -> Limits {
        let mut limits = Limits::default();
        limits.set(Limit::OutputBytes, OUTPUT_BYTES).expect("it is within its range");
        set_limits(&mut limits, &self.limits, "limits", errors);
        limits
    }
}

impl Config {
    /// Whether connections of clients are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether several clients share the gateway.
    pub(crate) fn tenancy(&self) -> Tenancy {
        if self.clients.list().count() > 1 { Tenancy::Several } else { Tenancy::Single }
    }

    /// Takes over from a running gateway what holds as long as its process runs, and names the settings that would have
    /// been others.
    pub(crate) fn keep_of_process(&mut self, running: &Config) -> Vec<&'static str> {
        if self.secret_is_random && running.secret_is_random {
            self.secrets = running.secrets.clone();
        }
        let same_store = format!("{:?}", self.store) == format!("{:?}", running.store);
        let differ = [
            ("listen", self.listen != running.listen),
            ("tls_cert", self.tls.is_some() != running.tls.is_some()),
            ("metrics_listen", self.metrics_listen != running.metrics_listen),
            ("memory_bytes_max", self.memory_bytes_max != running.memory_bytes_max),
            ("turns_max", self.turns_max != running.turns_max),
            ("bodies_bytes_max", self.bodies_bytes_max != running.bodies_bytes_max),
            ("drain_seconds", self.drain != running.drain),
            ("shutdown_seconds", self.shutdown != running.shutdown),
            ("log", self.log != running.log),
            ("log_format", self.log_format != running.log_format),
            ("warm", self.warm != running.warm),
            ("timeouts.header_seconds", self.header_timeout != running.header_timeout),
            ("store", !same_store),
            ("inspector", self.recorder != running.recorder),
            ("mcp.servers", self.mcp_servers != running.mcp_servers),
        ];
        (self.listen, self.metrics_listen) = (running.listen, running.metrics_listen);
        if self.tls.is_some() != running.tls.is_some() {
            self.tls.clone_from(&running.tls);
        }
        (self.memory_bytes_max, self.turns_max) = (running.memory_bytes_max, running.turns_max);
        (self.bodies_bytes_max, self.warm) = (running.bodies_bytes_max, running.warm);
        (self.drain, self.shutdown, self.header_timeout) = (running.drain, running.shutdown, running.header_timeout);
        (self.log, self.log_format) = (running.log, running.log_format);
        self.store.clone_from(&running.store);
        self.recorder = running.recorder;
        self.mcp_servers.clone_from(&running.mcp_servers);
        differ.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// What would be open to others although nobody said so: the file was checked with the settings that it has, not with
    /// those that hold.
    pub(crate) fn exposes(&self) -> Option<&'static str> {
        let is_reachable = !self.listen.ip().is_loopback();
        if is_reachable && self.clients.is_empty() && !self.allow_unauthenticated {
            return Some("others can reach this gateway, and the new file has no [[client]]");
        }
        let is_recording = self.recorder.is_some_and(|recorder| !recorder.is_forced);
        if is_recording && !self.clients.is_empty() {
            return Some("conversations are being recorded, and the new file has clients; restart without --inspect");
        }
        None
    }

    /// What is wrong with the servers that clients may use, of those that there are.
    pub fn check_servers(&self, names: &[&str]) -> Result<(), ConfigError> {
        let mut errors = Vec::new();
        for (at, client) in self.clients.list().enumerate() {
            for unknown in client.servers.iter().flatten().filter(|server| !names.contains(&server.as_str())) {
                errors.push(format!(
                    "client[{at}].servers: there is no server `{unknown}`; there are {}",
                    names.join(", ")
                ));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(ConfigError(errors)) }
    }

    /// The servers that a client may use; `None` for all.
    pub(crate) fn servers_of(&self, client: &str) -> Option<&[String]> {
        self.clients.list().find(|known| known.name == client)?.servers.as_deref()
    }

    /// Keeps a list of the requests that run.
    #[must_use]
    pub fn with_running_requests(self, running: RunningRequests) -> Config {
        Config { running: Some(running), ..self }
    }

    /// Plays all models from a script, whatever else is configured.
    #[must_use]
    pub fn with_script(self, script: ScriptedModel) -> Config {
        let upstreams = vec![Upstream::new("script", "*", UpstreamKind::Scripted(script))];
        Config { upstreams, models: Vec::new(), ..self }
    }
}

fn seconds(key: &str, value: Option<u64>, default: u64, errors: &mut Vec<String>) -> Duration {
    const SECONDS_MAX: u64 = 86_400;
    let value = value.unwrap_or(default);
    if value > SECONDS_MAX {
        errors.push(format!("{key}: must be at most {SECONDS_MAX}"));
    }
    Duration::from_secs(value.min(SECONDS_MAX))
}

/// A time limit that cannot be switched off.
fn deadline(key: &str, value: Option<u64>, default: u64, errors: &mut Vec<String>) -> Duration {
    if value == Some(0) {
        errors.push(format!("{key}: must be at least 1"));
    }
    seconds(key, value, default, errors)
}

/// Paused programs are a cache, so they take at most half of the memory.
fn warm_bytes_max(memory_bytes_max: Option<u64>) -> usize {
    let half = memory_bytes_max.map_or(u64::MAX, |bytes| bytes / 2);
    WarmPrograms::default().bytes_max.min(usize::try_from(half).unwrap_or(usize::MAX))
}

fn positive(key: &str, value: usize, errors: &mut Vec<String>) -> usize {
    if value == 0 {
        errors.push(format!("{key}: must be at least 1"));
    }
    value
}

/// Lays limits over others; `key` is the table that they stand in.
fn set_limits(limits: &mut Limits, written: &BTreeMap<String, u64>, key: &str, errors: &mut Vec<String>) {
    for (name, value) in written {
        let Some(limit) = Limit::ALL.into_iter().find(|limit| limit.name() == name) else {
            let known: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
            errors.push(format!("{key}.{name}: no limit has this name; there are {}", known.join(", ")));
            continue;
        };
        if let Err(range) = limits.set(limit, *value) {
            errors.push(format!("{key}.{name}: must be from {} to {}", range.start(), range.end()));
        }
    }
}
