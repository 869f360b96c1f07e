//! Errors of a run are shown where the model wrote the code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dacapo_script::{SourceMap, SourcePosition, prepare};

/// Where the engine sees `text`: columns in bytes.
fn generated(javascript: &str, text: &str) -> SourcePosition {
    let before = &javascript[..javascript.find(text).unwrap()];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    SourcePosition { line: line as u32, column: (before.len() - line_start + 1) as u32 }
}

#[test]
fn a_position_maps_back_to_the_source() {
    let source = "\u{feff}The ü program:\r\n\r\n```ts\r\ninterface A { b: string }\r\n\r\n\
        const ü: A = { b: '😀' }; fail<A>(ü);\r\n\
        export default async function () {\r\n\tawait other(ü!.b)\r\n}\r\n```\r\n";
    let javascript = prepare(source).unwrap().javascript;
    let map = SourceMap::new(source).unwrap();

    let original = |text| map.original(generated(&javascript, text));

    assert_eq!(original("fail"), Some(SourcePosition { line: 6, column: 26 }));
    assert_eq!(original("await other"), Some(SourcePosition { line: 8, column: 2 }));
    assert_eq!(original("other"), Some(SourcePosition { line: 8, column: 8 }));
}

#[test]
fn what_the_model_did_not_write_has_no_position() {
    let source = "function main() {}";
    let javascript = prepare(source).unwrap().javascript;
    let map = SourceMap::new(source).unwrap();

    assert_eq!(map.original(SourcePosition { line: 1, column: 1 }), None);
    assert_eq!(map.original(generated(&javascript, "return main")), None);
    assert!(SourceMap::new("const").is_none());
}
