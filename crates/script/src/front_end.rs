//! From the text the model wrote to JavaScript: parse, check, strip types, print.

use std::path::Path;

use oxc::allocator::Allocator;
use oxc::ast::ast::{Program, Statement};
use oxc::codegen::{Codegen, CodegenOptions, CommentOptions};
use oxc::diagnostics::{Diagnostics, OxcDiagnostic, Severity};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::SemanticBuilder;
use oxc::span::SourceType;
use oxc::transformer::{TransformOptions, Transformer};

use crate::diagnostic::Diagnostic;
use crate::entry;
use crate::fence;
use crate::nesting;
use crate::outline::{Outline, Unsupported};
use crate::position::Position;

// The body starts on a line of its own, because the engine's columns are off by one on the first.
const PROLOGUE: &str = "(async () => {\n";
const EPILOGUE: &str = "})()";

/// Whether to record where the output comes from; the output is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    With,
    Without,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) javascript: String,
    /// By name, with the offset of the first call.
    pub(crate) unknown_calls: Vec<(String, usize)>,
    /// Sorted by generated position; empty without [`Mapping::With`].
    pub(crate) marks: Vec<Mark>,
}

/// Text at `generated`, whose column counts bytes, comes from `offset` in the source.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) generated: Position,
    pub(crate) offset: usize,
}

/// Why a text did not compile.
enum Refusal {
    /// It is not code at all, perhaps prose around code.
    Syntax(Mistake),
    Program(Mistake),
}

struct Mistake {
    offset: usize,
    message: String,
}

pub(crate) fn compile(source: &str, mapping: Mapping) -> Result<Compiled, Diagnostic> {
    let diagnose = |mistake: Mistake| Diagnostic::new(source, mistake.offset, mistake.message);
    let whole = || match source.strip_prefix('\u{feff}') {
        None => compile_text(source, mapping),
        Some(rest) => {
            let range = source.len() - rest.len()..source.len();
            compile_text(&fence::blank_outside(source, &range), mapping)
        }
    };
    let blocks = fence::blocks(source);
    let starts_fenced = blocks
        .first()
        .is_some_and(|block| source[..block.opening].chars().all(|c| c.is_whitespace() || c == '\u{feff}'));
    if !starts_fenced {
        match whole() {
            Ok(compiled) => return Ok(compiled),
            Err(Refusal::Program(mistake)) => return Err(diagnose(mistake)),
            Err(Refusal::Syntax(mistake)) if blocks.is_empty() => return Err(diagnose(mistake)),
            Err(Refusal::Syntax(_)) => {}
        }
    }
    if let Some(second) = blocks.get(1) {
        return Err(diagnose(Mistake {
            offset: second.opening,
            message: format!("there are {} code blocks here; send one program, in one block", blocks.len()),
        }));
    }
    let content = blocks.first().map_or(0..source.len(), |block| block.content.clone());
    compile_text(&fence::blank_outside(source, &content), mapping).map_err(|refusal| match refusal {
        Refusal::Syntax(mistake) | Refusal::Program(mistake) => diagnose(mistake),
    })
}

fn compile_text(text: &str, mapping: Mapping) -> Result<Compiled, Refusal> {
    nesting::with_stack_for(text, || compile_on_this_stack(text, mapping))
        .map_err(|deep| Refusal::Syntax(Mistake { offset: deep.offset, message: deep.message() }))?
}

fn compile_on_this_stack(text: &str, mapping: Mapping) -> Result<Compiled, Refusal> {
    let allocator = Allocator::default();
    let mut program = parse(&allocator, text).map_err(Refusal::Syntax)?;
    if program.body.is_empty() && program.directives.is_empty() {
        return Err(Refusal::Program(Mistake {
            offset: text.find(|c: char| !c.is_whitespace()).unwrap_or(0),
            message: "the program is empty; send TypeScript that returns its result".into(),
        }));
    }
    let (unknown_calls, start) = rewrite(&allocator, &mut program).map_err(Refusal::Program)?;

    let printed = Codegen::new()
        .with_options(CodegenOptions {
            comments: CommentOptions::disabled(),
            source_map_path: (mapping == Mapping::With).then(|| "program".into()),
            ..CodegenOptions::default()
        })
        .build(&program);
    let marks = printed.map.map_or_else(Vec::new, |map| {
        let places = map.get_tokens().map(|token| {
            let generated = Place { line: token.get_dst_line(), column: token.get_dst_col() };
            let original = Place { line: token.get_src_line(), column: token.get_src_col() };
            (generated, original)
        });
        marks(places, text, &printed.code)
    });
    let javascript = [PROLOGUE, &printed.code, &start, EPILOGUE].concat();
    Ok(Compiled { javascript, unknown_calls, marks })
}

