//! What the model is offered instead of the client's tools, and the words that explain it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use dacapo_catalog::BYTES_PER_TOKEN;
use dacapo_replay::Toolbox;
use serde_json::{Value, json};

use crate::allowed_callers::Toolsets;
use crate::model_message::ModelMistake;

/// Changes whenever a word of the prompt does.
pub const PROMPT_VERSION: u32 = 2;

pub(crate) const EXECUTE: &str = "execute";
pub(crate) const SEARCH: &str = "search";
/// For clients whose own direct tools have our names.
const EXECUTE_OTHERWISE: &str = "execute_program";
pub(crate) const SEARCH_OTHERWISE: &str = "search_functions";

const RULES: &str = "\
Runs a TypeScript program that calls functions, and answers with what it returns. This is the only way to call them.
- Write the body of an async function: `await` the calls and `return` only what you need to see (`console.log` comes back too). Filter, join and compute in the program. Do the whole task in one, with `Promise.all` for independent calls.
- Each function takes one object. A failed call throws a ToolError; some tools return text that begins with \"Error\" instead.
- No network, files or imports. After an error correct the program and run it again: completed calls are not executed twice.
";

const DECLARED: &str = "The functions:\n";
const SEARCHED: &str = "The functions are too many to declare. Find those that you need with `{search}`, which answers with their declarations, before you write the program; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const MORE: &str = "More functions are not declared here. Find those that you need with `{search}`, which answers with their declarations; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const SEARCH_DESCRIPTION: &str = "\
Finds functions for `{execute}` by what they do, and answers with their TypeScript declarations. Ask for all that the task needs in one query.";

/// What the list of names may take when the declarations are left out.
const NAMES_BYTES_MAX: usize = 3_000;

/// The tools that the model has in code mode.
#[derive(Debug, Clone)]
pub struct ModelTools {
    toolbox: Arc<Toolbox>,
    /// Those that the client wants declared, where it wants others to be searched for.
    declared: Option<Arc<Toolbox>>,
    /// Tools that the model may call by itself.
    direct: BTreeSet<String>,
    toolsets: Toolsets,
    execute: &'static str,
    search: Option<&'static str>,
    /// Whether there are programs at all.
    is_on: bool,
}

impl ModelTools {
    /// Declares the functions if that takes at most `declarations_tokens_max`, and else lets the model search.
    pub fn new(toolbox: Arc<Toolbox>, direct: BTreeSet<String>, declarations_tokens_max: usize) -> ModelTools {
        let unless_taken = |name: &'static str, otherwise| if direct.contains(name) { otherwise } else { name };
        let fits = toolbox.declarations().text().len() <= declarations_tokens_max.saturating_mul(BYTES_PER_TOKEN);
        ModelTools {
            execute: unless_taken(EXECUTE, EXECUTE_OTHERWISE),
            search: (!fits).then(|| unless_taken(SEARCH, SEARCH_OTHERWISE)),
            declared: None,
            toolbox,
            direct,
            toolsets: Toolsets::Named,
            is_on: true,
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
        let otherwise = if self.direct.contains(SEARCH) { SEARCH_OTHERWISE } else { SEARCH };
        self.search.get_or_insert(otherwise);
        let bytes_max = declarations_tokens_max.saturating_mul(BYTES_PER_TOKEN);
        self.declared = Some(declared).filter(|declared| declared.declarations().text().len() <= bytes_max);
        self
    }

    /// No programs: the model calls the client's tools by itself.
    pub fn off(nothing: Arc<Toolbox>) -> ModelTools {
        ModelTools {
            execute: EXECUTE,
            search: None,
            toolbox: nothing,
            declared: None,
            direct: BTreeSet::new(),
            toolsets: Toolsets::Named,
            is_on: false,
        }
    }

    /// Whether the model may write programs.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn toolbox(&self) -> &Arc<Toolbox> {
        &self.toolbox
    }

    pub fn execute(&self) -> &str {
        self.execute
    }

    pub fn search(&self) -> Option<&str> {
        self.search
    }

    /// Is this our tool for programs, under any of its names? What it was called may have changed since.
    pub(crate) fn is_execute(&self, name: &str) -> bool {
        self.is_on
            && (name == self.execute || matches!(name, EXECUTE | EXECUTE_OTHERWISE) && !self.direct.contains(name))
    }

    /// The same for searches. They are answered also when they are not offered any more, unless the client has a tool
    /// of that name.
    pub(crate) fn is_search(&self, name: &str) -> bool {
        let is_ours = matches!(name, SEARCH | SEARCH_OTHERWISE) && !self.direct.contains(name);
        self.search == Some(name) || self.is_on && is_ours && self.toolbox.catalog().find(name).is_none()
    }

    /// May the model call it by itself?
    pub fn is_direct(&self, tool: &str) -> bool {
        let is_unknown = || !self.is_execute(tool) && !self.is_search(tool) && self.function(tool).is_none();
        !self.is_on || self.direct.contains(tool) || self.toolsets == Toolsets::Open && is_unknown()
    }

    /// The place of the function that programs know by this name.
    fn function(&self, name: &str) -> Option<usize> {
        let catalog = self.toolbox.catalog();
        catalog.functions().iter().position(|function| {
            let exact = catalog.qualified_name(function.tool);
            exact == name || function.identifier == name || function.aliases.iter().any(|alias| alias == name)
        })
    }

    /// Name, description and parameters of each tool of ours.
    pub fn tools(&self) -> Vec<(&str, String, Value)> {
        if !self.is_on {
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

    /// The functions' names, by namespace, as far as there is room for them; without those that are declared.
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

    /// What is wrong with a call of something that is not offered.
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

/// The prompt as it would be for any tools, for people to read.
pub fn print_prompt() -> String {
    format!(
        "prompt version {PROMPT_VERSION}\n\n── {EXECUTE}, when the declarations fit\n{RULES}{DECLARED}<declarations>\n\n── {EXECUTE}, when they do not\n{RULES}{}<names>\n\n── {EXECUTE}, when the client defers some of them\n{RULES}{DECLARED}<declarations>\n{}<names>\n\n── {SEARCH}, when they are not all declared\n{}\n",
        SEARCHED.replace("{search}", SEARCH),
        MORE.replace("{search}", SEARCH),
        SEARCH_DESCRIPTION.replace("{execute}", EXECUTE),
    )
}
