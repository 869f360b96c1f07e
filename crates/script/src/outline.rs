//! What has to be known about a program before its types are stripped.

use std::collections::{BTreeMap, BTreeSet};

use oxc::ast::AstKind;
use oxc::ast::ast::{
    Expression, IdentifierReference, ImportDeclaration, ImportDeclarationSpecifier, ModuleExportName, Statement,
    TSModuleReference, UnaryOperator,
};
use oxc::semantic::{AstNode, Semantic, SymbolId};
use oxc::span::{GetSpan, Span};

use crate::diagnostic::SourceError;
use crate::globals;

/// What has to be known about a program before its types are stripped.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    /// There is a `return` outside every function, so that is the program's result.
    pub(crate) returns: bool,
    /// Nothing but declarations at the top level.
    pub(crate) only_declares: bool,
    /// The statement whose value is the program's, unless something else decides it.
    pub(crate) last_statement: Option<Span>,
    /// By name, with the offset of the first call.
    pub(crate) unknown_calls: Vec<(String, usize)>,
    /// Names that nothing declares; sorted and unique.
    pub(crate) free_names: Vec<String>,
    /// What the program imports, in order.
    pub(crate) imports: Vec<Import>,
    /// The first and the last use of each top-level name as a value, exports aside.
    uses: BTreeMap<SymbolId, (u32, u32)>,
}

/// An `import` of tools.
#[derive(Debug)]
pub(crate) struct Import {
    /// Where the model wrote it.
    pub(crate) offset: usize,
    /// One line that declares the same names.
    pub(crate) javascript: String,
}

impl Outline {
    pub(crate) fn of(semantic: &Semantic<'_>) -> Result<Self, SourceError> {
        let body = &semantic.nodes().program().body;
        let mut outline = Self {
            only_declares: body.iter().all(is_declaration),
            last_statement: body.iter().rfind(|statement| !is_passive(statement)).and_then(valued),
            ..Self::default()
        };
        let mut free_names = FreeNames::default();
        for node in semantic.nodes().iter() {
            refuse_unsupported(node)?;
            match node.kind() {
                AstKind::ReturnStatement(_) if !outline.returns => {
                    let scoping = semantic.scoping();
                    outline.returns =
                        !scoping.scope_ancestors(node.scope_id()).any(|scope| scoping.scope_flags(scope).is_function());
                }
                AstKind::IdentifierReference(name) => {
                    outline.add_use(semantic, node, name, &mut free_names);
                }
                _ => {}
            }
        }
        outline.free_names = free_names.names.difference(&free_names.known).map(|name| (*name).to_owned()).collect();
        outline.unknown_calls = free_names.into_unknown_calls();
        for statement in body {
            if let Statement::ImportDeclaration(import) = statement {
                outline.imports.extend(read_import(semantic, import));
            }
        }
        Ok(outline)
    }

    /// Whether the program uses a top-level name anywhere but within `own`.
    pub(crate) fn is_used_outside(&self, symbol: SymbolId, own: Span) -> bool {
        self.uses.get(&symbol).is_some_and(|&(first, last)| first < own.start || last >= own.end)
    }

    fn add_use<'a>(
        &mut self,
        semantic: &Semantic<'a>,
        node: &AstNode<'a>,
        name: &IdentifierReference<'a>,
        free_names: &mut FreeNames<'a>,
    ) {
        let scoping = semantic.scoping();
        let reference = scoping.get_reference(name.reference_id());
        if !reference.is_value() {
            return;
        }
        let parent = semantic.nodes().parent_kind(node.id());
        match reference.symbol_id() {
            None if reference.is_write() => {
                free_names.known.insert(name.name.as_str());
            }
            None => free_names.add(name, parent),
            Some(symbol) => {
                let exported = matches!(parent, AstKind::ExportSpecifier(_) | AstKind::ExportDefaultDeclaration(_));
                if !exported && scoping.symbol_scope_id(symbol) == scoping.root_scope_id() {
                    let at = name.span.start;
                    let (first, last) = self.uses.entry(symbol).or_insert((at, at));
                    (*first, *last) = (at.min(*first), at.max(*last));
                }
            }
        }
    }
}

/// The same names, taken from the sandbox. `None` if only types are imported, which TypeScript drops too.
fn read_import(semantic: &Semantic<'_>, import: &ImportDeclaration<'_>) -> Option<Import> {
    let is_of_types = |specifier: &ImportDeclarationSpecifier<'_>| {
        let marked =
            matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(named) if named.import_kind.is_type());
        let mut uses = semantic.scoping().get_resolved_references(specifier.local().symbol_id()).peekable();
        marked || (uses.peek().is_some() && uses.all(|reference| !reference.is_value()))
    };
    if import.import_kind.is_type() {
        return None;
    }
    let module = text_literal(import.source.value.as_str());
    let mut declared = Vec::new();
    for specifier in import.specifiers.iter().flatten().filter(|specifier| !is_of_types(specifier)) {
        let local = specifier.local().name.as_str();
        declared.push(match specifier {
            ImportDeclarationSpecifier::ImportSpecifier(named) => {
                let name = text_literal(export_name(&named.imported));
                format!("{{ {name}: {local} }} = globalThis.import({module})")
            }
            ImportDeclarationSpecifier::ImportDefaultSpecifier(_) => {
                format!("{local} = globalThis.import({module}, {})", text_literal(local))
            }
            ImportDeclarationSpecifier::ImportNamespaceSpecifier(_) => format!("{local} = globalThis.import({module})"),
        });
    }
    let javascript = match (declared.is_empty(), import.specifiers.is_some()) {
        (false, _) => format!("const {};\n", declared.join(", ")),
        (true, true) => return None,
        // `import "module"`
        (true, false) => format!("globalThis.import({module});\n"),
    };
    Some(Import { offset: import.span.start as usize, javascript })
}

