//! MCP servers that a client names in its request, for its provider to connect to, or for the gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dacapo_catalog::{Effect, Tool};
use serde_json::{Map, Value};

use crate::client_wire::Body;
use crate::neutral::remove_fields;
use crate::request::BadRequest;

/// A server that a request names.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestServer {
    /// Where it stands in the request.
    pub path: String,
    /// The client's name for it, which is the namespace of its tools.
    pub name: String,
    /// Its address.
    pub url: String,
    /// For every request to it. They may hold credentials.
    pub headers: Vec<(String, String)>,
    tools: ToolRules,
}

impl fmt::Debug for RequestServer {
    /// Neither the address nor the headers, which may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestServer").field("path", &self.path).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Which tools of a server the client lets a model use, and which of their calls it wants to approve.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ToolRules {
    /// Of Responses.
    Filters { allowed: Option<ToolFilter>, approval: ApprovalRule },
    /// Of Messages: by name, or else for all. This wire has no approvals.
    Switches { by_name: BTreeMap<String, bool>, others: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ApprovalRule {
    Always,
    Never,
    /// Calls of tools that neither matches have to be approved.
    ByTool {
        never: Option<ToolFilter>,
    },
}

/// Selects tools. Whatever is absent selects all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ToolFilter {
    names: Option<BTreeSet<String>>,
    read_only: Option<bool>,
}

impl ToolFilter {
    fn selects(&self, tool: &Tool) -> bool {
        let is_read_only = tool.effect == Some(Effect::Read);
        self.names.as_ref().is_none_or(|names| names.contains(&tool.name))
            && self.read_only.is_none_or(|read_only| read_only == is_read_only)
    }
}

impl RequestServer {
    /// Whether the client lets a model use the tool.
    pub fn offers(&self, tool: &Tool) -> bool {
        match &self.tools {
            ToolRules::Filters { allowed, .. } => allowed.as_ref().is_none_or(|allowed| allowed.selects(tool)),
            ToolRules::Switches { by_name, others } => by_name.get(&tool.name).copied().unwrap_or(*others),
        }
    }

    /// Whether the client wants to approve every call of the tool.
    pub fn needs_approval(&self, tool: &Tool) -> bool {
        match &self.tools {
            ToolRules::Filters { approval: ApprovalRule::Always, .. } => true,
            ToolRules::Filters { approval: ApprovalRule::ByTool { never }, .. } => {
                !never.as_ref().is_some_and(|never| never.selects(tool))
            }
            ToolRules::Filters { approval: ApprovalRule::Never, .. } | ToolRules::Switches { .. } => false,
        }
    }
}

/// The kind of tool by which Responses names a server.
const MCP: &str = "mcp";
/// The kind of tool by which Messages says which tools of a server are used.
const TOOLSET: &str = "mcp_toolset";
/// The field by which Messages names servers.
const SERVERS: &str = "mcp_servers";

/// The servers of a request on Responses: those with an address, for programs.
pub(crate) fn of_responses(body: &Body) -> Result<Vec<RequestServer>, BadRequest> {
    let entries = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_server = |entry: &Value| entry["type"] == MCP && !entry["server_url"].is_null();
    let for_programs = |entry: &Value| match entry["allowed_callers"].as_array() {
        Some(callers) => callers.iter().any(|caller| caller == "programmatic"),
        None => true,
    };
    let servers = entries.iter().enumerate().filter(|(_, entry)| is_server(entry) && for_programs(entry));
    servers.map(|(at, entry)| responses_server(&format!("tools[{at}]"), entry)).collect()
}

fn responses_server(path: &str, entry: &Value) -> Result<RequestServer, BadRequest> {
    let fields = Fields { path, entry };
    let mut headers = Vec::new();
    match &entry["headers"] {
        Value::Null => {}
        Value::Object(given) => {
            for (name, value) in given {
                let value = value.as_str().ok_or_else(|| fields.wrong("headers", "must be texts"))?;
                headers.push((name.clone(), value.to_owned()));
            }
        }
        _ => return Err(fields.wrong("headers", "must be an object of texts")),
    }
    if let Some(token) = fields.optional_text("authorization")? {
        headers.push(("authorization".to_owned(), format!("Bearer {token}")));
    }
    let allowed = match &entry["allowed_tools"] {
        Value::Null => None,
        list @ Value::Array(_) => {
            Some(ToolFilter { names: Some(fields.names("allowed_tools", list)?), read_only: None })
        }
        filter => Some(fields.filter("allowed_tools", filter)?),
    };
    let approval = match &entry["require_approval"] {
        Value::Null => ApprovalRule::Always,
        Value::String(text) if text == "always" => ApprovalRule::Always,
        Value::String(text) if text == "never" => ApprovalRule::Never,
        Value::Object(by_tool) => {
            let filter = |key: &str| match by_tool.get(key) {
                None | Some(Value::Null) => Ok(None),
                Some(filter) => fields.filter(&format!("require_approval.{key}"), filter).map(Some),
            };
            // What is named under `always` needs an approval as well as what is not named at all.
            filter("always")?;
            ApprovalRule::ByTool { never: filter("never")? }
        }
        _ => return Err(fields.wrong("require_approval", "must be `always`, `never`, or an object of filters")),
    };
    Ok(RequestServer {
        path: path.to_owned(),
        name: fields.text("server_label")?,
        url: fields.text("server_url")?,
        headers,
        tools: ToolRules::Filters { allowed, approval },
    })
}

/// The servers of a request on Messages.
pub(crate) fn of_messages(body: &Body) -> Result<Vec<RequestServer>, BadRequest> {
    let servers = match body.get(SERVERS) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(servers)) => servers,
        Some(_) => return Err(BadRequest::new(SERVERS, "must be an array")),
    };
    let tools = body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    servers.iter().enumerate().map(|(at, entry)| messages_server(&format!("{SERVERS}[{at}]"), entry, tools)).collect()
}

