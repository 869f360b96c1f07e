//! Every limit has a name, a test that reaches it, and an error that says what to change.

use dacapo_replay::{Limit, StepRequest};
use serde_json::{Value, json};

use crate::client::ProgramStory;

fn limit_error(code: &str, limits: Value) -> Value {
    let error = ProgramStory::new(code).with("limits", limits).error();
    assert_eq!(error["kind"], "limit", "{error}");
    error
}

#[test]
fn every_limit_is_reached_by_its_own_program() {
    let long = format!("return '{}'", "x".repeat(2_000));
    let rows: [(Limit, u64, &str); 11] = [
        (Limit::Fuel, 5_000_000, "const f = () => { for (;;) {} };\nf()"),
        (Limit::MemoryBytes, 8 << 20, "const all = []; for (;;) all.push(new Array(1000).fill(1))"),
        (Limit::StackBytes, 32 << 10, "const f = (n) => 1 + f(n + 1); return f(0)"),
        (Limit::ProgramBytes, 1_000, &long),
        (Limit::JournalBytes, 1_000, "return (await a()).length"),
        (Limit::ArgsBytes, 1_000, "await a({ text: 'x'.repeat(1000) })"),
        (Limit::OutputBytes, 1_000, "return 'x'.repeat(1000)"),
        (Limit::LogBytes, 1_000, "for (;;) console.log('again')"),
        (Limit::StoredBytes, 1_000, "for (let i = 0; ; i++) store(`key ${i}`, i)"),
        (Limit::Calls, 10, "for (;;) await a()"),
        (Limit::CallsPerRound, 10, "await Promise.all(Array.from({ length: 11 }, (_, i) => a({ i })))"),
    ];
    for (limit, value, code) in rows {
        let story = ProgramStory::new(code).with("limits", json!({ limit.name(): value }));
        let error = story.play(|_, _| json!({ "ok": "x".repeat(1000) })).result["error"].clone();
        assert_eq!(
            (&error["kind"], &error["limit"], &error["value"]),
            (&json!("limit"), &json!(limit.name()), &json!(value)),
            "{limit}: {error}"
        );
        let message = error["message"].as_str().expect("text");
        assert!(message.contains(&format!("`{limit}` of {value}; {}", limit.advice())), "{message}");
    }
}

/// A tool whose list is checked against 500 alternatives, item by item.
fn tools_with_a_large_union() -> Value {
    let alternatives: Vec<Value> = (0..500).map(|n| json!({ "const": format!("kind_{n}") })).collect();
    let items = json!({ "type": "array", "items": { "anyOf": alternatives } });
    json!([{ "name": "sort", "input_schema": { "type": "object", "properties": { "items": items } } }])
}

#[test]
fn checking_arguments_costs_fuel_in_proportion_to_the_work() {
    let call = |item: &str, fuel: u64| {
        let code = format!(
            "try {{ await sort({{ items: new Array(5000).fill('{item}') }}) }} catch (error) {{ return error.message }}"
        );
        let story = ProgramStory::new(&code).with("tools", tools_with_a_large_union());
        story.with("limits", json!({ "fuel": fuel })).step()
    };
    let little = call("kind_499", 5_000_000);
    assert_eq!((&little["result"]["error"]["limit"], &little["usage"]["fuel"]), (&json!("fuel"), &json!(5_000_000)));

    let valid = call("kind_499", 2_000_000_000);
    assert_eq!(valid["status"], "paused", "{valid}");
    assert!(valid["usage"]["fuel"].as_u64() > Some(400_000_000), "{}", valid["usage"]);
    // The errors of all alternatives would take a gigabyte.
    let invalid = call("other", 2_000_000_000);
    let message = invalid["result"]["data"].as_str().expect("a message");
    assert!(message.starts_with("sort: invalid arguments: expected arguments that match the schema, found object"));
}

#[test]
fn checking_answers_costs_fuel_too() {
    let alternatives: Vec<Value> = (0..500).map(|n| json!({ "const": n })).collect();
    let output = json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "anyOf": alternatives } }] });
    let story =
        ProgramStory::new("return typeof await a()").with("tools", json!([{ "name": "a", "output_schema": output }]));
    let story = story.with("limits", json!({ "fuel": 50_000_000 }));
    let result = story.play(|_, _| json!({ "ok": format!("[{}1]", "499,".repeat(2_000)) })).result;
    assert_eq!((&result["error"]["kind"], &result["error"]["limit"]), (&json!("limit"), &json!("fuel")));
}

#[test]
fn arguments_that_are_kept_for_a_program_count_as_its_memory() {
    let code = "const text = 'x'.repeat(1_000_000);\nawait Promise.all(Array.from({ length: 60 }, () => a({ text })))";
    let error = ProgramStory::new(code).error();
    assert_eq!((&error["kind"], &error["limit"]), (&json!("limit"), &json!("memory_bytes")), "{error}");
}

#[test]
fn a_program_that_ran_out_of_fuel_is_told_where_it_was() {
    let error = limit_error(
        "const busy = () => {\n  for (;;) Math.sqrt(2);\n};\nawait a();\nbusy();",
        json!({ "fuel": 5_000_000 }),
    );
    assert_eq!((&error["line"], &error["completed"]), (&json!(2), &json!([{ "call": 0, "tool": "a", "args": {} }])));
}

#[test]
fn exhaustion_can_be_caught_and_the_verdict_repeats() {
    let caught = ProgramStory::new(
        "let depth = 0; const f = () => { depth++; f() }; try { f() } catch (e) { return [e.name, depth] }",
    );
    let (first, second) = (caught.step(), caught.step());
    assert_eq!(first, second);
    assert_eq!(first["result"]["data"][0], "RangeError");

    let memory = ProgramStory::new(
        "try { const all = []; for (;;) all.push(new Uint8Array(1 << 20)) } catch (e) { return e.message }",
    )
    .data();
    assert_eq!(memory, "out of memory");
}

#[test]
fn fuel_is_a_function_of_the_program_and_not_of_its_limit() {
    let usage = |limits: Value| {
        ProgramStory::new("await a(); let n = 0; for (let i = 0; i < 1e5; i++) n += i; return n")
            .with("limits", limits)
            .play_with_names()
            .steps
    };
    assert_eq!(usage(json!({})), usage(json!({ "fuel": 500_000_000, "memory_bytes": 16 << 20 })));
}

#[test]
fn limits_outside_their_range_are_refused_by_name() {
    for limit in Limit::ALL {
        let range = limit.range();
        for value in [0, range.start() - 1, range.end() + 1] {
            let request = json!({ "program": { "code": "1" }, "limits": { limit.name(): value } });
            let error = StepRequest::parse(&request.to_string()).expect_err("out of range");
            assert_eq!(error.path, format!("limits.{limit}"));
            assert_eq!(
                error.message,
                format!("{value} is out of range; {} to {} are possible", range.start(), range.end())
            );
        }
    }
}
