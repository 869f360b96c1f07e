//! Declarations of tools as TypeScript functions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::comment;
use super::kinds::Kinds;
use super::printer::indented;
use super::type_text::{Expressions, NamedType};
use crate::catalog::{ToolIndex, Warning};
use crate::function::{Function, qualified_names};
use crate::tool::Tool;

/// A parameter with more values than this is shown as its kind, with the first few.
const VALUES_MAX: usize = 40;
/// In the declaration itself.
const WARNINGS_SHOWN_MAX: usize = 3;
/// A shortened description has no more than this, and a line that says how to read the rest.
const SHORTENED_BYTES_MAX: usize = 800;
/// Above a function whose result has the type of earlier ones.
const OBSERVED_NOTE: &str = "@returns as observed, not as declared: it may differ";
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
/// What tools have in common stands once in a text that declares several of them. The declaration of a tool by itself
/// depends on that tool and on its name in the program, and on nothing else.
///
/// ```
/// use dacapo_catalog::{Catalog, ToolIndex, read_tools};
/// let schema = serde_json::json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
/// let tools = read_tools(&serde_json::json!([{"name": "roll", "input_schema": schema}])).unwrap();
/// let declarations = Catalog::new(tools).declarations();
/// assert!(declarations.of(ToolIndex(0)).contains("/** integer */\n n: number;"));
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
    /// Room for what a prompt says of all other tools. It is long where there are many, and always the same.
    pub about_others: OnceLock<String>,
}

impl DeclaredTools {
    fn new(text: String, tools: Vec<ToolIndex>) -> DeclaredTools {
        DeclaredTools { text, tools, about_others: OnceLock::new() }
    }
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
            let list = self.list(self.all());
            self.warnings.get_or_init(|| self.warnings_of(&list));
            list.text()
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
            return DeclaredTools::new(self.text().to_owned(), tools.to_vec());
        }
        let mut bytes_left = bytes_max.saturating_sub(Declarations::UNKNOWN_NOTE.len());
        let shortened: Vec<usize> = tools.iter().map(|tool| self.shortened(*tool).len()).collect();
        let mut lengths: Vec<Option<DescriptionLength>> = vec![None; tools.len()];
        loop {
            let mut has_grown = false;
            for (bytes, length) in shortened.iter().zip(&mut lengths).filter(|(_, length)| length.is_none()) {
                if *bytes <= bytes_left {
                    bytes_left -= bytes;
                    *length = Some(DescriptionLength::Shortened);
                    has_grown = true;
                }
            }
            // Tools share types and namespaces, so that together they leave more room than one by one.
            bytes_left = bytes_max.saturating_sub(self.list_of(tools, &lengths).text().len());
            if !has_grown {
                break;
            }
        }
        for ((tool, shortened), length) in tools.iter().zip(&shortened).zip(&mut lengths) {
            let more = self.of(*tool).len().saturating_sub(*shortened);
            if *length == Some(DescriptionLength::Shortened) && more > 0 && more <= bytes_left {
                bytes_left -= more;
                *length = Some(DescriptionLength::Whole);
            }
        }
        let text = self.list_of(tools, &lengths).text();
        let chosen = tools.iter().zip(&lengths).filter(|(_, length)| length.is_some());
        DeclaredTools::new(text, chosen.map(|(tool, _)| *tool).collect())
    }

    /// One tool like [`of`](Self::of), with the first sentences of a long description and how to read the rest.
    ///
    /// # Panics
    ///
    /// If the tool is of another catalog.
    pub fn shortened(&self, tool: ToolIndex) -> String {
        self.list([(tool, DescriptionLength::Shortened)]).in_this_order()
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
        self.of_tools[tool.0 as usize].get_or_init(|| self.list([(tool, DescriptionLength::Whole)]).in_this_order())
    }

    /// Some tools, in this order, with the types that they need; those of `shortened` as [`shortened`](Self::shortened)
    /// has them.
    pub(crate) fn of_several(&self, tools: &[ToolIndex], shortened: &BTreeSet<ToolIndex>) -> String {
        let length = |tool: &ToolIndex| {
            if shortened.contains(tool) { DescriptionLength::Shortened } else { DescriptionLength::Whole }
        };
        self.list(tools.iter().map(|tool| (*tool, length(tool)))).in_this_order()
    }

    /// Schemas that are not fully shown, in the order of the tools.
    pub fn warnings(&self) -> &[Warning] {
        self.warnings.get_or_init(|| self.warnings_of(&self.list(self.all())))
    }

    fn all(&self) -> impl Iterator<Item = (ToolIndex, DescriptionLength)> {
        (0..self.tools.len() as u32).map(|index| (ToolIndex(index), DescriptionLength::Whole))
    }

    fn list(&self, tools: impl IntoIterator<Item = (ToolIndex, DescriptionLength)>) -> DeclarationList<'_> {
        let tools = tools
            .into_iter()
            .map(|(tool, length)| (&self.functions[tool.0 as usize], &self.tools[tool.0 as usize], length));
        DeclarationList::new(&tools.collect::<Vec<_>>())
    }

    /// Those of the tools that have a length.
    fn list_of(&self, tools: &[ToolIndex], lengths: &[Option<DescriptionLength>]) -> DeclarationList<'_> {
        self.list(tools.iter().zip(lengths).filter_map(|(tool, length)| Some((*tool, (*length)?))))
    }

    fn warnings_of(&self, list: &DeclarationList) -> Vec<Warning> {
        let names = qualified_names(&self.tools);
        let warnings = list.functions.iter().zip(&names).flat_map(|(declared, name)| {
            let tool = declared.function.tool;
            declared.warnings.iter().map(move |reason| {
                let message = format!("`{name}` is declared without some of its types: {reason}");
                Warning { tool, message }
            })
        });
        warnings.collect()
    }
}

