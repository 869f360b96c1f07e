//! What was written about the gateway: in a file, then in the environment, then by flags.

mod environment;
mod table;

pub use environment::Environment;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::config::Config;
use table::SettingMistake;

/// What was written, by whomever; every key is optional.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayOptions {
    /// The address to listen on. One that others can reach needs clients, or `allow_unauthenticated`.
    pub listen: Option<String>,
    /// A file with the certificate and its chain, in PEM: connections are encrypted then.
    pub tls_cert: Option<String>,
    /// The key of that certificate, in PEM.
    pub tls_key: Option<String>,
    /// Where metrics are served, if not on the main listener.
    pub metrics_listen: Option<String>,
    /// Shared by replicas: seals ids and what is stored.
    pub secret: Option<String>,
    /// Earlier secrets: what they sealed can still be opened.
    pub secrets_old: Vec<String>,
    /// Listen beyond loopback although every client is let in.
    pub allow_unauthenticated: Option<bool>,
    /// Whose web pages may use it; `*` stands for all.
    pub cors_origins: Vec<String>,
    /// Patterns of paths below `/v1/` that pass to an upstream although the gateway has no such route; all if absent.
    pub other_routes: Option<Vec<String>>,
    /// Of one body when it is decoded, in bytes; also of all that a Responses client refers to.
    pub body_bytes_max: Option<usize>,
    /// JSON values in a body: a tree takes more memory than its text.
    pub body_values_max: Option<usize>,
    /// Of the whole process; above it requests are refused.
    pub memory_bytes_max: Option<u64>,
    /// Turns at the same moment; more are refused with 503, and `/readyz` says so.
    pub turns_max: Option<usize>,
    /// Turns of one client at the same moment; more are refused with 429. Of several clients each has half of `turns_max` if absent.
    pub turns_max_per_client: Option<usize>,
    /// Of bodies that are being read, together.
    pub bodies_bytes_max: Option<usize>,
    /// On SIGTERM: how long requests are still taken while `/readyz` says 503.
    pub drain_seconds: Option<u64>,
    /// Then: how long running turns may take to finish.
    pub shutdown_seconds: Option<u64>,
    /// Wall clock for one program on a busy machine. Its own limit is fuel.
    pub step_seconds_max: Option<u64>,
    /// Whether the built-in scripted model is served as `demo`.
    pub demo_model: Option<bool>,
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub log: Option<String>,
    /// `text` or `json`.
    pub log_format: Option<String>,
    /// When and how models write programs.
    pub code_mode: CodeModeOptions,
    /// Paused programs that stay in memory.
    pub warm: WarmOptions,
    /// How long things may take.
    pub timeouts: TimeoutOptions,
    /// What is kept for clients that do not send it back.
    pub store: StoreOptions,
    /// MCP servers whose calls the gateway executes.
    pub mcp: McpOptions,
    /// The step function over HTTP.
    pub step: StepOptions,
    /// The inspector page.
    pub inspector: InspectorOptions,
    /// How tools are searched for.
    pub search: SearchOptions,
    /// What calls of tools may do, and how their failures are known.
    pub tools: ToolsOptions,
    /// Of a program, by the name of the limit.
    pub limits: BTreeMap<String, u64>,
    /// Who may use the gateway; everybody if there is none.
    #[serde(rename = "client")]
    pub clients: Vec<ClientOptions>,
    /// The providers of models.
    #[serde(rename = "upstream")]
    pub upstreams: Vec<UpstreamOptions>,
    /// Which upstreams are asked for a model, one after the other.
    #[serde(rename = "model")]
    pub models: Vec<ModelOptions>,
}

