//! Our own settings: the key `dacapo` in the file of MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use dacapo_replay::{Effect, EffectRules, Limit};
use dacapo_runner::{JSON_CHARS_MIN, Policy, PolicyRule, RunLimits};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fleet::FleetOptions;
use crate::server::RESULT_CHARS_DEFAULT;
use crate::servers_file::expansion::expand;

/// Policy and limits. Unknown keys are errors, unlike in the rest of the file, which belongs to other programs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which calls are allowed.
    pub policy: Policy,
    /// What a program may use.
    pub limits: RunLimits,
    /// Characters of JSON that a result may have.
    pub result_chars: usize,
    /// Timeouts and limits of the servers behind ours.
    pub fleet: FleetOptions,
    /// Where programs that wait for a person are kept. `None`: in memory.
    pub store: Option<StorePlace>,
}

/// A store that outlives a process.
#[derive(Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// A file, as it is written: it may be relative.
    File(PathBuf),
    /// The address of a server that speaks the protocol of Redis.
    Redis(String),
}

impl std::fmt::Debug for StorePlace {
    /// An address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StorePlace::File(path) => f.debug_tuple("File").field(path).finish(),
            StorePlace::Redis(_) => f.write_str("Redis(…)"),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            limits: RunLimits::default(),
            result_chars: RESULT_CHARS_DEFAULT,
            fleet: FleetOptions::default(),
            store: None,
        }
    }
}

/// What is wrong with the settings, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct SettingsError {
    path: String,
    message: String,
}

/// The key of our settings in the file of MCP servers.
pub const SETTINGS_KEY: &str = "dacapo";

/// Limits beside those of a step.
const OWN_LIMITS: [&str; 7] = [
    "wall_seconds",
    "result_chars",
    "attachment_bytes",
    "call_seconds",
    "connect_seconds",
    "calls_per_server",
    "answer_bytes",
];

const DAY_SECONDS: u64 = 24 * 60 * 60;
const BYTES_MAX: u64 = 1 << 30;
const RESULT_CHARS_MAX: u64 = 10_000_000;
const CALLS_PER_SERVER_MAX: u64 = 1_000;

impl Settings {
    /// Reads our settings from the file of MCP servers. Without them everything has its default.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use dacapo_mcp::Settings;
    /// use dacapo_replay::Effect;
    /// use serde_json::json;
    /// let read = |ours| Settings::read(&json!({"mcpServers": {}, "dacapo": ours}), &BTreeMap::new());
    /// let settings = read(json!({"effects": {"crm.find_*": "read"}}))?;
    /// assert_eq!(settings.fleet.effects.of("crm.find_people"), Some(Effect::Read));
    /// let error = read(json!({"efects": {}})).unwrap_err();
    /// assert!(error.to_string().starts_with("dacapo.efects: is not known here"));
    /// # Ok::<(), dacapo_mcp::SettingsError>(())
    /// ```
    pub fn read(file: &Value, environment: &BTreeMap<String, String>) -> Result<Settings, SettingsError> {
        let mut settings = Settings::default();
        let Some(ours) = file.get(SETTINGS_KEY) else { return Ok(settings) };
        for (key, value) in fields(ours, SETTINGS_KEY)? {
            let path = format!("{SETTINGS_KEY}.{key}");
            match key.as_str() {
                "policy" => settings.policy = policy(value, &path)?,
                "limits" => settings.read_limits(value, &path)?,
                "effects" => settings.fleet.effects = effects(value, &path)?.into(),
                "store" => settings.store = Some(store(value, &path, environment)?),
                _ => return Err(error(&path, "is not known here; known are policy, limits, effects, store")),
            }
        }
        Ok(settings)
    }

    fn read_limits(&mut self, value: &Value, path: &str) -> Result<(), SettingsError> {
        for (key, value) in fields(value, path)? {
            let path = format!("{path}.{key}");
            let Some(number) = value.as_u64() else {
                return Err(error(&path, "must be a whole number that is not negative"));
            };
            self.set_limit(key, number, &path)?;
        }
        Ok(())
    }

