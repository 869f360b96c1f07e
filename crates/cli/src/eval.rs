//! `dacapo eval`: tasks with simulated tools, played by a model with classic tool calls and in code mode.

mod checker;
mod page;
mod play;
mod progress;
mod results_file;
mod run;
mod screen;
mod solution;
mod summary;
mod table;
mod task;
mod tool;
mod world;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dacapo_gateway::{Config, Environment, GatewayOptions};
use serde_json::json;
use tokio::task::JoinSet;

use self::play::Player;
use self::progress::EvalProgress;
use self::results_file::ResultsFile;
use self::run::{EvalRun, EvalRunId, FailureKind, Mode};
use self::screen::EvalScreen;
use self::summary::Summary;
use self::task::Task;
use crate::config_file::config_file;
use crate::serve::upstream_options;
use crate::text_style::TextStyler;
use crate::wrong_usage::WrongUsage;

const EXAMPLE: &str = "Examples:
  dacapo eval                                         plays the solutions that come with the tasks; needs no key
  dacapo eval --model gpt-5 --repeat 3 --html eval.html
  dacapo eval --model llama3 --upstream http://localhost:11434/v1 --results eval.jsonl
  dacapo eval --model claude-sonnet-5 --task pages,loop,order-total --mode code

A model is asked where `dacapo serve` would ask it: by --upstream, by the configuration, or by OPENAI_API_KEY and
ANTHROPIC_API_KEY. With --results, what is in the file is not played again.

Exit status: 0 when all tasks were played, whether or not they were done; 1 when a model could not be asked; 2 for wrong
usage.";

/// Let a model do tasks with simulated tools, and compare code mode with classic tool calls
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct EvalOptions {
    /// The model; `scripted` plays the tasks' own solutions
    #[arg(long, value_name = "M", default_value = SCRIPTED)]
    model: String,

    /// classic, code, or both
    #[arg(long, value_name = "MODES", value_enum, value_delimiter = ',', default_value = "classic,code")]
    mode: Vec<Mode>,

    /// Ask the model at this base URL
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,

    /// The API of that URL: chat, responses or messages; may be repeated [default: chat]
    #[arg(long = "wire", value_name = "WIRE", requires = "upstream")]
    wires: Vec<String>,

    /// Configuration [default: the file that `DACAPO_CONFIG` names; else dacapo.toml here, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only these tasks, by name or by kind
    #[arg(long = "task", value_name = "NAMES", value_delimiter = ',')]
    tasks: Vec<String>,

    /// Play every task this many times; figures get 95 % intervals
    #[arg(long, value_name = "N", default_value = "1")]
    repeat: NonZero<u32>,

    /// Tasks that are played at the same time
    #[arg(long, value_name = "N", default_value = "4")]
    parallel: NonZero<usize>,

    /// Seconds that a task may take
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    timeout: NonZero<u64>,

    /// Tokens that the model may write in one response
    #[arg(long, value_name = "N", default_value = "8192")]
    max_tokens: NonZero<u64>,

    /// Append results to this file, one line of JSON each, and take from it what has been played already
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Print one JSON document with everything
    #[arg(long)]
    json: bool,

    /// Write one self-contained page
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,

    /// Print the tasks, and stop
    #[arg(long)]
    list: bool,
}

/// The model that plays the tasks' own solutions.
const SCRIPTED: &str = "scripted";

/// What a report is about.
#[derive(Debug, Clone, serde::Serialize)]
struct Subject {
    model: String,
    /// `tasks` if the tasks' own solutions are played.
    upstream: String,
    tasks: usize,
    repeat: u32,
}

