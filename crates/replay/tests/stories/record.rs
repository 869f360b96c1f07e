//! What a program is not to do twice, and which earlier answers it may trust.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::needless_pass_by_value, reason = "calls of the tests are written with `json!`")]

use dacapo_replay::{
    ArgsDigest, CallDigest, CallIndex, CompletedCall, JsonText, MadeCall, Outcome, Program, RecordedOutcome, Step,
};
use dacapo_replay::{StepRequest, Stepper, Toolbox, WarmPrograms};
use serde_json::{Value, json};

const TOOLS: &str = r#"[
    {"name": "get_balance"}, {"name": "pay"}, {"name": "list_orders"},
    {"name": "set_name", "annotations": {"idempotentHint": true}},
    {"name": "refresh", "annotations": {"readOnlyHint": true}}
]"#;

fn step(code: &str, record: Vec<CompletedCall>) -> Step {
    let request = StepRequest::new(Program::new(code), Toolbox::read(TOOLS).unwrap()).with_reuse(record);
    Stepper::new(WarmPrograms::default()).unwrap().step(&request, &|| true).unwrap()
}

fn done(tool: &str, args: Value, ok: Value) -> CompletedCall {
    CompletedCall::new(tool, &args, JsonText::from(&ok))
}

/// The calls that have to be executed.
fn executed(step: &Step) -> Vec<String> {
    match &step.outcome {
        Outcome::Paused { calls } => calls.iter().map(|call| format!("{}({})", call.tool, call.args)).collect(),
        Outcome::Finished { result } => panic!("it finished: {result:?}"),
    }
}

