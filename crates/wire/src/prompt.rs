//! The tools that the model gets in code mode instead of the client's, and the prompt that explains them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use dacapo_catalog::{BYTES_PER_TOKEN, DeclaredTools, Function, ToolIndex};
use dacapo_replay::{Tool, Toolbox};
use serde_json::{Map, Value, json};

use crate::allowed_callers::{LaterTools, Toolsets};
use crate::model_message::ModelMistake;

/// Increased whenever the text of the prompt changes.
pub const PROMPT_VERSION: u32 = 5;

pub(crate) const EXECUTE: &str = "execute";
pub(crate) const SEARCH: &str = "search";
/// Used if the client has a direct tool named like ours.
const EXECUTE_ALTERNATIVE: &str = "execute_program";
pub(crate) const SEARCH_ALTERNATIVE: &str = "search_functions";

const PURPOSE: &str = "\
Runs a TypeScript program that calls functions, and answers with what it returns. This is the only way to call them.
";
/// Where the model may call the functions itself too.
const PURPOSE_BESIDE_TOOLS: &str = "\
Runs a TypeScript program that calls functions, and answers with what it returns. Use it for several calls, loops and large answers; for a single small call use the tool itself.
";

const RULES: &str = "\
- Write the body of an async function: `await` every call and `return` only what you need to see (`console.log` comes back too). Filter, join and compute in the program. Do the whole task in one, with `Promise.all` for independent calls.
- Each function takes one object; names are exact. Answers are parsed already. Where a type is `unknown`, look at one answer first. A failed call throws a ToolError{failures}.
- `store(name, value)` keeps a value for your later programs, `load(name)` gives it back. No network, files or imports. After an error correct the program and run it again: completed calls are not executed twice, unless you pass `{fresh: true}` as the second argument.
";

/// Where the wire has no field for failures, and no texts are configured by which they are recognised.
const TEXT_FAILURES: &str = "; some tools return text that begins with \"Error\" instead";

const LATER: &str = "- Tools that are added in the conversation, such as those that tool_search finds, are no functions: call them directly.\n";

const DECLARED: &str = "The functions:\n";
const SEARCHED: &str = "The functions are too many to declare. Find those that you need with `{search}`, which answers with their declarations, before you write the program; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const MORE: &str = "More functions are not declared here. Find those that you need with `{search}`, which answers with their declarations; in a program, `await search(\"what it should do\")` and `await describe(\"name\")` do the same.\n";

const SHARED: &str = "Your other tools are functions here too, with the same arguments: ";

const UNAVAILABLE: &str =
    "Not available now, so that their functions are missing: `{servers}`. Say so to the user if the task needs them.\n";

const SEARCH_DESCRIPTION: &str = "\
Finds functions for `{execute}` by what they do, and answers with their TypeScript declarations. Ask for all that the task needs at once: one query for each step of it.";

/// Part of the budget for declarations that is left for the names of other functions: a quarter.
const NAMES_SHARE: usize = 4;
/// They get this much, however small the budget is.
const NAMES_BYTES_MIN: usize = 3_000;

/// The tools that the model has in code mode.
#[derive(Debug, Clone)]
pub struct ModelTools {
    toolbox: Arc<Toolbox>,
    declared: Arc<DeclaredTools>,
    /// Functions that are tools of the model too, which declares them.
    shared: BTreeSet<ToolIndex>,
    /// For the names of functions that are not declared.
    names_bytes_max: usize,
    /// Tools that the model may call directly.
    direct: BTreeSet<String>,
    toolsets: Toolsets,
    later_tools: LaterTools,
    /// Namespaces whose functions are not known now.
    unavailable: Vec<String>,
    function_calls: FunctionCalls,
    failures: Failures,
    execute: &'static str,
    search: Option<&'static str>,
    programs: ProgramUse,
}

/// What it means that the model calls a function by its own name, instead of in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionCalls {
    /// A program of one line: agents' own prompts ask for such calls.
    Programs,
    /// The client or the operator allows only programs to call it.
    Mistakes,
}

/// How a program learns that a tool failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failures {
    /// Some tools answer with a text that says so, because the client's wire has no field for failures.
    SomeAreText,
    /// The call throws: the operator has configured the texts by which failures are recognised.
    Throw,
}

/// What the model has to do with programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramUse {
    /// It writes them.
    Written,
    /// It reads those of the history, and writes none.
    Read,
    None,
}

