//! Declarations of tools as TypeScript functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::comment;
use super::kinds::Kinds;
use super::printer::indented;
use super::type_text::Expressions;
use crate::catalog::{ToolIndex, Warning};
use crate::function::{Function, qualified_names};
use crate::tool::Tool;

/// A parameter with more values than this is shown as its kind, with the first few.
const VALUES_MAX: usize = 40;
/// In the declaration itself.
const WARNINGS_SHOWN_MAX: usize = 3;
/// A shortened description has no more than this, and a line that says how to read the rest.
const SHORTENED_BYTES_MAX: usize = 800;
/// Of a tool that is not declared.
const SUMMARY_BYTES_MAX: usize = 100;

/// Words that no function can be declared by, though an object may have it as a property.
/// Sorted, for binary search.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete",
    "do", "else", "enum", "eval", "export", "extends", "false", "finally", "for", "function", "if", "implements",
    "import", "in", "instanceof", "interface", "let", "new", "null", "package", "private", "protected", "public",
    "return", "static", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with",
    "yield",
];

/// The tools of a catalog as TypeScript, for a model to read. Each declaration is made when it is first asked for.
///
/// The declaration of a tool depends on that tool and on its name in the program, and on nothing else.
///
/// ```
/// use dacapo_catalog::{Catalog, ToolIndex, read_tools};
/// let schema = serde_json::json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
/// let tools = read_tools(&serde_json::json!([{"name": "roll", "input_schema": schema}])).unwrap();
/// let declarations = Catalog::new(tools).declarations();
/// assert!(declarations.of(ToolIndex(0)).contains("roll(args: { n: number })"));
/// ```
#[derive(Debug)]
pub struct Declarations {
    tools: Arc<Vec<Tool>>,
    functions: Arc<Vec<Function>>,
    text: OnceLock<String>,
    of_tools: Vec<OnceLock<String>>,
    /// The first answer of [`within`](Declarations::within), which is asked again and again in the same way.
    within: OnceLock<(Vec<ToolIndex>, [usize; 2], Arc<DeclaredTools>)>,
    warnings: OnceLock<Vec<Warning>>,
}

/// Tools that are declared together, within a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTools {
    /// Their declarations.
    pub text: String,
    /// The tools, in the order in which they were asked for.
    pub tools: Vec<ToolIndex>,
}

/// How much of the tool's description its declaration holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DescriptionLength {
    Whole,
    /// The first sentences, if it is long, and how to read the rest.
    Shortened,
}

impl Declarations {
    /// A comment to put once above declarations from [`of`](Self::of) if one of their tools has no output schema.
    pub const UNKNOWN_NOTE: &str = "// Check the shape of an unknown result before use.\n";

    pub(crate) fn new(tools: Arc<Vec<Tool>>, functions: Arc<Vec<Function>>) -> Declarations {
        let of_tools = tools.iter().map(|_| OnceLock::new()).collect();
        let (text, within, warnings) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Declarations { tools, functions, text, of_tools, within, warnings }
    }

