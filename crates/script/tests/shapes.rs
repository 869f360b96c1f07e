//! Every shape a model sends a program in runs as the program it meant.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dacapo_script::prepare;

mod printed;

/// What runs between the opening and the closing line, as the printer spells it.
fn body(source: &str) -> String {
    let script = prepare(source).unwrap_or_else(|error| panic!("{error}"));
    let body = printed::body(&script.javascript);
    if printed::is_kept(source, body) { printed::of(body).unwrap() } else { body.to_owned() }
}

#[test]
fn a_body_with_await_and_return_runs_as_it_is() {
    let source = "'use strict';\nconst a: number = await f();\nreturn a!;";

    assert_eq!(body(source), "\"use strict\";\nconst a = await f();\nreturn a;\n");
}

#[test]
fn a_top_level_return_leaves_everything_else_alone() {
    let source = "async function main() {}\nif (a) return 1;\nb;";

    assert_eq!(body(source), "async function main() {}\nif (a) return 1;\nb;\n");
}

#[test]
fn a_main_that_nobody_calls_is_called() {
    let expected = "async function main() {\n\treturn main.name;\n}\nreturn main();\n";

    assert_eq!(body("async function main(): Promise<string> { return main.name }"), expected);
    assert_eq!(body("export async function main() { return main.name }"), expected);
    assert_eq!(
        body("function main(): void; function main(a?: number): void { return; }"),
        "function main(a) {\n\treturn;\n}\nreturn main(this.default);\n"
    );
    assert_eq!(body("const run = async () => 1;\nf();"), "const run = async () => 1;\nf();\nreturn run();\n");
    assert_eq!(
        body("function run() {}\nfunction main() { return run() }"),
        "function run() {}\nfunction main() {\n\treturn run();\n}\nreturn main();\n"
    );
}

#[test]
fn a_main_that_is_called_is_not_called_again() {
    for call in ["main();", "await main();", "main().catch(f);"] {
        let expected = format!("async function main() {{}}\nreturn {call}\n");
        assert_eq!(body(&format!("async function main() {{}}\n{call}")), expected);
        assert_eq!(body(&format!("export default async function main() {{}}\n{call}")), expected);
    }
    assert_eq!(body("void main();\nasync function main() {}"), "return main();\nasync function main() {}\n");
}

#[test]
fn among_declarations_the_one_unused_function_is_called() {
    let source = "type A = 1;\nconst b = 2;\nfunction help() { return b }\nconst go = () => help();";

    assert_eq!(
        body(source),
        "const b = 2;\nfunction help() {\n\treturn b;\n}\nconst go = () => help();\nreturn go();\n"
    );
}

#[test]
fn a_default_export_is_called_or_is_the_value() {
    let start = "return typeof program === \"function\" ? program() : program;\n";

    assert_eq!(
        body("export default async function () { return 1 }"),
        format!("const program = async function() {{\n\treturn 1;\n}};\n{start}")
    );
    assert_eq!(body("export default async () => 1"), format!("const program = async () => 1;\n{start}"));
    assert_eq!(
        body("export default a + 1;\nexport const b = 2;"),
        format!("const program = a + 1;\nconst b = 2;\n{start}")
    );
    for source in [
        "export default function go() {}",
        "function go() {}\nexport default go;",
        "function go() {}\nexport { go as default };",
    ] {
        let expected = "function go() {}\nreturn typeof go === \"function\" ? go() : go;\n";
        assert_eq!(body(source), expected);
    }
}

#[test]
fn a_bare_function_at_the_end_is_called() {
    let call = "return typeof program === \"function\" ? program() : program;\n";

    assert_eq!(body("async () => { f() };"), format!("const program = async () => {{\n\tf();\n}};\n{call}"));
    assert_eq!(body("(async () => { f() })"), format!("const program = (async () => {{\n\tf();\n}});\n{call}"));
    assert_eq!(body("f();\nfunction () { g() }"), format!("f();\nconst program = function() {{\n\tg();\n}};\n{call}"));
    assert_eq!(body("function () { f() };"), format!("const program = function() {{\n\tf();\n}};\n;\n{call}"));
    assert_eq!(body("const go = () => 1;\ngo"), format!("const go = () => 1;\nconst program = go;\n{call}"));
}

#[test]
fn names_of_the_program_are_not_taken() {
    assert_eq!(
        body("const program = 1;\n() => program"),
        "const program = 1;\nconst program_ = () => program;\n\
         return typeof program_ === \"function\" ? program_() : program_;\n"
    );
}