    fn set_limit(&mut self, key: &str, number: u64, path: &str) -> Result<(), SettingsError> {
        let within = |least: u64, most: u64| {
            if (least..=most).contains(&number) {
                return Ok(number);
            }
            Err(error(path, &format!("{number} is out of range; {least} to {most} are possible")))
        };
        match key {
            "wall_seconds" => self.limits.wall = Duration::from_secs(within(1, DAY_SECONDS)?),
            "result_chars" => self.result_chars = within(JSON_CHARS_MIN as u64, RESULT_CHARS_MAX)? as usize,
            "attachment_bytes" => self.limits.attachment_bytes = within(0, BYTES_MAX)? as usize,
            "call_seconds" => self.fleet.call_timeout = Duration::from_secs(within(1, DAY_SECONDS)?),
            "connect_seconds" => self.fleet.connect_timeout = Duration::from_secs(within(1, DAY_SECONDS)?),
            "calls_per_server" => self.fleet.calls_per_server_max = within(1, CALLS_PER_SERVER_MAX)? as usize,
            "answer_bytes" => self.fleet.answer_bytes_max = within(1, BYTES_MAX)? as usize,
            _ => {
                let Some(limit) = Limit::ALL.into_iter().find(|limit| limit.name() == key) else {
                    let known: Vec<&str> = OWN_LIMITS.into_iter().chain(Limit::ALL.map(Limit::name)).collect();
                    return Err(error(path, &format!("is not known here; known are {}", known.join(", "))));
                };
                let range = limit.range();
                let number = within(*range.start(), *range.end())?;
                self.limits.program.set(limit, number).expect("it is within the range");
            }
        }
        Ok(())
    }
}

fn policy(value: &Value, path: &str) -> Result<Policy, SettingsError> {
    let Value::Array(rules) = value else {
        return Err(error(path, "must be an array of rules"));
    };
    let rule = |(at, rule): (usize, &Value)| {
        PolicyRule::deserialize(rule)
            .map_err(|wrong| error(&format!("{path}[{at}]"), &format!("is not a rule: {wrong}")))
    };
    Ok(Policy::new(rules.iter().enumerate().map(rule).collect::<Result<_, _>>()?))
}

/// `{"kind": "file", "path": …}` or `{"kind": "redis", "url": …}`
fn store(value: &Value, path: &str, environment: &BTreeMap<String, String>) -> Result<StorePlace, SettingsError> {
    let fields = fields(value, path)?;
    let text = |key: &str| {
        let at = format!("{path}.{key}");
        match fields.get(key) {
            Some(Value::String(text)) => {
                expand(text, environment).map(|text| text.text).map_err(|message| error(&at, &message))
            }
            _ => Err(error(&at, "must be a text")),
        }
    };
    let (place, key) = match text("kind")?.as_str() {
        "file" => (StorePlace::File(text("path")?.into()), "path"),
        "redis" => (StorePlace::Redis(text("url")?), "url"),
        _ => return Err(error(&format!("{path}.kind"), "must be `file` (with `path`) or `redis` (with `url`)")),
    };
    match fields.keys().find(|known| !["kind", key].contains(&known.as_str())) {
        Some(unknown) => Err(error(&format!("{path}.{unknown}"), "is not known here")),
        None => Ok(place),
    }
}

/// What calls may do, by patterns of `server.tool`.
fn effects(value: &Value, path: &str) -> Result<EffectRules, SettingsError> {
    let rule = |(pattern, effect): (&String, &Value)| match effect.as_str().and_then(Effect::parse) {
        Some(effect) => Ok((pattern.clone(), effect)),
        None => Err(error(&format!("{path}.{pattern}"), "must be `read`, `idempotent` or `write`")),
    };
    let rules: Vec<(String, Effect)> = fields(value, path)?.iter().map(rule).collect::<Result<_, _>>()?;
    Ok(EffectRules::new(rules))
}

