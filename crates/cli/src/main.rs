//! The command line. Data goes to stdout, everything else to stderr.

mod answers;
mod completions;
mod config_file;
mod demo;
mod eval;
mod key;
mod log_filter;
mod man;
mod mcp;
mod replay;
mod run;
mod search;
mod serve;
mod servers;
mod shortage;
mod step;
mod stop;
mod text_style;
mod tools;
mod types;
mod version;
mod wrong_usage;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Requests are many small allocations, which the system's allocator takes a fifth of their time for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Code mode for any model and any client.
#[derive(Debug, Parser)]
#[command(name = "dacapo", version = version::version(), propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoOptions),
    Serve(serve::ServeOptions),
    Mcp(mcp::McpFlags),
    Run(run::RunOptions),
    Step(step::StepArgs),
    Types(types::TypesOptions),
    Search(search::SearchFlags),
    Replay(replay::ReplayOptions),
    Eval(eval::EvalOptions),
    Key(key::KeyOptions),
    Completions(completions::CompletionsOptions),
    Man(man::ManOptions),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(options) => demo::demo(&options),
        Command::Serve(options) => serve::serve(&options),
        Command::Mcp(options) => mcp::mcp(&options),
        Command::Run(options) => run::run(&options),
        Command::Step(options) => step::step(&options),
        Command::Types(options) => types::types(&options),
        Command::Search(options) => search::search(&options),
        Command::Replay(options) => replay::replay(&options),
        Command::Eval(options) => eval::eval(&options),
        Command::Key(options) => key::key(&options),
        Command::Completions(options) => completions::completions(&options, &mut Cli::command()),
        Command::Man(options) => man::man(&options, Cli::command()),
    };
    outcome.unwrap_or_else(|error| {
        #[expect(clippy::print_stderr, reason = "the one place where the command says why it failed")]
        {
            eprintln!("dacapo: {error:#}");
        }
        if error.is::<wrong_usage::WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}
