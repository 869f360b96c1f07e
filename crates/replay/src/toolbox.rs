//! A tool list, ready for any number of programs.

use std::sync::{Arc, OnceLock};

use dacapo_catalog::{
    Catalog, Declarations, EffectRules, SearchAnswer, SearchIndex, SearchResults, SearchText, Tool, ToolIndex,
    read_tools,
};
use dacapo_sandbox::{NameMeaning, NamePlace, Names, ProgramNames};
use dacapo_script::PreparedScript;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::journal::absorb;
use crate::lookup::Lookup;
use crate::request::{RequestError, plain};
use crate::written_names::{ROOTS, WrittenName, WrittenNames};

/// The guest numbers functions in 16 bits.
const TOOLS_MAX: usize = u16::MAX as usize - Lookup::FUNCTIONS.len();
const SUGGESTIONS_MAX: usize = 3;
const LISTED_MAX: usize = 12;

/// The tools that a program may call: named as functions, with validators of their arguments.
///
/// ```
/// use dacapo_replay::Toolbox;
/// let toolbox = Toolbox::read(r#"[{"name": "web-search"}]"#)?;
/// assert_eq!(toolbox.catalog().functions()[0].identifier, "web_search");
/// # Ok::<(), dacapo_replay::RequestError>(())
/// ```
#[derive(Debug)]
pub struct Toolbox {
    catalog: Catalog,
    names: Names,
    namespaces: Vec<String>,
    digest: [u8; 32],
    /// Tools from this position on are withdrawn: they stand for what a program was written for, and take no new calls.
    withdrawn_from: usize,
    text_digest: [u8; 8],
    /// Declarations and index are made on first use: many programs need neither.
    declarations: OnceLock<Declarations>,
    index: OnceLock<SearchIndex>,
    written: OnceLock<WrittenNames>,
}

impl Toolbox {
    /// Reads a tool list in any provider's format; see [`read_tools`].
    pub fn read(tools: &str) -> Result<Toolbox, RequestError> {
        Toolbox::read_with(tools, EffectRules::default())
    }

    pub(crate) fn read_with(tools: &str, effects: impl Into<Arc<EffectRules>>) -> Result<Toolbox, RequestError> {
        let json: Value = serde_json::from_str(tools).map_err(|error| RequestError::new("tools", plain(&error)))?;
        let text_digest = Sha256::digest(tools);
        let tools = read_tools(&json)
            .map_err(|error| RequestError::new(error.path().unwrap_or("tools"), error.problem().to_string()))?;
        let toolbox = Toolbox::with_effects(tools, effects)?;
        Ok(Toolbox { text_digest: std::array::from_fn(|i| text_digest[i]), ..toolbox })
    }

    /// A toolbox of these tools; `Err` if there are more than a program can number.
    pub fn new(tools: Vec<Tool>) -> Result<Toolbox, RequestError> {
        Toolbox::with_effects(tools, EffectRules::default())
    }

    /// Like [`new`](Self::new), where an operator has said what calls of some tools may do.
    pub fn with_effects(tools: Vec<Tool>, effects: impl Into<Arc<EffectRules>>) -> Result<Toolbox, RequestError> {
        if tools.len() > TOOLS_MAX {
            let message = format!("{} tools are too many; at most {TOOLS_MAX} are possible", tools.len());
            return Err(RequestError::new("tools", message));
        }
        let withdrawn_from = tools.len();
        let catalog = Catalog::with_effects(tools, effects);
        let digest = digest(catalog.tools());
        let mut toolbox = Toolbox {
            catalog,
            names: Names::default(),
            namespaces: Vec::new(),
            digest,
            withdrawn_from,
            text_digest: [0; 8],
            declarations: OnceLock::new(),
            index: OnceLock::new(),
            written: OnceLock::new(),
        };
        toolbox.name_functions();
        Ok(toolbox)
    }

