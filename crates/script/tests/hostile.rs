//! Sources made to exhaust the stack of the host end in a script or a diagnostic.

use dacapo_script::{SourceMap, prepare};

/// `before`, then `open` many times, then `middle`, then `close` as many times.
struct NestedShape {
    before: &'static str,
    open: &'static str,
    middle: &'static str,
    close: &'static str,
}

const fn shape(before: &'static str, open: &'static str, middle: &'static str, close: &'static str) -> NestedShape {
    NestedShape { before, open, middle, close }
}

const SHAPES: &[NestedShape] = &[
    shape("", "(", "a", ")"),
    shape("", "[", "", "]"),
    shape("", "{", "", "}"),
    shape("x = ", "{a:", "1", "}"),
    shape("let ", "[", "x", "]"),
    shape("", "`${", "a", "}`"),
    shape("", "a(", "", ")"),
    shape("", "a[", "0", "]"),
    shape("", "(a, ", "a", ")"),
    shape("", "(a = ", "a", ") => a"),
    shape("", "a+", "a", ""),
    shape("", "a&&", "a", ""),
    shape("", "a ?? ", "a", ""),
    shape("", "a**", "a", ""),
    shape("", "a in ", "a", ""),
    shape("", "a=", "a", ""),
    shape("", "a?b:", "a", ""),
    shape("", "a?", "b", ":a"),
    shape("", "a<", "a", ""),
    shape("", "a<a,a<", "a", ""),
    shape("a", ".b", "", ""),
    shape("a", "?.b", "", ""),
    shape("a", "()", "", ""),
    shape("a", "[0]", "", ""),
    shape("a", "``", "", ""),
    shape("a", "!", "", ""),
    shape("a", " as a", "", ""),
    shape("a", "\n.b()", "", ""),
    shape("", "!", "a", ""),
    shape("", "- ", "a", ""),
    shape("", "typeof ", "a", ""),
    shape("", "await ", "a", ""),
    shape("", "new ", "a", ""),
    shape("", "async ", "a", ""),
    shape("", "x=>", "x", ""),
    shape("", "async x=>", "x", ""),
    shape("", "x=>{", "", "}"),
    shape("", "(x)=>(", "x", ")"),
    shape("", "function f(){", "", "}"),
    shape("", "(function(){", "", "})"),
    shape("", "class A { a = ", "1", "}"),
    shape("x = ", "class extends ", "a", "{}"),
    shape("", "if(a)", ";", ""),
    shape("", "if(a)b;else ", "c", ""),
    shape("", "if(a)b\nelse ", "c", ""),
    shape("", "if(a){}else ", "c", ""),
    shape("", "if(a)do b;while(c)else ", "d", ""),
    shape("", "if(a)try{}catch{}else ", "d", ""),
    shape("", "if(a)\n", ";", ""),
    shape("", "else\u{a0}if(a)b;", "", ""),
    shape("if(a)b;", "else\u{a0}if(a)b;", "", ""),
    shape("", "for(;;)", ";", ""),
    shape("", "while(a)", ";", ""),
    shape("", "do ", ";", " while(a);"),
    shape("", "try{", "", "}finally{}"),
    shape("", "switch(a){case 1:", "", "}"),
    shape("", "a:", ";", ""),
    shape("type A = ", "B<", "C", ">"),
    shape("type A = ", "B<C,", "C", ">"),
    shape("type A = ", "(", "C", ")"),
    shape("type A = ", "{a:", "C", "}"),
    shape("type A = ", "[", "C", "]"),
    shape("type A = ", "keyof ", "C", ""),
    shape("type A = C", "[]", "", ""),
    shape("type A = ", "C extends C ? C : ", "C", ""),
    shape("type A = ", "() => ", "C", ""),
    shape("type A = typeof C", ".b", "", ""),
    shape("x = ", "<C>", "a", ""),
    shape("namespace a", ".b", "{}", ""),
    shape("", "namespace a{", "", "}"),
    shape("import x = a", ".b", "", ""),
    shape("enum E { A = ", "(", "1", ") }"),
    // A line or a slash that hides what follows from a careless reader of the source.
    shape("x = 1./", "(", "a", ")/1"),
    shape("a\n/`/;", "(", "a", ")//`"),
    shape("if(a)/`/;", "(", "a", ")//`"),
    shape("{}/`/;", "(", "a", ")//`"),
    shape("x = a++ /'/;", "(", "a", ")//'"),
    shape("type A = B\n/'/;", "[", "", "]"),
    shape("x = a\u{2028}/'/;", "[", "", "]"),
    shape("a\n", "b+\n", "c", ""),
    shape("", "\u{e9}+", "a", ""),
    shape("", "a\u{b}+", "a", ""),
    shape("", "typeof\u{3000}", "a", ""),
];

