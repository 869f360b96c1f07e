//! Programs that run as the model wrote them, with spaces in the place of types and comments.
//!
//! Stripping the types from the tree and printing it anew takes a quarter of the front end's time. Most programs need neither:
//! without their types they are JavaScript, and every other byte may stay where it is. Whatever could make the text another
//! program than the printed tree, or what the parser and the engine could read differently, is left to the printer.

use std::ops::Range;

use oxc::ast::AstKind;
use oxc::ast::ast::{BinaryOperator, Expression, LogicalExpression, LogicalOperator};
use oxc::semantic::{AstNode, Semantic};
use oxc::span::{GetSpan, Span};

/// The text without types and comments, as long as before; `None` if the program has to be printed.
pub(crate) fn blanked(semantic: &Semantic<'_>, text: &str) -> Option<String> {
    if !has_plain_spaces(text) {
        return None;
    }
    let mut blanks: Vec<Blank> = Vec::new();
    for node in semantic.nodes().iter() {
        if needs_printer(node.kind()) || lacks_semicolon(semantic, node, text) {
            return None;
        }
        blanks.extend(Blank::of(node.kind(), text).ok()?);
    }
    // A comment between two tokens is as good as a space, or a line break.
    let comments = semantic.comments().iter().map(|comment| range(comment.span));
    let bytes = text.as_bytes();
    let mut body = bytes.to_vec();
    for comment in comments {
        blank(&mut body[comment]);
    }
    blanks.sort_unstable_by_key(|blank| blank.range.start);
    let mut end = 0;
    for Blank { range, syntax } in blanks {
        // Types within types.
        if range.start < end {
            continue;
        }
        end = range.end;
        let (inner, after) = (&bytes[range.clone()], body.get(range.end..)?);
        if syntax != TypeSyntax::Statement && (inner.contains(&b'\n') || !syntax.may_stand_before(after)) {
            return None;
        }
        blank(&mut body[range.clone()]);
        if syntax == TypeSyntax::Statement {
            // The statement before it may end only because another one begins.
            body[range.start] = b';';
        }
    }
    String::from_utf8(body).ok().filter(|body| !has_html_comments(body))
}

/// Syntax that means something when the program runs, or whose removal takes more than blanks.
fn needs_printer(kind: AstKind<'_>) -> bool {
    match kind {
        // Fields and parameters of classes have modifiers, and some of them are assignments.
        AstKind::Class(_)
        // The engine ends fewer of them at a line break.
        | AstKind::Directive(_)
        | AstKind::Hashbang(_)
        | AstKind::Decorator(_)
        | AstKind::ImportDeclaration(_)
        | AstKind::ExportDeclaration(_)
        | AstKind::ExportNamedDeclaration(_)
        | AstKind::ExportFromDeclaration(_)
        | AstKind::ExportDefaultDeclaration(_)
        | AstKind::ExportAllDeclaration(_)
        | AstKind::V8IntrinsicExpression(_)
        | AstKind::TSThisParameter(_)
        | AstKind::TSEnumDeclaration(_)
        | AstKind::TSExternalModuleDeclaration(_)
        | AstKind::TSNamespaceDeclaration(_)
        | AstKind::TSGlobalDeclaration(_)
        | AstKind::TSTypeAssertion(_)
        | AstKind::TSImportEqualsDeclaration(_)
        | AstKind::TSExportAssignment(_)
        | AstKind::TSNamespaceExportDeclaration(_)
        | AstKind::TSInstantiationExpression(_)
        | AstKind::JSDocNullableType(_)
        | AstKind::JSDocNonNullableType(_)
        | AstKind::JSDocUnknownType(_) => true,
        // The engine takes these for keywords in places where the parser does not.
        AstKind::BindingIdentifier(it) => is_sometimes_keyword(it.name.as_str()),
        AstKind::IdentifierReference(it) => is_sometimes_keyword(it.name.as_str()),
        // `a && b ?? c` and `-a ** b` are errors, and the tree does not tell whether the model wrote brackets.
        AstKind::LogicalExpression(it) => [&it.left, &it.right].into_iter().any(|operand| mixes(it, operand)),
        AstKind::BinaryExpression(it) => {
            it.operator == BinaryOperator::Exponential
                && matches!(it.left, Expression::UnaryExpression(_) | Expression::AwaitExpression(_))
        }
        // An overload, or a declaration of what is elsewhere.
        AstKind::Function(function) => {
            let is_nameless = function.is_function_declaration() && function.id.is_none();
            function.declare || function.body.is_none() || is_nameless
        }
        AstKind::VariableDeclaration(declaration) => declaration.declare,
        AstKind::VariableDeclarator(declarator) => declarator.definite,
        AstKind::FormalParameter(parameter) => parameter.optional && parameter.type_annotation.is_none(),
        AstKind::TSInterfaceDeclaration(declaration) => declaration.declare,
        AstKind::TSTypeAliasDeclaration(declaration) => declaration.declare,
        _ => false,
    }
}

/// Whether a statement ends without a mark. The printer writes one, so that it is never in doubt where a statement ends.
fn lacks_semicolon(semantic: &Semantic<'_>, node: &AstNode<'_>, text: &str) -> bool {
    let needs_end = match node.kind() {
        AstKind::VariableDeclaration(_) => {
            let parent = semantic.nodes().parent_kind(node.id());
            !matches!(parent, AstKind::ForStatement(_) | AstKind::ForInStatement(_) | AstKind::ForOfStatement(_))
        }
        AstKind::ExpressionStatement(_)
        | AstKind::ReturnStatement(_)
        | AstKind::ThrowStatement(_)
        | AstKind::BreakStatement(_)
        | AstKind::ContinueStatement(_)
        | AstKind::DoWhileStatement(_)
        | AstKind::DebuggerStatement(_) => true,
        _ => false,
    };
    let end = node.kind().span().end as usize;
    needs_end
        && !text[..end].ends_with(';')
        && !matches!(text[end..].trim_start().as_bytes().first(), None | Some(b'}'))
}

