//! What is true of the gateway: everything that was written, checked once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use dacapo_replay::{Effect, EffectRules, Limit, Limits, WarmPrograms};
use dacapo_scripted::ScriptedModel;
use dacapo_wire::{CodeMode, DefaultCallers, ErrorTexts, ProviderSide, SealingSecrets, TextTools, Wire};
use tracing::level_filters::LevelFilter;

use crate::embeddings::EmbeddingsConfig;
use crate::http::{self, AllowedOrigins, ApiClient, ApiClients};
use crate::memory;
use crate::observe::{RecorderLimits, RunningRequests, TraceSettings};
use crate::options::{
    ClientOptions, CodeModeOptions, ConfigError, EmbeddingsOptions, Environment, ErrorTextsOptions, GatewayOptions,
    InspectorOptions, McpOptions, SearchOptions, StepOptions, StoreOptions, TimeoutOptions, ToolsOptions,
    UpstreamOptions, WarmOptions,
};
use crate::store::StoreConfig;
use crate::upstream::{Secret, Upstream, UpstreamKind, UpstreamSource};

/// What is in force.
#[derive(Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// Where metrics are served, if not on the main listener.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) secrets: SealingSecrets,
    secrets_old: usize,
    /// The secret was made up at start.
    pub secret_is_random: bool,
    pub(crate) clients: ApiClients,
    pub(crate) cors_origins: AllowedOrigins,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) code_mode: CodeModeConfig,
    pub(crate) store: Option<StoreConfig>,
    /// How long the repetition of a request gets the response of the first.
    pub(crate) turn_ttl: Duration,
    /// The file of the MCP servers whose tools clients get.
    pub mcp_servers: Option<PathBuf>,
    pub(crate) embeddings: Option<EmbeddingsConfig>,
    pub(crate) limits: Limits,
    pub(crate) effects: EffectRules,
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
    pub shutdown: Duration,
    pub(crate) step_timeout: Duration,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) turn_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) keep_alive: Duration,
    pub log: LevelFilter,
    pub log_format: LogFormat,
    pub(crate) step_endpoint: StepEndpoint,
    /// Set if conversations are recorded.
    pub(crate) recorder: Option<RecorderLimits>,
    /// Set if somebody shows the requests that run.
    pub(crate) running: Option<RunningRequests>,
    /// Set if the environment asks for traces.
    pub(crate) traces: Option<TraceSettings>,
    has_demo_model: bool,
    allow_unauthenticated: bool,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
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

#[derive(Debug)]
pub(crate) struct CodeModeConfig {
    pub default: CodeMode,
    pub models: Vec<(String, CodeMode)>,
    pub declarations_tokens_max: usize,
    pub hold_text_chars: usize,
    pub attempts_max: u32,
    pub model_calls_max: u64,
    /// Who calls tools whose callers a client does not name; by model first.
    pub(crate) callers: DefaultCallers,
    pub(crate) model_callers: Vec<(String, DefaultCallers)>,
    pub(crate) direct_tools: Vec<String>,
    pub(crate) text_models: Vec<String>,
}

const BODY_BYTES_MAX: usize = 64 << 20;
const BODIES_BYTES_MAX: usize = 256 << 20;
const TURNS_MAX: usize = 1_024;
const SECRET_BYTES_MIN: usize = 16;
const HIDDEN: &str = "(hidden)";
/// Conversations that the inspector keeps by default.
const CONVERSATIONS_MAX: usize = 100;
const RECORDED_BYTES_MAX: usize = 64 << 20;
/// What a program may return by default: the model has to read it.
const OUTPUT_BYTES: u64 = 128 << 10;