#[test]
fn the_last_expression_is_the_value() {
    assert_eq!(body("let a = 1;\na + 1 // done"), "let a = 1;\nreturn a + 1;\n");
    assert_eq!(body("'text'"), "return \"text\";\n");
    assert_eq!(body("(async () => 1)()"), "return (async () => 1)();\n");
    assert_eq!(body("f();\nfunction f() {}"), "return f();\nfunction f() {}\n");
    assert_eq!(body("if (a) { b() } else c()"), "if (a) {\n\treturn b();\n} else return c();\n");
    assert_eq!(
        body("try { a() } catch { b() } finally { c() }"),
        "try {\n\treturn a();\n} catch {\n\treturn b();\n} finally {\n\tc();\n}\n"
    );
    assert_eq!(
        body("switch (a) { case 1: b(); case 2: c(); break; default: d() }"),
        "switch (a) {\n\tcase 1: b();\n\tcase 2:\n\t\treturn c();\n\t\tbreak;\n\tdefault: return d();\n}\n"
    );
    assert_eq!(body("for (;;) a()"), "for (;;) a();\n");
    assert_eq!(body("namespace N { export const a = 1 }").matches("return").count(), 0);
}

#[test]
fn a_fence_is_no_part_of_the_program() {
    for source in [
        "```\nreturn 1\n```",
        "```ts title=\"a\"\nreturn 1\n```\n",
        "\u{feff}\r\n  ~~~~js\r\n  return 1\r\n  ~~~~\r\n",
        "Here's the program:\n\n```typescript\nreturn 1\n```\nIt's short.",
        "```js\nreturn 1",
        "Program:\n```\nreturn 1\n```",
        "/*\n```\nreturn 2\n```\n*/\nreturn 1",
        "\u{feff}return 1",
        "#!/usr/bin/env node\r\n\r\nreturn 1\r\n",
    ] {
        assert_eq!(body(source), "return 1;\n");
    }
    assert_eq!(body("`a\n~~~\nb\n~~~\n`"), "return `a\n~~~\nb\n~~~\n`;\n");
}

#[test]
fn types_go_and_modern_javascript_stays() {
    let source = "import type { A } from 'a';\nimport { B } from 'b';\ndeclare const d: A;\n\
        abstract class C<T> { #x = 1; constructor(private y: B) {} abstract z(): void; static { } }\n\
        enum E { A = 1 }\nusing u = d satisfies A as B;\n\
        return [C, E.A, u?.v ?? 1n ** 2n, a ||= /[\\p{L}--q]/v, String.raw`</script>`]";

    assert_eq!(
        body(source),
        "class C {\n\ty;\n\t#x = 1;\n\tconstructor(y) {\n\t\tthis.y = y;\n\t}\n\tstatic {}\n}\n\
         var E = function(E) {\n\tE[E[\"A\"] = 1] = \"A\";\n\treturn E;\n}(E || {});\n\
         using u = d;\nreturn [\n\tC,\n\tE.A,\n\tu?.v ?? 1n ** 2n,\n\ta ||= /[\\p{L}--q]/v,\n\
         \tString.raw`</script>`\n];\n"
    );
}

#[test]
fn javascript_that_is_not_typescript_is_accepted() {
    assert_eq!(body("return a<b>(c);"), "return a(c);\n");
    assert_eq!(body("const f = async <T>(a: T) => a;\nreturn f(1)"), "const f = async (a) => a;\nreturn f(1);\n");
}

#[test]
fn a_closing_fence_without_an_opening_one_is_left_out() {
    assert_eq!(body("const a = await f();\nreturn a;\n```"), "const a = await f();\nreturn a;\n");
    assert_eq!(body("return 1;\n```\n\n"), "return 1;\n");
    // One that opens something is not.
    assert!(prepare("return 1;\n```\nand so on").is_err());
    let error = prepare("return 1 +;\n```").unwrap_err();
    assert_eq!((error.at.line, error.at.column), (1, 11), "{error}");
}

#[test]
fn imports_ask_the_sandbox_for_the_tools() {
    let source = "import type { T } from 't';\nimport a, { b as c, type U } from 'x/y';\nimport * as d from \"it's\";\nimport 'z';\nreturn [a, c, d]";
    assert_eq!(
        body(source),
        "const a = globalThis.import(\"x/y\", \"a\"), { \"b\": c } = globalThis.import(\"x/y\");\n\
         const d = globalThis.import(\"it\\'s\");\nglobalThis.import(\"z\");\nreturn [\n\ta,\n\tc,\n\td\n];\n"
    );
}

#[test]
fn an_entry_function_that_takes_an_argument_gets_the_tools() {
    for (source, call) in [
        ("async function main({ tools }) {}", "main(this.default)"),
        ("async function main(ctx) {}", "main(this.default)"),
        ("async function main({ a } = {}) {}", "main(this.default)"),
        ("async function main(n = 1) {}", "main()"),
        ("async function main(...all) {}", "main()"),
        ("const main = async ({ codemode }) => 1", "main(this.default)"),
        ("export default async function ({ codemode }) {}", "program(this.default)"),
        ("export default async function f({ codemode }) {}", "f(this.default)"),
        ("async ({ codemode }) => 1", "program(this.default)"),
        ("async () => 1", "program()"),
    ] {
        assert!(body(source).contains(call), "{source}: {}", body(source));
    }
}
