//! Runs a program that calls a tool, and answers its calls: `cargo run --example run_a_program`.

use std::error::Error;
use std::io::{self, Write};

use dacapo_replay::{Outcome, Program, StepRequest, Stepper, Toolbox, WarmPrograms};
use serde_json::json;

const PROGRAM: &str = "
    const [pen, ink] = await Promise.all([price({ item: 'pen' }), price({ item: 'ink' })]);
    return { total: pen + ink };";

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let toolbox = Toolbox::read(r#"[{"name": "price", "description": "The price of an item in cents"}]"#)?;
    let stepper = Stepper::new(WarmPrograms::default())?;
    let mut request = StepRequest::new(Program::new(PROGRAM), toolbox);
    loop {
        match stepper.step(&request, &|| true)?.outcome {
            Outcome::Paused { calls } => {
                for call in &calls {
                    writeln!(out, "{} {}", call.tool, call.args)?;
                    match call.args["item"].as_str() {
                        Some("pen") => request.journal.push_ok(call, json!(200)),
                        Some("ink") => request.journal.push_ok(call, json!(750)),
                        _ => request.journal.push_error(call, "there is no such item"),
                    }
                }
            }
            Outcome::Finished { result } => return Ok(writeln!(out, "{}", result?)?),
        }
    }
}

#[test]
fn both_prices_are_asked_for_and_added() {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    let lines = "price {\"item\":\"pen\"}\nprice {\"item\":\"ink\"}\n{\"total\":950}\n";
    assert_eq!(String::from_utf8(out).unwrap(), lines);
}
