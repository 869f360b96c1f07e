//! `dacapo run`: one program from start to end.

mod live;
mod terminal_approver;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use dacapo_replay::{
    Limit, Limits, LogLine, MadeCall, Outcome, Program, ProgramFailure, Step, StepRequest, Stepper, Tool, Toolbox,
    WarmPrograms, undefined_functions,
};
use serde_json::{Value, json};

use crate::answers::{AnswerSource, StdinAnswers};
use crate::servers::CacheOptions;
use crate::shortage::warn_of_shortage;
use crate::tools;

const EXAMPLE: &str = r#"Example:
  echo 'const [a, b] = await Promise.all([price({item: "pen"}), price({item: "ink"})]); return a + b' > sum.ts
  dacapo run sum.ts

  It asks for both prices at once: type 2, then 7, and it prints 9. Answers are JSON, or text, or an error after `!`.
  With a file of answers, nothing has to be typed:

  echo '[{"tool": "price", "args": {"item": "pen"}, "ok": 2}, {"tool": "price", "ok": 7}]' > answers.json
  dacapo run sum.ts --answers answers.json

With MCP servers, as {"mcpServers": {…}}, its calls are executed:

  echo 'return (await time.get_current_time({timezone: "UTC"})).datetime' > now.ts
  dacapo run now.ts --mcp mcp.json

Without --tools and --mcp, every function that the program calls and nothing defines is a tool.
Exit status: 0 when the program returned, 1 when it failed, 2 for wrong usage."#;

/// Run one program; its calls are executed by MCP servers, or answered from a file or at the keyboard
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct RunOptions {
    /// The program, TypeScript or JavaScript; `-` reads it from stdin
    file: PathBuf,

    /// Tools as a JSON array, in the shape of any provider or of an MCP `tools/list`
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,

    /// Answers as a JSON array of {"tool": …, "args"?: …, "ok": …} or {"tool": …, "error": {"message": …}}
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,

    /// MCP servers that execute the calls, as `{"mcpServers": {…}}`; the program then has its own time and entropy
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tools", "answers", "seed", "started_at"])]
    mcp: Option<PathBuf>,

    /// Approve all calls that need approval
    #[arg(long, requires = "mcp")]
    yes: bool,

    #[command(flatten)]
    cache: CacheOptions,

    /// Print each round of calls and the outcome as one line of JSON each
    #[arg(long)]
    json: bool,

    /// What `Math.random` and `crypto` draw from [default: the program's text]
    #[arg(long, value_name = "TEXT")]
    seed: Option<String>,

    /// Where the program's clock starts, in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "MS")]
    started_at: Option<u64>,

    /// Change a limit, such as `fuel=5000000000`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_limit)]
    limit: Vec<(Limit, u64)>,

    /// Abandon a step after this many seconds of wall-clock time: a guard against a slow machine, not a limit of programs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    step_timeout: u64,
}

pub(crate) fn run(options: &RunOptions) -> anyhow::Result<ExitCode> {
    let program = program(options)?;
    if let Some(path) = &options.mcp {
        return live::run(&program.code, path, options);
    }
    let mut answers = match &options.answers {
        Some(path) => AnswerSource::from_file(path)?,
        None if options.file == Path::new("-") => {
            bail!("with the program on stdin, answers must come from a file: add --answers")
        }
        None => AnswerSource::StdinAnswers(StdinAnswers { json: options.json }),
    };
    let tools = match &options.tools {
        Some(path) => tools::read(path)?,
        None => implied_tools(&program, &answers),
    };
    let toolbox = Toolbox::new(tools)?;
    for warning in toolbox.catalog().warnings() {
        writeln!(io::stderr(), "warning: {}", warning.message)?;
    }
    let mut request = StepRequest::new(program, Arc::new(toolbox));
    for (limit, value) in &options.limit {
        request.limits.set(*limit, *value).expect("checked when the option was read");
    }

    let stepper = Stepper::new(WarmPrograms { count_max: 1, bytes_max: usize::MAX })?;
    warn_of_shortage(stepper.shortage())?;
    let mut logs_written = 0;
    loop {
        let start = Instant::now();
        let step = stepper.step(&request, &|| start.elapsed().as_secs() < options.step_timeout)?;
        if options.json {
            writeln!(io::stdout(), "{}", serde_json::to_string(&step)?)?;
        } else {
            write_logs(&step.logs[logs_written..])?;
            logs_written = step.logs.len();
        }
        match step.outcome {
            Outcome::Paused { calls } => {
                answers.next(&calls)?.into_iter().for_each(|entry| request.journal.push(entry));
            }
            Outcome::Finished { .. } => return finish(&step, options),
        }
    }
}

