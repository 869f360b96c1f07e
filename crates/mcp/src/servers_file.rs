//! The file in which people already keep their MCP servers: `{"mcpServers": {…}}`, or `{"servers": {…}}`.
//!
//! Other programs use it too, so keys that are not known here are reported and ignored, and a server that cannot be read
//! does not affect the others.

pub(crate) mod expansion;
mod secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use dacapo_catalog::json_type_name;
use dacapo_runner::{AddressReach, RemoteServer};
use reqwest::Url;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::fleet::{TransportKind, is_public};
use expansion::expand;
use secrets::{ConfigField, secrets};

/// The environment variables that a server's process inherits, beside those in the file: enough to find its interpreter, its
/// home and its language, and nothing that may be a credential.
pub const ENVIRONMENT_MINIMUM: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

const SERVER_KEYS: [&str; 9] = ["type", "command", "args", "env", "cwd", "url", "headers", "oauth", "disabled"];

const OAUTH_KEYS: [&str; 4] = ["clientId", "clientSecret", "scopes", "callbackPort"];

/// The servers that a file names, in its order.
#[derive(Debug, Clone)]
pub struct ServersFile {
    /// The servers.
    pub servers: Vec<ServerEntry>,
    /// Keys that are not known here.
    pub ignored_keys: Vec<IgnoredKey>,
}

/// One server of a file.
#[derive(Debug, Clone)]
pub struct ServerEntry {
    /// Becomes the namespace of its tools.
    pub name: String,
    /// How it is reached, or why that is not known.
    pub spec: Result<ServerSpec, InvalidServer>,
}

/// How a server is reached.
#[derive(Clone)]
pub struct ServerSpec {
    /// `None` if the server is disabled and cannot be read.
    pub(crate) endpoint: Option<ServerEndpoint>,
    pub(crate) disabled: bool,
    /// Values that only the server may see.
    pub(crate) secrets: Vec<String>,
    /// A digest of all that decides which tools the server has. Secrets are part of it: another account has other tools.
    pub(crate) fingerprint: [u8; 32],
}

#[derive(Clone)]
pub(crate) enum ServerEndpoint {
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String>, cwd: Option<PathBuf> },
    Http { url: String, headers: Vec<(String, String)>, oauth: OAuthClient },
}

/// How we are known to the authorization server of a server, if we do not register ourselves.
#[derive(Clone, Default)]
pub(crate) struct OAuthClient {
    pub(crate) id: Option<String>,
    pub(crate) secret: Option<String>,
    /// Empty: those that the server asks for.
    pub(crate) scopes: Vec<String>,
    /// Where the browser comes back to. `None`: any port.
    pub(crate) callback_port: Option<u16>,
}

impl fmt::Debug for ServerSpec {
    /// Arguments, environment and headers may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = match &self.endpoint {
            Some(ServerEndpoint::Stdio { command, .. }) => command.as_str(),
            Some(ServerEndpoint::Http { .. }) => "http",
            None => "unknown",
        };
        f.debug_struct("ServerSpec")
            .field("endpoint", &endpoint)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

/// A key that is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredKey {
    /// Where it is in the file: `mcpServers.crm.colour`.
    pub path: String,
}

impl fmt::Display for IgnoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} means nothing here and is ignored", self.path)
    }
}

/// Why one server of the file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct InvalidServer {
    /// Where in the file.
    pub path: String,
    /// What is wrong, and what to do about it.
    pub message: String,
}

/// Why the file as a whole cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServersFileError {
    /// It is not JSON.
    #[error("the file is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),

    /// It does not have the shape of a file of MCP servers.
    #[error("{path}: expected {expected}, found {found}")]
    Unexpected {
        /// Where in the file.
        path: &'static str,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
}

impl ServersFile {
    /// Reads the text of a file, like [`ServersFile::read`].
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use dacapo_mcp::ServersFile;
    /// let text = r#"{"mcpServers": {"crm": {"url": "https://crm.example.com/mcp", "colour": "red"}, "disk": {"command": 5}}}"#;
    /// let file = ServersFile::parse(text, &BTreeMap::new())?;
    /// assert_eq!(file.ignored_keys[0].to_string(), "mcpServers.crm.colour means nothing here and is ignored");
    /// assert!(file.servers[0].spec.is_ok());
    /// assert!(file.servers[1].spec.is_err(), "a server that is wrong does not keep others from starting");
    /// # Ok::<(), dacapo_mcp::ServersFileError>(())
    /// ```
    pub fn parse(text: &str, environment: &BTreeMap<String, String>) -> Result<ServersFile, ServersFileError> {
        ServersFile::read(&parse_json(text)?, environment, None)
    }