fn repeated(shape: &NestedShape, times: usize) -> String {
    let NestedShape { before, open, middle, close } = shape;
    format!("{before}{}{middle}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn no_source_overflows_the_stack() {
    for shape in SHAPES {
        for times in [10, 100, 390, 660, 780, 1_300, 1_950, 3_950, 100_000] {
            // Whether it is accepted does not matter, only that it returns.
            drop(prepare(&repeated(shape, times)));
        }
        let five_megabytes = (5 << 20) / (shape.open.len() + shape.close.len());
        assert!(prepare(&repeated(shape, five_megabytes)).is_err(), "{}{}", shape.before, shape.open);
    }
}

#[test]
fn deep_programs_have_a_source_map_too() {
    for source in ["(".repeat(600) + "a" + &")".repeat(600), "a+".repeat(3_000) + "a"] {
        prepare(&source).unwrap();
        SourceMap::new(&source).unwrap();
    }
}

#[test]
fn a_refusal_says_where_it_got_too_deep() {
    let error = prepare(&format!("const a = 1;\nconst b = {};", "[".repeat(5_000))).unwrap_err();

    assert_eq!(error.at.line, 2);
    assert_eq!(
        error.message,
        "the program nests too deeply, or has too long an expression, at this point; \
         split it into several statements or build the value in a loop"
    );
}

#[test]
fn what_only_looks_deep_is_accepted() {
    let deep = "([{<!x=>`".repeat(100_000);
    let brackets = "([{<!".repeat(100_000);
    for source in [
        format!("return '{deep}'"),
        format!("return \"{deep}\""),
        format!("return `{brackets}`"),
        format!("// {deep}\nreturn 1"),
        format!("/* {deep}\n{deep} */ return 1"),
        format!("return /[{brackets}]/"),
        format!("if (a) /[{brackets}]/.test(b)"),
        format!("return a / b / '{deep}'.length"),
        format!("const a = `${{b}}{brackets}`\n/[{}]/g\nreturn a", "x"),
        "x = a++\n/ b;\n".to_owned() + &"f([{}]);\n".repeat(10_000),
        "f({ a: [1, 2], b: (3) })\n".repeat(10_000),
        "a = b < c\nif (a) { f() } else { g() }\n".repeat(10_000),
        format!("const data = [{}]", "{ a: [1], b: `${c}`, d: e < f }, ".repeat(20_000)),
        format!("switch (a) {{ {} }}", "case 1: case 2: f(); break;\n".repeat(10_000)),
        "interface A { b: Map<string, C>\nd?: E[] }\ng(a ? b : c, x => x)\n".repeat(10_000),
    ] {
        if let Err(error) = prepare(&source) {
            panic!("{error}");
        }
    }
}

#[test]
fn long_programs_take_time_in_proportion() {
    let numbered = |template: &str| (0..20_000).map(|n| template.replace('#', &n.to_string())).collect::<String>();
    for source in [
        numbered("f#();"),
        numbered("function f#() { return g# }\n") + "f0()",
        format!("() => program{}", "_".repeat(500_000)),
        "/*\n```\n*/\n".repeat(20_000) + "f()",
        "x = a++/[;".repeat(20_000),
        "x = a++/b;".repeat(20_000),
    ] {
        // A quadratic pass over any of these would take minutes.
        drop(prepare(&source));
    }
}
