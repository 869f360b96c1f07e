//! A program runs alike whether its types are blanked out in its text or it is printed without them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use dacapo_replay::{StepRequest, Stepper, WarmPrograms};
use proptest::prelude::*;
use serde_json::{Value, json};

#[path = "../../script/tests/random_programs/mod.rs"]
mod random_programs;

static STEPPER: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::NONE).unwrap());

/// What the random programs use, so that some of them get somewhere.
const NAMES: &str = "const f = (x) => x, M = Map, d = { s: 2 }, b = { c: 3 }; let a = [4], g, v; var T, U;";

/// The outcome. Messages depend on the spelling of the program: they name the expression at a place.
fn outcome(source: &str) -> Value {
    let request = json!({"program": {"code": source}, "limits": {"fuel": 20_000_000}});
    let step = STEPPER.step(&StepRequest::parse(&request.to_string()).unwrap(), &|| true).unwrap();
    let step = serde_json::to_value(&step).unwrap();
    let (data, error) = (&step["result"]["data"], &step["result"]["error"]);
    // `(a) = () => 1` gives the function no name, and the printer leaves the brackets out.
    let is_function = data.as_str().is_some_and(|text| text.starts_with("[Function"));
    let data = if is_function { &Value::Null } else { data };
    json!([step["status"], data, error["kind"], error["name"]])
}

fn runs_alike(source: &str) {
    for source in [source.to_owned(), format!("{NAMES}\n{source}")] {
        // It is printed, because the engine sees one line where its parser sees two.
        let printed = format!("{source}\r");
        assert_eq!(outcome(&source), outcome(&printed), "{source}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_together(source in random_programs::pieces()) {
        runs_alike(&source);
    }

    #[test]
    fn expressions_with_types(source in random_programs::expressions()) {
        runs_alike(&source);
    }
}
