//! Tools of servers behind the gateway. They join the client's tools in programs, and the gateway executes their calls.

use std::collections::BTreeSet;

use dacapo_catalog::{Effect, Tool};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::allowed_callers::ProgramEntries;
use crate::ids::short_id;

/// The tools of servers that one client may use.
#[derive(Debug, Default)]
pub struct ServerTools {
    /// As they would stand in a tool list; each has a `server`.
    entries: Vec<Value>,
    digest: [u8; 32],
    unavailable: Vec<String>,
    /// Names of servers that the request names itself. The model's provider does not get them.
    of_request: BTreeSet<String>,
}

impl ServerTools {
    /// `unavailable` are the names of servers that may be used, and whose tools are not known now.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Tool>, unavailable: Vec<String>) -> ServerTools {
        let entries: Vec<Value> = tools.into_iter().map(entry).collect();
        let digest = Sha256::digest(json!([entries, unavailable]).to_string()).into();
        ServerTools { entries, digest, unavailable, of_request: BTreeSet::new() }
    }

    /// The same tools, of servers that the request names itself.
    #[must_use]
    pub fn of_request(self, servers: BTreeSet<String>) -> ServerTools {
        ServerTools { of_request: servers, ..self }
    }

    /// These and other tools.
    #[must_use]
    pub fn joined_with(&self, other: &ServerTools) -> ServerTools {
        let digest = Sha256::new().chain_update(self.digest).chain_update(other.digest).finalize().into();
        ServerTools {
            entries: [&self.entries[..], &other.entries].concat(),
            digest,
            unavailable: [&self.unavailable[..], &other.unavailable].concat(),
            of_request: &self.of_request | &other.of_request,
        }
    }

    pub(crate) fn servers_of_request(&self) -> &BTreeSet<String> {
        &self.of_request
    }

    /// Whether there are neither tools nor names of servers.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unavailable.is_empty()
    }

    pub(crate) fn unavailable(&self) -> &[String] {
        &self.unavailable
    }

    /// The client's tools and these, as JSON. A client may have a namespace of the same name: then its own tools go first.
    pub(crate) fn joined(&self, of_client: &ProgramEntries<'_>) -> String {
        let name = |entry: &Value| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let function = entry.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
            Some((text("server")?, text("name").or_else(|| function.map(str::to_owned))?))
        };
        let taken: BTreeSet<(String, String)> = of_client.iter().filter_map(name).collect();
        let is_free = |entry: &&Value| taken.is_empty() || name(entry).is_none_or(|name| !taken.contains(&name));
        let all: Vec<&Value> = of_client.iter().chain(self.entries.iter().filter(is_free)).collect();
        serde_json::to_string(&all).unwrap_or_default()
    }

    /// Identifies the joined tools, where `of_client` identifies the client's.
    pub(crate) fn joined_digest(&self, tenant: &str, of_client: &[u8]) -> [u8; 32] {
        let hash = Sha256::new_with_prefix(b"dacapo tools with servers\0").chain_update(Sha256::digest(tenant));
        hash.chain_update(Sha256::digest(of_client)).chain_update(self.digest).finalize().into()
    }
}

/// The tools of one server, as an explicit client is shown them.
#[derive(Debug)]
pub struct ServerToolList<'a> {
    /// The server's name.
    pub server: &'a str,
    /// In the order of the catalog.
    pub tools: Vec<&'a Tool>,
}

impl ServerToolList<'_> {
    /// Names the list. A server whose tools have changed has another one.
    pub fn id(&self) -> String {
        let tools: Vec<Value> = self.tools.iter().map(|tool| entry(tool)).collect();
        short_id(self.server, &json!(tools).to_string(), 0)
    }
}

fn entry(tool: &Tool) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(tool.name));
    entry.insert("server".to_owned(), json!(tool.server));
    if let Some(description) = &tool.description {
        entry.insert("description".to_owned(), json!(description));
    }
    entry.insert("inputSchema".to_owned(), json!(tool.input_schema));
    if let Some(output) = &tool.output_schema {
        entry.insert("outputSchema".to_owned(), json!(output));
    }
    let annotations = tool.effect.map(|effect| match effect {
        Effect::Read => json!({"readOnlyHint": true}),
        Effect::Idempotent => json!({"idempotentHint": true}),
        Effect::Write => json!({"readOnlyHint": false}),
    });
    entry.extend(annotations.map(|annotations| ("annotations".to_owned(), annotations)));
    Value::Object(entry)
}