/// Parses TypeScript, or JavaScript where only that succeeds.
fn parse<'a>(allocator: &'a Allocator, text: &'a str) -> Result<Program<'a>, Mistake> {
    let parse_as = |source_type: SourceType| {
        let parsed = Parser::new(allocator, text, source_type)
            .with_options(ParseOptions {
                allow_return_outside_function: true,
                preserve_parens: false,
                ..ParseOptions::default()
            })
            .parse();
        match first_error(&parsed.diagnostics) {
            Some(error) if !is_nameless_function(error, &parsed.program) => Err(mistake(error)),
            None if parsed.panicked => Err(Mistake { offset: 0, message: "this is not a program".into() }),
            _ => Ok(parsed.program),
        }
    };
    parse_as(SourceType::ts().with_module(true)).or_else(|error| parse_as(SourceType::mjs()).map_err(|_| error))
}

/// Whether all that is wrong is that the last statement, a function, has no name.
fn is_nameless_function(error: &OxcDiagnostic, program: &Program<'_>) -> bool {
    match program.body.last() {
        Some(Statement::FunctionDeclaration(function)) if function.id.is_none() => {
            offset_of(error) == function.params.span.start as usize
        }
        _ => false,
    }
}

/// Turns the program into a function body without types.
fn rewrite<'a>(allocator: &'a Allocator, program: &mut Program<'a>) -> Result<(Vec<(String, usize)>, String), Mistake> {
    let (outline, scoping) = {
        let analysed = SemanticBuilder::new()
            .with_build_nodes(true)
            .with_check_syntax_error(true)
            .with_enum_eval(true)
            .build(program);
        if let Some(error) = first_error(&analysed.diagnostics) {
            return Err(mistake(error));
        }
        let outline = Outline::of(&analysed.semantic).map_err(unsupported)?;
        (outline, analysed.semantic.into_scoping())
    };
    let transformed = Transformer::new(allocator, Path::new("program.ts"), &TransformOptions::default())
        .build_with_scoping(scoping, program);
    if let Some(error) = first_error(&transformed.diagnostics) {
        return Err(mistake(error));
    }
    let start = entry::install(program, &outline, allocator).map_err(unsupported)?;
    Ok((outline.unknown_calls, start))
}

fn first_error(diagnostics: &Diagnostics) -> Option<&OxcDiagnostic> {
    diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error)
}

fn mistake(error: &OxcDiagnostic) -> Mistake {
    let message = match &error.help {
        Some(help) => format!("{}; {help}", error.message),
        None => error.message.to_string(),
    };
    Mistake { offset: offset_of(error), message }
}

fn offset_of(error: &OxcDiagnostic) -> usize {
    error.labels.first().map_or(0, |label| label.offset() as usize)
}

fn unsupported(unsupported: Unsupported) -> Mistake {
    Mistake { offset: unsupported.offset as usize, message: unsupported.message }
}

/// A source map counts lines and columns from zero, and columns in UTF-16.
struct Place {
    line: u32,
    column: u32,
}

fn marks(places: impl Iterator<Item = (Place, Place)>, text: &str, printed: &str) -> Vec<Mark> {
    let text = Places::of(text);
    let printed = Places::of(printed);
    let first_line = PROLOGUE.lines().count() as u32 + 1;
    places
        .map(|(generated, original)| {
            let line_start = printed.offset(&Place { line: generated.line, column: 0 });
            let column = printed.offset(&generated) - line_start + 1;
            Mark {
                generated: Position { line: generated.line + first_line, column: column as u32 },
                offset: text.offset(&original),
            }
        })
        .collect()
}

/// The byte offset of every place in a text.
struct Places {
    /// By UTF-16 unit, the end included.
    offsets: Vec<usize>,
    /// The first unit of every line, by all the line terminators of the language.
    line_starts: Vec<usize>,
}

impl Places {
    fn of(text: &str) -> Self {
        let mut places = Self { offsets: Vec::with_capacity(text.len() + 1), line_starts: vec![0] };
        let mut chars = text.char_indices().peekable();
        while let Some((offset, c)) = chars.next() {
            places.offsets.extend(std::iter::repeat_n(offset, c.len_utf16()));
            let crlf = c == '\r' && matches!(chars.peek(), Some((_, '\n')));
            if matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}') && !crlf {
                places.line_starts.push(places.offsets.len());
            }
        }
        places.offsets.push(text.len());
        places
    }

    fn offset(&self, place: &Place) -> usize {
        let end = self.offsets.len() - 1;
        let line_start = self.line_starts.get(place.line as usize).map_or(end, |&start| start);
        self.offsets[(line_start + place.column as usize).min(end)]
    }
}
