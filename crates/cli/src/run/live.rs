//! A program whose calls are executed by MCP servers.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;

use dacapo_mcp::{Approval, Approver, Ask, Attachment, Execution, Fault, Moment, Progress, Runner, question};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{RunOptions, write_call_list, write_calls, write_failure, write_logs};
use crate::servers::{Servers, unless_stopped, warn_of_missing};

pub(super) fn run(program: &str, path: &Path, options: &RunOptions) -> anyhow::Result<ExitCode> {
    let servers = Servers::read(path, &options.cache)?;
    let mut limits = servers.settings.limits.clone();
    for (limit, value) in &options.limit {
        limits.program.set(*limit, *value).expect("checked when the option was read");
    }
    let runner = Runner::new(servers.settings.policy.clone(), limits)?;
    let wait = servers.settings.fleet.connect_timeout;
    let execution = servers.with_fleet(async |fleet, stopping| {
        unless_stopped(&stopping, fleet.listed(wait)).await?;
        warn_of_missing(&fleet)?;
        Ok(runner.run(program, &*fleet, &*approver(options.yes), &tell_progress, &stopping).await)
    })?;
    finish(&execution, options.json)
}

fn finish(execution: &Execution, as_json: bool) -> anyhow::Result<ExitCode> {
    let code = if execution.result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if as_json {
        writeln!(io::stdout(), "{}", line(execution))?;
        return Ok(code);
    }
    write_logs(&execution.logs)?;
    write_call_list("refused", &execution.refused)?;
    match &execution.result {
        Ok(data) => {
            write_call_list("sent, but not waited for", &execution.unfinished)?;
            let data: Value = serde_json::from_str(data.get())?;
            writeln!(io::stdout(), "{data:#}")?;
            if !execution.attachments.is_empty() {
                let count = execution.attachments.len();
                writeln!(io::stderr(), "{count} images or files belong to the result; --json prints them")?;
            }
        }
        Err(Fault::Failed(failure)) => write_failure(failure)?,
        Err(Fault::Stopped(stopped)) => {
            writeln!(io::stderr(), "{}: {}", stopped.name, stopped.message)?;
            write_calls(&stopped.completed, &stopped.unfinished)?;
        }
    }
    Ok(code)
}

/// The shape that `execute` answers with.
fn line(execution: &Execution) -> Value {
    let mut line = match &execution.result {
        Ok(data) => json!({ "status": "success", "data": data }),
        Err(fault) => json!({ "status": "error", "error": fault }),
    };
    if !execution.refused.is_empty() {
        line["refused"] = json!(execution.refused);
    }
    // An error has its own.
    if !execution.unfinished.is_empty() && execution.result.is_ok() {
        line["unfinished"] = json!(execution.unfinished);
    }
    line["logs"] = json!(execution.logs);
    line["calls"] = json!(execution.calls);
    line["attachments"] = execution.attachments.iter().map(described).collect();
    line
}

fn described(attachment: &Attachment) -> Value {
    json!({ "handle": attachment.handle, "block": attachment.block })
}

fn tell_progress(progress: Progress<'_>) {
    let Progress { tool, moment, done, made } = progress;
    let word = match moment {
        Moment::Began => return,
        Moment::Answered => "answered",
        Moment::Failed => "failed",
        Moment::Refused => "refused",
    };
    // Progress that cannot be shown stops nothing.
    writeln!(io::stderr(), "{done}/{made} {tool} {word}").unwrap_or_default();
}

fn approver(yes: bool) -> Box<dyn Approver> {
    if yes {
        Box::new(Approval::Given)
    } else if io::stdin().is_terminal() {
        Box::new(Terminal::default())
    } else {
        Box::new(Absent)
    }
}

/// Nobody is at the keyboard.
struct Absent;

impl Approver for Absent {
    fn approve<'a>(&'a self, ask: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>> {
        // Names that others chose must not move the cursor.
        let (server, tool) = (ask.server.escape_debug(), ask.tool.escape_debug());
        writeln!(io::stderr(), "{server}.{tool} needs approval; --yes gives it").unwrap_or_default();
        Box::pin(std::future::ready(Approval::Nobody))
    }
}

/// Whoever is at the keyboard, one question at a time; with the tools that need no further ones.
#[derive(Default)]
struct Terminal(Mutex<BTreeSet<(String, String)>>);

impl Approver for Terminal {
    fn approve<'a>(&'a self, ask: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>> {
        Box::pin(async {
            let mut approved = self.0.lock().await;
            let tool = (ask.server.clone(), ask.tool.clone());
            if approved.contains(&tool) {
                return Approval::Given;
            }
            write!(io::stderr(), "{}\nAllow? yes, no, or all calls of this tool [y/n/a] ", question(ask))
                .unwrap_or_default();
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                io::stdin().lock().read_line(&mut line).map(|_| line)
            });
            match line.await.ok().and_then(Result::ok).unwrap_or_default().trim() {
                "y" | "yes" => Approval::Given,
                "a" | "all" => {
                    approved.insert(tool);
                    Approval::Given
                }
                _ => Approval::Declined,
            }
        })
    }
}