/// When and how models write programs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeModeOptions {
    /// `plain`, `explicit`, `native` or `off`.
    pub default: Option<String>,
    /// Tokens of function declarations in the prompt. Beyond it as many are declared as fit, and the model searches the rest.
    pub declarations_tokens_max: Option<usize>,
    /// Characters of a streamed answer that are held back until it is known that no program follows.
    pub hold_text_chars: Option<usize>,
    /// Failed programs and mistakes of the model in one request.
    pub attempts_max: Option<u32>,
    /// Model calls in one request.
    pub model_calls_max: Option<u64>,
    /// The same choice, by model name pattern.
    pub models: BTreeMap<String, String>,
    /// `programs` or `both`: who calls tools whose callers a client does not name.
    pub callers: Option<String>,
    /// The same choice, by model name pattern.
    pub model_callers: BTreeMap<String, String>,
    /// Tools, by name pattern, that only the model calls.
    pub direct_tools: Vec<String>,
    /// Models, by name pattern, that take no images and files of tools.
    pub text_models: Vec<String>,
}

/// Paused programs that stay in memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmOptions {
    /// Paused programs that are kept in memory, to go on without a replay.
    pub programs_max: Option<u32>,
    /// Their memory, arguments of their calls included; at most half of `memory_bytes_max` if absent.
    pub bytes_max: Option<usize>,
}

/// How long things may take.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "they are keys of the file, and name their unit")]
pub struct TimeoutOptions {
    /// For the headers of a request to arrive. Idle connections are closed after it too.
    pub header_seconds: Option<u64>,
    /// For its body; 408 after it.
    pub body_seconds: Option<u64>,
    /// For a turn with all its model calls; then 504, or an error event in a stream.
    pub turn_seconds: Option<u64>,
    /// For a connection to an upstream.
    pub connect_seconds: Option<u64>,
    /// Between two pieces of an upstream's response.
    pub idle_seconds: Option<u64>,
    /// Of silence in a stream, until the client gets a sign of life.
    pub keep_alive_seconds: Option<u64>,
}

/// The step function over HTTP.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepOptions {
    /// Whether `POST /v1/step` is served.
    pub enabled: Option<bool>,
}

/// How tools are searched for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchOptions {
    /// A model that ranks tools beside the search by words.
    pub embeddings: Option<EmbeddingsOptions>,
}

/// A second opinion in searches.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingsOptions {
    /// The name of an upstream that has `/embeddings`.
    pub upstream: String,
    /// The embeddings model there.
    pub model: String,
}

/// The inspector page.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InspectorOptions {
    /// Whether conversations are recorded, in memory, for the inspector page.
    pub enabled: Option<bool>,
    /// Conversations that are kept.
    pub conversations_max: Option<usize>,
    /// Bytes of them that are kept.
    pub bytes_max: Option<usize>,
    /// Record also where clients are configured, or others can reach the gateway.
    pub force: Option<bool>,
}

/// What calls of tools may do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsOptions {
    /// `read`, `idempotent` or `write`, by patterns of the tools' names.
    pub effects: BTreeMap<String, String>,
    /// Regular expressions: text answers that match are failures, on wires that have no field for failures.
    pub errors: ErrorTextsOptions,
}

/// The expressions for all tools, or by patterns of the tools' names.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a list of regular expressions, or a table of such lists by patterns of tools")]
pub enum ErrorTextsOptions {
    /// For every tool.
    AllTools(Vec<String>),
    /// For tools whose names match a pattern.
    ByTool(BTreeMap<String, Vec<String>>),
}

impl Default for ErrorTextsOptions {
    fn default() -> ErrorTextsOptions {
        ErrorTextsOptions::AllTools(Vec::new())
    }
}

/// What is kept for clients that do not send it back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreOptions {
    /// `off`, `memory`, `file` or `redis`.
    pub kind: Option<String>,
    /// The address of a server that speaks the protocol of Redis.
    pub url: Option<String>,
    /// Of the file.
    pub path: Option<String>,
    /// What becomes of calls of MCP tools with effects that cannot be recorded, because the store cannot be reached:
    /// `refuse`, or `continue`: they are sent all the same, and may be sent twice.
    pub on_failure: Option<String>,
    /// How long a request that called tools with effects is known, so that its repetition gets the same response.
    pub turn_ttl_seconds: Option<u64>,
    /// How long something is kept that nobody reads.
    pub ttl_seconds: Option<u64>,
    /// In memory; the oldest is given up first.
    pub bytes_max: Option<usize>,
}