/// A text as a literal of JavaScript.
fn text_literal(text: &str) -> String {
    let escaped = text.escape_default().to_string();
    // Rust writes `\u{1f600}` like JavaScript, and escapes both quotes.
    format!("\"{escaped}\"")
}

pub(crate) fn export_name<'n>(name: &'n ModuleExportName<'_>) -> &'n str {
    match name {
        ModuleExportName::IdentifierName(name) => name.name.as_str(),
        ModuleExportName::IdentifierReference(name) => name.name.as_str(),
        ModuleExportName::StringLiteral(name) => name.value.as_str(),
    }
}

fn is_declaration(statement: &Statement<'_>) -> bool {
    statement.is_declaration() || statement.is_module_declaration() || matches!(statement, Statement::EmptyStatement(_))
}

/// Whether a statement does nothing when the program gets to it.
fn is_passive(statement: &Statement<'_>) -> bool {
    matches!(
        statement,
        Statement::EmptyStatement(_)
            | Statement::FunctionDeclaration(_)
            | Statement::TSTypeAliasDeclaration(_)
            | Statement::TSInterfaceDeclaration(_)
    )
}

fn valued(statement: &Statement<'_>) -> Option<Span> {
    let has_value = matches!(
        statement,
        Statement::ExpressionStatement(_)
            | Statement::BlockStatement(_)
            | Statement::IfStatement(_)
            | Statement::TryStatement(_)
            | Statement::SwitchStatement(_)
    );
    has_value.then(|| statement.span())
}

fn refuse_unsupported(node: &AstNode<'_>) -> Result<(), SourceError> {
    let message = match node.kind() {
        AstKind::ImportMeta(_) => {
            "`import.meta` does not exist here, because the program is not a module; remove it".into()
        }
        AstKind::Decorator(_) => {
            "decorators are not supported; call the function on the class or method instead".into()
        }
        AstKind::TSExportAssignment(_) => {
            "`export =` does not exist here; `return` the result or use `export default`".into()
        }
        AstKind::TSImportEqualsDeclaration(import) => match &import.module_reference {
            TSModuleReference::ExternalModuleReference(module) => {
                no_modules(&[import.id.name.as_str()], module.expression.value.as_str())
            }
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(SourceError::at(node.kind().span().start, message))
}

/// The message for a program that imports.
pub(crate) fn no_modules(names: &[&str], module: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let what =
        if quoted.is_empty() { format!("\"{module}\"") } else { format!("{} from \"{module}\"", quoted.join(", ")) };
    format!(
        "there are no modules here, so {what} cannot be imported; \
         tools are global functions: remove this line and call them directly"
    )
}

/// Names that nothing in the program declares.
#[derive(Default)]
struct FreeNames<'a> {
    /// All that are read.
    names: BTreeSet<&'a str>,
    calls: BTreeMap<&'a str, u32>,
    /// Assigned or tested somewhere, so the program may get by without the host.
    known: BTreeSet<&'a str>,
    /// The program can define globals where no reader of the source sees it.
    opaque: bool,
}

impl<'a> FreeNames<'a> {
    fn add(&mut self, name: &IdentifierReference<'a>, parent: AstKind<'a>) {
        let text = name.name.as_str();
        if !globals::is_standard(text) {
            self.names.insert(text);
        }
        match parent {
            AstKind::UnaryExpression(unary) if unary.operator == UnaryOperator::Typeof => {
                self.known.insert(text);
            }
            AstKind::StaticMemberExpression(member) if text == "globalThis" => {
                self.known.insert(member.property.name.as_str());
            }
            _ if matches!(text, "globalThis" | "eval") => self.opaque = true,
            AstKind::CallExpression(call) if is_name(&call.callee, name) => {
                let first = self.calls.entry(text).or_insert(name.span.start);
                *first = name.span.start.min(*first);
            }
            _ => {}
        }
    }

    fn into_unknown_calls(self) -> Vec<(String, usize)> {
        if self.opaque {
            return Vec::new();
        }
        self.calls
            .into_iter()
            .filter(|(name, _)| !self.known.contains(name) && !globals::is_standard(name))
            .map(|(name, offset)| (name.to_owned(), offset as usize))
            .collect()
    }
}

fn is_name(callee: &Expression<'_>, name: &IdentifierReference<'_>) -> bool {
    callee.span() == name.span
}
