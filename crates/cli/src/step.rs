//! `dacapo step`: the step function on stdin and stdout.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use dacapo_replay::{ErrorKind, Outcome, RequestError, Step, StepError, StepRequest, Stepper, Toolboxes, WarmPrograms};
use serde_json::json;

use crate::shortage::warn_of_shortage;

const EXAMPLE: &str = r#"Example:
  echo '{"program": {"code": "return await add({a: 1, b: 2})"}, "tools": [{"name": "add"}]}' | dacapo step

  It answers that the program is paused on call 0. Give the answer and ask again:

  echo '{"program": {"code": "return await add({a: 1, b: 2})"}, "tools": [{"name": "add"}],
         "journal": [{"call": 0, "tool": "add", "ok": 3}]}' | dacapo step

Exit status: 0 when every request got its step (paused or finished, whatever the program did); 1 when a request is
wrong or its journal does not fit the program; 2 for wrong usage."#;

/// Run a program against the answers so far: one JSON request on stdin, one JSON response on stdout
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct StepArgs {
    /// One request per line and one response per line, until the end of input
    #[arg(long)]
    lines: bool,

    /// Abandon a step after this many seconds of wall-clock time: a guard against a slow machine, not a limit of programs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    step_timeout: u64,

    /// Keep no paused programs in memory between lines; every step is a replay
    #[arg(long)]
    cold: bool,
}

/// Paused programs kept between lines.
const WARM: WarmPrograms = WarmPrograms { count_max: 256, bytes_max: 1 << 30 };

pub(crate) fn step(options: &StepArgs) -> anyhow::Result<ExitCode> {
    let warm = if options.lines && !options.cold { WARM } else { WarmPrograms::NONE };
    let stepper = Stepper::new(warm)?;
    warn_of_shortage(stepper.shortage())?;
    let toolboxes = Toolboxes::default();
    let step_timeout = Duration::from_secs(options.step_timeout);
    let mut out = io::stdout().lock();
    let mut all_good = true;
    let mut answer = |text: &[u8]| -> anyhow::Result<()> {
        let (response, good) = respond(&stepper, &toolboxes, text, step_timeout);
        all_good &= good;
        writeln!(out, "{response}")?;
        out.flush()?;
        Ok(())
    };
    if options.lines {
        for line in io::stdin().lock().split(b'\n') {
            let line = line?;
            if !line.trim_ascii().is_empty() {
                answer(&line)?;
            }
        }
    } else {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text)?;
        answer(&text)?;
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One line of JSON, and whether the request got its step.
fn respond(stepper: &Stepper, toolboxes: &Toolboxes, text: &[u8], step_timeout: Duration) -> (String, bool) {
    let outcome = read(text, toolboxes).map_err(StepRefusal::StepRequest).and_then(|request| {
        let start = Instant::now();
        stepper.step(&request, &|| start.elapsed() < step_timeout).map_err(StepRefusal::Step)
    });
    match outcome.and_then(|step| Ok((serde_json::to_string(&step).map_err(StepRefusal::Json)?, fits(&step)))) {
        Ok(response) => response,
        Err(refused) => (refused.to_json(), false),
    }
}

fn read(text: &[u8], toolboxes: &Toolboxes) -> Result<StepRequest, RequestError> {
    let text = std::str::from_utf8(text)
        .map_err(|error| RequestError { path: String::new(), message: format!("the request is not UTF-8: {error}") })?;
    StepRequest::parse_with(text, toolboxes)
}

/// Whether the journal is one of this program.
fn fits(step: &Step) -> bool {
    !matches!(&step.outcome, Outcome::Finished { result: Err(failure) } if matches!(failure.kind, ErrorKind::Diverged { .. }))
}

enum StepRefusal {
    StepRequest(RequestError),
    Step(StepError),
    Json(serde_json::Error),
}

impl StepRefusal {
    fn to_json(&self) -> String {
        let error = match self {
            StepRefusal::StepRequest(error) => {
                json!({ "kind": "request", "path": error.path, "message": error.message })
            }
            StepRefusal::Step(StepError::Interrupted) => {
                json!({ "kind": "interrupted", "message": StepError::Interrupted.to_string(), "retry": true })
            }
            StepRefusal::Step(error) => json!({ "kind": "host", "message": error.to_string(), "retry": true }),
            StepRefusal::Json(error) => json!({ "kind": "host", "message": error.to_string() }),
        };
        json!({ "status": "error", "error": error }).to_string()
    }
}