pub(crate) fn eval(options: &EvalOptions) -> anyhow::Result<ExitCode> {
    let tasks = Task::all()?;
    let config = config(options, &tasks)?;
    let tasks: Vec<Arc<Task>> = selected(tasks, &options.tasks)?.into_iter().map(Arc::new).collect();
    if options.list {
        for task in &tasks {
            let questions: Vec<&str> = task.turns.iter().map(|turn| turn.question.as_str()).collect();
            writeln!(io::stdout(), "{:<10} {:<22} {}", task.kind, task.name, questions.join(" / "))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let subject = Subject {
        model: options.model.clone(),
        upstream: upstream_name(options),
        tasks: tasks.len(),
        repeat: options.repeat.get(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let runs = runtime.block_on(play(options, config, &subject, &tasks))?;
    report(options, &subject, &tasks, &runs)?;
    let is_asked = |run: &EvalRun| run.failure.as_ref().is_none_or(|failure| failure.kind != FailureKind::Upstream);
    Ok(if runs.iter().all(is_asked) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn selected(tasks: Vec<Task>, names: &[String]) -> anyhow::Result<Vec<Task>> {
    let is_named = |task: &Task, name: &String| task.name == *name || task.kind == *name;
    if let Some(unknown) = names.iter().find(|name| !tasks.iter().any(|task| is_named(task, name))) {
        return Err(WrongUsage(format!("--task {unknown}: no task and no kind has this name; see --list")).into());
    }
    let is_wanted = |task: &Task| names.is_empty() || names.iter().any(|name| is_named(task, name));
    Ok(tasks.into_iter().filter(is_wanted).collect())
}

fn is_scripted(options: &EvalOptions) -> bool {
    options.model == SCRIPTED && options.upstream.is_none()
}

fn upstream_name(options: &EvalOptions) -> String {
    match &options.upstream {
        Some(url) => url.clone(),
        None if is_scripted(options) => "tasks".to_owned(),
        None => "configuration".to_owned(),
    }
}

/// The gateway that is evaluated: as configured, but for who may use it.
fn config(options: &EvalOptions, tasks: &[Task]) -> anyhow::Result<Config> {
    if is_scripted(options) {
        let config = GatewayOptions::default().resolve(&Environment::default())?;
        let count: fn(&str) -> usize = |text| tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len();
        return Ok(config.with_script(solution::scripted_model(tasks)?.with_token_counter(count)));
    }
    let environment = Environment::new(std::env::vars_os());
    let file = config_file(options.config.as_deref());
    let mut loaded = GatewayOptions::load(file.as_deref(), &environment);
    let settings = &mut loaded.options;
    settings.listen = None;
    settings.metrics_listen = None;
    settings.clients.clear();
    settings.inspector.enabled = Some(false);
    if let Some(url) = &options.upstream {
        settings.upstreams.insert(0, upstream_options(Some(url), None, &options.wires, &environment));
    }
    loaded.resolve(&environment).map_err(|error| WrongUsage(error.to_string()).into())
}

/// Plays what is not in the file of results. Returns all results, in the order of the tasks.
async fn play(
    options: &EvalOptions,
    config: Config,
    subject: &Subject,
    tasks: &[Arc<Task>],
) -> anyhow::Result<Vec<EvalRun>> {
    let (mut file, mut known) = match &options.results {
        Some(path) => ResultsFile::open(path).map(|(file, known)| (Some(file), known))?,
        None => (None, Vec::new()),
    };
    let modes: BTreeSet<Mode> = options.mode.iter().copied().collect();
    let mut wanted = Vec::new();
    for repeat in 1..=options.repeat.get() {
        for task in tasks {
            for &mode in &modes {
                let Subject { model, upstream, .. } = subject.clone();
                let id =
                    EvalRunId { task: task.name.clone(), digest: task.digest.clone(), mode, repeat, model, upstream };
                wanted.push((Arc::clone(task), id));
            }
        }
    }
    let total = wanted.len();
    let mut runs: Vec<EvalRun> = Vec::new();
    wanted.retain(|(_, id)| match known.iter().position(|run| run.id == *id) {
        Some(at) => {
            runs.push(known.remove(at));
            false
        }
        None => true,
    });
    if !runs.is_empty() {
        writeln!(io::stderr(), "dacapo: {} of {total} results are in the file already", runs.len())?;
    }
    let timeout = Duration::from_secs(options.timeout.get());
    let player = Player::start(config, options.max_tokens.get(), timeout).await?;
    let mut progress = EvalProgress::new(total, runs.len());
    let mut playing = JoinSet::new();
    let mut waiting = wanted.into_iter();
    loop {
        while playing.len() < options.parallel.get()
            && let Some((task, id)) = waiting.next()
        {
            let player = player.clone();
            playing.spawn(async move { player.play(&task, id).await });
        }
        let Some(run) = playing.join_next().await else { break };
        let run = run.context("a task could not be played")?;
        if let Some(file) = &mut file {
            file.append(&run)?;
        }
        progress.finished(&run)?;
        runs.push(run);
    }
    progress.clear()?;
    Ok(runs)
}

fn report(options: &EvalOptions, subject: &Subject, tasks: &[Arc<Task>], runs: &[EvalRun]) -> anyhow::Result<()> {
    let mut kinds: Vec<&str> = tasks.iter().map(|task| task.kind.as_str()).collect();
    kinds.dedup();
    let summary = Summary::of(runs, &kinds);
    if let Some(out) = &options.html {
        let page = page::page(subject, &summary, tasks, runs);
        std::fs::write(out, page).with_context(|| format!("cannot write {}", out.display()))?;
        writeln!(io::stderr(), "dacapo: wrote {}", out.display())?;
    }
    if options.json {
        serde_json::to_writer(io::stdout().lock(), &json!({"subject": subject, "summary": summary, "runs": runs}))?;
        writeln!(io::stdout())?;
    } else {
        EvalScreen { out: io::stdout().lock(), styler: TextStyler::of_stdout() }.report(subject, &summary)?;
    }
    Ok(())
}
