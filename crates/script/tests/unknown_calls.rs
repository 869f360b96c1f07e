//! What a program calls without having it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dacapo_script::{STANDARD_GLOBALS, SourcePosition, UnknownCall, prepare};

fn names(source: &str) -> Vec<String> {
    prepare(source).unwrap().unknown_calls.into_iter().map(|call| call.name).collect()
}

#[test]
fn an_unknown_call_is_reported_once_where_it_is_first() {
    let source = "const é = 1; await send(é);\nlist()?.map(x => send(x));";

    assert_eq!(
        prepare(source).unwrap().unknown_calls,
        [
            UnknownCall { name: "list".into(), at: SourcePosition { line: 2, column: 1 } },
            UnknownCall { name: "send".into(), at: SourcePosition { line: 1, column: 20 } },
        ]
    );
}

#[test]
fn what_the_program_may_know_itself_is_not_reported() {
    for source in [
        "later(); function later() {}",
        "declare function given(): void; given()",
        "assigned = () => 1; assigned()",
        "if (typeof tested === 'function') tested()",
        "globalThis.made = () => 1; made()",
        "Object.assign(globalThis, more); unseen()",
        "eval('var unseen = f'); unseen()",
        "a.b(); new C(); d`e`; f.g?.()",
        "setTimeout(() => console.log(structuredClone(1)), tools.a('b'))",
    ] {
        assert_eq!(names(source), [""; 0]);
    }
    assert_eq!(names("require('fs'); optional?.(1)"), ["optional", "require"]);
}

#[test]
fn the_standard_globals_are_sorted_and_unique() {
    assert!(STANDARD_GLOBALS.is_sorted_by(|a, b| a < b));
}
