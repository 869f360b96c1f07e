//! From the text the model wrote to JavaScript: parse, check, and strip types, in the text or by printing it anew.

use std::borrow::Cow;
use std::path::Path;

use oxc::allocator::Allocator;
use oxc::ast::ast::{Program, Statement};
use oxc::codegen::{Codegen, CodegenOptions, CommentOptions};
use oxc::diagnostics::{Diagnostics, OxcDiagnostic, Severity};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::{Scoping, SemanticBuilder, Stats};
use oxc::span::SourceType;
use oxc::transformer::{TransformOptions, Transformer};

use crate::blanks;
use crate::diagnostic::{Diagnostic, SourceError};
use crate::entry;
use crate::fence::{self, CodeBlock};
use crate::language::other_language;
use crate::nesting;
use crate::outline::Outline;
use crate::position::{BYTE_ORDER_MARK, SourcePosition};
use crate::source_map::{Mark, Utf16Position, marks};

// The body starts on a line of its own, because the engine's columns are off by one on the first.
const PROLOGUE: &str = "(async () => {\n";
pub(crate) const PROLOGUE_LINES: u32 = 1;
const EPILOGUE: &str = "})()";

/// Whether to record where the output comes from; the output is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    With,
    Without,
}

#[derive(Debug)]
pub(crate) struct CompiledScript {
    pub(crate) javascript: String,
    /// By name, with the offset of the first call.
    pub(crate) unknown_calls: Vec<(String, usize)>,
    pub(crate) free_names: Vec<String>,
    pub(crate) places: Places,
}

/// Where the output comes from.
#[derive(Debug)]
pub(crate) enum Places {
    /// Between its first and its last line, every byte that is not blank is where it was, [`PROLOGUE_LINES`] further down.
    Kept,
    /// Sorted by generated position; empty without [`Mapping::With`].
    Marked(Vec<Mark>),
}

/// Why a text did not compile.
enum CompileError {
    /// It is not code at all, perhaps prose around code.
    Syntax(SourceError),
    Program(SourceError),
}

impl CompileError {
    fn into_error(self) -> SourceError {
        match self {
            CompileError::Syntax(error) | CompileError::Program(error) => error,
        }
    }
}

pub(crate) fn compile(source: &str, mapping: Mapping) -> Result<CompiledScript, Diagnostic> {
    let diagnose = |error: SourceError| Diagnostic::of(error, source);
    let explain = |error: SourceError, code: &str| match other_language(code) {
        Some(language) => {
            let message = format!("this is {language}; write the program in TypeScript or JavaScript");
            diagnose(SourceError { message, ..error })
        }
        None => diagnose(error),
    };
    let blocks = fence::blocks(source);
    let starts_fenced = blocks.first().is_some_and(|block| source[..block.opening].trim_matches(is_blank).is_empty());
    if !starts_fenced {
        match compile_whole(source, mapping, &blocks) {
            Ok(compiled) => return Ok(compiled),
            Err(CompileError::Program(error)) => return Err(diagnose(error)),
            Err(CompileError::Syntax(error)) if blocks.is_empty() => return Err(explain(error, source)),
            Err(CompileError::Syntax(_)) => {}
        }
    }
    // A closing fence whose opening one was left out.
    if let [stray] = blocks.as_slice()
        && !starts_fenced
        && source[stray.content.clone()].trim_matches(is_blank).is_empty()
    {
        let before = fence::blank_outside(source, &(0..stray.opening));
        return compile_text(&before, mapping, &[]).map_err(|refusal| diagnose(refusal.into_error()));
    }
    if let Some(second) = blocks.get(1) {
        return Err(diagnose(SourceError {
            offset: second.opening,
            message: format!("there are {} code blocks here; send one program, in one block", blocks.len()),
        }));
    }
    let content = blocks.first().map_or(0..source.len(), |block| block.content.clone());
    let code = fence::blank_outside(source, &content);
    compile_text(&code, mapping, &[]).map_err(|refusal| match refusal {
        CompileError::Syntax(error) => explain(error, &source[content.clone()]),
        CompileError::Program(error) => diagnose(error),
    })
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == BYTE_ORDER_MARK
}