    /// The same tools, and others by their qualified names that were there when a program was written and are gone. Calls of
    /// those that were [handed out](crate::StepRequest::handed_out) are replayed; new ones reject.
    pub fn with_withdrawn<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Toolbox, RequestError> {
        let withdrawn = names.into_iter().map(|qualified| {
            let (server, name) = match qualified.split_once('.') {
                Some((server, name)) => (Some(server.to_owned()), name),
                None => (None, qualified),
            };
            let input_schema = Value::Object(serde_json::Map::new()).into();
            Tool {
                name: name.to_owned(),
                description: None,
                input_schema,
                output_schema: None,
                observed_answer: None,
                server,
                effect: None,
            }
        });
        let withdrawn_from = self.catalog.tools().len();
        let tools = self.catalog.tools().iter().cloned().chain(withdrawn).collect();
        let mut toolbox = Toolbox::with_effects(tools, Arc::clone(self.catalog.effects()))?;
        toolbox.withdrawn_from = withdrawn_from;
        toolbox.digest = Sha256::new_with_prefix(b"withdrawn\0")
            .chain_update(toolbox.digest)
            .chain_update(withdrawn_from.to_le_bytes())
            .finalize()
            .into();
        Ok(toolbox)
    }

    /// Whether the tool was there when the program was written, and is gone.
    pub(crate) fn is_withdrawn(&self, tool: ToolIndex) -> bool {
        tool.0 as usize >= self.withdrawn_from
    }

    /// The tools' names and schemas.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The first bytes of a hash of the JSON that it was read from; zeros if it was made of tools.
    pub fn text_digest(&self) -> [u8; 8] {
        self.text_digest
    }

    /// The tools as TypeScript declarations, for the model that writes programs.
    pub fn declarations(&self) -> &Declarations {
        self.declarations.get_or_init(|| self.catalog.declarations())
    }

    /// Finds tools by what they do; the text for the model takes about `tokens_max` tokens.
    pub fn search(&self, text: &SearchText, limit: usize, tokens_max: usize) -> (SearchResults, SearchAnswer) {
        self.search_with(text, limit, tokens_max, |_| Vec::new())
    }

    /// Like [`search`](Self::search), with another opinion: `rank` gets the needs of the search and answers with the tools
    /// for each, best first.
    pub fn search_with(
        &self,
        text: &SearchText,
        limit: usize,
        tokens_max: usize,
        rank: impl FnOnce(&[&str]) -> Vec<Vec<ToolIndex>>,
    ) -> (SearchResults, SearchAnswer) {
        let results = self.index().search_with(text, limit, rank);
        let found = SearchAnswer::new(&results, self.index(), &self.catalog, self.declarations(), tokens_max);
        (results, found)
    }

    pub(crate) fn index(&self) -> &SearchIndex {
        self.index.get_or_init(|| SearchIndex::new(self.catalog.tools()))
    }

    pub(crate) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    fn name_functions(&mut self) {
        let mut functions: Vec<_> = self.catalog.functions().iter().collect();
        // Stable: `None` first, then one namespace after the other.
        functions.sort_by_key(|function| function.namespace.as_deref());
        for function in functions {
            if let Some(namespace) = &function.namespace
                && self.namespaces.last() != Some(namespace)
            {
                self.names.namespace(namespace);
                self.namespaces.push(namespace.clone());
            }
            self.names.function(function.tool.0 as u16, &function.identifier);
            function.aliases.iter().for_each(|alias| self.names.alias(alias));
            if function.exact_name != function.identifier && !function.aliases.contains(&function.exact_name) {
                self.names.exact(&function.exact_name);
            }
        }
        // Numbered after the tools, which may take the names.
        for (number, name) in (self.catalog.tools().len()..).zip(Lookup::FUNCTIONS) {
            if !self.names.has_global(name) {
                self.names.global(number as u16, name);
            }
        }
    }

    /// The lookup function that has this number, if it is no tool's.
    pub(crate) fn lookup_function(&self, number: u32) -> Option<u32> {
        number.checked_sub(self.catalog.tools().len() as u32)
    }

    /// What the names mean that a program uses and does not declare: habits of other systems, and errors.
    pub(crate) fn names_for(&self, script: &PreparedScript) -> ProgramNames {
        let mut names = ProgramNames::default();
        for name in script.free_names.iter().filter(|name| !self.names.has_global(name)) {
            let is_called = script.unknown_calls.iter().any(|call| call.name == *name);
            match self.written().meaning(&self.catalog, name) {
                Some(WrittenName::Tool(tool)) => names.other_name(tool.0 as u16, name),
                _ if is_habit(name) => names.habit(name),
                _ if ROOTS.contains(&name.as_str()) && !is_called => names.tools(name),
                Some(_) if !is_called && absent_global(name).is_none() => names.path(name),
                _ if is_called || absent_global(name).is_some() => names.unknown(name, &self.unknown_name(None, name)),
                _ => {}
            }
        }
        names
    }

