//! A type never refuses what its schema accepts: schemas and values made at random, judged by the
//! validator and by `tsc`.

mod support;

use std::fmt::Write;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

const SCHEMAS: usize = 600;
const VALUES_TRIED: usize = 60;

/// Schemas that say of every object whether it is open, so that TypeScript does not guess.
fn schema() -> impl Strategy<Value = Value> {
    let kinds = vec!["string", "integer", "number", "boolean", "null", "array", "object"];
    let values = vec![json!("x"), json!("y"), json!(1), json!(2), json!(null), json!(true)];
    let leaf = prop_oneof![
        3 => prop::sample::select(kinds).prop_map(|kind| json!({"type": kind})),
        2 => prop::collection::vec(prop::sample::select(values), 1..4).prop_map(|values| json!({"enum": values})),
        1 => prop::sample::select(vec![json!("x"), json!(1), json!({"a": 1}), json!([1])]).prop_map(|value| json!({"const": value})),
        1 => prop::sample::select(vec!["#", "#/$defs/a", "#/$defs/b"]).prop_map(|reference| json!({"$ref": reference})),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop::sample::select(vec!["a", "b"]).prop_map(|name| json!({"type": "object", "required": [name]})),
    ];
    let nested = leaf.prop_recursive(3, 24, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        let name = prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        let properties = prop::collection::vec((name, inner.clone()), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()));
        let required = prop::sample::subsequence(vec!["a", "b"], 0..=2);
        let object =
            (properties, required, inner.clone(), any::<bool>()).prop_map(|(properties, required, rest, open)| {
                let rest = if open { json!(true) } else { rest };
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": rest})
            });
        let with = |keyword: &'static str| {
            (object.clone(), several.clone(), any::<bool>()).prop_map(move |(mut object, branches, nullable)| {
                object[keyword] = branches.into();
                if nullable {
                    object["type"] = json!(["object", "null"]);
                }
                object
            })
        };
        prop_oneof![
            object.clone(),
            with("allOf"),
            with("anyOf"),
            with("oneOf"),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            (several.clone(), 0..4_u32, inner.clone()).prop_map(|(first, least, rest)| {
                json!({"type": "array", "prefixItems": first, "minItems": least, "items": rest})
            }),
            several.clone().prop_map(|branches| json!({"anyOf": branches})),
            several.clone().prop_map(|branches| json!({"allOf": branches})),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(condition, then, otherwise)| { json!({"if": condition, "then": then, "else": otherwise}) }),
        ]
    });
    (nested.clone(), nested.clone(), nested).prop_map(|(mut root, a, b)| {
        if root.is_object() {
            root["$defs"] = json!({"a": a, "b": b});
        }
        root
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaves = r#"["x", "y", "z", 1, 2, 3, null, true, false, [], {}]"#;
    let leaf = prop::sample::select(serde_json::from_str::<Vec<Value>>(leaves).expect("it is JSON"));
    leaf.prop_recursive(3, 12, 3, |inner| {
        let name = prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The type that only this value has. Through it, properties beyond those named are no mistake.
fn type_of_value(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", type_of_value(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join("; "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(type_of_value).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

#[test]
fn what_a_schema_accepts_its_type_accepts() {
    let mut runner = TestRunner::deterministic();
    let mut text = String::new();
    let mut lines = Vec::new();
    let mut accepted = 0;
    for index in 0..SCHEMAS {
        let schema = schema().new_tree(&mut runner).unwrap().current();
        let ty = dacapo_catalog::type_of(&schema, "Root");
        // Where a reference leads back to itself the validator has no verdict.
        let Some(validator) = jsonschema::validator_for(&schema).ok().filter(|_| ty.warnings.is_empty()) else {
            continue;
        };
        let mut block = format!("namespace n{index} {{\n{}", ty.text);
        for number in 0..VALUES_TRIED {
            let value = value().new_tree(&mut runner).unwrap().current();
            if validator.is_valid(&value) {
                accepted += 1;
                let value = type_of_value(&value);
                writeln!(block, "declare const v{number}: {value}; const w{number}: Root = v{number};").unwrap();
            }
        }
        block.push_str("}\n");
        lines.extend(block.lines().map(|line| format!("{line} in {schema}")));
        text.push_str(&block);
    }

    let refused: Vec<String> = support::compile(&[("sound.ts".to_owned(), text)])
        .into_iter()
        .map(|(_, line, message)| format!("{message}: {}", lines[line - 1]))
        .collect();
    assert!(accepted > 2_000, "only {accepted} values were accepted");
    assert_eq!(refused, [""; 0]);
}
