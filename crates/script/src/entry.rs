//! Where a program starts and which value is its result.

use oxc::allocator::{Allocator, ArenaBox, ArenaVec, GetAllocator, TakeIn};
use oxc::ast::ast::{
    BindingPattern, ExportDefaultDeclarationKind, Expression, FormalParameters, Function, FunctionType, Program,
    Statement, UnaryOperator, VariableDeclaration, VariableDeclarationKind, VariableDeclarator,
};
use oxc::ast::builder::AstBuilder;
use oxc::semantic::SymbolId;
use oxc::span::{GetSpan, SPAN, Span};

use crate::diagnostic::SourceError;
use crate::outline::{Outline, export_name, no_modules};

/// The argument of an entry function. `this` is the global object, where the sandbox puts it.
pub(crate) const ARGUMENT: &str = "this.default";

/// Rewrites a program without types into a function body, and yields the JavaScript to run after it.
pub(crate) fn install<'a>(
    program: &mut Program<'a>,
    outline: &Outline,
    allocator: &'a Allocator,
) -> Result<String, SourceError> {
    let mut body = FunctionBody {
        build: AstBuilder::new(allocator),
        result_name: unused_name(program.source_text),
        statements: ArenaVec::with_capacity_in(program.body.len() + 1, &allocator),
        default: None,
    };
    program.hashbang = None;
    for statement in program.body.take_in(&allocator) {
        body.add(statement)?;
    }
    let start = body.start(outline)?;
    if body.statements.is_empty()
        && let Some(mut directive) = program.directives.pop()
    {
        let value = Expression::StringLiteral(directive.expression.take_in_box(&allocator));
        body.statements.push(Statement::new_return_statement(SPAN, Some(value), &body.build));
    }
    program.body = body.statements;
    Ok(start)
}

struct FunctionBody<'a> {
    build: AstBuilder<'a>,
    result_name: String,
    statements: ArenaVec<'a, Statement<'a>>,
    default: Option<Default>,
}

/// What the program exports as its default.
enum Default {
    /// A top-level name.
    Name(String),
    /// An expression, kept under [`FunctionBody::result_name`].
    Kept(EntryArgument),
}

/// Whether an entry function takes an argument: an object with the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryArgument {
    Passed,
    None,
}

impl EntryArgument {
    /// A parameter with a value of its own gets none, unless it takes the object apart.
    fn of_parameters(parameters: &FormalParameters<'_>) -> EntryArgument {
        match parameters.items.first() {
            Some(first) if first.initializer.is_none() || first.pattern.is_object_pattern() => EntryArgument::Passed,
            _ => EntryArgument::None,
        }
    }

    fn of(expression: &Expression<'_>) -> EntryArgument {
        match expression {
            Expression::ArrowFunctionExpression(arrow) => EntryArgument::of_parameters(&arrow.params),
            Expression::FunctionExpression(function) => EntryArgument::of_parameters(&function.params),
            _ => EntryArgument::None,
        }
    }

    fn javascript(self) -> &'static str {
        match self {
            EntryArgument::Passed => ARGUMENT,
            EntryArgument::None => "",
        }
    }
}

/// A function at the top level.
struct TopLevelFunction {
    name: String,
    symbol: SymbolId,
    span: Span,
    argument: EntryArgument,
}

impl<'a> FunctionBody<'a> {
    /// Adds a top-level statement, as it is inside a function: without imports and exports.
    fn add(&mut self, statement: Statement<'a>) -> Result<(), SourceError> {
        match statement {
            // The outline has them.
            Statement::ImportDeclaration(_) => {}
            Statement::ExportAllDeclaration(export) => {
                return Err(SourceError::at(export.span.start, no_modules(&["*"], export.source.value.as_str())));
            }
            Statement::ExportFromDeclaration(export) => {
                let names: Vec<_> = export.specifiers.iter().map(|it| export_name(&it.local)).collect();
                return Err(SourceError::at(export.span.start, no_modules(&names, export.source.value.as_str())));
            }
            Statement::ExportDeclaration(export) => {
                self.statements.push(Statement::from(export.unbox().declaration));
            }
            Statement::ExportNamedDeclaration(export) => {
                for specifier in &export.specifiers {
                    if export_name(&specifier.exported) == "default" {
                        self.default = Some(Default::Name(export_name(&specifier.local).to_owned()));
                    }
                }
            }
            Statement::ExportDefaultDeclaration(export) => {
                let span = export.span;
                self.add_default(export.unbox().declaration, span)?;
            }
            Statement::FunctionDeclaration(function) if function.id.is_none() => {
                self.keep_function(function.unbox());
            }
            statement => self.statements.push(statement),
        }
        Ok(())
    }