    /// Reads a file. References to variables are replaced by the values in `environment`, of which processes inherit the
    /// [`ENVIRONMENT_MINIMUM`].
    ///
    /// `base` is the directory of the file, an absolute path: relative commands with a slash and relative `cwd` start from
    /// there. Without it they start from the current directory.
    pub fn read(
        json: &Value,
        environment: &BTreeMap<String, String>,
        base: Option<&Path>,
    ) -> Result<ServersFile, ServersFileError> {
        let unexpected =
            |path, expected, value| ServersFileError::Unexpected { path, expected, found: json_type_name(value) };
        let Value::Object(file) = json else {
            return Err(unexpected("the file", "an object with `mcpServers`", json));
        };
        let path = if file.contains_key("mcpServers") { "mcpServers" } else { "servers" };
        let entries = match file.get(path) {
            Some(Value::Object(entries)) => entries,
            Some(other) => return Err(unexpected(path, "an object with one entry per server", other)),
            None => return Err(unexpected("the file", "an object with `mcpServers`", &Value::Object(Map::new()))),
        };
        let unknown = file.keys().filter(|key| *key != path);
        let mut ignored_keys: Vec<IgnoredKey> = unknown.map(|key| IgnoredKey { path: key.clone() }).collect();
        let servers = entries.iter().map(|(name, entry)| {
            let at = format!("{path}.{name}");
            let reader = ServerReader { environment, base, ignored_keys: &mut ignored_keys, secrets: Vec::new() };
            let spec = reader.server(&at, name, entry);
            ServerEntry { name: name.clone(), spec }
        });
        Ok(ServersFile { servers: servers.collect(), ignored_keys })
    }

    /// A single server at an address, whose headers only it may see.
    pub(crate) fn remote(server: RemoteServer) -> ServersFile {
        let RemoteServer { name, url, headers, reach } = server;
        // The scheme of a token is no secret, and stands in error messages.
        let secret = |value: &String| value.strip_prefix("Bearer ").unwrap_or(value).to_owned();
        let secrets = headers.iter().map(|(_, value)| secret(value)).filter(|value| !value.is_empty()).collect();
        let host = Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        // Names are resolved later, and looked at then.
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        let endpoint = Some(ServerEndpoint::Http { url, headers, oauth: OAuthClient::default() });
        let fingerprint = fingerprint(endpoint.as_ref(), None, None);
        let spec = match address.filter(|address| reach == AddressReach::Public && !is_public(*address)) {
            Some(_) => Err(invalid(&name, "its address is not public")),
            None => Ok(ServerSpec { endpoint, disabled: false, secrets, fingerprint }),
        };
        ServersFile { servers: vec![ServerEntry { name, spec }], ignored_keys: Vec::new() }
    }
}

/// Parses the JSON of a servers file.
pub fn parse_json(text: &str) -> Result<Value, ServersFileError> {
    // Some editors begin a file with a byte order mark.
    Ok(serde_json::from_str(text.trim_start_matches('\u{feff}'))?)
}

/// Reads one server.
struct ServerReader<'a> {
    environment: &'a BTreeMap<String, String>,
    base: Option<&'a Path>,
    ignored_keys: &'a mut Vec<IgnoredKey>,
    secrets: Vec<String>,
}

