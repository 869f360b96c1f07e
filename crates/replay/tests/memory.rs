//! What the process takes after many programs. Alone in its file: other tests would be measured too.

use dacapo_replay::{StepRequest, Stepper, WarmPrograms};
use serde_json::{Value, json};

const PROGRAMS: usize = 300;
const MIB: u64 = 1 << 20;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

fn step(stepper: &Stepper, seed: usize, journal: &Value) -> Value {
    let code = format!("const it = new Array(20_000).fill({seed}); return [await a(), it.length]");
    let request = json!({ "program": { "code": code }, "tools": [{ "name": "a" }], "journal": journal });
    let request = StepRequest::parse(&request.to_string()).expect("a valid request");
    serde_json::to_value(stepper.step(&request, &|| true).expect("a step")).expect("steps are JSON")
}

#[test]
fn memory_of_programs_that_ended_or_are_not_used_is_given_back() {
    let stepper = Stepper::new(WarmPrograms::default()).expect("a sandbox");
    for seed in 0..8 {
        assert_eq!(step(&stepper, seed, &json!([]))["status"], "paused");
    }
    let before = resident_bytes();
    for seed in 0..PROGRAMS {
        assert_eq!(step(&stepper, seed, &json!([]))["status"], "paused");
    }
    let paused = resident_bytes();
    assert!(paused > before + 100 * MIB, "{before} {paused}");
    let answer = json!([{ "call": 0, "tool": "a", "args": {}, "ok": 1 }]);
    for seed in 0..PROGRAMS {
        assert_eq!(step(&stepper, seed, &answer)["status"], "finished");
    }
    let after = resident_bytes();
    assert!(after < before + 64 * MIB, "before {before}, paused {paused}, after {after}");

    for seed in PROGRAMS..2 * PROGRAMS {
        assert_eq!(step(&stepper, seed, &json!([]))["status"], "paused");
    }
    stepper.release_unused();
    let kept = resident_bytes();
    assert!(kept > before + 100 * MIB, "before {before}, kept {kept}");
    stepper.release_unused();
    let released = resident_bytes();
    assert!(released < before + 64 * MIB, "before {before}, kept {kept}, released {released}");
    assert_eq!(step(&stepper, PROGRAMS, &answer)["status"], "finished");
}