impl ModelTools {
    /// Declares as many functions as fit into `declarations_tokens_max`, in the client's order; the model searches for the
    /// rest. `deferred` are the positions of tools that the client itself leaves to the search.
    pub fn new(
        toolbox: Arc<Toolbox>,
        direct: BTreeSet<String>,
        deferred: &BTreeSet<usize>,
        declarations_tokens_max: usize,
    ) -> ModelTools {
        let free_name = |name: &'static str, alternative| if direct.contains(name) { alternative } else { name };
        let bytes_max = declarations_tokens_max.saturating_mul(BYTES_PER_TOKEN);
        let names_bytes_max = (bytes_max / NAMES_SHARE).max(NAMES_BYTES_MIN);
        let functions = toolbox.catalog().functions();
        let is_shared = |tool: &ToolIndex| direct.contains(toolbox.catalog().qualified_name(*tool));
        let shared: BTreeSet<ToolIndex> = functions.iter().map(|function| function.tool).filter(is_shared).collect();
        let offered = functions.iter().map(|function| function.tool).filter(|tool| !shared.contains(tool));
        let offered: Vec<ToolIndex> = offered.filter(|tool| !deferred.contains(&(tool.0 as usize))).collect();
        let declared = toolbox.declarations().within(&offered, bytes_max, names_bytes_max);
        let is_whole = declared.tools.len() + shared.len() == functions.len();
        ModelTools {
            execute: free_name(EXECUTE, EXECUTE_ALTERNATIVE),
            search: (!is_whole).then(|| free_name(SEARCH, SEARCH_ALTERNATIVE)),
            declared,
            shared,
            names_bytes_max,
            toolbox,
            direct,
            toolsets: Toolsets::Named,
            later_tools: LaterTools::None,
            unavailable: Vec::new(),
            function_calls: FunctionCalls::Mistakes,
            failures: Failures::SomeAreText,
            programs: ProgramUse::Written,
        }
    }

    /// With open toolsets the model may call tools by names that only their provider knows.
    #[must_use]
    pub(crate) fn with_toolsets(mut self, toolsets: Toolsets) -> ModelTools {
        self.toolsets = toolsets;
        self
    }

    /// Says to the model how it calls tools that the client adds in the middle of the conversation.
    #[must_use]
    pub(crate) fn with_later_tools(mut self, later_tools: LaterTools) -> ModelTools {
        self.later_tools = later_tools;
        self
    }

    /// Tells the model of servers whose functions it might expect.
    #[must_use]
    pub(crate) fn with_unavailable(mut self, servers: &[String]) -> ModelTools {
        self.unavailable = servers.to_vec();
        self
    }

    #[must_use]
    pub(crate) fn with_function_calls(mut self, function_calls: FunctionCalls) -> ModelTools {
        self.function_calls = function_calls;
        self
    }

    pub(crate) fn say_that_failures_throw(&mut self) {
        self.failures = Failures::Throw;
    }

    /// A call of a function by its own name as an expression of a program, if such calls are understood.
    pub(crate) fn expression(
        &self,
        name: &str,
        arguments: impl FnOnce() -> Option<Map<String, Value>>,
    ) -> Option<String> {
        let is_ours = self.is_execute(name) || self.is_search(name) || self.is_direct(name);
        if self.function_calls == FunctionCalls::Mistakes || is_ours {
            return None;
        }
        let function = &self.toolbox.catalog().functions()[self.function(name)?];
        Some(format!("{}({})", function.expression(), serde_json::to_string(&arguments()?).ok()?))
    }

    /// No programs: the model calls the client's tools directly.
    pub fn off(empty: Arc<Toolbox>) -> ModelTools {
        ModelTools {
            execute: EXECUTE,
            search: None,
            declared: empty.declarations().within(&[], 0, 0),
            shared: BTreeSet::new(),
            names_bytes_max: 0,
            toolbox: empty,
            direct: BTreeSet::new(),
            toolsets: Toolsets::Named,
            later_tools: LaterTools::None,
            unavailable: Vec::new(),
            function_calls: FunctionCalls::Mistakes,
            failures: Failures::SomeAreText,
            programs: ProgramUse::None,
        }
    }

    /// No programs are written, but those of the history are shown as such, with their results: for a request without
    /// functions.
    pub(crate) fn reading(empty: Arc<Toolbox>) -> ModelTools {
        ModelTools { programs: ProgramUse::Read, ..ModelTools::off(empty) }
    }