impl ServerReader<'_> {
    fn server(mut self, at: &str, name: &str, entry: &Value) -> Result<ServerSpec, InvalidServer> {
        if name.is_empty() {
            return Err(invalid(at, "a server needs a name; it becomes the namespace of its tools"));
        }
        let Value::Object(fields) = entry else {
            return Err(unexpected(at, "an object", entry));
        };
        let unknown = fields.keys().filter(|key| !SERVER_KEYS.contains(&key.as_str()));
        self.ignored_keys.extend(unknown.map(|key| IgnoredKey { path: format!("{at}.{key}") }));
        let disabled = match present(fields, "disabled") {
            None => false,
            Some(Value::Bool(disabled)) => *disabled,
            Some(other) => return Err(unexpected(&format!("{at}.disabled"), "a boolean", other)),
        };
        let endpoint = match self.endpoint(at, fields) {
            Ok(endpoint) => Some(endpoint),
            // A server that is switched off may be invalid.
            Err(_) if disabled => None,
            Err(error) => return Err(error),
        };
        self.secrets.sort_unstable();
        self.secrets.dedup();
        let fingerprint = fingerprint(endpoint.as_ref(), self.base, present(fields, "env"));
        Ok(ServerSpec { endpoint, disabled, secrets: self.secrets, fingerprint })
    }

    fn endpoint(&mut self, at: &str, fields: &Map<String, Value>) -> Result<ServerEndpoint, InvalidServer> {
        match transport(at, fields)? {
            TransportKind::Stdio => self.stdio(at, fields),
            TransportKind::Http => self.http(at, fields),
        }
    }

    fn stdio(&mut self, at: &str, fields: &Map<String, Value>) -> Result<ServerEndpoint, InvalidServer> {
        let mut command = self.text(&format!("{at}.command"), &fields["command"], ConfigField::Command)?;
        if let Some(base) = self.base.filter(|_| command.contains('/')) {
            let path = base.join(command).into_os_string().into_string();
            let message = "the path to this file is no UTF-8, so it cannot start from there; give its full path";
            command = path.map_err(|_path| invalid(&format!("{at}.command"), message))?;
        }
        let args = match present(fields, "args") {
            None => Vec::new(),
            Some(Value::Array(args)) => {
                let mut read: Vec<String> = Vec::new();
                for (index, arg) in args.iter().enumerate() {
                    let previous = read.last().map(String::as_str);
                    read.push(self.text(&format!("{at}.args[{index}]"), arg, ConfigField::Argument { previous })?);
                }
                read
            }
            Some(other) => return Err(unexpected(&format!("{at}.args"), "an array of strings", other)),
        };
        let cwd =
            present(fields, "cwd").map(|cwd| self.text(&format!("{at}.cwd"), cwd, ConfigField::Command)).transpose()?;
        let minimum = ENVIRONMENT_MINIMUM
            .iter()
            .filter_map(|name| self.environment.get(*name).map(|value| ((*name).to_owned(), value.clone())));
        let mut env: BTreeMap<String, String> = minimum.collect();
        env.extend(self.texts(&format!("{at}.env"), present(fields, "env"), |name| ConfigField::Variable { name })?);
        let cwd = cwd.map(|cwd| self.base.map_or_else(|| PathBuf::from(&cwd), |base| base.join(&cwd)));
        Ok(ServerEndpoint::Stdio { command, args, env, cwd })
    }

    fn http(&mut self, at: &str, fields: &Map<String, Value>) -> Result<ServerEndpoint, InvalidServer> {
        let path = format!("{at}.url");
        let url = self.text(&path, &fields["url"], ConfigField::Url)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(invalid(&path, "expected a URL that begins with http:// or https://"));
        }
        let headers = self.texts(&format!("{at}.headers"), present(fields, "headers"), |_| ConfigField::Header)?;
        let oauth = self.oauth(&format!("{at}.oauth"), present(fields, "oauth"))?;
        Ok(ServerEndpoint::Http { url, headers, oauth })
    }

    fn oauth(&mut self, at: &str, value: Option<&Value>) -> Result<OAuthClient, InvalidServer> {
        let fields = match value {
            None => return Ok(OAuthClient::default()),
            Some(Value::Object(fields)) => fields,
            Some(other) => return Err(unexpected(at, "an object", other)),
        };
        let unknown = fields.keys().filter(|key| !OAUTH_KEYS.contains(&key.as_str()));
        self.ignored_keys.extend(unknown.map(|key| IgnoredKey { path: format!("{at}.{key}") }));
        let mut text = |key: &str, field| {
            present(fields, key).map(|value| self.text(&format!("{at}.{key}"), value, field)).transpose()
        };
        let id = text("clientId", ConfigField::Command)?;
        let secret = text("clientSecret", ConfigField::Header)?;
        let scopes = match present(fields, "scopes") {
            None => Vec::new(),
            Some(Value::Array(scopes)) => {
                let scope = |(index, scope)| self.text(&format!("{at}.scopes[{index}]"), scope, ConfigField::Command);
                scopes.iter().enumerate().map(scope).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(unexpected(&format!("{at}.scopes"), "an array of strings", other)),
        };
        let port = |value: &Value| {
            let port = value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            port.ok_or_else(|| unexpected(&format!("{at}.callbackPort"), "a port from 1 to 65535", value))
        };
        let callback_port = present(fields, "callbackPort").map(port).transpose()?;
        if secret.is_some() && id.is_none() {
            return Err(invalid(at, "has a `clientSecret` and no `clientId`"));
        }
        Ok(OAuthClient { id, secret, scopes, callback_port })
    }

    /// The values of `env` or `headers`.
    fn texts<'a>(
        &mut self,
        at: &str,
        value: Option<&'a Value>,
        field: impl Fn(&'a str) -> ConfigField<'a>,
    ) -> Result<Vec<(String, String)>, InvalidServer> {
        let entries = match value {
            None => return Ok(Vec::new()),
            Some(Value::Object(entries)) => entries,
            Some(other) => return Err(unexpected(at, "an object of strings", other)),
        };
        let read =
            entries.iter().map(|(key, value)| Ok((key.clone(), self.text(&format!("{at}.{key}"), value, field(key))?)));
        read.collect()
    }

    fn text(&mut self, at: &str, value: &Value, field: ConfigField<'_>) -> Result<String, InvalidServer> {
        let Value::String(written) = value else {
            return Err(unexpected(at, "a string", value));
        };
        let expanded = expand(written, self.environment).map_err(|message| invalid(at, message))?;
        self.secrets.extend(secrets(&expanded, field));
        Ok(expanded.text)
    }
}

