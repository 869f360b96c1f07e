//! Programs that wait in memory.

use std::sync::Arc;

use dacapo_replay::{
    Answer, CallIndex, JournalEntry, JsonText, Outcome, Program, StepError, StepRequest, StepStart, Stepper, Toolbox,
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

#[test]
fn a_program_that_nobody_resumes_gives_its_memory_back_and_goes_on_where_it_was() {
    // What waits, whether it is brought back, and how much of its memory is kept.
    let cases = [
        ("for (let i = 0; i < 1e6; i++) {} const kept = [1, 2]; return [await a(), kept]", true),
        // Its memory has grown.
        (
            "const kept = Array.from({length: 5e4}, () => 7); for (let i = 0; i < 1e6; i++) {} return [await a(), kept.length]",
            true,
        ),
        // Replayed in less time.
        ("return [await a(), 3]", false),
        // More than 64 KB would be left of it.
        ("const kept = Array.from({length: 1e5}, () => Math.random()); return [await a(), kept[0] < 1]", false),
    ];
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    for (code, is_brought_back) in cases {
        let stepper = Stepper::new(WarmPrograms::default()).unwrap();
        let mut request = StepRequest::new(Program::new(code), Arc::clone(&toolbox));
        let first = stepper.step(&request, &|| true).unwrap();
        assert!(matches!(first.outcome, Outcome::Paused { .. }), "{:?}", first.outcome);
        let paused = stepper.paused();
        stepper.release_unused();
        assert_eq!(stepper.paused(), paused, "it was used before the first call");
        stepper.release_unused();
        let left = stepper.paused();
        assert_eq!(left.count, usize::from(is_brought_back), "{code}");
        assert!(left.bytes <= 64 << 10, "{code}: {}", left.bytes);

        let answer = Answer::Ok(JsonText::from(&json!("answer")));
        for _ in 0..8 {
            stepper.release_unused();
        }
        assert_eq!(stepper.paused(), left, "it is kept for longer than the memory was");
        request.journal.push(JournalEntry::new(CallIndex(0), "a", Some(&json!({})), answer));
        let (step, start) = stepper.step_from(&request, &|| true).unwrap();
        assert_eq!(start, if is_brought_back { StepStart::Warm } else { StepStart::Cold }, "{code}");
        let cold = Stepper::new(WarmPrograms::NONE).unwrap().step(&request, &|| true).unwrap();
        assert_eq!(serde_json::to_string(&step).unwrap(), serde_json::to_string(&cold).unwrap());
    }
}

#[test]
fn what_is_left_of_a_program_that_nobody_resumes_at_all_is_given_up() {
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    let stepper = Stepper::new(WarmPrograms::default()).unwrap();
    let request = StepRequest::new(Program::new("for (let i = 0; i < 1e6; i++) {} await a()"), toolbox);
    stepper.step(&request, &|| true).unwrap();
    let counts: Vec<usize> = (0..30)
        .map(|_| {
            stepper.release_unused();
            stepper.paused().count
        })
        .collect();
    assert_eq!((counts[0], counts[20], counts[29]), (1, 1, 0), "{counts:?}");
}