    /// All tools: the client's functions, then a namespace for each server, in the order of their
    /// names.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let blocks: Vec<FunctionDeclaration> = self.blocks().collect();
            text(blocks.iter().collect())
        })
    }

    /// As many of these tools as fit into `bytes_max`, those in front first. If not all of them fit, `bytes_for_rest` of it
    /// are left free. Long descriptions are shortened where there is no room for the whole.
    ///
    /// # Panics
    ///
    /// If a tool is of another catalog.
    pub fn within(&self, tools: &[ToolIndex], bytes_max: usize, bytes_for_rest: usize) -> Arc<DeclaredTools> {
        let choose = || {
            let all = self.chosen_within(tools, bytes_max);
            let is_all = all.tools.len() == tools.len();
            if is_all { all } else { self.chosen_within(tools, bytes_max.saturating_sub(bytes_for_rest)) }
        };
        let budget = [bytes_max, bytes_for_rest];
        let (known_tools, known_budget, known) =
            self.within.get_or_init(|| (tools.to_vec(), budget, Arc::new(choose())));
        if known_tools == tools && *known_budget == budget { Arc::clone(known) } else { Arc::new(choose()) }
    }

    fn chosen_within(&self, tools: &[ToolIndex], bytes_max: usize) -> DeclaredTools {
        if tools.len() == self.tools.len() && self.text().len() <= bytes_max {
            return DeclaredTools { text: self.text().to_owned(), tools: tools.to_vec() };
        }
        let mut bytes_left = bytes_max.saturating_sub(Declarations::UNKNOWN_NOTE.len());
        let mut chosen = Vec::new();
        for tool in tools {
            let shortened = self.block(*tool, DescriptionLength::Shortened);
            let bytes = scopes(&[&shortened]).len();
            if bytes <= bytes_left {
                bytes_left -= bytes;
                chosen.push((*tool, shortened, bytes));
            }
        }
        for (tool, block, bytes) in &mut chosen {
            let more = self.of(*tool).len().saturating_sub(*bytes);
            if more > 0 && more <= bytes_left {
                bytes_left -= more;
                *block = self.block(*tool, DescriptionLength::Whole);
            }
        }
        let tools = chosen.iter().map(|(tool, ..)| *tool).collect();
        DeclaredTools { text: text(chosen.iter().map(|(_, block, _)| block).collect()), tools }
    }

    /// One tool like [`of`](Self::of), with the first sentences of a long description and how to read the rest.
    ///
    /// # Panics
    ///
    /// If the tool is of another catalog.
    pub fn shortened(&self, tool: ToolIndex) -> String {
        scopes(&[&self.block(tool, DescriptionLength::Shortened)])
    }

    /// What a tool is for, in a few words; empty if it has no description.
    ///
    /// # Panics
    ///
    /// If the tool is of another catalog.
    pub fn summary(&self, tool: ToolIndex) -> String {
        let description = self.tools[tool.0 as usize].description.as_deref().unwrap_or_default();
        comment::summary(description, SUMMARY_BYTES_MAX)
    }

    /// One tool, with the types that it needs.
    ///
    /// # Panics
    ///
    /// If the tool is of another catalog.
    pub fn of(&self, tool: ToolIndex) -> &str {
        self.of_tools[tool.0 as usize].get_or_init(|| scopes(&[&self.block(tool, DescriptionLength::Whole)]))
    }

    /// Schemas that are not fully shown, in the order of the tools.
    pub fn warnings(&self) -> &[Warning] {
        self.warnings.get_or_init(|| {
            let names = qualified_names(&self.tools);
            let warnings = self.blocks().zip(&names).flat_map(|(block, name)| {
                let tool = block.function.tool;
                block.warnings.into_iter().map(move |reason| {
                    let message = format!("`{name}` is declared without some of its types: {reason}");
                    Warning { tool, message }
                })
            });
            warnings.collect()
        })
    }

    fn blocks(&self) -> impl Iterator<Item = FunctionDeclaration<'_>> {
        (0..self.tools.len() as u32).map(|index| self.block(ToolIndex(index), DescriptionLength::Whole))
    }

    fn block(&self, tool: ToolIndex, length: DescriptionLength) -> FunctionDeclaration<'_> {
        let index = tool.0 as usize;
        FunctionDeclaration::new(&self.functions[index], &self.tools[index], length)
    }
}

/// The declaration of one tool, in parts.
struct FunctionDeclaration<'a> {
    function: &'a Function,
    /// By name.
    types: BTreeMap<String, String>,
    comment: String,
    signature: String,
    has_unknown_result: bool,
    warnings: Vec<String>,
}

