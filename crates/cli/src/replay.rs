//! `dacapo replay`: explains a saved request or conversation.

mod screen;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use dacapo_gateway::{
    Environment, Explanation, GatewayOptions, Inspection, InspectionSettings, StateLookup, StopAfter, inspector_page,
};
use dacapo_replay::{Stepper, Toolboxes, WarmPrograms};
use dacapo_wire::{RunId, Wire};

use self::screen::ReplayScreen;
use crate::config_file::config_file;
use crate::shortage::warn_of_shortage;
use crate::text_style::TextStyler;
use crate::wrong_usage::WrongUsage;

const EXAMPLE: &str = "Examples:
  DACAPO_SECRET=… dacapo replay request.json      what its programs did, found by running them again
  dacapo replay requests.jsonl --html report.html  one page for a colleague
  dacapo replay request.json --block 2 --answers 5 the second program after five answers

FILE holds a request body of any wire, a list of messages, an object with `request` and `response`, a step request, or
one of these per line. Sealed ids are opened with DACAPO_SECRET (and DACAPO_SECRETS_OLD), or the configuration's.

Exit status: 0 when every program was replayed exactly; 1 when one was not, or something could not be opened; 2 for wrong
usage.";

/// Explain a saved request or conversation: run its programs again, offline, and show what they did
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct ReplayOptions {
    /// What was saved; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print one JSON document with everything
    #[arg(long)]
    json: bool,

    /// Show only the program with this number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    block: Option<u32>,

    /// Stop after this many answers: in that program, or in the last one
    #[arg(long, value_name = "N")]
    answers: Option<usize>,

    /// Write one self-contained page
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,

    /// chat, responses or messages [default: what the file looks like]
    #[arg(long, value_name = "WIRE")]
    wire: Option<String>,

    /// The configured client whose conversation it is; may be repeated [default: none, and all of the configuration]
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,

    /// Configuration [default: the file that `DACAPO_CONFIG` names; else dacapo.toml here, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

/// Paused programs that are kept from one answer to the next.
const WARM: WarmPrograms = WarmPrograms { count_max: 8, bytes_max: 1 << 30 };

pub(crate) fn replay(options: &ReplayOptions) -> anyhow::Result<ExitCode> {
    let wire = options.wire.as_ref().map(|name| {
        Wire::parse(name).ok_or_else(|| WrongUsage(format!("`{name}` is no wire; use chat, responses or messages")))
    });
    let wire = wire.transpose()?;
    let text = read(&options.file)?;
    let mut settings = settings(options)?;
    settings.clients.extend(options.clients.iter().cloned());
    let stepper = Stepper::new(WARM)?;
    warn_of_shortage(stepper.shortage())?;
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store_failure = RefCell::new(None);
    let stored: StateLookup<'_> = &|client: &str, states: &[(RunId, u32)]| {
        let found = settings.store.as_ref().map(|store| runtime.block_on(store.get(client, states)));
        found
            .transpose()
            .unwrap_or_else(|error| {
                store_failure.replace(Some(error));
                None
            })
            .unwrap_or_else(|| vec![None; states.len()])
    };
    let inspection = Inspection {
        stepper: &stepper,
        toolboxes: &Toolboxes::default(),
        secrets: &settings.secrets,
        clients: &settings.clients,
        stored: settings.store.is_some().then_some(stored),
        limits: &settings.limits,
        error_texts: &settings.error_texts,
        defaults: InspectionSettings::defaults(),
        wire,
        stop: options.answers.map(|answers| StopAfter { block: options.block.map(|block| block as usize), answers }),
        should_continue: &|| start.elapsed() < Duration::from_secs(options.timeout),
    };
    let mut explanation = inspection.explain(&text);
    if let Some(error) = store_failure.take() {
        return Err(anyhow::Error::new(error).context("states of programs are in the configured store"));
    }
    if !settings.has_secret && explanation.conversations.iter().any(|found| !found.unopened.is_empty()) {
        writeln!(
            io::stderr(),
            "dacapo: no secret is set, so sealed ids cannot be opened; set DACAPO_SECRET to that of the gateway"
        )?;
    }
    if let Some(number) = options.block {
        select(&mut explanation, number as usize)?;
    }
    if let Some(out) = &options.html {
        std::fs::write(out, inspector_page(&explanation)?)
            .with_context(|| format!("cannot write {}", out.display()))?;
        writeln!(io::stderr(), "dacapo: wrote {}", out.display())?;
    }
    if options.json {
        serde_json::to_writer(io::stdout().lock(), &explanation)?;
        writeln!(io::stdout())?;
    } else if options.html.is_none() {
        ReplayScreen { out: io::stdout().lock(), styler: TextStyler::of_stdout(), only: options.block.is_some() }
            .explanation(&explanation)?;
    }
    Ok(if explanation.exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).context("cannot read stdin")?;
    } else {
        bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", file.display()))
}

fn settings(options: &ReplayOptions) -> anyhow::Result<InspectionSettings> {
    let environment = Environment::new(std::env::vars_os());
    let file = config_file(options.config.as_deref());
    let loaded =
        GatewayOptions::load(file.as_deref(), &environment).checked().map_err(|error| WrongUsage(error.to_string()))?;
    InspectionSettings::of(&loaded).map_err(|error| WrongUsage(error.to_string()).into())
}

/// Leaves only the program with this number.
fn select(explanation: &mut Explanation, number: usize) -> anyhow::Result<()> {
    let count = explanation.conversations.iter().map(|found| found.blocks.len()).max().unwrap_or_default();
    if number > count {
        return Err(WrongUsage(format!("--block {number}: there are {count} programs")).into());
    }
    for conversation in &mut explanation.conversations {
        conversation.blocks.retain(|block| block.number == number);
        conversation.items.retain_mut(|item| match item.block {
            Some(at) if at + 1 == number => {
                item.block = Some(0);
                true
            }
            _ => false,
        });
    }
    Ok(())
}