fn compile_whole(source: &str, mapping: Mapping, blocks: &[CodeBlock]) -> Result<CompiledScript, CompileError> {
    match source.strip_prefix(BYTE_ORDER_MARK) {
        None => compile_text(source, mapping, blocks),
        Some(rest) => {
            let range = source.len() - rest.len()..source.len();
            compile_text(&fence::blank_outside(source, &range), mapping, blocks)
        }
    }
}

/// `blocks` are those that mark the text around them as prose.
fn compile_text(text: &str, mapping: Mapping, blocks: &[CodeBlock]) -> Result<CompiledScript, CompileError> {
    nesting::with_stack_for(text, || compile_on_this_stack(text, mapping, blocks))
        .map_err(|deep| CompileError::Syntax(SourceError { offset: deep.offset, message: nesting::TOO_DEEP.into() }))?
}

fn compile_on_this_stack(text: &str, mapping: Mapping, blocks: &[CodeBlock]) -> Result<CompiledScript, CompileError> {
    let allocator = Allocator::default();
    let mut program = parse(&allocator, text).map_err(CompileError::Syntax)?;
    if let Some(block) = blocks.iter().find(|block| is_template(block, &program)) {
        return Err(CompileError::Syntax(SourceError {
            offset: block.opening,
            message: "this is a code block".into(),
        }));
    }
    if program.body.is_empty() && program.directives.is_empty() {
        return Err(CompileError::Program(SourceError {
            offset: text.find(|c: char| !c.is_whitespace()).unwrap_or(0),
            message: "the program is empty; send TypeScript that returns its result".into(),
        }));
    }
    let (outline, blanked, scoping) = analyse(&program, text).map_err(CompileError::Program)?;
    if let Some(body) = blanked {
        let Outline { unknown_calls, free_names, .. } = outline;
        let javascript = [PROLOGUE, &body, "\n", EPILOGUE].concat();
        return Ok(CompiledScript { javascript, unknown_calls, free_names, places: Places::Kept });
    }
    let start = rewrite(&allocator, &mut program, &outline, scoping).map_err(CompileError::Program)?;
    let imports = &outline.imports;

    let printed = Codegen::new()
        .with_options(CodegenOptions {
            comments: CommentOptions::disabled(),
            source_map_path: (mapping == Mapping::With).then(|| "program".into()),
            ..CodegenOptions::default()
        })
        .build(&program);
    let marks = printed.map.map_or_else(Vec::new, |map| {
        let places = map.get_tokens().map(|token| {
            let generated = Utf16Position { line: token.get_dst_line(), column: token.get_dst_col() };
            let original = Utf16Position { line: token.get_src_line(), column: token.get_src_col() };
            (generated, original)
        });
        let of_imports = (PROLOGUE_LINES + 1..)
            .zip(imports)
            .map(|(line, import)| Mark { generated: SourcePosition { line, column: 1 }, offset: import.offset });
        let of_body = marks(places, text, &printed.code, PROLOGUE_LINES + imports.len() as u32);
        of_imports.chain(of_body).collect()
    });
    let imports: String = imports.iter().map(|import| import.javascript.as_str()).collect();
    let javascript = [PROLOGUE, &imports, &unescape_script_tags(&printed.code, text), &start, EPILOGUE].concat();
    let Outline { unknown_calls, mut free_names, .. } = outline;
    let has_imports = !imports.is_empty();
    free_names.extend(has_imports.then(|| "import".to_owned()));
    free_names.extend(start.contains(entry::ARGUMENT).then(|| "default".to_owned()));
    Ok(CompiledScript { javascript, unknown_calls, free_names, places: Places::Marked(marks) })
}

/// Whether the parser read a code fence as template literals, as in `Program:` with a fence below it.
fn is_template(block: &CodeBlock, program: &Program<'_>) -> bool {
    let at = block.opening as u32;
    let comments = &program.comments[..program.comments.partition_point(|comment| comment.span.start <= at)];
    let in_comment = comments.last().is_some_and(|comment| at < comment.span.end);
    program.source_text.as_bytes()[block.opening] == b'`' && !in_comment
}

