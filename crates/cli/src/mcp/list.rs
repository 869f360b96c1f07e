//! `dacapo mcp --list`: the servers and tools behind ours, and what they cost a model's context.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use dacapo_mcp::{ServerPhase, ServerState, TransportKind, context_cost_text};
use dacapo_replay::{Tool, Toolbox};
use dacapo_runner::ToolHost;
use serde_json::{Value, json};

use crate::servers::{ConfiguredServers, unless_stopped, with_fleet};
use crate::types::tool_json;

/// Waited for in addition to the connect timeout, so that a server that does not start has failed by then.
const FAILURE_WAIT: Duration = Duration::from_secs(5);

pub(super) fn list(
    servers: ConfiguredServers,
    config: &Path,
    as_json: bool,
    verbose: bool,
) -> anyhow::Result<ExitCode> {
    let wait = servers.settings.fleet.connect_timeout + FAILURE_WAIT;
    let (states, toolbox) = with_fleet(servers.file, servers.settings.fleet, async |fleet, stopping| {
        unless_stopped(&stopping, fleet.settled(wait)).await?;
        Ok((fleet.states(), fleet.toolbox()))
    })?;
    let cost = ContextCost::of(&states, &toolbox);
    if as_json {
        let servers: Vec<Value> = states.iter().map(|state| to_json(state, &toolbox, verbose)).collect();
        let report = json!({
            "config": config.display().to_string(),
            "servers": servers,
            "tokens": { "dacapo": cost.ours, "tools": cost.tools },
        });
        writeln!(io::stdout(), "{report}")?;
    } else {
        print_table(&states, &toolbox, &cost, verbose)?;
    }
    let has_failed = |state: &ServerState| matches!(state.phase, ServerPhase::Failed { .. } | ServerPhase::Connecting);
    let mut wanted = states.iter().filter(|state| state.phase != ServerPhase::Disabled).peekable();
    let all_failed = wanted.peek().is_some() && wanted.all(has_failed);
    Ok(if all_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tokens (o200k) in a model's context.
struct ContextCost {
    ours: usize,
    /// What the tools would take if a client had them all by itself.
    tools: usize,
}

impl ContextCost {
    fn of(states: &[ServerState], toolbox: &Toolbox) -> ContextCost {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        let names: Vec<String> = states.iter().map(|state| state.name.clone()).collect();
        let tools: Vec<String> = states.iter().flat_map(|state| tools_of(toolbox, state)).map(tool_json).collect();
        ContextCost {
            ours: tokenizer.encode_ordinary(&context_cost_text(&names)).len(),
            tools: tools.iter().map(|tool| tokenizer.encode_ordinary(tool).len()).sum(),
        }
    }
}

/// The tools of a server, without the functions for its resources.
fn tools_of<'a>(toolbox: &'a Toolbox, state: &'a ServerState) -> impl Iterator<Item = &'a Tool> {
    let is_tool = |tool: &&Tool| !state.resource_functions.contains(&tool.name.as_str());
    let of_server = move |tool: &&Tool| tool.server.as_deref() == Some(state.name.as_str());
    toolbox.catalog().tools().iter().filter(of_server).filter(is_tool)
}

fn to_json(state: &ServerState, toolbox: &Toolbox, verbose: bool) -> Value {
    let tools: Vec<&str> = tools_of(toolbox, state).map(|tool| tool.name.as_str()).collect();
    let mut json = json!({
        "name": state.name,
        "state": phase_name(&state.phase),
        "transport": state.transport.map(|transport| match transport {
            TransportKind::Stdio => "stdio",
            TransportKind::Http => "http",
        }),
        "protocol_version": state.protocol_version,
        "cached": state.cached,
        "tools": tools,
        "resource_functions": state.resource_functions,
    });
    if let ServerPhase::Failed { reason, retry_in } = &state.phase {
        json["reason"] = reason.as_str().into();
        json["retry_seconds"] = json!(retry_in.map(|wait| wait.as_secs_f64()));
    }
    if verbose && !state.stderr.is_empty() {
        json["stderr"] = json!(state.stderr);
    }
    json
}

fn phase_name(phase: &ServerPhase) -> &'static str {
    match phase {
        ServerPhase::Connecting => "starting",
        ServerPhase::Ready => "ready",
        ServerPhase::Failed { .. } => "failed",
        ServerPhase::Disabled => "disabled",
    }
}

fn print_table(states: &[ServerState], toolbox: &Toolbox, cost: &ContextCost, verbose: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let width = states.iter().map(|state| state.name.chars().count()).max().unwrap_or_default().max("server".len());
    writeln!(out, "{:width$}  {:8}  {:>5}  protocol", "server", "state", "tools")?;
    for state in states {
        let protocol = state.protocol_version.as_deref().unwrap_or("-");
        writeln!(out, "{:width$}  {:8}  {:>5}  {protocol}", state.name, phase_name(&state.phase), state.tools)?;
        if let ServerPhase::Failed { reason, .. } = &state.phase {
            writeln!(out, "{:width$}  {reason}", "")?;
        }
        if verbose {
            let tools = tools_of(toolbox, state).map(|tool| tool.name.as_str());
            for function in tools.chain(state.resource_functions.iter().copied()) {
                writeln!(out, "{:width$}  {}.{function}", "", state.name)?;
            }
            for line in &state.stderr {
                writeln!(io::stderr(), "{}: {line}", state.name)?;
            }
        }
    }
    let count: usize = states.iter().map(|state| state.tools).sum();
    writeln!(out, "\n{count} tools cost a model {} tokens by themselves, and {} through dacapo.", cost.tools, cost.ours)
}
