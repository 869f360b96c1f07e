//! Sources made to exhaust the stack of the host end in a script or a diagnostic.

use dacapo_script::{SourceMap, prepare};

/// `before`, then `open` many times, then `middle`, then `close` as many times.
struct Shape {
    before: &'static str,
    open: &'static str,
    middle: &'static str,
    close: &'static str,
}

const fn shape(before: &'static str, open: &'static str, middle: &'static str, close: &'static str) -> Shape {
    Shape { before, open, middle, close }
}

const SHAPES: &[Shape] = &[
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
    shape("x = '", "\\\n", "'; y = 1", ""),
];

fn repeated(shape: &Shape, times: usize) -> String {
    let Shape { before, open, middle, close } = shape;
    format!("{before}{}{middle}{}", open.repeat(times), close.repeat(times))
}

#[test]
fn no_source_overflows_the_stack() {
    for shape in SHAPES {
        for times in [10, 40, 200, 900, 1_500, 3_900, 7_900, 100_000] {
            let source = repeated(shape, times);
            eprintln!("{times} {}{}", shape.before, shape.open);
            let t = std::time::Instant::now();
            let prepared = prepare(&source);
            eprintln!("   {:?} {:?}", t.elapsed(), prepared.as_ref().err().map(|e| &e.message));
            assert_eq!(prepared.is_ok(), SourceMap::new(&source).is_some());
        }
        let five_megabytes = (5 << 20) / (shape.open.len() + shape.close.len());
        let t = std::time::Instant::now();
        let prepared = prepare(&repeated(shape, five_megabytes));
        eprintln!("5MB   {:?}", t.elapsed());
        assert!(prepared.is_err() || shape.before == "x = '");
    }
}
