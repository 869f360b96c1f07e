//! `dacapo demo`: six conversations through the gateway, with a scripted model and the demo's own tools.

mod budget;
mod classic;
mod conversation;
mod demo_server;
mod fallback;
mod news;
mod office;
mod one_call;
mod repair;
mod report;
mod scenario;
mod screen;
mod shipping;
mod tokens;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use self::demo_server::{DemoServer, Recording};
use self::one_call::OneCallCosts;
use self::report::ScenarioReport;
use self::screen::Screen;
use crate::text_style::TextStyler;

/// Play six conversations in code mode, and count what they cost; needs no key and no network
#[derive(Debug, clap::Args)]
pub(crate) struct DemoOptions {
    /// Play only this conversation
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(scenario::NAMES))]
    only: Option<String>,

    /// Show the conversations in the inspector page afterwards, until ctrl-c
    #[arg(long, conflicts_with = "json")]
    inspect: bool,

    /// Print one JSON document with everything that happened
    #[arg(long)]
    json: bool,
}

pub(crate) fn demo(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(play(options))
}

async fn play(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    let recording = if options.inspect { Recording::On } else { Recording::Off };
    let demo_server = DemoServer::start(recording).await?;
    let mut screen = Screen { out: io::stdout(), styler: TextStyler::of_stdout() };
    let mut reports = Vec::new();
    if !options.json {
        screen.title(&demo_server.address.to_string())?;
    }
    for (scenario, number) in scenario::all().into_iter().zip(1..) {
        if options.only.as_ref().is_some_and(|only| only != scenario.name) {
            continue;
        }
        let report = ScenarioReport::play(scenario, &demo_server).await?;
        if !options.json {
            screen.report(number, &report)?;
        }
        reports.push(report);
    }
    let one_call = match options.only {
        None => Some(OneCallCosts::play(&demo_server).await?),
        Some(_) => None,
    };
    if options.json {
        let scenarios: Vec<Value> = reports.iter().map(ScenarioReport::to_json).collect();
        writeln!(io::stdout(), "{}", json!({"tokenizer": "o200k", "scenarios": scenarios, "one_call": one_call}))?;
    } else {
        screen.summary(&reports)?;
        one_call.map_or(Ok(()), |costs| screen.one_call(costs))?;
    }
    if let Some(inspector) = &demo_server.inspector {
        writeln!(io::stdout(), "\nSee what happened in them, answer by answer: {inspector}\nctrl-c ends it")?;
        tokio::signal::ctrl_c().await?;
    }
    Ok(if reports.iter().all(ScenarioReport::is_right) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
