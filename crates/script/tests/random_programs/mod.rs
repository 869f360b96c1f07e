//! Programs with types in many places, of which some are valid.

use proptest::prelude::*;

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

/// Whatever stands together. Few of them are valid.
pub(crate) fn pieces() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 1..12)
        .prop_map(|pieces| format!("{}\nreturn a", pieces.concat()))
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

/// Statements of such expressions, with and without semicolons.
pub(crate) fn expressions() -> impl Strategy<Value = String> {
    let ends = vec![";", "\n", ";\n", "\ntype T = 1\n", " // c\n", "\n/* c */"];
    let statements = prop::collection::vec((expression(), prop::sample::select(ends)), 1..4);
    statements.prop_map(|statements| {
        let statements: String = statements.into_iter().map(|(expression, end)| expression + end).collect();
        format!("let c: T = {statements}\nreturn a")
    })
}