    fn add_default(&mut self, declaration: ExportDefaultDeclarationKind<'a>, span: Span) -> Result<(), SourceError> {
        match declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => {
                if let Some(id) = &function.id {
                    self.default = Some(Default::Name(id.name.to_string()));
                    self.statements.push(Statement::FunctionDeclaration(function));
                } else {
                    self.keep_function(function.unbox());
                }
            }
            ExportDefaultDeclarationKind::ClassDeclaration(class) => {
                return Err(SourceError::at(
                    class.span.start,
                    "a class cannot be the program; export a function that uses it",
                ));
            }
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => {}
            declaration => {
                let expression = Expression::try_from(declaration).map_err(|_kind| {
                    SourceError::at(span.start, "this cannot be exported as the program; export a function")
                })?;
                if let Expression::Identifier(name) = &expression {
                    self.default = Some(Default::Name(name.name.to_string()));
                } else {
                    self.keep(expression, span);
                }
            }
        }
        Ok(())
    }

    fn keep_function(&mut self, mut function: Function<'a>) {
        let span = function.span;
        function.r#type = FunctionType::FunctionExpression;
        let function = ArenaBox::new_in(function, &self.build);
        self.keep(Expression::FunctionExpression(function), span);
    }

    /// Evaluates what may turn out to be the program where it stands, to be started at the end.
    fn keep(&mut self, expression: Expression<'a>, span: Span) {
        self.default = Some(Default::Kept(EntryArgument::of(&expression)));
        let name = self.build.allocator().alloc_str(&self.result_name);
        let declarator = VariableDeclarator::new(
            span,
            BindingPattern::new_binding_identifier(SPAN, name, &self.build),
            None,
            Some(expression),
            false,
            &self.build,
        );
        self.statements.push(Statement::new_variable_declaration(
            span,
            VariableDeclarationKind::Const,
            [declarator],
            false,
            &self.build,
        ));
    }

    /// Decides what runs after the last statement.
    fn start(&mut self, outline: &Outline) -> Result<String, SourceError> {
        let functions = self.top_level_functions();
        match self.default.take() {
            Some(Default::Kept(argument)) => return Ok(call_or_value(&self.result_name, argument)),
            Some(Default::Name(name)) => {
                let function = functions.iter().find(|function| function.name == name);
                let runs_itself = function.is_some_and(|it| outline.is_used_outside(it.symbol, it.span));
                if !runs_itself {
                    let argument = function.map_or(EntryArgument::None, |function| function.argument);
                    return Ok(call_or_value(&name, argument));
                }
            }
            None => {}
        }
        if outline.returns {
            return Ok(String::new());
        }
        if let Some(entry) = find_entry(&functions, outline) {
            return Ok(format!("return {}({});\n", entry.name, entry.argument.javascript()));
        }
        if let Some(first) = functions.first()
            && self.statements.iter().all(only_declares_functions)
        {
            return Err(SourceError::at(
                first.span.start,
                "nothing in this program runs, because it only declares functions; \
                          name the one to start `main`, or call it",
            ));
        }
        Ok(self.complete(outline))
    }

    /// Makes the value of the last statement the program's result.
    fn complete(&mut self, outline: &Outline) -> String {
        let index = outline.last_statement.and_then(|span| self.statements.iter().rposition(|it| it.span() == span));
        let Some(index) = index else { return String::new() };
        match &mut self.statements[index] {
            Statement::ExpressionStatement(statement)
                if statement.expression.is_function() || matches!(statement.expression, Expression::Identifier(_)) =>
            {
                let expression = statement.expression.take_in(&self.build);
                let span = statement.span;
                let after = self.statements.split_off(index + 1);
                self.statements.truncate(index);
                let argument = EntryArgument::of(&expression);
                self.keep(expression, span);
                self.statements.extend(after);
                call_or_value(&self.result_name, argument)
            }
            statement => {
                return_value(statement, &self.build);
                String::new()
            }
        }
    }

    fn top_level_functions(&self) -> Vec<TopLevelFunction> {
        let mut functions = Vec::new();
        for statement in &self.statements {
            match statement {
                Statement::FunctionDeclaration(function) => {
                    functions.extend(function.id.as_ref().map(|id| TopLevelFunction {
                        name: id.name.to_string(),
                        symbol: id.symbol_id(),
                        span: function.span,
                        argument: EntryArgument::of_parameters(&function.params),
                    }));
                }
                Statement::VariableDeclaration(declaration) => {
                    functions.extend(declared_functions(declaration));
                }
                _ => {}
            }
        }
        functions
    }
}