    /// Whether programs of the history are shown to the model as programs.
    pub fn reads_programs(&self) -> bool {
        self.programs != ProgramUse::None
    }

    /// Whether the model may write programs.
    pub fn is_on(&self) -> bool {
        self.programs == ProgramUse::Written
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
        self.reads_programs() && (name == self.execute || is_ours)
    }

    /// The same for the search. A search is answered even if the tool is no longer offered, unless the client has a
    /// tool of that name.
    pub(crate) fn is_search(&self, name: &str) -> bool {
        let is_ours = matches!(name, SEARCH | SEARCH_ALTERNATIVE) && !self.direct.contains(name);
        self.search == Some(name) || self.reads_programs() && is_ours && self.toolbox.catalog().find(name).is_none()
    }

    /// Whether the model may call the tool directly.
    pub fn is_direct(&self, tool: &str) -> bool {
        let is_unknown = || !self.is_execute(tool) && !self.is_search(tool) && self.function(tool).is_none();
        match self.programs {
            ProgramUse::Written => self.direct.contains(tool) || self.toolsets == Toolsets::Open && is_unknown(),
            ProgramUse::Read => is_unknown(),
            ProgramUse::None => true,
        }
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
        let purpose = if self.shared.is_empty() { PURPOSE } else { PURPOSE_BESIDE_TOOLS };
        let failures = if self.failures == Failures::Throw { "" } else { TEXT_FAILURES };
        let rules = RULES.replace("{failures}", failures);
        let mut description = [purpose, &rules, &self.example()].concat();
        if self.later_tools == LaterTools::Direct {
            description.push_str(LATER);
        }
        let has_declarations = !self.declared.tools.is_empty() || self.search.is_none() && self.shared.is_empty();
        if has_declarations {
            description.reserve(DECLARED.len() + self.declared.text.len());
            description.push_str(DECLARED);
            description.push_str(&self.declared.text);
        }
        if let Some(search) = self.search {
            let hint = if has_declarations { MORE } else { SEARCHED };
            description.push_str(&hint.replace("{search}", search));
            // What is declared leaves the same others, unless the model has some of them as tools.
            let known = self.shared.is_empty().then(|| self.declared.about_others.get_or_init(|| self.others()));
            description.push_str(&known.map_or_else(|| Cow::Owned(self.others()), Cow::from));
        }
        if !self.shared.is_empty() {
            let functions =
                self.shared.iter().map(|tool| self.toolbox.catalog().functions()[tool.0 as usize].expression());
            description.push_str(SHARED);
            description.push_str(&functions.collect::<Vec<_>>().join(", "));
            description.push('\n');
        }
        if !self.unavailable.is_empty() {
            let names = self.unavailable.join("`, `");
            description.push_str(&UNAVAILABLE.replace("{servers}", &names));
        }
        let code = json!({"type": "string", "description": "The program: the body of an async TypeScript function."});
        let execute = json!({"type": "object", "properties": {"code": code}, "required": ["code"], "additionalProperties": false});
        let mut tools = vec![(self.execute, description, execute)];
        if let Some(search) = self.search {
            let queries = json!({"type": "array", "items": {"type": "string"}, "description": "One for each step of the task: what the function should do, in plain words."});
            let query = json!({"type": "string", "description": "Instead of `queries`, if there is one step."});
            let limit = json!({"type": "integer", "description": "How many functions to answer with for each query, 5 if not given."});
            let properties = json!({"queries": queries, "query": query, "limit": limit});
            let parameters = json!({"type": "object", "properties": properties, "additionalProperties": false});
            tools.push((search, SEARCH_DESCRIPTION.replace("{execute}", self.execute), parameters));
        }
        tools
    }

    /// Two lines that call one of the functions, so that the model sees `await` and `return` with a name that exists.
    fn example(&self) -> String {
        let catalog = self.toolbox.catalog();
        let required = |tool: &Tool| tool.input_schema["required"].as_array().map_or(0, Vec::len);
        let is_simple = |it: &&Function| (1..=2).contains(&required(&catalog.tools()[it.tool.0 as usize]));
        let simple = catalog.functions().iter().find(is_simple);
        let Some(function) = simple.or_else(|| catalog.functions().first()) else { return String::new() };
        let arguments = example_arguments(&catalog.tools()[function.tool.0 as usize].input_schema);
        format!("For example:\nconst answer = await {}({arguments});\nreturn answer;\n", function.expression())
    }