impl GatewayOptions {
    /// Checks everything at once.
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
        let clients = self.clients(&mut errors);
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
            metrics_listen,
            secrets: SealingSecrets::new(&secret, self.secrets_old.iter().map(String::as_str)),
            secrets_old: self.secrets_old.len(),
            secret_is_random,
            embeddings: self.embeddings(&upstreams, &mut errors),
            upstreams,
            turns_max_per_client: self.turns_max_per_client(turns_max, &clients, &mut errors),
            cors_origins: self.cors_origins(clients.is_empty(), &mut errors),
            clients,
            code_mode: self.code_mode(&mut errors),
            store: self.store(&mut errors),
            turn_ttl: seconds("store.turn_ttl_seconds", self.store.turn_ttl_seconds, 300, &mut errors),
            mcp_servers: self.mcp_servers(&mut errors),
            limits: self.limits(&mut errors),
            effects: self.effects(&mut errors),
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

    fn clients(&self, errors: &mut Vec<String>) -> ApiClients {
        let mut clients: Vec<ApiClient> = Vec::new();
        for (at, client) in self.clients.iter().enumerate() {
            if client.name.is_empty() {
                errors.push(format!("client[{at}].name: is missing"));
            }
            if clients.iter().any(|known| known.name == client.name) {
                errors.push(format!(
                    "client[{at}].name: `{}` is there twice; a client with several keys has a list in key_sha256",
                    client.name
                ));
            }
            if client.key_sha256.is_empty() {
                errors.push(format!("client[{at}].key_sha256: is missing; `dacapo key` prints it"));
            }
            match ApiClient::new(&client.name, &client.key_sha256, client.requests_per_minute) {
                Some(mut known) => {
                    known.servers.clone_from(&client.servers);
                    let client = known;
                    for known in clients.iter().filter(|known| known.shares_a_key(&client)) {
                        errors.push(format!(
                            "client[{at}].key_sha256: `{}` has the same key, so it is not known whose requests they are",
                            known.name
                        ));
                    }
                    clients.push(client);
                }
                None => errors.push(format!(
                    "client[{at}].key_sha256: must be the SHA-256 of the key in 64 hex digits; `dacapo key` prints it"
                )),
            }
        }
        ApiClients::new(clients)
    }