/// Undoes what the printer does for the sake of HTML, because a tagged template can see it.
fn unescape_script_tags<'p>(printed: &'p str, text: &str) -> Cow<'p, str> {
    const ESCAPED: &str = r"<\/script";
    if !printed.contains(ESCAPED) || text.contains(ESCAPED) {
        return Cow::Borrowed(printed);
    }
    Cow::Owned(printed.replace(ESCAPED, "</script"))
}

/// Parses TypeScript, or JavaScript where only that succeeds.
fn parse<'a>(allocator: &'a Allocator, text: &'a str) -> Result<Program<'a>, SourceError> {
    let parse_as = |source_type: SourceType| {
        let parsed = Parser::new(allocator, text, source_type)
            .with_options(ParseOptions {
                allow_return_outside_function: true,
                preserve_parens: false,
                ..ParseOptions::default()
            })
            .parse();
        match errors(&parsed.diagnostics).find(|error| !is_nameless_function(error, &parsed.program)) {
            Some(error) => Err(source_error(error)),
            None => Ok(parsed.program),
        }
    };
    parse_as(SourceType::ts().with_module(true))
        .or_else(|error| parse_as(SourceType::mjs()).map_err(|_of_javascript| error))
}

/// Whether all that is wrong is that the last statement, a function, has no name.
fn is_nameless_function(error: &OxcDiagnostic, program: &Program<'_>) -> bool {
    let is_empty = |statement: &&Statement<'_>| matches!(statement, Statement::EmptyStatement(_));
    match program.body.iter().rev().find(|statement| !is_empty(statement)) {
        Some(Statement::FunctionDeclaration(function)) if function.id.is_none() => {
            offset_of(error) == function.params.span.start as usize
        }
        _ => false,
    }
}

/// Room for a usual program of this length; others get more as they need it. To count what there is, the analysis would go
/// over the tree once more.
fn usual_stats(text: &str) -> Stats {
    const BYTES_MAX: usize = 64 << 10;
    let bytes = text.len().min(BYTES_MAX) as u32;
    Stats::new(bytes / 3, bytes / 48, bytes / 32, bytes / 16)
}

/// What there is to know about the program, and its text without types, if it can run like that.
fn analyse(program: &Program<'_>, text: &str) -> Result<(Outline, Option<String>, Scoping), SourceError> {
    let analysed = SemanticBuilder::new()
        .with_build_nodes(true)
        .with_check_syntax_error(true)
        .with_enum_eval(true)
        .with_stats(usual_stats(text))
        .build(program);
    if let Some(error) = errors(&analysed.diagnostics).next() {
        return Err(source_error(error));
    }
    let outline = Outline::of(&analysed.semantic)?;
    // Else something has to be added that returns the result.
    let blanked = outline.returns.then(|| blanks::blanked(&analysed.semantic, text)).flatten();
    Ok((outline, blanked, analysed.semantic.into_scoping()))
}

/// Turns the program into a function body without types, and yields the JavaScript to run after it.
fn rewrite<'a>(
    allocator: &'a Allocator,
    program: &mut Program<'a>,
    outline: &Outline,
    scoping: Scoping,
) -> Result<String, SourceError> {
    let transformed = Transformer::new(allocator, Path::new("program.ts"), &TransformOptions::default())
        .build_with_scoping(scoping, program);
    if let Some(error) = errors(&transformed.diagnostics).next() {
        return Err(source_error(error));
    }
    entry::install(program, outline, allocator)
}

fn errors(diagnostics: &Diagnostics) -> impl Iterator<Item = &OxcDiagnostic> {
    diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
}

fn source_error(error: &OxcDiagnostic) -> SourceError {
    let message = match &error.help {
        Some(help) => format!("{}; {help}", error.message),
        None => error.message.to_string(),
    };
    SourceError { offset: offset_of(error), message }
}

/// An error with several labels is at the last of them: the text before it was still valid.
fn offset_of(error: &OxcDiagnostic) -> usize {
    error.labels.iter().map(|label| label.offset() as usize).max().unwrap_or(0)
}