fn finish(step: &Step, options: &RunOptions) -> anyhow::Result<ExitCode> {
    let Outcome::Finished { result } = &step.outcome else { return Ok(ExitCode::FAILURE) };
    match result {
        Ok(data) => {
            if !options.json {
                let data: Value = serde_json::from_str(data.get())?;
                writeln!(io::stdout(), "{data:#}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            if !options.json {
                write_failure(failure)?;
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

fn write_logs(logs: &[LogLine]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    logs.iter().try_for_each(|line| writeln!(err, "{}", line.text))
}

fn write_failure(failure: &ProgramFailure) -> io::Result<()> {
    let mut err = io::stderr().lock();
    writeln!(err, "{}: {}", failure.name, failure.message)?;
    for part in
        [failure.frame.as_deref(), Some(failure.stack.as_str())].into_iter().flatten().filter(|part| !part.is_empty())
    {
        writeln!(err, "{part}")?;
    }
    write_calls(&failure.completed, &failure.unfinished)
}

fn write_calls(completed: &[MadeCall], unfinished: &[MadeCall]) -> io::Result<()> {
    write_call_list("completed", completed)?;
    write_call_list("not completed", unfinished)
}

fn write_call_list(title: &str, calls: &[MadeCall]) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let calls: Vec<String> = calls.iter().map(|made| format!("{} {}", made.call, made.tool)).collect();
    writeln!(io::stderr(), "{title}: {}", calls.join(", "))
}

fn program(options: &RunOptions) -> anyhow::Result<Program> {
    let code = if options.file == Path::new("-") {
        let mut code = String::new();
        io::stdin().read_to_string(&mut code).context("cannot read the program from stdin")?;
        code
    } else {
        fs::read_to_string(&options.file)
            .with_context(|| format!("cannot read the program {}", options.file.display()))?
    };
    let mut program = Program::new(code);
    if let Some(seed) = &options.seed {
        program.seed.clone_from(seed);
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 stay exact for 285,000 years")]
    {
        program.started_at_ms = options.started_at.unwrap_or_else(now) as f64;
    }
    Ok(program)
}

/// Functions that the program calls and does not define, and tools that the answers name.
fn implied_tools(program: &Program, answers: &AnswerSource) -> Vec<Tool> {
    let mut names: BTreeSet<String> = undefined_functions(program).into_iter().collect();
    names.extend(answers.tools().map(str::to_owned));
    let untyped = |name| Tool {
        name,
        description: None,
        input_schema: json!({ "type": "object" }).into(),
        output_schema: None,
        observed_answer: None,
        server: None,
        effect: None,
    };
    names.into_iter().map(untyped).collect()
}

fn parse_limit(text: &str) -> Result<(Limit, u64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let known = || Limit::ALL.map(Limit::name).join(", ");
    let limit = Limit::ALL
        .into_iter()
        .find(|limit| limit.name() == name)
        .ok_or_else(|| format!("no limit `{name}`; there are {}", known()))?;
    let value = value.parse().map_err(|error| format!("`{value}` is not a number: {error}"))?;
    let refused = |range: RangeInclusive<u64>| {
        format!("{value} is out of range; {} to {} are possible", range.start(), range.end())
    };
    Limits::default().set(limit, value).map_err(refused)?;
    Ok((limit, value))
}
