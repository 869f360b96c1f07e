//! What holds for the declarations of all tools, however odd.

mod support;

use std::fmt::Write;

use dacapo_catalog::{Catalog, Tool, ToolIndex, ToolSchema, type_of};
use oxc::allocator::Allocator;
use oxc::ast::ast::{Statement, TSNamespaceDeclarationBody};
use oxc::parser::Parser;
use oxc::span::SourceType;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

/// More than all limits together allow for one tool.
const DECLARATION_BYTES_MAX: usize = 200 * 1024;

/// Whether the text is TypeScript, and declares nothing but types, functions and namespaces of them.
fn is_declaration(text: &str) -> bool {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, SourceType::d_ts()).parse();
    parsed.diagnostics.is_empty() && !parsed.panicked && parsed.program.body.iter().all(declares)
}

fn declares(statement: &Statement) -> bool {
    match statement {
        Statement::TSTypeAliasDeclaration(_)
        | Statement::FunctionDeclaration(_)
        | Statement::ExportNamedDeclaration(_) => true,
        Statement::TSNamespaceDeclaration(module) => {
            matches!(&module.body, TSNamespaceDeclarationBody::TSModuleBlock(block) if block.body.iter().all(declares))
        }
        _ => false,
    }
}

/// Text with what could end a comment, a string or a code block.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("*/".to_owned()),
        Just("*".to_owned()),
        Just("/".to_owned()),
        Just("/*".to_owned()),
        Just("//".to_owned()),
        Just("```".to_owned()),
        Just("\n".to_owned()),
        Just("\\".to_owned()),
        Just("\"".to_owned()),
        Just("${".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("\u{200b}".to_owned()),
        "[a-z ]{1,8}",
        any::<String>(),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn keyword() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "$defs",
        "$ref",
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "default",
        "description",
        "else",
        "enum",
        "format",
        "if",
        "items",
        "maximum",
        "maxItems",
        "minItems",
        "nullable",
        "oneOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "required",
        "then",
        "title",
        "type",
        "unevaluatedProperties",
    ])
    .prop_map(str::to_owned)
}

fn reference() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#/properties/a/items",
        "#/anyOf/0",
        "#/items",
        "#/nowhere",
        "http://example.com",
    ])
    .prop_map(str::to_owned)
}

/// Any JSON, with the words of JSON Schema in it.
fn odd() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object", "date"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::Null),
        text().prop_map(Value::from),
        kind.prop_map(Value::from),
        reference().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let key = prop_oneof![4 => keyword(), 1 => prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned), 1 => text()];
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::vec((key, inner), 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A schema that mostly makes sense.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object"])
            .prop_map(|kind| json!({"type": kind})),
        prop::collection::vec(text(), 1..4).prop_map(|values| json!({"enum": values})),
        text().prop_map(|value| json!({"const": value})),
        reference().prop_map(|reference| json!({"$ref": reference})),
        any::<bool>().prop_map(Value::from),
    ];
    let nested = leaf.prop_recursive(4, 40, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        let named = prop::collection::vec((prop_oneof![Just("a".to_owned()), Just("b".to_owned()), text()], inner.clone()), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()));
        prop_oneof![
            (named.clone(), inner.clone(), text()).prop_map(|(properties, rest, words)| json!({
                "type": "object", "description": words, "properties": properties, "required": ["a"], "additionalProperties": rest,
            })),
            (named.clone(), several.clone()).prop_map(|(properties, branches)| json!({"properties": properties, "oneOf": branches})),
            (named, several.clone()).prop_map(|(patterns, branches)| json!({"type": ["object", "null"], "patternProperties": patterns, "allOf": branches})),
            (inner.clone(), text()).prop_map(|(items, words)| json!({"type": "array", "items": items, "description": words})),
            (several.clone(), 0..4_u32).prop_map(|(items, least)| json!({"prefixItems": items, "minItems": least})),
            several.prop_map(|branches| json!({"anyOf": branches})),
        ]
    });
    (nested.clone(), nested.clone(), nested).prop_map(|(root, a, b)| match root {
        Value::Object(mut fields) => {
            fields.insert("$defs".to_owned(), json!({"a": a, "b": b}));
            Value::Object(fields)
        }
        root => root,
    })
}

fn tool() -> impl Strategy<Value = Tool> {
    let server = prop::option::of(prop::sample::select(vec!["s", "t"]).prop_map(str::to_owned));
    let name = prop_oneof!["[a-e]", Just("delete".to_owned()), Just("Promise".to_owned())];
    (name, prop::option::of(text()), schema(), prop::option::of(schema()), server).prop_map(
        |(name, description, input_schema, output_schema, server)| Tool {
            name,
            description,
            input_schema: input_schema.into(),
            output_schema: output_schema.map(ToolSchema::from),
            observed_answer: None,
            server,
            effect: None,
        },
    )
}