fn messages_server(path: &str, entry: &Value, tools: &[Value]) -> Result<RequestServer, BadRequest> {
    let fields = Fields { path, entry };
    let name = fields.text("name")?;
    let token = fields.optional_text("authorization_token")?;
    let is_enabled = |config: &Value| config["enabled"].as_bool();
    let toolset = tools.iter().find(|tool| tool["type"] == TOOLSET && tool["mcp_server_name"] == name.as_str());
    let configuration = &entry["tool_configuration"];
    let rules = if let Some(toolset) = toolset {
        let configs = toolset["configs"].as_object().into_iter().flatten();
        let by_name = configs.filter_map(|(tool, config)| Some((tool.clone(), is_enabled(config)?)));
        ToolRules::Switches {
            by_name: by_name.collect(),
            others: is_enabled(&toolset["default_config"]).unwrap_or(true),
        }
    } else {
        let others = is_enabled(configuration).unwrap_or(true);
        match &configuration["allowed_tools"] {
            list @ Value::Array(_) if others => {
                let names = fields.names("tool_configuration.allowed_tools", list)?;
                ToolRules::Switches { by_name: names.into_iter().map(|name| (name, true)).collect(), others: false }
            }
            _ => ToolRules::Switches { by_name: BTreeMap::new(), others },
        }
    };
    Ok(RequestServer {
        path: path.to_owned(),
        name,
        url: fields.text("url")?,
        headers: token.map(|token| ("authorization".to_owned(), format!("Bearer {token}"))).into_iter().collect(),
        tools: rules,
    })
}

/// Whether the entry of `tools` is about one of these servers.
pub(crate) fn is_about(entry: &Value, servers: &BTreeSet<String>) -> bool {
    let name = match entry["type"].as_str() {
        Some(MCP) => &entry["server_label"],
        Some(TOOLSET) => &entry["mcp_server_name"],
        _ => return false,
    };
    name.as_str().is_some_and(|name| servers.contains(name))
}

/// Removes what a body says of these servers outside of its tools.
pub(crate) fn remove(body: &mut Body, servers: &BTreeSet<String>) {
    let Some(Value::Array(named)) = body.get_mut(SERVERS) else { return };
    named.retain(|entry| !entry["name"].as_str().is_some_and(|name| servers.contains(name)));
    if named.is_empty() {
        body.shift_remove(SERVERS);
    }
}

/// Removes the credentials for the servers that a request names. Responses and saved conversations do not need them.
pub fn remove_credentials(body: &mut Map<String, Value>) {
    let lists = [("tools", Some(MCP), &["authorization", "headers"][..]), (SERVERS, None, &["authorization_token"])];
    for (list, kind, fields) in lists {
        let entries = body.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for entry in entries.filter(|entry| kind.is_none_or(|kind| entry["type"] == kind)) {
            remove_fields(entry, fields);
        }
    }
}

/// The fields of an entry, for errors that say where they are.
struct Fields<'a> {
    path: &'a str,
    entry: &'a Value,
}

impl Fields<'_> {
    fn wrong(&self, key: &str, message: &str) -> BadRequest {
        BadRequest::new(format!("{}.{key}", self.path), message)
    }

    fn optional_text(&self, key: &str) -> Result<Option<String>, BadRequest> {
        match &self.entry[key] {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            _ => Err(self.wrong(key, "must be a text")),
        }
    }

    fn text(&self, key: &str) -> Result<String, BadRequest> {
        let text = self.optional_text(key)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| self.wrong(key, "is missing"))
    }

    fn names(&self, key: &str, list: &Value) -> Result<BTreeSet<String>, BadRequest> {
        let names = list.as_array().map(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
        names.flatten().ok_or_else(|| self.wrong(key, "must be a list of names"))
    }

    fn filter(&self, key: &str, filter: &Value) -> Result<ToolFilter, BadRequest> {
        if !filter.is_object() {
            return Err(self.wrong(key, "must be an object with `tool_names` or `read_only`"));
        }
        let names = match &filter["tool_names"] {
            Value::Null => None,
            list => Some(self.names(&format!("{key}.tool_names"), list)?),
        };
        let read_only = match &filter["read_only"] {
            Value::Null => None,
            Value::Bool(read_only) => Some(*read_only),
            _ => return Err(self.wrong(&format!("{key}.read_only"), "must be true or false")),
        };
        Ok(ToolFilter { names, read_only })
    }
}
