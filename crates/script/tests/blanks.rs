//! A program whose types were blanked out is the one that would have been printed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use dacapo_script::{PreparedScript, SourceMap, SourcePosition, prepare};
use proptest::prelude::*;

mod printed;

/// Whether it runs as it is written. If so, it is what would have been printed.
fn runs_as_written(source: &str) -> bool {
    let Ok(PreparedScript { javascript, unknown_calls, free_names }) = prepare(source) else { return false };
    let body = printed::body(&javascript);
    let is_kept = printed::is_kept(source, body);
    if is_kept {
        let printed = prepare(&format!("{source}\r")).unwrap();
        // What stands in the place of a type alias does nothing.
        let without_empty = |text: &str| {
            let lines = text.lines().map(str::trim_start).filter(|line| *line != ";");
            lines.collect::<Vec<_>>().join("\n").replace("{\n}", "{}")
        };
        let (blanked, printed_body) = (printed::of(body).unwrap(), printed::body(&printed.javascript));
        assert_eq!(without_empty(&blanked), without_empty(printed_body), "{source}\n{javascript}");
        assert_eq!((unknown_calls, free_names), (printed.unknown_calls, printed.free_names), "{source}");
    }
    is_kept
}

#[test]
fn most_programs_run_as_they_are_written() {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/programs/five_rounds.ts");
    assert!(runs_as_written(&std::fs::read_to_string(bench).unwrap()));
    for source in [
        "return 1",
        "type A = { b: string };\ninterface C<T> extends A {\n  d?: T; // e\n}\nreturn f<A>(g as C<A>, h!);",
        "async function f<T extends object>(a: T, b?: string, ...c: unknown[]): Promise<T> { return a }\nreturn await f({})",
        "const m = new Map<string, Array<{ n: number }>>();\nreturn [...m].map(([k, v]: [string, any]): string => `${k as string}`);",
        "try { g() } catch (error: unknown) { return (error as Error).message }",
        "const list = [] satisfies string[];\nfor (const x of list as any[]) { /* skip */ }\nlet n: number | undefined;\nreturn { list, n: n! + 1 };",
        "let a = 1\ntype B = 2\n(a)\nreturn a",
    ] {
        assert!(runs_as_written(source), "{source}");
    }
}

/// Each of these would be another program, or none, with blanks in the place of its types.
#[test]
fn where_blanks_would_change_a_program_it_is_printed() {
    for source in [
        "return a + b as number * c",
        "return a as number * b",
        "const a = b as any\n(c)\nreturn a",
        "const a = b!\n(c)\nreturn a",
        "const a = (b): {\n c: number\n} => b\nreturn a",
        "class A { constructor(private b: string) {} }\nreturn new A('')",
        "enum A { B }\nreturn A.B",
        "namespace A { export const b = 1 }\nreturn A.b",
        "declare const a: number\nreturn a",
        "function f(a: string): void; function f(a: any) { }\nreturn f",
        "let a!: string; return a",
        "function f(this: Window, a?) { }\nreturn f",
        "return <any>a",
        "const f = a<string>; return f",
        "import { a } from 'b'; return a()",
        "export const a = 1; return a",
        "return a <!--b",
        "return a\n-->b",
        "return 'a\u{2028}b'",
        "a\r\nreturn  a",
        "a + 1",
    ] {
        assert!(!runs_as_written(source), "{source}");
    }
}

#[test]
fn places_in_it_are_those_of_the_source() {
    let source = "const ü: string = 'é'; // a comment\nif (ü as any) throw new Error(ü);\nreturn";
    assert!(runs_as_written(source));
    let map = SourceMap::new(source).unwrap();
    let original = |line, column| map.original(SourcePosition { line, column }).map(|at| (at.line, at.column));
    // The engine counts columns in bytes.
    assert_eq!(original(2, 28), Some((1, 26)));
    assert_eq!(original(3, 17), Some((2, 16)));
    assert_eq!(original(1, 1), None);
    assert_eq!(original(5, 1), None);
}

const PIECES: [&str; 64] = [
    "a",
    "b",
    "f",
    "1",
    "d['s']",
    "`t${a}u`",
    "/r/g",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "=>",
    "=",
    "==",
    "+",
    "-",
    "*",
    "**",
    "?",
    ":",
    ";",
    ";",
    ",",
    ".",
    "?.",
    "!",
    "!",
    "++",
    "--",
    "...",
    "|",
    "&&",
    "??",
    "\n",
    "\n",
    " ",
    " ",
    " as T",
    " as const",
    " satisfies T",
    ": T",
    "?: T",
    "<T>",
    "<T, U>",
    "(x: T): U => x",
    "let c",
    "const d: T = 1",
    "return ",
    "await ",
    "function g<T>(x?: T): T {}",
    "type T = 1",
    "interface U { v: T }",
    "// c\n",
    "/* c */",
    "/*\n*/",
    "async ",
    "typeof ",
    "new ",
    "in ",
    "if (a) ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_together(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 1..12)) {
        runs_as_written(&format!("{}\nreturn a", pieces.concat()));
    }
}

/// Operands with types and operators, so that most of the programs are valid.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["a", "b.c", "1", "d['s']", "f<T>(a)", "new M<T, U>()", "/r/", "`t`"])
        .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let operator = prop::sample::select(vec![
            " + ",
            " * ",
            " ** ",
            " < ",
            " in ",
            " && ",
            " ?? ",
            ", ",
            " = ",
            "\n",
            "\n+ ",
            " instanceof ",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, operator, b)| format!("{a}{operator}{b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("{a} as T")),
            inner.clone().prop_map(|a| format!("{a} satisfies T[]")),
            inner.clone().prop_map(|a| format!("{a}!")),
            inner.clone().prop_map(|a| format!("[{a}]")),
            inner.clone().prop_map(|a| format!("f({a})")),
            inner.clone().prop_map(|a| format!("((x: T, y?: U): V => {a})")),
            inner.clone().prop_map(|a| format!("async <T,>(x: T) => {{ return {a} }}")),
            inner.clone().prop_map(|a| format!("`t${{{a}}}`")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("a ? {a} : {b}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_with_types(
        statements in prop::collection::vec((expression(), prop::sample::select(vec![";", "\n", ";\n", "\ntype T = 1\n", " // c\n", "\n/* c */"])), 1..4)
    ) {
        let statements: String = statements.into_iter().flat_map(|(expression, end)| [expression, end.to_owned()]).collect();
        runs_as_written(&format!("let c: T = {statements}\nreturn a"));
    }
}