/// Declarations that stand in one text.
struct DeclarationList<'a> {
    functions: Vec<FunctionDeclaration<'a>>,
    types: Vec<NamedType>,
}

/// The declaration of one tool, in parts.
struct FunctionDeclaration<'a> {
    function: &'a Function,
    /// The types that it needs, by position.
    types: Vec<usize>,
    comment: String,
    signature: String,
    has_unknown_result: bool,
    warnings: Vec<String>,
}

impl<'a> DeclarationList<'a> {
    fn new(tools: &[(&'a Function, &'a Tool, DescriptionLength)]) -> DeclarationList<'a> {
        let schemas = tools.iter().map(|(_, tool, _)| {
            let answers = tool.output_schema.as_ref().map(|schema| (&**schema, Kinds::ALL));
            std::iter::once((&*tool.input_schema, Kinds::OBJECT)).chain(answers)
        });
        let mut expressions = Expressions::of(schemas, VALUES_MAX);
        let types = std::mem::take(&mut expressions.definitions);
        let mut at = 0;
        let functions = tools.iter().map(|(function, tool, length)| {
            let schemas = 1 + usize::from(tool.output_schema.is_some());
            at += schemas;
            FunctionDeclaration::new(function, tool, *length, &expressions, at - schemas)
        });
        DeclarationList { functions: functions.collect(), types }
    }

    /// The functions in the order of their names, below a note if one is needed.
    fn text(&self) -> String {
        let mut order: Vec<&FunctionDeclaration> = self.functions.iter().collect();
        order.sort_by_key(|declared| (&declared.function.namespace, &declared.function.identifier));
        let has_unknown_result = order.iter().any(|declared| declared.has_unknown_result);
        let note = if has_unknown_result { Declarations::UNKNOWN_NOTE } else { "" };
        format!("{note}{}", self.scopes(&order))
    }

    fn in_this_order(&self) -> String {
        self.scopes(&self.functions.iter().collect::<Vec<_>>())
    }

    /// The functions, which stand in order, each in its scope.
    fn scopes(&self, order: &[&FunctionDeclaration]) -> String {
        let mut scopes = Vec::new();
        let groups: Vec<&[&FunctionDeclaration]> =
            order.chunk_by(|left, right| left.function.namespace == right.function.namespace).collect();
        // What several scopes need stands above them all.
        let shared = shared_types(&groups);
        if !shared.is_empty() {
            scopes.push(self.type_texts(&shared));
        }
        let mut declared: BTreeMap<&Option<String>, BTreeSet<usize>> = BTreeMap::new();
        for members in groups {
            // A namespace with an `export` exports nothing else, so it stands on its own.
            let (reserved, plain): (Vec<&FunctionDeclaration>, Vec<&FunctionDeclaration>) =
                members.iter().partition(|declared| declared.function.namespace.is_some() && declared.is_reserved());
            let in_scope = declared.entry(&members[0].function.namespace).or_default();
            if !plain.is_empty() {
                let types = plain.iter().flat_map(|declared| &declared.types).copied();
                let new = types.filter(|ty| !shared.contains(ty) && !in_scope.contains(ty)).collect();
                scopes.push(self.scope(&plain, &new));
                in_scope.extend(new);
            }
            for alone in reserved.chunks(1) {
                let types = alone[0].types.iter().copied();
                let new = types.filter(|ty| !shared.contains(ty) && !in_scope.contains(ty)).collect();
                scopes.push(self.scope(alone, &new));
            }
        }
        scopes.join("\n")
    }

    fn type_texts(&self, types: &BTreeSet<usize>) -> String {
        let mut types: Vec<&NamedType> = types.iter().map(|index| &self.types[*index]).collect();
        types.sort_unstable_by_key(|ty| &ty.name);
        types.into_iter().map(|ty| ty.text.as_str()).collect()
    }

    fn scope(&self, group: &[&FunctionDeclaration], types: &BTreeSet<usize>) -> String {
        let types = self.type_texts(types);
        match &group[0].function.namespace {
            None => {
                let functions = group.iter().map(|declared| {
                    let FunctionDeclaration { function, comment, signature, .. } = declared;
                    format!("{comment}declare function {}{signature}", function.identifier)
                });
                let functions: Vec<String> = functions.collect();
                [types, functions.join("\n")].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
            }
            Some(namespace) => {
                let functions: String = group.iter().map(|declared| declared.member()).collect();
                let members = format!("{types}{functions}");
                format!("declare namespace {namespace} {{\n {}\n}}\n", indented(members.trim_end()))
            }
        }
    }
}

