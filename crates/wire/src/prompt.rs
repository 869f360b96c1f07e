//! The tools that the model gets in code mode instead of the client's, and the prompt that explains them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::Toolbox;
use serde_json::{Value, json};

use crate::allowed_callers::Toolsets;
use crate::model_message::ModelMistake;

/// Increased whenever the text of the prompt changes.
pub const PROMPT_VERSION: u32 = 3;

pub(crate) const EXECUTE: &str = "execute";
pub(crate) const SEARCH: &str = "search";
/// Used if the client has a direct tool named like ours.
const EXECUTE_ALTERNATIVE: &str = "execute_program";
pub(crate) const SEARCH_ALTERNATIVE: &str = "search_functions";

const RULES: &str = "\
Runs a TypeScript program that calls functions, and answers with what it returns. This is the only way to call them.
- Write the body of an async function: `await` the calls and `return` only what you need to see (`console.log` comes back too). Filter, join and compute in the program. Do the whole task in one, with `Promise.all` for independent calls.
- Each function takes one object. A failed call throws a ToolError; some tools return text that begins with \"Error\" instead.
- No network, files or imports. After an error correct the program and run it again: completed calls are not executed twice, unless you pass `{fresh: true}` as the second argument.
";

const DECLARED: &str = "The functions:\n";
const SEARCHED: &str = "The functions are too many to declare. Find those that you need with `{search}`, which answers with their declarations, before you write the program; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const MORE: &str = "More functions are not declared here. Find those that you need with `{search}`, which answers with their declarations; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const SEARCH_DESCRIPTION: &str = "\
Finds functions for `{execute}` by what they do, and answers with their TypeScript declarations. Ask for all that the task needs in one query.";

/// Limit of the list of names that replaces the declarations.
const NAMES_BYTES_MAX: usize = 3_000;

/// The tools that the model has in code mode.
#[derive(Debug, Clone)]
pub struct ModelTools {
    toolbox: Arc<Toolbox>,
    /// The functions to declare, if the client defers the others to the search.
    declared: Option<Arc<Toolbox>>,
    /// Tools that the model may call directly.
    direct: BTreeSet<String>,
    toolsets: Toolsets,
    execute: &'static str,
    search: Option<&'static str>,
    programs: ProgramWriting,
}

/// Whether the model may write programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramWriting {
    On,
    Off,
}

impl ModelTools {
    /// Declares the functions if that takes at most `declarations_tokens_max`. Otherwise the model has to search.
    pub fn new(toolbox: Arc<Toolbox>, direct: BTreeSet<String>, declarations_tokens_max: usize) -> ModelTools {
        let free_name = |name: &'static str, alternative| if direct.contains(name) { alternative } else { name };
        let fits = toolbox.declarations().text().len() <= declarations_tokens_max.saturating_mul(BYTES_PER_TOKEN);
        ModelTools {
            execute: free_name(EXECUTE, EXECUTE_ALTERNATIVE),
            search: (!fits).then(|| free_name(SEARCH, SEARCH_ALTERNATIVE)),
            declared: None,
            toolbox,
            direct,
            toolsets: Toolsets::Named,
            programs: ProgramWriting::On,
        }
    }

    /// With open toolsets the model may call tools by names that only their provider knows.
    #[must_use]
    pub(crate) fn with_toolsets(mut self, toolsets: Toolsets) -> ModelTools {
        self.toolsets = toolsets;
        self
    }

    /// Declares only these functions, and lets the model search for the others.
    #[must_use]
    pub fn declaring(mut self, declared: Arc<Toolbox>, declarations_tokens_max: usize) -> ModelTools {
        let search = if self.direct.contains(SEARCH) { SEARCH_ALTERNATIVE } else { SEARCH };
        self.search.get_or_insert(search);
        let bytes_max = declarations_tokens_max.saturating_mul(BYTES_PER_TOKEN);
        self.declared = Some(declared).filter(|declared| declared.declarations().text().len() <= bytes_max);
        self
    }

    /// No programs: the model calls the client's tools directly.
    pub fn off(empty: Arc<Toolbox>) -> ModelTools {
        ModelTools {
            execute: EXECUTE,
            search: None,
            toolbox: empty,
            declared: None,
            direct: BTreeSet::new(),
            toolsets: Toolsets::Named,
            programs: ProgramWriting::Off,
        }
    }

    /// Whether the model may write programs.
    pub fn is_on(&self) -> bool {
        self.programs == ProgramWriting::On
    }

    /// The tools that programs may call.
    pub fn toolbox(&self) -> &Arc<Toolbox> {
        &self.toolbox
    }

    /// The name of the tool that runs programs.
    pub fn execute(&self) -> &str {
        self.execute
    }

    /// The name of the tool that searches for functions, if the model has it.
    pub fn search(&self) -> Option<&str> {
        self.search
    }

    /// Whether this is the tool that runs programs, under any of its names: an earlier request may have used another.
    pub(crate) fn is_execute(&self, name: &str) -> bool {
        let is_ours = matches!(name, EXECUTE | EXECUTE_ALTERNATIVE) && !self.direct.contains(name);
        self.is_on() && (name == self.execute || is_ours)
    }

