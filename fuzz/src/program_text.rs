//! Any text as a program: a diagnostic, or JavaScript that the engine takes or refuses cleanly.
#![no_main]

use std::sync::{Arc, LazyLock};

use dacapo_replay::{Limit, Program, StepRequest, Stepper, Toolbox, WarmPrograms, read_tools};
use dacapo_script::SourceMap;
use libfuzzer_sys::fuzz_target;

static STEPPER: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::NONE).expect("a sandbox"));
static TOOLBOX: LazyLock<Arc<Toolbox>> = LazyLock::new(|| {
    let tools = read_tools(&serde_json::json!([{ "name": "a" }, { "name": "b", "server": "s" }])).expect("tools");
    Arc::new(Toolbox::new(tools).expect("two tools"))
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if dacapo_script::prepare(text).is_ok() {
        assert!(SourceMap::new(text).is_some(), "what can be prepared can be mapped");
    }
    let mut request = StepRequest::new(Program::new(text), Arc::clone(&TOOLBOX));
    request.limits.set(Limit::Fuel, 20_000_000).expect("in range");
    let step = serde_json::to_string(&STEPPER.step(&request, &|| true).expect("a step")).expect("JSON");
    assert!(!step.contains(r#""kind":"internal""#), "{step}");
});
