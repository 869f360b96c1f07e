//! Programs over MCP servers, beside the official SDK (rmcp) talking to the same servers directly. The servers are
//! processes, over stdio: this binary again, and those from npm that the tests have installed, if they have.

mod calls;
mod echo;
mod sdk;
mod start;
mod through_gateway;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use dacapo_mcp::{Fleet, McpServer, ServersFile, Settings, parse_json, serve_stdio};
use dacapo_runner::{CancellationToken, Runner};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

pub(crate) use echo::echo;

/// As which this binary is started by itself.
pub(crate) const ECHO: &str = "mcp-echo-server";
pub(crate) const SERVE: &str = "mcp-serve";

/// Where `scripts/test-tools` installs what npm has.
const NPM: &str = "target/test-tools/node_modules/@modelcontextprotocol";

pub(crate) fn run(quick: bool) -> anyhow::Result<()> {
    let runtime = runtime()?;
    runtime.block_on(calls::run(if quick { 10 } else { 100 }))?;
    println!();
    runtime.block_on(through_gateway::run(if quick { 10 } else { 100 }))?;
    println!();
    runtime.block_on(start::run(quick))
}

/// What `dacapo mcp` does with a file, without its command line.
pub(crate) fn serve(file: &str, cache: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let file = parse_json(&text)?;
    let mut settings = Settings::read(&file, &std::collections::BTreeMap::new())?;
    settings.fleet.cache_dir = Some(PathBuf::from(cache));
    let servers = ServersFile::read(&file, &std::env::vars().collect(), None)?;
    runtime()?.block_on(async {
        let fleet = Arc::new(Fleet::start(servers, settings.fleet));
        let runner = Runner::new(settings.policy, settings.limits)?;
        let server = McpServer::new(runner, Arc::clone(&fleet) as _, settings.result_chars);
        serve_stdio(server, CancellationToken::new()).await?;
        fleet.shutdown().await;
        Ok(())
    })
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// How a server's process is started.
#[derive(Debug, Clone)]
struct Command {
    program: String,
    args: Vec<String>,
}

impl Command {
    /// This binary again.
    fn ourselves(args: &[&str]) -> anyhow::Result<Command> {
        let program = std::env::current_exe()?.to_str().context("the path of this program is not text")?.to_owned();
        Ok(Command { program, args: args.iter().map(|arg| (*arg).to_owned()).collect() })
    }

    fn echo(number: usize, tools: usize, start_ms: u64) -> anyhow::Result<Command> {
        Command::ourselves(&[ECHO, &number.to_string(), &tools.to_string(), &start_ms.to_string()])
    }

    /// `None` if it is not installed.
    fn npm(package: &str, args: &[&str]) -> Option<Command> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(NPM).join(package).join("dist/index.js");
        let script = script.canonicalize().ok()?.to_str()?.to_owned();
        let args = std::iter::once(script).chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        let node = std::process::Command::new("node").arg("--version").output().is_ok();
        node.then(|| Command { program: "node".to_owned(), args })
    }
}

/// A file of servers `s0`, `s1`, …
fn file(commands: &[Command]) -> String {
    let entry = |command: &Command| json!({ "command": command.program, "args": command.args });
    let servers = commands.iter().enumerate().map(|(number, command)| (format!("s{number}"), entry(command)));
    json!({ "mcpServers": servers.collect::<Map<String, Value>>() }).to_string()
}