impl<'a> FunctionDeclaration<'a> {
    fn new(function: &'a Function, tool: &Tool, length: DescriptionLength) -> FunctionDeclaration<'a> {
        let mut schemas = vec![(&tool.input_schema, Kinds::OBJECT)];
        schemas.extend(tool.output_schema.iter().map(|schema| (schema, Kinds::ALL)));
        let Expressions { types, definitions, warnings } = Expressions::of(&schemas, VALUES_MAX);
        let (args, result) = (&types[0], types.get(1));
        let sides = ["input", "output"].into_iter().zip(&warnings);
        let warnings: Vec<String> = sides
            .flat_map(|(side, warnings)| warnings.iter().map(move |reason| format!("{side} schema: {reason}")))
            .collect();

        let description = tool.description.as_deref().unwrap_or_default();
        let shown = match length {
            DescriptionLength::Whole => description,
            DescriptionLength::Shortened => comment::sentences(description, SHORTENED_BYTES_MAX),
        };
        let mut lines = comment::lines(shown);
        if shown.len() < description.len() {
            let (more, name) = (description.len() - shown.len(), function.expression());
            lines.push(format!("(Cut: {more} more bytes. `await describe(\"{name}\")` returns all of it.)"));
        }
        for (tag, doc) in [("@param args", Some(&args.doc)), ("@returns", result.map(|result| &result.doc))] {
            let new = doc.filter(|doc| !doc.is_empty() && !lines.contains(doc));
            lines.extend(new.map(|doc| format!("{tag} {doc}")));
        }
        let shown = warnings.iter().take(WARNINGS_SHOWN_MAX);
        lines.extend(shown.map(|warning| comment::one_line(&format!("Warning: {warning}"))));

        let mark = if args.takes_empty_object { "?" } else { "" };
        let args = if takes_no_argument(&tool.input_schema) { "{}" } else { &args.text };
        let result = result.map_or("unknown", |result| &result.text);
        let signature = format!("(args{mark}: {args}): Promise<{result}>;\n");
        FunctionDeclaration {
            function,
            types: definitions,
            comment: comment::block(&lines),
            signature,
            has_unknown_result: tool.output_schema.is_none(),
            warnings,
        }
    }

    /// The function as it stands in a namespace.
    fn member(&self) -> String {
        let name = &self.function.identifier;
        if self.is_reserved() {
            let (comment, signature) = (&self.comment, &self.signature);
            return format!("{comment}function {name}_{signature}export {{ {name}_ as {name} }};\n");
        }
        format!("{}function {name}{}", self.comment, self.signature)
    }

    fn is_reserved(&self) -> bool {
        RESERVED.binary_search(&self.function.identifier.as_str()).is_ok()
    }
}

/// A tool without parameters, as most servers write it: anything is allowed, nothing is meant.
fn takes_no_argument(input_schema: &Value) -> bool {
    let Value::Object(fields) = input_schema else {
        return false;
    };
    fields.contains_key("properties")
        && fields.iter().all(|(keyword, value)| match keyword.as_str() {
            "properties" => value.as_object().is_some_and(Map::is_empty),
            "required" => value.as_array().is_some_and(Vec::is_empty),
            "type" => value == "object",
            "$defs" | "$id" | "$schema" | "definitions" | "description" | "title" => true,
            _ => false,
        })
}

/// The blocks, in the order of their names.
fn text(mut blocks: Vec<&FunctionDeclaration>) -> String {
    blocks.sort_by_key(|block| (&block.function.namespace, &block.function.identifier));
    let note = if blocks.iter().any(|block| block.has_unknown_result) { Declarations::UNKNOWN_NOTE } else { "" };
    format!("{note}{}", scopes(&blocks))
}

/// The blocks, which stand in order, each in its scope.
fn scopes(order: &[&FunctionDeclaration]) -> String {
    let mut scopes = Vec::new();
    for members in order.chunk_by(|left, right| left.function.namespace == right.function.namespace) {
        // A namespace with an `export` exports nothing else, so it stands on its own.
        let (reserved, plain): (Vec<&FunctionDeclaration>, Vec<&FunctionDeclaration>) =
            members.iter().partition(|block| block.function.namespace.is_some() && block.is_reserved());
        let shared: BTreeSet<&str> = plain.iter().flat_map(|block| block.types.keys()).map(String::as_str).collect();
        if !plain.is_empty() {
            scopes.push(scope(&plain, &BTreeSet::new()));
        }
        scopes.extend(reserved.chunks(1).map(|block| scope(block, &shared)));
    }
    scopes.join("\n")
}

/// `known` are the types that the scope has already.
fn scope(group: &[&FunctionDeclaration], known: &BTreeSet<&str>) -> String {
    let types: BTreeMap<&str, &str> = group
        .iter()
        .flat_map(|block| &block.types)
        .map(|(name, declaration)| (name.as_str(), declaration.as_str()))
        .filter(|(name, _)| !known.contains(name))
        .collect();
    let types: String = types.into_values().collect();
    match &group[0].function.namespace {
        None => {
            let functions = group.iter().map(|block| {
                let FunctionDeclaration { function, comment, signature, .. } = block;
                format!("{comment}declare function {}{signature}", function.identifier)
            });
            let functions: Vec<String> = functions.collect();
            [types, functions.join("\n")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
        }
        Some(namespace) => {
            let functions: String = group.iter().map(|block| block.member()).collect();
            let members = format!("{types}{functions}");
            format!("declare namespace {namespace} {{\n  {}\n}}\n", indented(members.trim_end()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reserved_words_is_sorted() {
        assert!(RESERVED.is_sorted());
    }
}