fn transport(at: &str, fields: &Map<String, Value>) -> Result<TransportKind, InvalidServer> {
    let declared = match present(fields, "type") {
        None => None,
        Some(Value::String(declared)) => Some(declared.as_str()),
        Some(other) => return Err(unexpected(&format!("{at}.type"), "a string", other)),
    };
    match declared {
        None
        | Some("stdio" | "local" | "http" | "streamable-http" | "streamableHttp" | "streamable_http" | "remote") => {}
        Some("sse") => {
            let message = "the HTTP+SSE transport of 2024 is not supported; give the server's Streamable HTTP address";
            return Err(invalid(&format!("{at}.type"), message));
        }
        Some(other) => {
            let message = format!("`{other}` is no transport; expected `stdio` or `http`");
            return Err(invalid(&format!("{at}.type"), message));
        }
    }
    let wants_http = declared.map(|declared| !matches!(declared, "stdio" | "local"));
    match (present(fields, "command"), present(fields, "url"), wants_http) {
        (Some(_), Some(_), None) => Err(invalid(at, "has both `command` and `url`; keep one of them")),
        (Some(_), _, None | Some(false)) => Ok(TransportKind::Stdio),
        (_, Some(_), None | Some(true)) => Ok(TransportKind::Http),
        (_, None, Some(true)) => Err(invalid(at, "has no `url`, which its `type` needs")),
        (None, _, Some(false)) => Err(invalid(at, "has no `command`, which its `type` needs")),
        (None, None, None) => {
            Err(invalid(at, "has neither `command` (a program to start) nor `url` (a server to reach)"))
        }
    }
}

/// Two servers that may list different tools have different fingerprints. Of the environment, only the variables in the file
/// count, and those that say where programs and settings are found.
fn fingerprint(endpoint: Option<&ServerEndpoint>, base: Option<&Path>, given: Option<&Value>) -> [u8; 32] {
    let identity = match endpoint {
        None => Value::Null,
        Some(ServerEndpoint::Stdio { command, args, env, cwd }) => {
            let counts =
                |name: &str| ["HOME", "PATH"].contains(&name) || given.is_some_and(|given| given.get(name).is_some());
            let env: BTreeMap<_, _> = env.iter().filter(|(name, _)| counts(name)).collect();
            json!([
                "stdio",
                command,
                args,
                env,
                cwd.as_deref().map(Path::to_string_lossy),
                base.map(Path::to_string_lossy)
            ])
        }
        Some(ServerEndpoint::Http { url, headers, .. }) => {
            let headers: BTreeMap<_, _> = headers.iter().map(|(name, value)| (name, value)).collect();
            json!(["http", url, headers])
        }
    };
    Sha256::new_with_prefix(b"dacapo mcp server 2\0").chain_update(identity.to_string()).finalize().into()
}

/// The value of a key. `null` counts as absent.
fn present<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn invalid(at: &str, message: impl Into<String>) -> InvalidServer {
    InvalidServer { path: at.to_owned(), message: message.into() }
}

fn unexpected(at: &str, expected: &str, found: &Value) -> InvalidServer {
    invalid(at, format!("expected {expected}, found {}", json_type_name(found)))
}
