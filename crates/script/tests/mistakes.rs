//! A program that cannot run gets an error with positions in its own source.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dacapo_script::{SourcePosition, code_frame, prepare};

fn refusal(source: &str) -> String {
    prepare(source).unwrap_err().to_string()
}

#[test]
fn a_syntax_error_points_into_the_text_the_model_sent() {
    assert_eq!(
        refusal("Program:\r\n```ts\r\nconst é = 1\r\nreturn é +* 2\r\n```\r\n"),
        "Unexpected token (4:11)\n\
         \x20 2 | ```ts\n\
         \x20 3 | const é = 1\n\
         > 4 | return é +* 2\n\
         \x20   |           ^\n\
         \x20 5 | ```"
    );
}

#[test]
fn a_name_declared_twice_is_a_mistake() {
    assert_eq!(
        refusal("const a = 1;\nlet a = 2;"),
        "Identifier `a` has already been declared (2:5)\n\
         \x20 1 | const a = 1;\n\
         > 2 | let a = 2;\n\
         \x20   |     ^"
    );
}

#[test]
fn there_is_no_program_in_a_comment() {
    for source in ["", " \n", "// later", "```ts\n```"] {
        let error = prepare(source).unwrap_err();
        assert_eq!(error.message, "the program is empty; send TypeScript that returns its result");
    }
}

#[test]
fn several_blocks_are_not_one_program() {
    let error = prepare("First:\n```\na()\n```\nThen:\n```\nb()\n```\n").unwrap_err();

    assert_eq!(error.message, "there are 2 code blocks here; send one program, in one block");
    assert_eq!(error.at, SourcePosition { line: 6, column: 1 });
}

#[test]
fn what_cannot_be_imported_is_named() {
    for (source, what) in [
        ("import a = require('fs');\na()", "`a` from \"fs\""),
        ("export { a } from 'fs';", "`a` from \"fs\""),
        ("export * from 'fs';", "`*` from \"fs\""),
    ] {
        let error = prepare(source).unwrap_err();
        assert_eq!(
            error.message,
            format!(
                "there are no modules here, so {what} cannot be imported; \
                 tools are global functions: remove this line and call them directly"
            )
        );
        assert_eq!(error.at, SourcePosition { line: 1, column: 1 });
    }
}

#[test]
fn what_cannot_run_here_is_refused() {
    for (source, message) in [
        ("return import.meta.url", "`import.meta` does not exist here, because the program is not a module; remove it"),
        ("@a class B {}\nnew B()", "decorators are not supported; call the function on the class or method instead"),
        ("export = 1", "`export =` does not exist here; `return` the result or use `export default`"),
        ("export default class {}", "a class cannot be the program; export a function that uses it"),
        (
            "function a() {}\nfunction b() {}",
            "nothing in this program runs, because it only declares functions; name the one to start `main`, or call it",
        ),
    ] {
        assert_eq!(prepare(source).unwrap_err().message, message);
    }
}

#[test]
fn a_frame_shows_a_window_of_a_long_line() {
    let source = format!("{}\tbad();{}", "x".repeat(300), "y".repeat(300));

    assert_eq!(
        code_frame(&source, SourcePosition { line: 1, column: 302 }),
        format!("> 1 | {} bad();{}\n    | {}^", "x".repeat(49), "y".repeat(44), " ".repeat(50))
    );
}