fn declared_functions(declaration: &VariableDeclaration<'_>) -> impl Iterator<Item = TopLevelFunction> {
    declaration.declarations.iter().filter_map(|declarator| {
        let init = declarator.init.as_ref().filter(|init| init.is_function())?;
        match &declarator.id {
            BindingPattern::BindingIdentifier(id) => Some(TopLevelFunction {
                name: id.name.to_string(),
                symbol: id.symbol_id.get()?,
                span: init.span(),
                argument: EntryArgument::of(init),
            }),
            _ => None,
        }
    })
}

/// The function that a program meant to be called but does not call.
fn find_entry<'f>(functions: &'f [TopLevelFunction], outline: &Outline) -> Option<&'f TopLevelFunction> {
    let is_unused = |it: &&TopLevelFunction| !outline.is_used_outside(it.symbol, it.span);
    let named = ["main", "run"].iter().find_map(|name| functions.iter().find(|function| function.name == *name));
    if let Some(entry) = named.filter(is_unused) {
        return Some(entry);
    }
    let mut unused = functions.iter().filter(is_unused);
    let only = unused.next().filter(|_| outline.only_declares)?;
    unused.next().is_none().then_some(only)
}

fn only_declares_functions(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::FunctionDeclaration(_) | Statement::EmptyStatement(_) => true,
        Statement::VariableDeclaration(declaration) => {
            declared_functions(declaration).count() == declaration.declarations.len()
        }
        _ => false,
    }
}

/// Turns the values a statement can end with into `return`s; statements without one stay.
fn return_value<'a>(statement: &mut Statement<'a>, build: &AstBuilder<'a>) {
    match statement {
        Statement::ExpressionStatement(it) => {
            let span = it.span;
            let mut value = it.expression.take_in(build);
            // `void main()` drops the value for a linter's sake, and the program would end early.
            if let Expression::UnaryExpression(unary) = &mut value
                && unary.operator == UnaryOperator::Void
            {
                value = unary.argument.take_in(build);
            }
            *statement = Statement::new_return_statement(span, Some(value), build);
        }
        Statement::BlockStatement(block) => return_last_value(&mut block.body, build),
        Statement::IfStatement(it) => {
            return_value(&mut it.consequent, build);
            if let Some(alternate) = &mut it.alternate {
                return_value(alternate, build);
            }
        }
        Statement::TryStatement(it) => {
            return_last_value(&mut it.block.body, build);
            if let Some(handler) = &mut it.handler {
                return_last_value(&mut handler.body.body, build);
            }
        }
        Statement::SwitchStatement(it) => {
            let last = it.cases.len().saturating_sub(1);
            for (index, case) in it.cases.iter_mut().enumerate() {
                // Only before a `break` or the end: elsewhere the next case runs too.
                match case.consequent.as_mut_slice() {
                    [.., value @ Statement::ExpressionStatement(_), Statement::BreakStatement(end)]
                        if end.label.is_none() =>
                    {
                        return_value(value, build);
                    }
                    [.., value] if index == last => return_value(value, build),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn return_last_value<'a>(statements: &mut [Statement<'a>], build: &AstBuilder<'a>) {
    if let Some(last) = statements.last_mut() {
        return_value(last, build);
    }
}

fn call_or_value(name: &str, argument: EntryArgument) -> String {
    let argument = argument.javascript();
    format!("return typeof {name} === \"function\" ? {name}({argument}) : {name};\n")
}

fn unused_name(source: &str) -> String {
    const NAME: &str = "program";
    let suffix = |(at, _): (usize, &str)| source[at + NAME.len()..].bytes().take_while(|&byte| byte == b'_').count();
    let taken = source.match_indices(NAME).map(suffix).max();
    NAME.to_owned() + &"_".repeat(taken.map_or(0, |longest| longest + 1))
}