impl<'a> FunctionDeclaration<'a> {
    /// `at` is where the types of the tool begin.
    fn new(
        function: &'a Function,
        tool: &Tool,
        length: DescriptionLength,
        expressions: &Expressions,
        at: usize,
    ) -> FunctionDeclaration<'a> {
        let end = at + 1 + usize::from(tool.output_schema.is_some());
        let types = &expressions.types[at..end];
        let printer = expressions.printer();
        let (args, result) = (&types[0], types.get(1));
        let sides = ["input", "output"].into_iter().zip(&expressions.warnings[at..end]);
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
        let words = [("@param args", Some(args)), ("@returns", result)];
        for (tag, words) in words.map(|(tag, side)| (tag, side.map(|side| printer.words(&side.ty)))) {
            let new = words.filter(|words| !words.is_empty() && !lines.iter().any(|line| line == words));
            lines.extend(new.map(|words| format!("{tag} {words}")));
        }
        let observed = tool.observed_answer.as_ref().filter(|_| result.is_none());
        lines.extend(observed.map(|_| OBSERVED_NOTE.to_owned()));
        let shown = warnings.iter().take(WARNINGS_SHOWN_MAX);
        lines.extend(shown.map(|warning| comment::one_line(&format!("Warning: {warning}")).into_owned()));

        let mark = if args.takes_empty_object { "?" } else { "" };
        let takes = if takes_no_argument(&tool.input_schema) { "{}".to_owned() } else { printer.ty(&args.ty) };
        let answers = match (result, observed) {
            (Some(result), _) => printer.ty(&result.ty),
            (None, Some(observed)) => observed.clone(),
            (None, None) => "unknown".to_owned(),
        };
        FunctionDeclaration {
            function,
            types: types.iter().flat_map(|ty| &ty.uses).copied().collect(),
            comment: comment::block(&lines),
            // A type on lines of its own begins with the first of them.
            signature: format!("(args{mark}: {takes}): Promise<{answers}>;\n").replace(": \n", ":\n"),
            has_unknown_result: result.is_none() && observed.is_none(),
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

/// The types that functions of more than one scope need.
fn shared_types(groups: &[&[&FunctionDeclaration]]) -> BTreeSet<usize> {
    let mut scope_of: BTreeMap<usize, &Option<String>> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for declared in groups.iter().copied().flatten() {
        for ty in &declared.types {
            let namespace = &declared.function.namespace;
            if *scope_of.entry(*ty).or_insert(namespace) != namespace {
                shared.insert(*ty);
            }
        }
    }
    shared
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reserved_words_is_sorted() {
        assert!(RESERVED.is_sorted());
    }
}
