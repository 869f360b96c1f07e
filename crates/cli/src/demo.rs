//! `dacapo demo`: six conversations with the gateway, played from both sides.

mod budget;
mod classic;
mod conversation;
mod fallback;
mod house;
mod news;
mod office;
mod paint;
mod repair;
mod scenario;
mod screen;
mod shipping;
mod story;
mod tokens;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use self::house::House;
use self::paint::Paint;
use self::screen::Screen;
use self::story::Story;

/// Play six conversations in code mode, and count what they cost; needs no key and no network
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Play one of them
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(scenario::NAMES))]
    only: Option<String>,

    /// Print one JSON document with everything that happened
    #[arg(long)]
    json: bool,
}

pub(crate) fn demo(options: &Options) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(play(options))
}

async fn play(options: &Options) -> anyhow::Result<ExitCode> {
    let house = House::open().await?;
    let mut screen = Screen { out: io::stdout(), paint: Paint::of_stdout() };
    let mut stories = Vec::new();
    if !options.json {
        screen.title(&house.address.to_string())?;
    }
    for (scenario, number) in scenario::all().into_iter().zip(1..) {
        if options.only.as_ref().is_some_and(|only| only != scenario.name) {
            continue;
        }
        let story = Story::play(scenario, &house).await?;
        if !options.json {
            screen.story(number, &story)?;
        }
        stories.push(story);
    }
    if options.json {
        let scenarios: Vec<Value> = stories.iter().map(Story::to_json).collect();
        writeln!(io::stdout(), "{}", json!({"tokenizer": "o200k", "scenarios": scenarios}))?;
    } else {
        screen.summary(&stories)?;
    }
    Ok(if stories.iter().all(Story::is_right) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