    /// The functions that are not declared, by namespace: with a few words about each if there is room, else as many
    /// names as there is room for.
    fn others(&self) -> String {
        let declared: BTreeSet<ToolIndex> = self.declared.tools.iter().copied().collect();
        let functions = self.toolbox.catalog().functions().iter();
        let mut functions: Vec<&Function> = functions
            .filter(|function| !declared.contains(&function.tool) && !self.shared.contains(&function.tool))
            .collect();
        functions.sort_by_key(|function| (&function.namespace, &function.identifier));
        let namespaces: Vec<&[&Function]> = functions.chunk_by(|a, b| a.namespace == b.namespace).collect();
        let bytes_of_names: usize = functions.iter().map(|function| function.identifier.len() + ", ".len()).sum();
        if bytes_of_names < self.names_bytes_max {
            let summaries = self.summaries(&namespaces);
            if summaries.len() <= self.names_bytes_max {
                return summaries;
            }
        }
        let room = self.names_bytes_max / namespaces.len().max(1);
        namespaces.into_iter().map(|functions| names(functions, room)).collect()
    }

    fn summaries(&self, namespaces: &[&[&Function]]) -> String {
        let mut text = String::new();
        for functions in namespaces {
            text.push_str(&heading(functions));
            text.push('\n');
            for function in *functions {
                let summary = self.toolbox.declarations().summary(function.tool);
                let separator = if summary.is_empty() { "" } else { ": " };
                // Writing to a string cannot fail.
                writeln!(text, "- {}{separator}{summary}", function.identifier).unwrap_or_default();
            }
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

fn heading(functions: &[&Function]) -> String {
    match functions.first().and_then(|function| function.namespace.as_deref()) {
        Some(namespace) => format!("{namespace}.* ({}):", functions.len()),
        None => format!("{} functions:", functions.len()),
    }
}

/// As many names of these functions as fit, on one line.
fn names(functions: &[&Function], bytes_max: usize) -> String {
    let mut line = heading(functions);
    let mut named = 0;
    for function in functions {
        if line.len() + function.identifier.len() > bytes_max {
            break;
        }
        let separator = if named == 0 { " " } else { ", " };
        write!(line, "{separator}{}", function.identifier).unwrap_or_default();
        named += 1;
    }
    let more = functions.len() - named;
    if more > 0 {
        write!(line, " and {more} more").unwrap_or_default();
    }
    line.push('\n');
    line
}

/// The required arguments of a tool, with values that stand for any.
fn example_arguments(schema: &Value) -> String {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let fields = required.iter().filter_map(Value::as_str).map(|name| {
        let value = match schema["properties"][name]["type"].as_str() {
            Some("number" | "integer") => "1",
            Some("boolean") => "true",
            Some("array") => "[…]",
            Some("object") => "{ … }",
            _ => "\"…\"",
        };
        let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let key = if is_plain { name.to_owned() } else { Value::from(name).to_string() };
        format!("{key}: {value}")
    });
    let fields: Vec<String> = fields.collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}

/// All prompts that a model may be sent, by their occasion, with placeholders for the tools. For people to read.
pub fn prompt_variants() -> Vec<(&'static str, String)> {
    const EXAMPLE: &str = "For example:\nconst answer = await <function>({ … });\nreturn answer;\n";
    let rules = RULES.replace("{failures}", TEXT_FAILURES);
    let execute = |parts: &[&str]| [&[PURPOSE, &rules, EXAMPLE], parts].concat().concat();
    let (more, searched) = (MORE.replace("{search}", SEARCH), SEARCHED.replace("{search}", SEARCH));
    vec![
        ("execute, when the declarations fit", execute(&[DECLARED, "<declarations>\n"])),
        (
            "execute, when only some fit, or the client defers some of them",
            execute(&[DECLARED, "<declarations>\n", &more, "<names>\n"]),
        ),
        ("execute, when none fits", execute(&[&searched, "<names>\n"])),
        (
            "execute, when the model has the functions as tools too",
            [PURPOSE_BESIDE_TOOLS, &rules, EXAMPLE, SHARED, "<names>\n"].concat(),
        ),
        (
            "at its end, while servers behind the gateway are not available",
            UNAVAILABLE.replace("{servers}", "<servers>"),
        ),
        ("search, when they are not all declared", SEARCH_DESCRIPTION.replace("{execute}", EXECUTE)),
    ]
}
