//! Values that programs keep for later programs of the conversation.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::ProgramStory;

/// Runs programs one after the other, each with what those before it have stored. Gives the steps that ended them.
fn conversation(programs: &[&str]) -> Vec<Value> {
    let mut stored = json!({});
    let mut ends = Vec::new();
    for code in programs {
        let transcript = ProgramStory::new(code).with("stored", stored.clone()).play_with_names();
        let end = transcript.steps.last().expect("an end").clone();
        stored = end.get("stored").cloned().unwrap_or_else(|| json!({}));
        ends.push(end);
    }
    ends
}

fn data(end: &Value) -> &Value {
    &end["result"]["data"]
}

#[test]
fn what_a_program_stores_a_later_one_loads() {
    let ends = conversation(&[
        "store('rows', [{ id: 1 }, { id: 2n ** 60n }]); store('when', new Date(0)); await a(); store('n', 1); return 1",
        "const rows = load('rows'); store('n', load('n') + 1); rows.push('mine'); return [rows[1].id === 2n ** 60n, load('when'), load('nothing') === undefined]",
        "store('rows', undefined); return [load('n'), load('rows') === undefined]",
    ]);
    assert_eq!(
        ends[0]["stored"].to_string(),
        r#"{"n":1,"rows":[{"id":1},{"id":1152921504606846976}],"when":"1970-01-01T00:00:00.000Z"}"#
    );
    assert_eq!(data(&ends[1]), &json!([true, "1970-01-01T00:00:00.000Z", true]));
    assert_eq!(data(&ends[2]), &json!([2, true]));
    assert_eq!(ends[2]["stored"], json!({ "n": 2, "when": "1970-01-01T00:00:00.000Z" }));
}

#[test]
fn a_failed_program_keeps_what_it_stored_and_one_at_a_limit_keeps_nothing() {
    let ends = conversation(&[
        "store('a', 1); await a(); store('b', 2); null.x",
        "store('a', 'lost'); for (let i = 0; ; i++) store(`c${i}`, 'x'.repeat(100_000))",
        "return [load('a'), load('b'), load('c0') === undefined]",
        "return (",
        "return load('a')",
    ]);
    assert_eq!(ends[0]["stored"], json!({ "a": 1, "b": 2 }));
    assert_eq!(
        (&ends[1]["result"]["error"]["limit"], &ends[1]["stored"]),
        (&json!("stored_bytes"), &ends[0]["stored"])
    );
    assert_eq!(data(&ends[2]), &json!([1, 2, true]));
    assert_eq!((&ends[3]["stored"], data(&ends[4])), (&ends[0]["stored"], &json!(1)));
}

#[test]
fn what_cannot_be_stored_is_refused_with_its_place() {
    for (value, message) in [
        ("{ f: () => 1 }", "TypeError: value.f is a Function, which cannot be stored"),
        (
            "(() => { const o = {}; o.self = o; return o })()",
            "TypeError: value.self refers back to itself; a cycle cannot be stored",
        ),
        ("{ order: a() }", "TypeError: value.order: `a(…)` is a promise: write `await` before it"),
        ("Symbol('s')", "TypeError: value is a Symbol, which cannot be stored"),
    ] {
        let code = format!(
            "try {{ store('x', {value}) }} catch (e) {{ return [e.name + ': ' + e.message, load('x') === undefined] }}"
        );
        assert_eq!(ProgramStory::new(&code).data(), json!([message, true]), "{value}");
    }
    for call in ["store(7, 1)", "load()", "store('', 1)"] {
        let code = format!("try {{ {call} }} catch (e) {{ return e.message.includes('needs a name') }}");
        assert_eq!(ProgramStory::new(&code).data(), true, "{call}");
    }
    // Fuel may end it sooner.
    let error = ProgramStory::new("store('x', 'y'.repeat(100_000_000))").error();
    assert_eq!(error["kind"], "limit", "{error}");
    let error = ProgramStory::new("return 1").with("stored", json!({ "x": "y".repeat(2 << 20) })).error();
    assert_eq!(error["limit"], "stored_bytes", "{error}");
}

#[test]
fn many_values_are_as_good_as_few() {
    let code = "for (let i = 0; i < 10_000; i++) store(`key${i}`, i); let sum = 0; for (let i = 0; i < 10_000; i++) sum += load(`key${i}`); return sum";
    assert_eq!(ProgramStory::new(code).data(), 49_995_000);
}

#[test]
fn a_tool_of_the_name_has_it_instead() {
    let tools = json!([{ "name": "store" }, { "name": "load" }]);
    let transcript = ProgramStory::new("await store({ a: 1 }); return load({})").with("tools", tools).play_with_names();
    assert_eq!(transcript.rounds, [["store({\"a\":1})"], ["load({})"]]);
    assert_eq!(transcript.steps.last().expect("an end").get("stored"), None);
}

#[derive(Debug, Clone)]
enum Operation {
    Store(u8, u8),
    Remove(u8),
    Load(u8),
    Call,
    Throw,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..4_u8, any::<u8>()).prop_map(|(name, value)| Operation::Store(name, value)),
        (0..4_u8).prop_map(Operation::Remove),
        (0..4_u8).prop_map(Operation::Load),
        Just(Operation::Call),
        Just(Operation::Call),
        Just(Operation::Throw),
    ]
}

fn program(operations: &[Operation]) -> String {
    let line = |operation: &Operation| match operation {
        Operation::Store(name, value) => format!("store('k{name}', {{ v: {value}, seen }});"),
        Operation::Remove(name) => format!("store('k{name}', undefined);"),
        Operation::Load(name) => format!("seen.push(load('k{name}')?.v ?? null);"),
        Operation::Call => "seen.push(await a());".to_owned(),
        Operation::Throw => "if (seen.length > 6) throw new Error('x');".to_owned(),
    };
    let lines: Vec<String> = operations.iter().map(line).collect();
    format!("const seen = [];\n{}\nreturn seen", lines.join("\n"))
}

/// What a program without the sandbox would do: the model of the story.
fn expected(operations: &[Operation], stored: &mut Value) -> Option<Value> {
    let mut seen = Vec::new();
    for operation in operations {
        let fields = stored.as_object_mut().expect("an object");
        match operation {
            Operation::Store(name, value) => {
                fields.insert(format!("k{name}"), json!({ "v": value, "seen": seen }));
            }
            Operation::Remove(name) => _ = fields.remove(&format!("k{name}")),
            Operation::Load(name) => {
                seen.push(fields.get(&format!("k{name}")).map_or(Value::Null, |it| it["v"].clone()));
            }
            Operation::Call => seen.push(json!("a")),
            Operation::Throw if seen.len() > 6 => return None,
            Operation::Throw => {}
        }
    }
    Some(Value::Array(seen))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Every step is taken cold and warm, which must agree byte for byte; and both agree with the model.
    #[test]
    fn cold_or_warm_the_same_is_kept(programs in prop::collection::vec(prop::collection::vec(operation(), 0..12), 1..4)) {
        let mut model = json!({});
        let sources: Vec<String> = programs.iter().map(|operations| program(operations)).collect();
        let ends = conversation(&sources.iter().map(String::as_str).collect::<Vec<_>>());
        for (operations, end) in programs.iter().zip(&ends) {
            let result = expected(operations, &mut model);
            if let Some(seen) = result {
                prop_assert_eq!(data(end), &seen);
            } else {
                prop_assert_eq!(&end["result"]["status"], "error");
            }
            prop_assert_eq!(end.get("stored").cloned().unwrap_or_else(|| json!({})), model.clone());
        }
    }
}