    fn upstreams(
        &mut self,
        environment: &Environment,
        pass_client_key: bool,
        errors: &mut Vec<String>,
    ) -> Vec<Upstream> {
        let mut upstreams = Vec::new();
        let has_demo = self.upstreams.iter().any(|upstream| upstream.models.iter().any(|model| model == "demo"));
        let is_default = self.upstreams.is_empty();
        for (at, options) in std::mem::take(&mut self.upstreams).into_iter().enumerate() {
            let kind = match (&options.base_url, &options.script) {
                (Some(url), None) => http(url, &format!("upstream[{at}].base_url"), errors).map(|base_url| {
                    let name = options.api_key_env.as_ref();
                    let key = name.and_then(|name| key(environment, name, errors));
                    if let (Some(name), None) = (name.filter(|name| !environment.is_unreadable(name)), &key) {
                        errors.push(format!("upstream[{at}].api_key_env: the variable {name} is not set"));
                    }
                    UpstreamKind::Http { base_url, key, pass_client_key }
                }),
                (None, Some(script)) => match read_script(script) {
                    Ok(script) => Some(UpstreamKind::Scripted(script)),
                    Err(error) => {
                        errors.push(format!("upstream[{at}].script: {error}"));
                        None
                    }
                },
                _ => {
                    errors.push(format!("upstream[{at}]: needs `base_url`, or `script` instead"));
                    None
                }
            };
            if options.name.is_empty() {
                errors.push(format!("upstream[{at}].name: is missing"));
            }
            if options.models.is_empty() {
                errors.push(format!("upstream[{at}].models: is empty; [\"*\"] means all"));
            }
            let providers = providers(at, &options, errors);
            upstreams.extend(kind.map(|kind| {
                let default = Upstream::new(&options.name, "", kind);
                Upstream {
                    providers: providers.unwrap_or(default.providers),
                    models: options.models,
                    execute_input: match options.custom_execute {
                        Some(true) => TextTools::ForPrograms,
                        _ => TextTools::No,
                    },
                    hold_text_chars: options.hold_text_chars,
                    key_from: options.api_key_env,
                    script_from: options.script,
                    retries_max: options.retries_max.unwrap_or(default.retries_max),
                    retry_wait_max: options.retry_wait_seconds_max.map_or(default.retry_wait_max, Duration::from_secs),
                    ..default
                }
            }));
        }
        if !has_demo && self.demo_model != Some(false) {
            let script_from = Some("demo".to_owned());
            upstreams.insert(
                0,
                Upstream {
                    script_from,
                    ..Upstream::new("demo", "demo", UpstreamKind::Scripted(ScriptedModel::demo()))
                },
            );
        }
        if is_default {
            let url = environment.get("ANTHROPIC_BASE_URL", errors).unwrap_or("https://api.anthropic.com");
            if let Some(base_url) = http(&format!("{}/v1", url.trim_end_matches('/')), "ANTHROPIC_BASE_URL", errors) {
                let key = key(environment, "ANTHROPIC_API_KEY", errors);
                let key_from = key.as_ref().map(|_| "ANTHROPIC_API_KEY".to_owned());
                let kind = UpstreamKind::Http { base_url, key, pass_client_key };
                let providers = vec![ProviderSide::MESSAGES];
                upstreams.push(Upstream {
                    providers,
                    key_from,
                    source: UpstreamSource::Default,
                    ..Upstream::new("anthropic", "claude-*", kind)
                });
            }
            let url = environment.get("OPENAI_BASE_URL", errors).unwrap_or("https://api.openai.com/v1");
            if let Some(base_url) = http(url, "OPENAI_BASE_URL", errors) {
                let key = key(environment, "OPENAI_API_KEY", errors);
                let key_from = key.as_ref().map(|_| "OPENAI_API_KEY".to_owned());
                let kind = UpstreamKind::Http { base_url, key, pass_client_key };
                let providers = vec![ProviderSide::CHAT, ProviderSide::RESPONSES];
                upstreams.push(Upstream {
                    providers,
                    key_from,
                    source: UpstreamSource::Default,
                    ..Upstream::new("openai", "*", kind)
                });
            }
        }
        upstreams
    }

    fn embeddings(&self, upstreams: &[Upstream], errors: &mut Vec<String>) -> Option<EmbeddingsConfig> {
        let EmbeddingsOptions { upstream: name, model } = self.search.embeddings.as_ref()?;
        if model.is_empty() {
            errors.push("search.embeddings.model: is missing".to_owned());
        }
        let upstream = upstreams.iter().find(|upstream| upstream.name == *name);
        match upstream.map(|upstream| &upstream.kind) {
            Some(UpstreamKind::Http { base_url, key, .. }) => Some(EmbeddingsConfig {
                upstream: name.clone(),
                base_url: base_url.clone(),
                key: key.clone(),
                model: model.clone(),
            }),
            Some(UpstreamKind::Scripted(_)) => {
                errors.push(format!("search.embeddings.upstream: `{name}` is a script, which has no embeddings"));
                None
            }
            None => {
                errors.push(format!(
                    "search.embeddings.upstream: there is no upstream `{name}`; name one of [[upstream]]"
                ));
                None
            }
        }
    }