fn is_sometimes_keyword(name: &str) -> bool {
    matches!(name, "async" | "await" | "let" | "of" | "static" | "using" | "yield")
}

fn mixes(outer: &LogicalExpression<'_>, operand: &Expression<'_>) -> bool {
    let coalesces = |expression: &LogicalExpression<'_>| expression.operator == LogicalOperator::Coalesce;
    matches!(operand, Expression::LogicalExpression(inner) if coalesces(inner) != coalesces(outer))
}

/// What stands in the text for the sake of types alone.
struct Blank {
    range: Range<usize>,
    syntax: TypeSyntax,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeSyntax {
    /// `: T`, `?: T`, `<T>`, `!`
    Suffix,
    /// `as T`, `satisfies T`
    Operator,
    /// An interface or a type alias.
    Statement,
}

impl TypeSyntax {
    /// Whether what follows belongs to the same expression or statement when the types are gone.
    fn may_stand_before(self, after: &[u8]) -> bool {
        let next = after.iter().find(|byte| **byte != b' ' && **byte != b'\t');
        match self {
            // After a line break it could become a part of the expression that has ended.
            TypeSyntax::Suffix => next.is_some_and(|next| *next != b'\n'),
            // In `a + b as T * c` the sum is a factor.
            TypeSyntax::Operator => next.is_some_and(|next| matches!(next, b')' | b']' | b'}' | b',' | b';')),
            TypeSyntax::Statement => true,
        }
    }
}

/// The syntax is not as expected.
struct NeedsPrinter;

impl Blank {
    /// `None` for what does not stand there for types alone.
    fn of(kind: AstKind<'_>, text: &str) -> Result<Option<Blank>, NeedsPrinter> {
        let (range, syntax) = match kind {
            AstKind::TSTypeAnnotation(it) => (annotation(range(it.span), text), TypeSyntax::Suffix),
            AstKind::TSTypeParameterInstantiation(it) => (bracketed(range(it.span), text), TypeSyntax::Suffix),
            AstKind::TSTypeParameterDeclaration(it) => (bracketed(range(it.span), text), TypeSyntax::Suffix),
            AstKind::TSNonNullExpression(it) => (exclamation_mark(range(it.span), text), TypeSyntax::Suffix),
            AstKind::TSAsExpression(it) => {
                (operator(it.span, it.type_annotation.span(), "as", text), TypeSyntax::Operator)
            }
            AstKind::TSSatisfiesExpression(it) => {
                (operator(it.span, it.type_annotation.span(), "satisfies", text), TypeSyntax::Operator)
            }
            AstKind::TSInterfaceDeclaration(it) => (Some(range(it.span)), TypeSyntax::Statement),
            AstKind::TSTypeAliasDeclaration(it) => (Some(range(it.span)), TypeSyntax::Statement),
            _ => return Ok(None),
        };
        Ok(Some(Blank { range: range.ok_or(NeedsPrinter)?, syntax }))
    }
}

/// A type after a colon, with the question mark of an optional parameter.
fn annotation(range: Range<usize>, text: &str) -> Option<Range<usize>> {
    if !text[range.clone()].starts_with(':') {
        // A function's type has an arrow instead. It is within another type.
        return text[range.clone()].starts_with("=>").then_some(range);
    }
    let before = text[..range.start].trim_end_matches([' ', '\t']);
    // Before the arrow of a function no line may end, and a comment may hide a question mark.
    let is_near = |last: char| {
        last.is_alphanumeric() || matches!(last, '_' | '$' | ')' | ']' | '}' | '?' | '"' | '\'') || !last.is_ascii()
    };
    before.ends_with(is_near).then(|| before.strip_suffix('?').map_or(range.start, str::len)..range.end)
}

fn exclamation_mark(Range { end, .. }: Range<usize>, text: &str) -> Option<Range<usize>> {
    text[..end].strip_suffix('!').map(|before| before.len()..end)
}

fn bracketed(range: Range<usize>, text: &str) -> Option<Range<usize>> {
    let inner = &text[range.clone()];
    (inner.starts_with('<') && inner.ends_with('>')).then_some(range)
}

/// From the word before a type to the end of the expression.
fn operator(whole: Span, of_type: Span, word: &str, text: &str) -> Option<Range<usize>> {
    let before = text[..of_type.start as usize].trim_end_matches([' ', '\t', '\n']);
    let start = before.strip_suffix(word)?.len();
    // The word may be the end of another one, if a comment or a bracket stands before the type.
    let is_word = text[..start].ends_with([' ', '\t', '\n', ')', ']', '}', '"', '\'', '`']);
    is_word.then_some(start..whole.end as usize)
}

/// Whether the engine sees the same lines and spaces in it as the parser.
fn has_plain_spaces(text: &str) -> bool {
    let controls = text.bytes().filter(|byte| *byte < b' ' && !matches!(byte, b'\n' | b'\t')).count();
    let is_space = |c: char| !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{180e}' | '\u{200b}' | '\u{feff}'));
    controls == 0 && (text.is_ascii() || !text.contains(is_space))
}

/// Whether the engine sees comments in it that the parser does not: it reads a script, and not a module.
fn has_html_comments(text: &str) -> bool {
    text.contains("<!--") || text.contains("-->")
}

fn blank(text: &mut [u8]) {
    for byte in text.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

fn range(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}
