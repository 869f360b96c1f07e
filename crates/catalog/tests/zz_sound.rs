mod support;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => prop::sample::select(vec!["string", "integer", "number", "boolean", "null", "array", "object"]).prop_map(|kind| json!({"type": kind})),
        2 => prop::collection::vec(prop::sample::select(vec![json!("x"), json!("y"), json!(1), json!(2), json!(null), json!(true)]), 1..4).prop_map(|values| json!({"enum": values})),
        1 => prop::sample::select(vec![json!("x"), json!(1), json!({"a":1}), json!([1])]).prop_map(|value| json!({"const": value})),
        1 => prop::sample::select(vec!["#", "#/$defs/a", "#/$defs/b"]).prop_map(|reference| json!({"$ref": reference})),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(json!({"type":"object","required": ["a"]})), 1 => Just(json!({"type":"object","required": ["b"]})),
    ];
    let nested = leaf.prop_recursive(3, 24, 4, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        let named = prop::collection::vec((prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]), inner.clone()), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()));
        let req = prop::sample::subsequence(vec!["a","b"], 0..=2);
        prop_oneof![
            (named.clone(), inner.clone(), req.clone()).prop_map(|(p, r, q)| json!({"type": "object", "properties": p, "required": q, "additionalProperties": r})),
            (named.clone(), req.clone()).prop_map(|(p, q)| json!({"type": "object", "properties": p, "required": q})),
            (named.clone(), several.clone(), req.clone()).prop_map(|(p, b, q)| json!({"type": "object", "properties": p, "required": q, "oneOf": b})),
            (named.clone(), several.clone(), req.clone()).prop_map(|(p, b, q)| json!({"type": ["object","null"], "properties": p, "required": q, "anyOf": b})),
            (named.clone(), several.clone()).prop_map(|(p, b)| json!({"type": ["object", "string"], "properties": p, "allOf": b})),
            (inner.clone()).prop_map(|items| json!({"type": "array", "items": items})),
            (several.clone(), 0..4_u32, inner.clone()).prop_map(|(items, least, r)| json!({"type": "array", "prefixItems": items, "minItems": least, "items": r})),
            several.clone().prop_map(|b| json!({"anyOf": b})),
            several.clone().prop_map(|b| json!({"allOf": b})),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a,b,c)| json!({"type":"object","if": a, "then": b, "else": c})),
        ]
    });
    (nested.clone(), nested.clone(), nested).prop_map(|(root, a, b)| match root {
        Value::Object(mut fields) => { fields.insert("$defs".to_owned(), json!({"a": a, "b": b})); Value::Object(fields) }
        root => root,
    })
}
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![json!("x"), json!("y"), json!("z"), json!(1), json!(2), json!(3), json!(null), json!(true), json!(false), json!([]), json!({})]);
    leaf.prop_recursive(3, 12, 3, |inner| prop_oneof![
        prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
        prop::collection::vec((prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]), inner), 0..4).prop_map(|f| Value::Object(f.into_iter().collect())),
    ])
}
fn lit(v: &Value) -> String { match v { Value::Object(f) => format!("{{ {} }}", f.iter().map(|(k,v)| format!("{k}: {}", lit(v))).collect::<Vec<_>>().join("; ")), Value::Array(a) => format!("[{}]", a.iter().map(lit).collect::<Vec<_>>().join(", ")), v => v.to_string() } }
#[test]
fn sound() {
    let mut runner = TestRunner::deterministic();
    let mut text = String::new(); let mut lines: Vec<(String,String,String)> = vec![];
    let (mut schemas, mut valids, mut skipped) = (0, 0, 0);
    for index in 0..4000 {
        let s = schema().new_tree(&mut runner).unwrap().current();
        let cat = dacapo_catalog::Catalog::new(vec![dacapo_catalog::Tool{name:"t".into(),description:None,input_schema:s.clone(),output_schema:None,server:None}]);
        if !cat.warnings().is_empty() { skipped += 1; continue; }
        let Ok(v) = jsonschema::validator_for(&s) else { skipped += 1; continue };
        let ty = dacapo_catalog::type_of(&s, "Root").text;
        let mut push = |t: &str, lines: &mut Vec<_>| for l in t.lines() { text.push_str(l); text.push('\n'); lines.push((l.to_owned(), s.to_string(), ty.clone())); };
        push(&format!("namespace n{index} {{\n{ty}"), &mut lines);
        schemas += 1;
        let mut got = 0;
        for n in 0..150 {
            let x = value().new_tree(&mut runner).unwrap().current();
            if v.is_valid(&x) { got += 1; valids += 1; push(&format!("declare const w{n}: {}; const v{n}: Root = w{n};", lit(&x)), &mut lines); if got >= 6 { break; } }
        }
        push("}", &mut lines);
    }
    let found = support::compile(&[("sound.ts".to_owned(), text)]);
    let mut counts = std::collections::BTreeMap::new();
    for (_, l, m) in &found { *counts.entry(m.split(':').next().unwrap().to_owned()).or_insert(0) += 1; if !m.contains("TS2559") { let x = &lines[l-1]; eprintln!("{m}\n   {}\n   {}\n   {}", x.0, x.1, x.2); } }
    eprintln!("schemas {schemas} skipped {skipped} valids {valids} found {counts:?}");
}
