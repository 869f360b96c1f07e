//! Tools that are gone, or have changed, since the program was written.

use dacapo_replay::{
    Answer, ArgsDigest, Call, HandedOutCall, JournalEntry, Outcome, Program, Step, StepRequest, Toolbox,
};
use serde_json::{Value, json};

use crate::client::step;

fn paused(step: Step) -> Vec<Call> {
    match step.outcome {
        Outcome::Paused { calls } => calls,
        Outcome::Finished { result } => panic!("{result:?}"),
    }
}

fn data(step: Step) -> Value {
    match step.outcome {
        Outcome::Finished { result } => serde_json::from_str(result.expect("a success").get()).expect("JSON"),
        Outcome::Paused { calls } => panic!("{calls:?}"),
    }
}

fn answered(request: &mut StepRequest, call: &Call, value: &Value) {
    request.journal.push(JournalEntry::new(call.call, &call.tool, Some(&call.args), Answer::ok(value)));
    let args = ArgsDigest::of_args(&call.args);
    request.handed_out.push(HandedOutCall { call: call.call, tool: call.tool.clone(), args });
}

#[test]
fn what_was_handed_out_is_replayed_and_new_calls_reject() {
    let code = "
        const weather = await get_weather({ city: 'Oslo' });
        const said = [];
        for (const city of ['Rome', 'Bern']) {
          try { said.push(await get_weather({ city })); } catch (error) { said.push(error.message); }
          said.push(await report({ city }));
        }
        return [weather, ...said];";
    let tools = Toolbox::read(r#"[{"name": "get_weather"}, {"name": "report"}]"#).expect("tools");
    let mut request = StepRequest::new(Program::new(code), tools);
    let first = paused(step(&request)).remove(0);
    answered(&mut request, &first, &json!("sunny"));

    // The client has another list now.
    let later = Toolbox::read(r#"[{"name": "report"}]"#).expect("tools");
    request.toolbox = later.with_withdrawn(["get_weather"]).expect("room").into();
    for city in ["Rome", "Bern"] {
        let calls = paused(step(&request));
        assert_eq!((calls[0].tool.as_str(), &calls[0].args, calls.len()), ("report", &json!({"city": city}), 1));
        answered(&mut request, &calls[0], &json!(city));
    }
    let refused = "get_weather cannot be called any more: the client has taken this tool away since";
    assert_eq!(data(step(&request)), json!(["sunny", refused, "Rome", refused, "Bern"]));
}

#[test]
fn a_call_that_was_handed_out_need_not_fit_the_schema_that_its_tool_has_now() {
    let code =
        "return [await add({ a: 1 }), await add({ a: 2 }).catch((error) => error.name), await add({ a: 3, b: 4 })];";
    let mut request = StepRequest::new(Program::new(code), Toolbox::read(r#"[{"name": "add"}]"#).expect("a tool"));
    let first = paused(step(&request)).remove(0);
    answered(&mut request, &first, &json!(1));
    let strict = r#"[{"name": "add", "inputSchema": {"type": "object", "required": ["b"]}}]"#;
    request.toolbox = Toolbox::read(strict).expect("a tool").into();
    let calls = paused(step(&request));
    assert_eq!(calls[0].args, json!({"a": 3, "b": 4}));
    answered(&mut request, &calls[0], &json!(7));
    assert_eq!(data(step(&request)), json!([1, "TypeError", 7]));
}