    /// What a name means that a program reads from an object with tools.
    pub(crate) fn meaning(&self, place: NamePlace<'_>, name: &str) -> Option<NameMeaning> {
        let found = match place {
            NamePlace::Tools => self.path_meaning(name),
            NamePlace::Namespace(number) => self.path_meaning(&format!("{}.{name}", self.namespace(number)?)),
            NamePlace::Path(path) => self.path_meaning(&format!("{path}.{name}")),
            NamePlace::Module(module) => return self.imported(module, name),
        };
        let is_root = matches!(place, NamePlace::Tools) && ROOTS.contains(&name);
        let global = || MEMBER_HABITS.iter().find(|habit| **habit == name && matches!(place, NamePlace::Tools));
        found
            .or_else(|| is_root.then(|| NameMeaning::Path(String::new())))
            .or_else(|| global().map(|habit| NameMeaning::Global(habit)))
    }

    fn path_meaning(&self, path: &str) -> Option<NameMeaning> {
        Some(match self.written().meaning(&self.catalog, path)? {
            WrittenName::Tool(tool) => {
                let function = &self.catalog.functions()[tool.0 as usize];
                let namespace = function.namespace.as_ref().and_then(|it| self.namespaces.binary_search(it).ok());
                NameMeaning::Function {
                    tool: tool.0,
                    namespace: namespace.map_or(0, |at| at as u32 + 1),
                    member: function.identifier.clone(),
                }
            }
            WrittenName::Server(number) => NameMeaning::Namespace(number + 1),
            WrittenName::Beginning => NameMeaning::Path(path.to_owned()),
        })
    }

    /// What can be imported from a module: the tools of that name, of the server that the module's path names.
    fn imported(&self, module: &str, name: &str) -> Option<NameMeaning> {
        let segments: Vec<&str> = module.split(['/', ':', '\\']).map(module_name).collect();
        let mut of_servers = segments.iter().rev().filter(|segment| !segment.is_empty());
        if name == "default" {
            let last = *segments.last()?;
            let in_server = segments.iter().rev().nth(1).and_then(|it| self.path_meaning(&format!("{it}.{last}")));
            // A module that is no tool's name holds them all.
            let whole = || absent_module(module).is_none().then(|| NameMeaning::Path(String::new()));
            return in_server.or_else(|| self.path_meaning(last)).or_else(whole);
        }
        let in_server = of_servers.find_map(|segment| self.path_meaning(&format!("{segment}.{name}")));
        let is_beginning = |found: &NameMeaning| matches!(found, NameMeaning::Path(_));
        in_server
            .filter(|found| !is_beginning(found))
            .or_else(|| self.path_meaning(name).filter(|found| !is_beginning(found)))
            .or_else(|| ROOTS.contains(&name).then(|| NameMeaning::Path(String::new())))
            .or_else(|| MEMBER_HABITS.iter().find(|habit| **habit == name).map(|habit| NameMeaning::Global(habit)))
    }

    /// The message of the error for a name that means nothing.
    pub(crate) fn unknown(&self, place: NamePlace<'_>, name: &str) -> String {
        match place {
            NamePlace::Tools => self.unknown_name(Some("tools"), name),
            NamePlace::Namespace(number) => self.unknown_name(self.namespace(number), name),
            NamePlace::Path(path) => self.unknown_name(Some(path), name),
            NamePlace::Module(module) => {
                let reason = absent_module(module).unwrap_or("no tool has this name");
                let (what, name) =
                    if name == "default" { (String::new(), "") } else { (format!("`{name}` from "), name) };
                format!("cannot import {what}{module:?}: {reason}{}", self.advice(name))
            }
        }
    }

    fn namespace(&self, number: u32) -> Option<&str> {
        number.checked_sub(1).and_then(|at| self.namespaces.get(at as usize)).map(String::as_str)
    }

    /// What a program writes to call function number `number`.
    pub(crate) fn expression(&self, number: u32) -> String {
        match self.lookup_function(number) {
            Some(lookup) => Lookup::FUNCTIONS.get(lookup as usize).copied().unwrap_or_default().to_owned(),
            None => self.catalog.functions()[number as usize].expression(),
        }
    }

    fn written(&self) -> &WrittenNames {
        self.written.get_or_init(|| WrittenNames::new(&self.catalog, &self.namespaces))
    }

