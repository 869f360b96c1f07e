//! Any bytes as a step request: an error that names its place, or a step; twice the same.
#![no_main]

use std::sync::LazyLock;

use dacapo_replay::{Limit, StepRequest, Stepper, WarmPrograms};
use libfuzzer_sys::fuzz_target;

static STEPPER: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::NONE).expect("a sandbox"));

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mut request) = StepRequest::parse(text) else { return };
    request.limits.set(Limit::Fuel, 20_000_000).expect("in range");
    let step =
        |request: &StepRequest| serde_json::to_string(&STEPPER.step(request, &|| true).expect("a step")).expect("JSON");
    let first = step(&request);
    assert!(!first.contains(r#""kind":"internal""#), "{first}");
    assert_eq!(first, step(&request));
});