    /// The same for the search. A search is answered even if the tool is no longer offered, unless the client has a
    /// tool of that name.
    pub(crate) fn is_search(&self, name: &str) -> bool {
        let is_ours = matches!(name, SEARCH | SEARCH_ALTERNATIVE) && !self.direct.contains(name);
        self.search == Some(name) || self.is_on() && is_ours && self.toolbox.catalog().find(name).is_none()
    }

    /// Whether the model may call the tool directly.
    pub fn is_direct(&self, tool: &str) -> bool {
        let is_unknown = || !self.is_execute(tool) && !self.is_search(tool) && self.function(tool).is_none();
        !self.is_on() || self.direct.contains(tool) || self.toolsets == Toolsets::Open && is_unknown()
    }

    /// Position in the catalog of the function that programs know by this name.
    fn function(&self, name: &str) -> Option<usize> {
        let catalog = self.toolbox.catalog();
        catalog.functions().iter().position(|function| {
            let exact = catalog.qualified_name(function.tool);
            exact == name || function.identifier == name || function.aliases.iter().any(|alias| alias == name)
        })
    }

    /// Name, description and parameters of the tools that run programs and search for functions.
    pub fn tools(&self) -> Vec<(&str, String, Value)> {
        if !self.is_on() {
            return Vec::new();
        }
        let mut description = RULES.to_owned();
        match self.search {
            None => {
                description.push_str(DECLARED);
                description.push_str(self.toolbox.declarations().text());
            }
            Some(search) if self.declared.as_ref().is_some_and(|declared| !declared.catalog().tools().is_empty()) => {
                description.push_str(DECLARED);
                description.push_str(self.declared.as_ref().map_or("", |declared| declared.declarations().text()));
                description.push_str(&MORE.replace("{search}", search));
                description.push_str(&self.names());
            }
            Some(search) => {
                description.push_str(&SEARCHED.replace("{search}", search));
                description.push_str(&self.names());
            }
        }
        let code = json!({"type": "string", "description": "The program: the body of an async TypeScript function."});
        let execute = json!({"type": "object", "properties": {"code": code}, "required": ["code"], "additionalProperties": false});
        let mut tools = vec![(self.execute, description, execute)];
        if let Some(search) = self.search {
            let query = json!({"type": "string", "description": "What the functions should do, in plain words."});
            let limit = json!({"type": "integer", "description": "How many functions to answer with, 5 if not given."});
            let parameters = json!({"type": "object", "properties": {"query": query, "limit": limit}, "required": ["query"], "additionalProperties": false});
            tools.push((search, SEARCH_DESCRIPTION.replace("{execute}", self.execute), parameters));
        }
        tools
    }

    /// Names of the functions that are not declared, by namespace, up to [`NAMES_BYTES_MAX`].
    fn names(&self) -> String {
        let declared = self.declared.as_ref().map(|declared| declared.catalog());
        let is_declared = |name: &str| declared.is_some_and(|catalog| catalog.find(name).is_some());
        let catalog = self.toolbox.catalog();
        let functions = catalog.functions().iter();
        let mut functions: Vec<_> =
            functions.filter(|function| !is_declared(catalog.qualified_name(function.tool))).collect();
        functions.sort_by_key(|function| (&function.namespace, &function.identifier));
        let namespaces: Vec<_> = functions.chunk_by(|a, b| a.namespace == b.namespace).collect();
        let room = NAMES_BYTES_MAX / namespaces.len().max(1);
        let mut text = String::new();
        for functions in namespaces {
            let mut line = match &functions[0].namespace {
                Some(namespace) => format!("{namespace}.* ({}):", functions.len()),
                None => format!("{} functions:", functions.len()),
            };
            let mut named = 0;
            for function in functions {
                if line.len() + function.identifier.len() > room {
                    break;
                }
                let separator = if named == 0 { " " } else { ", " };
                // Writing to a string cannot fail.
                write!(line, "{separator}{}", function.identifier).unwrap_or_default();
                named += 1;
            }
            let more = functions.len() - named;
            if more > 0 {
                write!(line, " and {more} more").unwrap_or_default();
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// The mistake in a call of a tool that the model does not have.
    pub(crate) fn cannot_call(&self, name: &str, arguments: String) -> ModelMistake {
        const CLOSEST_MAX: usize = 3;
        let catalog = self.toolbox.catalog();
        match self.function(name).map(|at| &catalog.functions()[at]) {
            Some(function) => {
                ModelMistake::OnlyPrograms { tool: name.to_owned(), expression: function.expression(), arguments }
            }
            None => ModelMistake::Unknown { name: name.to_owned(), closest: catalog.closest(name, CLOSEST_MAX) },
        }
    }
}

/// The prompt with placeholders for the tools, for people to read.
pub fn print_prompt() -> String {
    format!(
        "prompt version {PROMPT_VERSION}\n\n── {EXECUTE}, when the declarations fit\n{RULES}{DECLARED}<declarations>\n\n── {EXECUTE}, when they do not\n{RULES}{}<names>\n\n── {EXECUTE}, when the client defers some of them\n{RULES}{DECLARED}<declarations>\n{}<names>\n\n── {SEARCH}, when they are not all declared\n{}\n",
        SEARCHED.replace("{search}", SEARCH),
        MORE.replace("{search}", SEARCH),
        SEARCH_DESCRIPTION.replace("{execute}", EXECUTE),
    )
}