    fn unknown_name(&self, object: Option<&str>, name: &str) -> String {
        let written = object.map_or_else(|| name.to_owned(), |object| format!("{object}.{name}"));
        let reason = match object {
            None => absent_global(name).unwrap_or("no tool has this name"),
            Some(_) => "no tool has this name",
        };
        format!("{written} is not defined: {reason}{}", self.advice(name))
    }

    /// What to write instead of a name that is no tool's.
    pub(crate) fn advice(&self, name: &str) -> String {
        let closest = self.catalog.closest(name, SUGGESTIONS_MAX);
        if self.catalog.tools().is_empty() {
            "; there are no tools".to_owned()
        } else if closest.is_empty() {
            format!("; the tools are {}", self.listed())
        } else {
            format!("; did you mean {}?", closest.join(" or "))
        }
    }

    fn listed(&self) -> String {
        let functions = self.catalog.functions();
        let names: Vec<_> = functions.iter().take(LISTED_MAX).map(dacapo_catalog::Function::expression).collect();
        match functions.len().saturating_sub(LISTED_MAX) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    }
}

/// Globals of other systems, see prelude.js. A tool of the same name has it instead.
const HABITS: [&str; 16] = [
    "store",
    "load",
    "import",
    "default",
    "text",
    "print",
    "emit",
    "notify",
    "progress",
    "image",
    "sleep",
    "require",
    "ALL_TOOLS",
    "callTool",
    "call_tool",
    "callMCPTool",
];

/// Whether a global is defined for programs that use it.
pub(crate) fn is_habit(name: &str) -> bool {
    HABITS.contains(&name)
}

/// Functions that programs also look for in `tools`.
const MEMBER_HABITS: [&str; 5] = ["callTool", "call_tool", "callMCPTool", "search", "describe"];

/// Why a global that JavaScript has elsewhere is not here.
fn absent_global(name: &str) -> Option<&'static str> {
    Some(match name {
        "fetch" | "XMLHttpRequest" | "WebSocket" | "EventSource" | "axios" => "there is no network here; use the tools",
        "fs" | "path" | "__dirname" | "__filename" | "File" | "FileReader" | "localStorage" | "sessionStorage" => {
            "there are no files here; use the tools, and `return` what should be kept"
        }
        "process" | "Deno" | "Bun" | "os" | "child_process" => {
            "there is no process and no environment here; use the tools"
        }
        "window" | "document" | "navigator" => "there is no browser here; use the tools",
        "Buffer" | "Blob" | "FormData" => "use text, `TextEncoder`, `atob` and `btoa`",
        "module" | "exports" => "there are no modules here; `return` the result",
        "alert" | "prompt" | "confirm" => "there is no user here; return what should be said",
        _ => return None,
    })
}

/// Why a module that JavaScript has elsewhere is not here. Its name is no tool's.
fn absent_module(module: &str) -> Option<&'static str> {
    Some(match module.strip_prefix("node:").unwrap_or(module) {
        "fs" | "fs/promises" | "fs-extra" | "path" | "os" => "there are no files here; use the tools",
        "http" | "https" | "net" | "axios" | "node-fetch" | "undici" | "got" | "ws" => {
            "there is no network here; use the tools"
        }
        "child_process" | "cluster" | "worker_threads" | "process" => "there are no processes here; use the tools",
        "assert" | "buffer" | "crypto" | "dotenv" | "events" | "lodash" | "moment" | "readline" | "stream" | "url"
        | "util" | "zlib" | "zod" => "there are no packages here; plain JavaScript and the tools are all there is",
        _ => return None,
    })
}

/// A segment of a module's path, without what says that it is a file.
fn module_name(segment: &str) -> &str {
    let name = [".ts", ".js", ".mjs", ".tsx"].iter().find_map(|end| segment.strip_suffix(end)).unwrap_or(segment);
    if matches!(name, "." | ".." | "index") { "" } else { name.trim_start_matches('@') }
}

fn digest(tools: &[Tool]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(b"dacapo tools 1\0");
    for tool in tools {
        let (input, output) = (tool.input_schema.to_string(), tool.output_schema.as_ref().map(ToString::to_string));
        let parts = [
            Some(tool.name.as_str()),
            tool.server.as_deref(),
            tool.description.as_deref(),
            Some(&input),
            output.as_deref(),
            Some(tool.effect().name()),
        ];
        // Programs see it in what `describe` returns.
        let observed = tool.observed_answer.as_deref().map(Some);
        parts.into_iter().chain(observed).for_each(|part| absorb(&mut hash, part));
    }
    hash.finalize().into()
}
