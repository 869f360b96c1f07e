//! Programs that wait in memory.

use std::sync::Arc;

use dacapo_replay::{
    Answer, CallIndex, JournalEntry, JsonText, Outcome, Program, StepError, StepRequest, Stepper, Toolbox,
    WarmPrograms, read_tools,
};
use serde_json::json;

#[test]
fn every_program_that_there_is_room_for_can_wait_at_the_same_time() {
    const PROGRAMS: u32 = 400;
    let stepper = Stepper::new(WarmPrograms { count_max: PROGRAMS, bytes_max: usize::MAX }).unwrap();
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    for number in 0..PROGRAMS + 10 {
        let mut request = StepRequest::new(Program::new("return await a({})"), Arc::clone(&toolbox));
        request.program.seed = number.to_string();
        let step = stepper.step(&request, &|| true).unwrap();
        assert!(matches!(step.outcome, Outcome::Paused { .. }), "program {number}: {:?}", step.outcome);
    }
}

#[test]
fn a_caller_who_has_the_first_calls_is_handed_the_others() {
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    let code = "await Promise.all([a({ n: 0 }).then(() => a({ n: 2 })), a({ n: 1 })])";
    for warm in [WarmPrograms::NONE, WarmPrograms::default()] {
        let stepper = Stepper::new(warm).unwrap();
        let mut request = StepRequest::new(Program::new(code), Arc::clone(&toolbox));
        let calls = |request: &StepRequest, new: u32| {
            let step = stepper.step_beyond(request, CallIndex(new), &|| true).unwrap();
            let Outcome::Paused { calls } = step.outcome else { panic!("{:?}", step.outcome) };
            calls.into_iter().map(|call| call.call.0).collect::<Vec<_>>()
        };
        assert_eq!(calls(&request, 0), [0, 1]);
        let answer = Answer::Ok(JsonText::from(&json!(null)));
        request.journal.push(JournalEntry::new(CallIndex(0), "a", Some(&json!({ "n": 0 })), answer));
        assert_eq!(calls(&request, 2), [2]);
        assert_eq!(calls(&request, 0), [1, 2]);
    }
}

#[test]
fn arguments_of_open_calls_take_their_share_of_the_memory_for_paused_programs() {
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    // A step that has to run the program is interrupted; one that finds it in memory is not.
    let is_kept = |chars: usize| {
        let stepper = Stepper::new(WarmPrograms { count_max: 4, bytes_max: 8 << 20 }).unwrap();
        let code = format!(
            "for (let i = 0; i < 2e6; i++) {{}}
            await Promise.all(Array.from({{length: 20}}, (_, i) => a({{i, text: 'x'.repeat({chars})}})))"
        );
        let request = StepRequest::new(Program::new(code), Arc::clone(&toolbox));
        let first = stepper.step(&request, &|| true).unwrap();
        assert!(matches!(first.outcome, Outcome::Paused { .. }), "{:?}", first.outcome);
        match stepper.step(&request, &|| false) {
            Ok(_) => true,
            Err(StepError::Interrupted) => false,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(is_kept(10));
    assert!(!is_kept(200_000), "20 calls with 200 kB each, in two forms, are 8 MB");
}