fn result(step: &Step) -> Value {
    match &step.outcome {
        Outcome::Finished { result: Ok(data) } => serde_json::from_str(data.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_completed_write_is_not_executed_again_unless_the_program_asks_for_it() {
    let record = vec![done("pay", json!({"n": 1}), json!("paid"))];
    let again = step("return await pay({n: 1})", record.clone());
    assert_eq!(result(&again), "paid");
    assert_eq!(again.reused, [MadeCall::new(CallIndex(0), "pay", json!({"n": 1}))]);

    assert_eq!(executed(&step("return await pay({n: 1}, {fresh: true})", record.clone())), [r#"pay({"n":1})"#]);
    assert_eq!(executed(&step("return await pay({n: 2})", record.clone())), [r#"pay({"n":2})"#]);
    let twice = step("return await Promise.all([pay({n: 1}), pay({n: 1})])", record.clone());
    assert_eq!(executed(&twice), [r#"pay({"n":1})"#], "each recorded call answers once");
    let options = ["{fresh: false}", "{}", "null", "7", "'fresh'", "{fresh: 1}"];
    for options in options {
        assert_eq!(result(&step(&format!("return await pay({{n: 1}}, {options})"), record.clone())), "paid");
    }
    let mapped = step("return await Promise.all([{n: 1}].map(pay))", record);
    assert_eq!(result(&mapped), json!(["paid"]), "an index is no option");
}

#[test]
fn a_read_is_answered_from_the_record_only_if_nothing_changed_since() {
    let balance = || done("get_balance", json!({}), json!(100));
    let orders = || done("list_orders", json!({}), json!([]));
    let paid = || done("pay", json!({"n": 1}), json!("paid"));
    let read = "return await get_balance({})";
    assert_eq!(result(&step(read, vec![balance()])), 100);
    assert_eq!(result(&step(read, vec![balance(), orders()])), 100, "reads change nothing");
    assert_eq!(executed(&step(read, vec![balance(), paid()])), ["get_balance({})"], "a payment does");
    assert_eq!(result(&step(read, vec![paid(), balance()])), 100);
    let unknown = CompletedCall::with_outcome("pay", &json!({"n": 9}), RecordedOutcome::Unknown);
    assert_eq!(executed(&step(read, vec![balance(), unknown])), ["get_balance({})"], "a payment may have happened");
    let gone = done("delete_all", json!({}), json!(null));
    assert_eq!(
        executed(&step(read, vec![balance(), gone])),
        ["get_balance({})"],
        "a tool that is gone may have written"
    );

    let own = "pay({n: 2}); return await get_balance({})";
    assert_eq!(executed(&step(own, vec![balance()])), [r#"pay({"n":2})"#, "get_balance({})"], "its own payment counts");
    let reused = "await pay({n: 1}); return await get_balance({})";
    assert_eq!(result(&step(reused, vec![paid(), balance()])), 100, "a payment from the record is not a new one");
}

#[test]
fn a_write_whose_answer_is_lost_or_never_came_is_refused_and_others_are_repeated() {
    let with =
        |tool: &str, outcome: RecordedOutcome| vec![CompletedCall::with_outcome(tool, &json!({"n": 1}), outcome)];
    let caught = |tool: &str| {
        format!("try {{ return await {tool}({{n: 1}}) }} catch (e) {{ return [e.name, e.tool, e.message] }}")
    };
    let lost = step(&caught("pay"), with("pay", RecordedOutcome::AnswerLost));
    assert_eq!(
        result(&lost),
        json!([
            "ToolError",
            "pay",
            "pay was completed with the same arguments by an earlier program, and its answer is no longer in the conversation; it was not executed again. To execute it again, pass {fresh: true} as the second argument"
        ])
    );
    assert_eq!(lost.reused, []);
    let unknown = step(&caught("pay"), with("pay", RecordedOutcome::Unknown));
    assert_eq!(
        result(&unknown)[2],
        "pay was sent with the same arguments by an earlier program, and no answer came, so it is not known whether it took effect; it was not executed again. To execute it all the same, pass {fresh: true} as the second argument"
    );
    let retried = "for (let i = 0; i < 3; i++) { try { return await pay({n: 1}) } catch {} } return 'given up'";
    assert_eq!(result(&step(retried, with("pay", RecordedOutcome::Unknown))), "given up", "a retry is refused as well");
    assert_eq!(
        executed(&step("return await pay({n: 1}, {fresh: true})", with("pay", RecordedOutcome::Unknown))),
        [r#"pay({"n":1})"#]
    );
    for tool in ["set_name", "refresh", "get_balance"] {
        let step = step(&format!("return await {tool}({{n: 1}})"), with(tool, RecordedOutcome::Unknown));
        assert_eq!(executed(&step), [format!(r#"{tool}({{"n":1}})"#)], "twice is like once");
    }
    let lost = || RecordedOutcome::AnswerLost;
    let digests = [
        CompletedCall::with_args_digest("pay", ArgsDigest::of_args(&json!({"n": 1})), lost()),
        CompletedCall::with_digest(CallDigest::of("pay", &json!({"n": 1})), lost()),
    ];
    for digest in digests {
        assert_eq!(result(&step(&caught("pay"), vec![digest.clone()]))[0], "ToolError");
        assert_eq!(executed(&step("return await pay({n: 2})", vec![digest])), [r#"pay({"n":2})"#]);
    }
}

#[test]
fn a_failure_names_the_arguments_of_what_was_done_and_what_was_not() {
    let code = "await pay({n: 1}); await Promise.all([pay({n: 2, note: 'x'.repeat(1000)}), missing()])";
    let step = step(code, vec![done("pay", json!({"n": 1}), json!("paid"))]);
    let Outcome::Finished { result: Err(failure) } = &step.outcome else { panic!("{step:?}") };
    assert_eq!(failure.completed, [MadeCall::new(CallIndex(0), "pay", json!({"n": 1}))]);
    let args = json!({"n": 2, "note": "x".repeat(1000)}).to_string();
    let shown: String = args.chars().take(300).collect();
    assert_eq!(failure.unfinished[0].args, format!("{shown}… ({} more characters)", args.len() - 300));
    assert_eq!(step.record, [done("pay", json!({"n": 1}), json!("paid"))], "a later program may still rely on it");
}
