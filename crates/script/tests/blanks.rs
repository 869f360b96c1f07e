//! A program whose types were blanked out is the one that would have been printed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use dacapo_script::{PreparedScript, SourceMap, SourcePosition, prepare};
use proptest::prelude::*;

mod printed;
mod random_programs;

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
        "const a = () => { return 1 };\ntype B = 2\n(a);\nfor (const b of a()) a();\nreturn a",
    ] {
        assert!(runs_as_written(source), "{source}");
    }
}

/// Most of these would be another program, or none, with blanks in the place of their types; the others are in doubt.
#[test]
fn where_blanks_could_change_a_program_it_is_printed() {
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
        "return a && b ?? c",
        "return (-a) ** b",
        "const a = 1\nreturn a",
        "return async => 1",
        "const f = (a: number)\n  : number => a\nreturn f(1)",
        "const f = (a) /*\n*/ : number => a\nreturn f(1)",
        "function f(a? /* b */: string) { }\nreturn f()",
        "const f = (a?\n: string) => a\nreturn f()",
        "const a = 1;\u{200b}\nreturn a",
        "return [1].map(x\u{a0}=> x)",
        "return <T>\u{a0}\n(x: T) => x",
        "'use strict'\nawait f()\nreturn 1",
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_together(source in random_programs::pieces()) {
        runs_as_written(&source);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_with_types(source in random_programs::expressions()) {
        runs_as_written(&source);
    }
}