fn fields<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, SettingsError> {
    value.as_object().ok_or_else(|| error(path, "must be an object"))
}

fn error(path: &str, message: &str) -> SettingsError {
    SettingsError { path: path.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(file: &Value) -> Result<Settings, SettingsError> {
        Settings::read(file, &BTreeMap::from([("PASSWORD".to_owned(), "p".to_owned())]))
    }

    #[test]
    fn a_file_without_our_key_leaves_everything_as_it_is() {
        let settings = read(&json!({ "mcpServers": {} })).expect("there is nothing to read");
        assert_eq!((settings.limits, settings.result_chars), (RunLimits::default(), RESULT_CHARS_DEFAULT));
    }

    #[test]
    fn limits_and_policy_are_read() {
        let file = r#"{"mcpServers": {}, "dacapo": {
            "store": {"kind": "redis", "url": "redis://:${PASSWORD}@db"},
            "policy": [{"server": "fs", "decision": "allow"}],
            "limits": {"wall_seconds": 10, "call_seconds": 5, "calls": 7, "result_chars": 1000}}}"#;
        let settings = read(&serde_json::from_str(file).expect("it is JSON")).expect("all of it is known");
        assert_eq!(settings.store, Some(StorePlace::Redis("redis://:p@db".to_owned())));
        assert!(!format!("{settings:?}").contains(":p@"), "{settings:?}");
        assert_eq!(settings.limits.wall, Duration::from_secs(10));
        assert_eq!(settings.fleet.call_timeout, Duration::from_secs(5));
        assert_eq!(settings.limits.program.get(Limit::Calls), 7);
        assert_eq!(settings.result_chars, 1000);
        assert_ne!(settings.policy, Policy::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            (r#"{"polcy": []}"#, "dacapo.polcy: is not known here; known are policy, limits, effects, store"),
            (
                r#"{"store": {"kind": "sql"}}"#,
                "dacapo.store.kind: must be `file` (with `path`) or `redis` (with `url`)",
            ),
            (r#"{"store": {"kind": "file"}}"#, "dacapo.store.path: must be a text"),
            (r#"{"store": {"kind": "file", "path": "p", "ttl": 1}}"#, "dacapo.store.ttl: is not known here"),
            (r#"{"effects": {"fs.*": "reads"}}"#, "dacapo.effects.fs.*: must be `read`, `idempotent` or `write`"),
            (r#"{"policy": {}}"#, "dacapo.policy: must be an array of rules"),
            (
                r#"{"policy": [{"decision": "allow"}, {"decision": "yes"}]}"#,
                "dacapo.policy[1]: is not a rule: unknown variant `yes`, expected one of `allow`, `ask`, `deny`",
            ),
            (
                r#"{"policy": [{"sever": "x", "decision": "allow"}]}"#,
                "dacapo.policy[0]: is not a rule: unknown field `sever`, expected one of `server`, `tool`, `annotations`, `decision`",
            ),
            (
                r#"{"limits": {"wall_seconds": 0}}"#,
                "dacapo.limits.wall_seconds: 0 is out of range; 1 to 86400 are possible",
            ),
            (r#"{"limits": {"fuel": "much"}}"#, "dacapo.limits.fuel: must be a whole number that is not negative"),
            ("[]", "dacapo: must be an object"),
        ];
        for (ours, message) in cases {
            let ours: Value = serde_json::from_str(ours).expect("it is JSON");
            let error = read(&json!({ "dacapo": ours })).expect_err("it is wrong");
            assert_eq!(error.to_string(), message);
        }
        let unknown = read(&json!({ "dacapo": { "limits": { "seconds": 1 } } })).expect_err("it is wrong");
        assert!(unknown.to_string().starts_with("dacapo.limits.seconds: is not known here; known are wall_seconds, "));
    }
}