/// MCP servers whose tools clients get beside their own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpOptions {
    /// Their file, as for `dacapo mcp`.
    pub servers: Option<String>,
    /// Addresses of servers that requests may name for the gateway to connect to; `*` stands for any characters. Those whose
    /// host has a `*` must be public.
    pub allow_urls: Vec<String>,
    /// Who connects to the servers that requests name: `provider`, as far as the model's has a connector, or `gateway`.
    pub connectors: Option<String>,
}

/// Who may ask. Without any, everybody who reaches the gateway may.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientOptions {
    /// Conversations are bound to this name.
    pub name: String,
    /// SHA-256 of each of its keys, in hex. A file may have one text instead of a list.
    #[serde(deserialize_with = "one_or_more")]
    pub key_sha256: Vec<String>,
    /// No limit if absent. Replicas with the same Redis count together.
    pub requests_per_minute: Option<u32>,
    /// MCP servers that it may use, by name; all if absent.
    pub servers: Option<Vec<String>>,
    /// Patterns of the models that it may ask for; all if empty.
    pub models: Vec<String>,
    /// Replaces `code_mode.default` and `code_mode.models` for it.
    pub mode: Option<String>,
    /// Replaces `turns_max_per_client` for it.
    pub turns_max: Option<usize>,
    /// Laid over `[limits]` for its programs.
    pub limits: BTreeMap<String, u64>,
}

/// Who has models. The first whose pattern fits is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamOptions {
    /// In the log, in metrics, and for `[[model]]`.
    pub name: String,
    /// Patterns of the models that are here; `*` stands for any characters.
    pub models: Vec<String>,
    /// What it speaks: `chat`, `responses`, `messages`. A client on another wire is translated for the first.
    pub wires: Option<Vec<String>>,
    /// Offer `execute` as a custom tool, on Responses: programs need no escaping then.
    pub custom_execute: Option<bool>,
    /// Replaces `code_mode.hold_text_chars` for its models.
    pub hold_text_chars: Option<usize>,
    /// With `/v1`.
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// A file of scripted turns, or `demo`.
    pub script: Option<String>,
    /// How often a request is sent again if the upstream says when to come back.
    pub retries_max: Option<u32>,
    /// How long that may be.
    pub retry_wait_seconds_max: Option<u64>,
}

/// A name that clients may ask for, and who is asked then.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    /// `*` stands for any characters.
    pub name: String,
    /// The first is asked, and the next if it cannot be reached or answers 429 or 5xx.
    pub ask: Vec<TargetOptions>,
}

/// One of those who are asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TargetOptions {
    /// The model's name there; the one that was asked for if absent.
    pub model: Option<String>,
    /// The name of an upstream; the first that has the model if absent.
    pub upstream: Option<String>,
}

/// What is wrong with a configuration: all of it, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub(crate) Vec<String>);

/// What was written in a file and in the environment.
#[derive(Debug)]
pub struct LoadedOptions {
    /// Without what is wrong. Flags may be laid over it.
    pub options: GatewayOptions,
    /// Something that is not wrong, but may not be meant.
    pub notice: Option<String>,
    mistakes: Vec<String>,
    in_settings: Vec<(String, SettingMistake)>,
}

