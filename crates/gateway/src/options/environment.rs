//! Settings in the environment.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use toml::Value;

/// The variables that a process was started with.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Names of variables whose values are not UTF-8.
    unreadable: BTreeSet<String>,
}

/// Keys that an environment variable may set: `code_mode.default` is `DACAPO_CODE_MODE_DEFAULT`.
const KEYS: &[&str] = &[
    "listen",
    "tls_cert",
    "tls_key",
    "metrics_listen",
    "secret",
    "secrets_old",
    "allow_unauthenticated",
    "cors_origins",
    "other_routes",
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
    "log_format",
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
    "timeouts.keep_alive_seconds",
    "inspector.enabled",
    "inspector.conversations_max",
    "inspector.bytes_max",
    "inspector.force",
    "step.enabled",
    "store.kind",
    "store.url",
    "store.path",
    "store.on_failure",
    "store.turn_ttl_seconds",
    "store.ttl_seconds",
    "store.bytes_max",
    "mcp.servers",
    "mcp.allow_urls",
    "mcp.connectors",
    "limits.output_bytes",
];

/// Keys whose values are texts, also if they look like something else.
const TEXTS: &[&str] = &[
    "listen",
    "tls_cert",
    "tls_key",
    "metrics_listen",
    "secret",
    "log",
    "log_format",
    "code_mode.default",
    "store.kind",
    "store.url",
    "store.path",
    "store.on_failure",
    "mcp.servers",
    "mcp.connectors",
];

/// Keys whose values are lists of texts, with commas between them.
const LISTS: &[&str] = &["secrets_old", "cors_origins", "other_routes", "mcp.allow_urls"];

/// Variables of ours that are no settings of the gateway: of the build and the tests, of other commands, and the one that
/// names the file.
const OTHERS: &[&str] = &[
    "DACAPO_CACHE_DIR",
    "DACAPO_CLANG",
    "DACAPO_COMMIT",
    "DACAPO_CONFIG",
    "DACAPO_IMAGES",
    "DACAPO_MCP_CONFIG",
    "DACAPO_MCP_PARENT",
    "DACAPO_MCP_TOKEN",
    "DACAPO_TOKENS_DIR",
    "DACAPO_UPDATE",
    "DACAPO_WASM_LD",
    "DACAPO_WITHOUT_SHARED_DATA",
];

/// A setting in the environment.
pub(super) struct VariableSetting {
    pub key: &'static str,
    pub variable: String,
    pub value: Value,
}

impl Environment {
    /// Variables whose names are not UTF-8 are left out: no setting has such a name.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let mut environment = Environment::default();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => _ = environment.variables.insert(name, value),
                Err(_) => _ = environment.unreadable.insert(name),
            }
        }
        environment
    }

    /// Whether there is a variable of this name, be it readable or not.
    pub fn contains(&self, name: &str) -> bool {
        self.variables.contains_key(name) || self.unreadable.contains(name)
    }

    /// The value of a variable. One that is not UTF-8 is a mistake.
    pub(crate) fn get(&self, name: &str, mistakes: &mut Vec<String>) -> Option<&str> {
        if self.unreadable.contains(name) {
            mistakes.push(format!("{name}: its value is not UTF-8"));
        }
        self.variables.get(name).map(String::as_str)
    }

    pub(crate) fn is_unreadable(&self, name: &str) -> bool {
        self.unreadable.contains(name)
    }

    pub(super) fn settings(&self, mistakes: &mut Vec<String>) -> Vec<VariableSetting> {
        let setting = |key: &&'static str| {
            let variable = variable(key);
            let value = value(key, self.get(&variable, mistakes)?);
            Some(VariableSetting { key, variable, value })
        };
        KEYS.iter().filter_map(setting).collect()
    }

    /// What to say about variables that look like settings and are none. Kubernetes makes some for a Service that is
    /// called dacapo, so they are no mistakes.
    pub(super) fn notice(&self) -> Option<String> {
        let names = self.variables.keys().chain(&self.unreadable);
        let is_unknown = |name: &&String| {
            name.starts_with("DACAPO_")
                && !OTHERS.contains(&name.as_str())
                && !KEYS.iter().any(|key| variable(key) == **name)
        };
        let mut unknown: Vec<&String> = names.filter(is_unknown).collect();
        unknown.sort();
        let described: Vec<Cow<'_, str>> = unknown
            .into_iter()
            .map(|name| match meant(name) {
                Some(meant) => Cow::Owned(format!("{name} (did you mean {meant}?)")),
                None => Cow::Borrowed(name.as_str()),
            })
            .collect();
        (!described.is_empty())
            .then(|| format!("ignored environment variables that are no settings: {}", described.join(", ")))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Environment {
        Environment::new(variables.map(|(name, value)| (name.into(), value.into())))
    }
}

pub(super) fn variable(key: &str) -> String {
    format!("DACAPO_{}", key.replace('.', "_").to_uppercase())
}

/// A value has the type that its text looks like, unless the key says more.
fn value(key: &str, text: &str) -> Value {
    if TEXTS.contains(&key) {
        return Value::from(text);
    }
    if LISTS.contains(&key) {
        let texts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        return Value::Array(texts.map(Value::from).collect());
    }
    match (text.parse(), text) {
        (Ok(number), _) => Value::Integer(number),
        (_, "true") => Value::Boolean(true),
        (_, "false") => Value::Boolean(false),
        _ => Value::from(text),
    }
}

/// The variable that was probably meant by this name.
fn meant(name: &str) -> Option<String> {
    const EDITS_MAX: usize = 2;
    let known = KEYS.iter().map(|key| variable(key)).chain(OTHERS.iter().map(|name| (*name).to_owned()));
    let near = known.map(|known| (strsim::osa_distance(&known, name), known));
    near.filter(|(edits, _)| *edits <= EDITS_MAX).min().map(|(_, known)| known)
}
