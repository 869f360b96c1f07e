//! What a program gets when a tool answers with text.

use dacapo_catalog::{Catalog, Decoded, Tool, ToolIndex, ToolSchema};
use serde_json::{Value, json};

fn decode(output_schema: Option<Value>, text: &str) -> Decoded<'_> {
    let tool = Tool {
        name: "a".to_owned(),
        description: None,
        input_schema: json!({}).into(),
        output_schema: output_schema.map(ToolSchema::from),
        observed_answer: None,
        server: None,
        effect: None,
    };
    Catalog::new(vec![tool]).decode(ToolIndex(0), text)
}

fn value(json: &str) -> Decoded<'_> {
    Decoded::Json(json)
}

#[test]
fn without_a_schema_json_is_a_value_and_other_text_is_text() {
    let values = [r#"{"a":1,"a":2}"#, "[1e999, 123456789012345678901234567890]", r#""quoted""#, r#""\ud800""#];
    let scalars = ["21", "0", "-3", "0.5", "-12.25", "0.000001", "9007199254740991", "true", "false", "null"];
    for json in values.into_iter().chain(scalars) {
        assert_eq!(decode(None, json), value(json));
        assert_eq!(decode(None, &format!("\n {json}\t")), value(json));
    }
    // Codes and numbers that a program would not write back as they were.
    let codes =
        ["007", "+1", "1e5", "1.0", "0.50", "-0", "1.", ".5", "0.0000001", "9007199254740993", "12345678901234567890"];
    let prose = ["", " ", "prose", "{not json}", "[1,", "[1] and more", "{'a': 1}", "\u{feff}[]", "True", "NaN", "1 2"];
    for text in codes.into_iter().chain(prose) {
        assert_eq!(decode(None, text), Decoded::Text, "{text}");
    }
}

#[test]
fn a_schema_says_what_the_text_means() {
    let integer = || Some(json!({"type": "integer"}));
    assert_eq!(decode(integer(), " 42 "), value("42"));
    assert_eq!(decode(integer(), "42.0"), value("42.0"));
    assert_eq!(decode(integer(), "42.5"), value("42.5"));
    assert_eq!(decode(integer(), "not found"), Decoded::Text);
    assert_eq!(decode(Some(json!({"type": ["boolean", "null"]})), "null"), value("null"));
    assert_eq!(decode(Some(json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}})), "4.5"), value("4.5"));

    let string = || Some(json!({"type": "string"}));
    assert_eq!(decode(string(), r#"{"a":1}"#), Decoded::Text);
    assert_eq!(decode(string(), r#""quoted""#), Decoded::Text);

    let either =
        || Some(json!({"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}, {"type": "integer"}]}));
    assert_eq!(decode(either(), r#"{"id":1}"#), value(r#"{"id":1}"#));
    assert_eq!(decode(either(), r#"{"name":1}"#), Decoded::Text);
    assert_eq!(decode(either(), "42"), Decoded::Text);
    let short_or_list = Some(json!({"oneOf": [{"type": "string", "maxLength": 2}, {"type": "array", "maxItems": 1}]}));
    assert_eq!(decode(short_or_list, "[1, 2]"), value("[1, 2]"));
}

#[test]
fn a_schema_that_says_nothing_or_is_broken_changes_nothing() {
    for schema in [json!({}), json!(true), json!({"type": "strin"})] {
        assert_eq!(decode(Some(schema.clone()), r#""quoted""#), value(r#""quoted""#));
        assert_eq!(decode(Some(schema), "42"), value("42"));
    }
}

#[test]
fn deeply_nested_text_is_scanned_without_recursion() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    assert_eq!(decode(None, &deep), Decoded::Json(&deep));
    assert_eq!(decode(None, &"[".repeat(1_000_000)), Decoded::Text);
    assert_eq!(decode(Some(json!({"type": ["array", "string"]})), &deep), Decoded::Text);
}