impl GatewayOptions {
    /// Reads a file, if there is one, and lays the environment over it. Mistakes are reported by
    /// [`LoadedOptions::resolve`], together with all others.
    pub fn load(file: Option<&Path>, environment: &Environment) -> LoadedOptions {
        let mut mistakes = Vec::new();
        let mut in_settings: Vec<(String, SettingMistake)> = Vec::new();
        let mut remove_mistakes = |table: &mut Table, source: &str| {
            let mut found = Vec::new();
            table::remove_mistakes(table, &mut found);
            in_settings.extend(found.into_iter().map(|mistake| (source.to_owned(), mistake)));
        };
        let mut table = file.map_or_else(Table::new, |path| {
            let mut table = read(path, &mut mistakes);
            remove_mistakes(&mut table, &path.display().to_string());
            table
        });
        for setting in environment.settings(&mut mistakes) {
            let mut one = Table::new();
            insert(&mut one, setting.key, setting.value);
            remove_mistakes(&mut one, &setting.variable);
            merge(&mut table, one);
        }
        let options = table.try_into().unwrap_or_else(|error: toml::de::Error| {
            mistakes.push(error.message().to_owned());
            GatewayOptions::default()
        });
        LoadedOptions { options, notice: environment.notice(), mistakes, in_settings }
    }
}

impl LoadedOptions {
    /// The options without the checks of [`LoadedOptions::resolve`].
    pub fn checked(self) -> Result<GatewayOptions, ConfigError> {
        let in_settings = self.in_settings.iter().map(|(source, mistake)| format!("{source}: {}", mistake.message));
        let mistakes: Vec<String> = self.mistakes.into_iter().chain(in_settings).collect();
        if mistakes.is_empty() { Ok(self.options) } else { Err(ConfigError(mistakes)) }
    }

    /// Checks everything at once.
    pub fn resolve(self, environment: &Environment) -> Result<Config, ConfigError> {
        let LoadedOptions { options, mut mistakes, in_settings, .. } = self;
        let (config, mut later) = match options.resolve(environment) {
            Ok(config) => (Some(config), Vec::new()),
            Err(ConfigError(errors)) => (None, errors),
        };
        later.retain(|later| !in_settings.iter().any(|(_, mistake)| mistake.explains(later)));
        mistakes.extend(in_settings.into_iter().map(|(source, mistake)| {
            // A variable names its key.
            if source.starts_with("DACAPO_") {
                format!("{source}: {}", mistake.message)
            } else {
                format!("{source}: {}: {}", mistake.key, mistake.message)
            }
        }));
        mistakes.extend(later);
        config.filter(|_| mistakes.is_empty()).ok_or(ConfigError(mistakes))
    }
}

/// The table that a file holds. Lines that are wrong are not shown: they may hold secrets.
fn read(path: &Path, mistakes: &mut Vec<String>) -> Table {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            mistakes.push(format!("{}: {error}", path.display()));
            return Table::new();
        }
    };
    let (document, errors) = toml::de::DeTable::parse_recoverable(&text);
    for error in &errors {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        mistakes.push(format!("{}, line {line}: {}", path.display(), error.message()));
    }
    if !errors.is_empty() {
        // What was understood of the rest need not be what was meant.
        return Table::new();
    }
    Table::deserialize(toml::Deserializer::from(document)).unwrap_or_else(|error| {
        mistakes.push(format!("{}: {}", path.display(), error.message()));
        Table::new()
    })
}

fn insert(table: &mut Table, key: &str, value: toml::Value) {
    match key.split_once('.') {
        None => _ = table.insert(key.to_owned(), value),
        Some((section, key)) => {
            _ = table.insert(section.to_owned(), toml::Value::Table(Table::from_iter([(key.to_owned(), value)])));
        }
    }
}

/// Lays one table over another, section by section.
fn merge(table: &mut Table, over: Table) {
    for (key, value) in over {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(section)), toml::Value::Table(over)) => merge(section, over),
            (_, value) => _ = table.insert(key, value),
        }
    }
}

/// One text, or a list of them.
fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Texts;
    impl<'de> serde::de::Visitor<'de> for Texts {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut texts: A) -> Result<Vec<String>, A::Error> {
            let mut all = Vec::new();
            while let Some(text) = texts.next_element()? {
                all.push(text);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_any(Texts)
}
