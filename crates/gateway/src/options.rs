//! What was written about the gateway: in a file, then in the environment, then by flags.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Table;

/// What was written, by whomever; every key is optional.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayOptions {
    pub listen: Option<String>,
    /// Shared by replicas: seals the ids.
    pub secret: Option<String>,
    /// Listen beyond loopback although every client is let in.
    pub allow_unauthenticated: Option<bool>,
    pub body_bytes_max: Option<usize>,
    /// JSON values in a body: a tree takes more memory than its text.
    pub body_values_max: Option<usize>,
    /// Of the whole process; above it requests are refused.
    pub memory_bytes_max: Option<u64>,
    pub turns_max: Option<usize>,
    pub turns_max_per_client: Option<usize>,
    /// Of bodies that are being read, together.
    pub bodies_bytes_max: Option<usize>,
    pub drain_seconds: Option<u64>,
    pub shutdown_seconds: Option<u64>,
    pub step_seconds_max: Option<u64>,
    /// Whether the built-in scripted model is served as `demo`.
    pub demo_model: Option<bool>,
    pub log: Option<String>,
    pub code_mode: CodeModeOptions,
    pub warm: WarmOptions,
    pub timeouts: TimeoutOptions,
    pub store: StoreOptions,
    pub step: StepOptions,
    pub limits: BTreeMap<String, u64>,
    #[serde(rename = "client")]
    pub clients: Vec<ClientOptions>,
    #[serde(rename = "upstream")]
    pub upstreams: Vec<UpstreamOptions>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeModeOptions {
    /// `plain`, `explicit`, `native` or `off`.
    pub default: Option<String>,
    pub declarations_tokens_max: Option<usize>,
    pub hold_text_chars: Option<usize>,
    pub attempts_max: Option<u32>,
    pub model_calls_max: Option<u64>,
    /// The same choice, by model name pattern.
    pub models: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmOptions {
    pub programs_max: Option<u32>,
    pub bytes_max: Option<usize>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "they are keys of the file, and name their unit")]
pub struct TimeoutOptions {
    pub header_seconds: Option<u64>,
    pub body_seconds: Option<u64>,
    pub turn_seconds: Option<u64>,
    pub connect_seconds: Option<u64>,
    pub idle_seconds: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepOptions {
    /// Whether `POST /v1/step` is served.
    pub enabled: Option<bool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreOptions {
    /// `off`, `memory` or `redis`.
    pub kind: Option<String>,
    pub url: Option<String>,
    pub ttl_seconds: Option<u64>,
    pub bytes_max: Option<usize>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientOptions {
    pub name: String,
    /// SHA-256 of the key, in hex.
    pub key_sha256: String,
    pub requests_per_minute: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamOptions {
    pub name: String,
    pub models: Vec<String>,
    /// What it speaks: `chat`, `responses`, `messages`. A client on another wire is translated for the first.
    pub wires: Option<Vec<String>>,
    /// Offer `execute` as a custom tool, on Responses: programs need no escaping then.
    pub custom_execute: Option<bool>,
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: Option<String>,
    /// A file of scripted turns, or `demo`.
    pub script: Option<String>,
    pub retries_max: Option<u32>,
    pub retry_wait_seconds_max: Option<u64>,
}

/// What is wrong with a configuration: all of it, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub(crate) Vec<String>);

/// Variables that are no settings: of the build, and where the settings are.
const NO_SETTINGS: [&str; 3] = ["DACAPO_CLANG", "DACAPO_WASM_LD", "DACAPO_CONFIG"];

/// Keys that an environment variable may set: `code_mode.default` is `DACAPO_CODE_MODE_DEFAULT`.
const FROM_ENVIRONMENT: [&str; 32] = [
    "listen",
    "secret",
    "allow_unauthenticated",
    "body_bytes_max",
    "body_values_max",
    "memory_bytes_max",
    "turns_max",
    "turns_max_per_client",
    "bodies_bytes_max",
    "drain_seconds",
    "shutdown_seconds",
    "step_seconds_max",
    "demo_model",
    "log",
    "code_mode.default",
    "code_mode.declarations_tokens_max",
    "code_mode.hold_text_chars",
    "code_mode.attempts_max",
    "code_mode.model_calls_max",
    "warm.programs_max",
    "warm.bytes_max",
    "timeouts.header_seconds",
    "timeouts.body_seconds",
    "timeouts.turn_seconds",
    "timeouts.connect_seconds",
    "timeouts.idle_seconds",
    "step.enabled",
    "store.kind",
    "store.url",
    "store.ttl_seconds",
    "store.bytes_max",
    "limits.output_bytes",
];

impl GatewayOptions {
    /// Reads a file, if there is one, and lays the environment over it.
    pub fn load(file: Option<&Path>, environment: &BTreeMap<String, String>) -> Result<GatewayOptions, ConfigError> {
        let mut table = match file {
            None => Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| ConfigError(vec![format!("{}: {error}", path.display())]))?;
                text.parse().map_err(|error: toml::de::Error| misread(path, &text, &error))?
            }
        };
        let mut errors = Vec::new();
        for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("DACAPO_")) {
            let key = FROM_ENVIRONMENT.iter().find(|key| variable(key) == *name);
            match key {
                Some(key) => set(&mut table, key, value),
                None if NO_SETTINGS.contains(&name.as_str()) => {}
                None => {
                    let known: Vec<String> = FROM_ENVIRONMENT.iter().map(|key| variable(key)).collect();
                    errors.push(format!("{name}: no setting has this name; there are {}", known.join(", ")));
                }
            }
        }
        if !errors.is_empty() {
            return Err(ConfigError(errors));
        }
        let source = file.map_or_else(|| "environment".to_owned(), |path| path.display().to_string());
        table.try_into().map_err(|error: toml::de::Error| ConfigError(vec![format!("{source}: {}", error.message())]))
    }
}

/// Where a file is not TOML. Its lines are not shown: they may hold secrets.
fn misread(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map_or(1, |before| before.matches('\n').count() + 1);
    ConfigError(vec![format!("{}, line {line}: {}", path.display(), error.message())])
}

fn variable(key: &str) -> String {
    format!("DACAPO_{}", key.replace('.', "_").to_uppercase())
}

/// A value from the environment has the type that its text looks like, unless a text is wanted.
fn set(table: &mut Table, key: &str, text: &str) {
    const TEXTS: [&str; 6] = ["listen", "secret", "log", "code_mode.default", "store.kind", "store.url"];
    let number = text.parse().map(toml::Value::Integer);
    let value = match (number, text) {
        _ if TEXTS.contains(&key) => toml::Value::from(text),
        (Ok(number), _) => number,
        (_, "true") => toml::Value::Boolean(true),
        (_, "false") => toml::Value::Boolean(false),
        _ => toml::Value::from(text),
    };
    match key.split_once('.') {
        None => _ = table.insert(key.to_owned(), value),
        Some((section, key)) => {
            let section = table.entry(section).or_insert_with(|| toml::Value::Table(Table::new()));
            if let Some(section) = section.as_table_mut() {
                section.insert(key.to_owned(), value);
            }
        }
    }
}