/// Tools with different names.
fn tools() -> impl Strategy<Value = Vec<Tool>> {
    prop::collection::vec(tool(), 1..6).prop_map(|mut tools| {
        tools.sort_by(|left, right| (&left.server, &left.name).cmp(&(&right.server, &right.name)));
        tools.dedup_by(|left, right| (&left.server, &left.name) == (&right.server, &right.name));
        tools
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_json_is_a_schema_of_some_bounded_type(schema in odd()) {
        let ty = type_of(&schema, "Root");

        prop_assert!(is_declaration(&ty.text), "{}", ty.text);
        prop_assert!(ty.text.len() <= DECLARATION_BYTES_MAX);
        prop_assert_eq!(ty, type_of(&schema, "Root"));
    }

    #[test]
    fn any_tool_has_a_declaration_that_parses(tools in tools()) {
        let catalog = Catalog::new(tools);
        let declarations = catalog.declarations();

        prop_assert!(is_declaration(declarations.text()), "{}", declarations.text());
        prop_assert!(!declarations.text().contains("```"));
        for function in catalog.functions() {
            let text = declarations.of(function.tool);
            prop_assert!(is_declaration(text), "{}", text);
            prop_assert!(text.len() <= DECLARATION_BYTES_MAX);
        }
    }

    /// Neither the order in which tools arrive nor further tools change what is said of a tool.
    #[test]
    fn what_is_said_of_a_tool_depends_on_that_tool(tools in tools(), one in any::<prop::sample::Index>()) {
        let all = Catalog::new(tools.clone());
        let reversed = Catalog::new(tools.iter().rev().cloned().collect());
        let (all, reversed) = (all.declarations(), reversed.declarations());
        prop_assert_eq!(all.text(), reversed.text());

        let one = one.index(tools.len());
        let alone = Catalog::new(vec![tools[one].clone()]).declarations();
        prop_assert_eq!(alone.of(ToolIndex(0)), all.of(ToolIndex(one as u32)));
    }
}

/// The warning of a schema made to cost time or room, in words.
fn warning(schema: &Value) -> String {
    let ty = type_of(schema, "Root");
    assert!(ty.text.len() <= DECLARATION_BYTES_MAX);
    ty.warnings.join("; ")
}

#[test]
fn a_schema_made_to_cost_time_or_room_is_given_up() {
    let property = |name: String| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let of_choices =
        |index| json!({"anyOf": (0..8).map(|choice| property(format!("p{index}_{choice}"))).collect::<Vec<_>>()});
    let choices: Vec<Value> = (0..400).map(of_choices).collect();
    let next = |index| {
        let words = "words that make it long enough to need a name of its own, and some more of them";
        json!({"description": words, "type": "object", "properties": {words: {"$ref": format!("#/$defs/d{}", (index + 1) % 600)}}})
    };
    let chain: Map<String, Value> = (0..600).map(|index| (format!("d{index}"), next(index))).collect();
    let doubling = |index: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", (index + 1).min(399))});
        json!({"type": "object", "properties": {"a": next, "b": next}})
    };
    let doubled: Map<String, Value> = (0..400).map(|index| (format!("d{index}"), doubling(index))).collect();
    let branching = |index: usize| {
        let next = format!("#/$defs/d{}", (index + 1).min(199));
        let branch = |name: &str| json!({"$ref": next, "required": [name.repeat(20)]});
        if index == 199 {
            json!({"type": "object", "required": ["z"]})
        } else {
            json!({"anyOf": [branch("x"), branch("y")]})
        }
    };
    let branched: Map<String, Value> = (0..200).map(|index| (format!("d{index}"), branching(index))).collect();
    let names: Vec<String> = (0..100_000).map(|index| format!("p{index}")).collect();
    let words = "words ".repeat(20_000);
    let mut deep = json!({});
    for _ in 0..1_000 {
        deep = Value::Object(Map::from_iter([("items".to_owned(), deep)]));
    }

    assert_eq!(warning(&json!({"allOf": choices})), "it has more than 5000 parts");
    assert_eq!(warning(&json!({"$ref": "#/$defs/d0", "$defs": chain})), "it has more than 500 definitions");
    assert_eq!(warning(&json!({"$ref": "#/$defs/d0", "$defs": doubled})), "");
    assert_eq!(warning(&json!({"$ref": "#/$defs/d0", "$defs": branched})), "");
    assert_eq!(warning(&json!({"type": "object", "required": names})), "it has more than 5000 parts");
    assert_eq!(warning(&json!({"enum": names})), "");
    assert_eq!(warning(&json!({"const": names})), "its types take more than 65536 bytes");
    assert_eq!(
        warning(&json!({"anyOf": vec![json!({"type": "string", "description": words}); 100]})),
        "its types take more than 65536 bytes"
    );
    assert_eq!(warning(&deep), "it is nested more than 128 deep");
}

/// Parsing is not all: names must lead somewhere, types may not be made of themselves.
#[test]
fn types_of_schemas_made_at_random_pass_the_compiler() {
    let mut runner = TestRunner::deterministic();
    let mut text = String::new();
    for index in 0..400 {
        let made = if index % 2 == 0 { schema().boxed() } else { odd().boxed() };
        let schema = made.new_tree(&mut runner).unwrap().current();
        writeln!(text, "namespace n{index} {{\n{}}}", type_of(&schema, "Root").text).unwrap();
    }

    assert_eq!(support::compile(&[("random.ts".to_owned(), text)]), []);
}