    fn code_mode(&self, errors: &mut Vec<String>) -> CodeModeConfig {
        let options = &self.code_mode;
        let mut parse = |key: &str, text: &str| {
            CodeMode::parse(text).unwrap_or_else(|| {
                errors.push(format!("{key}: `{text}` is not known; use plain, explicit, native or off"));
                CodeMode::Plain
            })
        };
        let default = options.default.as_deref().map_or(CodeMode::Plain, |text| parse("code_mode.default", text));
        let models = options
            .models
            .iter()
            .map(|(model, text)| (model.clone(), parse(&format!("code_mode.models.\"{model}\""), text)));
        let mut models: Vec<(String, CodeMode)> = models.collect();
        // The most particular pattern is asked first.
        let particularity =
            |pattern: &String| std::cmp::Reverse(pattern.chars().filter(|letter| *letter != '*').count());
        models.sort_by_key(|(pattern, _)| particularity(pattern));
        let mut parse = |key: &str, text: &str| {
            DefaultCallers::parse(text).unwrap_or_else(|| {
                errors.push(format!("{key}: `{text}` is not known; use programs or both"));
                DefaultCallers::Programs
            })
        };
        let callers =
            options.callers.as_deref().map_or(DefaultCallers::Programs, |text| parse("code_mode.callers", text));
        let model_callers = options.model_callers.iter();
        let model_callers = model_callers
            .map(|(model, text)| (model.clone(), parse(&format!("code_mode.model_callers.\"{model}\""), text)));
        let mut model_callers: Vec<(String, DefaultCallers)> = model_callers.collect();
        model_callers.sort_by_key(|(pattern, _)| particularity(pattern));
        CodeModeConfig {
            default,
            models,
            callers,
            model_callers,
            direct_tools: options.direct_tools.clone(),
            text_models: options.text_models.clone(),
            declarations_tokens_max: options.declarations_tokens_max.unwrap_or(16_000),
            hold_text_chars: options.hold_text_chars.unwrap_or(0),
            attempts_max: options.attempts_max.unwrap_or(5),
            model_calls_max: options.model_calls_max.unwrap_or(20),
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

    fn effects(&self, errors: &mut Vec<String>) -> EffectRules {
        let mut rules = Vec::new();
        for (pattern, name) in &self.tools.effects {
            match Effect::parse(name) {
                Some(effect) => rules.push((pattern.clone(), effect)),
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
        for (name, value) in &self.limits {
            let Some(limit) = Limit::ALL.into_iter().find(|limit| limit.name() == name) else {
                let known: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
                errors.push(format!("limits.{name}: no limit has this name; there are {}", known.join(", ")));
                continue;
            };
            if let Err(range) = limits.set(limit, *value) {
                errors.push(format!("limits.{name}: must be from {} to {}", range.start(), range.end()));
            }
        }
        limits
    }
}

impl Config {
    /// Plays all models from a script, whatever else is configured.
    #[must_use]
    pub fn with_script(self, script: ScriptedModel) -> Config {
        Config { upstreams: vec![Upstream::new("script", "*", UpstreamKind::Scripted(script))], ..self }
    }

    fn error_texts_options(&self) -> ErrorTextsOptions {
        if self.error_texts.iter().all(|(tools, _)| tools == "*") {
            let expressions = self.error_texts.iter().map(|(_, expression)| expression.to_owned());
            return ErrorTextsOptions::AllTools(expressions.collect());
        }
        let mut by_tool: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tools, expression) in self.error_texts.iter() {
            by_tool.entry(tools.to_owned()).or_default().push(expression.to_owned());
        }
        ErrorTextsOptions::ByTool(by_tool)
    }

    /// Keeps a list of the requests that run.
    #[must_use]
    pub fn with_running_requests(self, running: RunningRequests) -> Config {
        Config { running: Some(running), ..self }
    }

    /// What is wrong with the servers that clients may use, of those that there are.
    pub fn check_servers(&self, names: &[String]) -> Result<(), ConfigError> {
        let mut errors = Vec::new();
        for (at, client) in self.clients.list().enumerate() {
            for unknown in client.servers.iter().flatten().filter(|server| !names.contains(server)) {
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

    fn inspector_options(&self) -> InspectorOptions {
        InspectorOptions {
            enabled: Some(self.recorder.is_some()),
            conversations_max: self.recorder.map(|limits| limits.conversations_max),
            bytes_max: self.recorder.map(|limits| limits.bytes_max),
            force: self.recorder.filter(|limits| limits.is_forced).map(|_| true),
        }
    }

    fn store_options(&self) -> StoreOptions {
        let options = match &self.store {
            None => StoreOptions { kind: Some("off".to_owned()), ..StoreOptions::default() },
            Some(StoreConfig::Memory { bytes_max, ttl }) => StoreOptions {
                kind: Some("memory".to_owned()),
                ttl_seconds: Some(ttl.as_secs()),
                bytes_max: Some(*bytes_max),
                ..StoreOptions::default()
            },
            Some(StoreConfig::File { path, ttl }) => StoreOptions {
                kind: Some("file".to_owned()),
                path: Some(path.display().to_string()),
                ttl_seconds: Some(ttl.as_secs()),
                ..StoreOptions::default()
            },
            Some(StoreConfig::Redis { ttl, .. }) => StoreOptions {
                kind: Some("redis".to_owned()),
                url: Some(HIDDEN.to_owned()),
                ttl_seconds: Some(ttl.as_secs()),
                ..StoreOptions::default()
            },
        };
        StoreOptions { turn_ttl_seconds: Some(self.turn_ttl.as_secs()), ..options }
    }

    /// What is in force, as a file would say it, with the secrets hidden.
    pub fn to_toml(&self) -> String {
        let options = GatewayOptions {
            listen: Some(self.listen.to_string()),
            metrics_listen: self.metrics_listen.map(|address| address.to_string()),
            secret: Some(if self.secret_is_random { "(random)" } else { HIDDEN }.to_owned()),
            secrets_old: vec![HIDDEN.to_owned(); self.secrets_old],
            allow_unauthenticated: self.allow_unauthenticated.then_some(true),
            cors_origins: self.cors_origins.list().to_vec(),
            body_bytes_max: Some(self.body_bytes_max),
            body_values_max: Some(self.body_values_max),
            memory_bytes_max: self.memory_bytes_max,
            turns_max: Some(self.turns_max),
            turns_max_per_client: Some(self.turns_max_per_client),
            bodies_bytes_max: Some(self.bodies_bytes_max),
            drain_seconds: Some(self.drain.as_secs()),
            shutdown_seconds: Some(self.shutdown.as_secs()),
            step_seconds_max: Some(self.step_timeout.as_secs()),
            demo_model: Some(self.has_demo_model),
            log: Some(self.log.to_string()),
            log_format: Some(if self.log_format == LogFormat::Json { "json" } else { "text" }.to_owned()),
            code_mode: CodeModeOptions {
                default: Some(self.code_mode.default.name().to_owned()),
                declarations_tokens_max: Some(self.code_mode.declarations_tokens_max),
                hold_text_chars: Some(self.code_mode.hold_text_chars),
                attempts_max: Some(self.code_mode.attempts_max),
                model_calls_max: Some(self.code_mode.model_calls_max),
                models: self
                    .code_mode
                    .models
                    .iter()
                    .map(|(model, mode)| (model.clone(), mode.name().to_owned()))
                    .collect(),
                callers: Some(self.code_mode.callers.name().to_owned()),
                model_callers: self
                    .code_mode
                    .model_callers
                    .iter()
                    .map(|(model, callers)| (model.clone(), callers.name().to_owned()))
                    .collect(),
                direct_tools: self.code_mode.direct_tools.clone(),
                text_models: self.code_mode.text_models.clone(),
            },
            warm: WarmOptions { programs_max: Some(self.warm.count_max), bytes_max: Some(self.warm.bytes_max) },
            timeouts: TimeoutOptions {
                header_seconds: Some(self.header_timeout.as_secs()),
                body_seconds: Some(self.body_timeout.as_secs()),
                turn_seconds: Some(self.turn_timeout.as_secs()),
                connect_seconds: Some(self.connect_timeout.as_secs()),
                idle_seconds: Some(self.idle_timeout.as_secs()),
                keep_alive_seconds: Some(self.keep_alive.as_secs()),
            },
            inspector: self.inspector_options(),
            step: StepOptions { enabled: Some(self.step_endpoint == StepEndpoint::Served) },
            search: SearchOptions {
                embeddings: self.embeddings.as_ref().map(|embeddings| EmbeddingsOptions {
                    upstream: embeddings.upstream.clone(),
                    model: embeddings.model.clone(),
                }),
            },
            store: self.store_options(),
            mcp: McpOptions { servers: self.mcp_servers.as_ref().map(|file| file.display().to_string()) },
            tools: ToolsOptions {
                effects: self
                    .effects
                    .iter()
                    .map(|(pattern, effect)| (pattern.to_owned(), effect.name().to_owned()))
                    .collect(),
                errors: self.error_texts_options(),
            },
            limits: Limit::ALL.iter().map(|limit| (limit.name().to_owned(), self.limits.get(*limit))).collect(),
            clients: self
                .clients
                .list()
                .map(|client| ClientOptions {
                    name: client.name.clone(),
                    key_sha256: client.keys().map(|_| HIDDEN.to_owned()).collect(),
                    requests_per_minute: client.requests_per_minute,
                    servers: client.servers.clone(),
                })
                .collect(),
            upstreams: self
                .upstreams
                .iter()
                .map(|upstream| UpstreamOptions {
                    custom_execute: (upstream.execute_input == TextTools::ForPrograms).then_some(true),
                    hold_text_chars: upstream.hold_text_chars,
                    wires: Some(upstream.providers.iter().map(|provider| provider.wire().name().to_owned()).collect()),
                    name: upstream.name.clone(),
                    models: upstream.models.clone(),
                    base_url: match &upstream.kind {
                        UpstreamKind::Http { base_url, .. } => Some(without_secrets(base_url)),
                        UpstreamKind::Scripted(_) => None,
                    },
                    api_key_env: upstream.key_from.clone(),
                    script: upstream.script_from.clone(),
                    retries_max: Some(upstream.retries_max),
                    retry_wait_seconds_max: Some(upstream.retry_wait_max.as_secs()),
                })
                .collect(),
        };
        toml::to_string(&options).expect("it is made of tables and plain values")
    }
}

/// A key from the environment; an empty one is none.
fn key(environment: &Environment, name: &str, errors: &mut Vec<String>) -> Option<Secret> {
    let key = environment.get(name, errors)?.trim();
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        errors.push(format!("{name}: has characters that no key can have"));
    }
    (!key.is_empty()).then(|| Secret(key.to_owned()))
}

fn http(url: &str, key: &str, errors: &mut Vec<String>) -> Option<String> {
    let is_usable =
        reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_usable {
        errors.push(format!("{key}: `{url}` is not an http(s) address; write it like https://api.openai.com/v1"));
        return None;
    }
    Some(url.trim_end_matches('/').to_owned())
}

/// The wires that an upstream speaks, if they were written.
fn providers(at: usize, options: &UpstreamOptions, errors: &mut Vec<String>) -> Option<Vec<ProviderSide>> {
    let names = options.wires.as_ref()?;
    if names.is_empty() {
        errors.push(format!("upstream[{at}].wires: is empty; leave it out, or name chat, responses or messages"));
    }
    let mut providers = Vec::new();
    for name in names {
        match Wire::parse(name).and_then(ProviderSide::of) {
            Some(provider) => providers.push(provider),
            None => {
                errors.push(format!("upstream[{at}].wires: `{name}` is not known; use chat, responses or messages"));
            }
        }
    }
    Some(providers)
}

/// An address may hold a password, or a key in its query.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return HIDDEN.to_owned() };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if is_plain {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    url.set_query(None);
    // Neither can fail for http.
    url.set_username("").unwrap_or_default();
    url.set_password(None).unwrap_or_default();
    format!("{url} {HIDDEN}")
}

fn read_script(path: &str) -> Result<ScriptedModel, String> {
    if path == "demo" {
        return Ok(ScriptedModel::demo());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    ScriptedModel::parse(&text).map_err(|error| format!("{path}: {error}"))
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
