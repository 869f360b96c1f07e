//! Programs that wait in memory.

use std::sync::Arc;

use dacapo_replay::{Outcome, Program, Request, Stepper, Toolbox, WarmPrograms, read_tools};
use serde_json::json;

#[test]
fn every_program_that_there_is_room_for_can_wait_at_the_same_time() {
    const PROGRAMS: u32 = 400;
    let stepper = Stepper::new(WarmPrograms { count_max: PROGRAMS, bytes_max: usize::MAX }).unwrap();
    let toolbox = Arc::new(Toolbox::new(read_tools(&json!([{"name": "a"}])).unwrap()).unwrap());
    for number in 0..PROGRAMS + 10 {
        let mut request = Request::new(Program::new("return await a({})"), Arc::clone(&toolbox));
        request.program.seed = number.to_string();
        let step = stepper.step(&request, &|| true).unwrap();
        assert!(matches!(step.outcome, Outcome::Paused { .. }), "program {number}: {:?}", step.outcome);
    }
}
