//! A program whose calls are executed by MCP servers.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use dacapo_runner::{Attachment, CallPhase, CallProgress, Execution, RunError, Runner};
use serde_json::{Value, json};

use super::terminal_approver::approver;
use super::{RunOptions, write_call_list, write_calls, write_failure, write_logs};
use crate::servers::{ConfiguredServers, unless_stopped, warn_of_missing, with_fleet};

pub(super) fn run(program: &str, path: &Path, options: &RunOptions) -> anyhow::Result<ExitCode> {
    let ConfiguredServers { mut settings, file } = ConfiguredServers::read(path, &options.cache)?;
    for (limit, value) in &options.limit {
        settings.limits.program.set(*limit, *value).expect("checked when the option was read");
    }
    let runner = Runner::new(settings.policy, settings.limits)?;
    let wait = settings.fleet.connect_timeout;
    let execution = with_fleet(file, settings.fleet, async |fleet, stopping| {
        unless_stopped(&stopping, fleet.listed(wait)).await?;
        warn_of_missing(&fleet)?;
        Ok(runner.run(program, &*fleet, &*approver(options.yes), &print_progress, &stopping).await)
    })?;
    finish(&execution, options.json)
}

fn finish(execution: &Execution, as_json: bool) -> anyhow::Result<ExitCode> {
    let code = if execution.result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if as_json {
        writeln!(io::stdout(), "{}", to_json(execution))?;
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
        Err(RunError::Failed(failure)) => write_failure(failure)?,
        Err(RunError::Stopped(stopped)) => {
            writeln!(io::stderr(), "{}: {}", stopped.name, stopped.message)?;
            write_calls(&stopped.completed, &stopped.unfinished)?;
        }
    }
    Ok(code)
}

/// The same fields as the result of `execute`.
fn to_json(execution: &Execution) -> Value {
    let mut json = match &execution.result {
        Ok(data) => json!({ "status": "success", "data": data }),
        Err(error) => json!({ "status": "error", "error": error }),
    };
    if !execution.refused.is_empty() {
        json["refused"] = json!(execution.refused);
    }
    // An error lists its unfinished calls itself.
    if !execution.unfinished.is_empty() && execution.result.is_ok() {
        json["unfinished"] = json!(execution.unfinished);
    }
    json["logs"] = json!(execution.logs);
    json["calls"] = json!(execution.calls);
    json["attachments"] = execution.attachments.iter().map(attachment_json).collect();
    json
}

fn attachment_json(attachment: &Attachment) -> Value {
    json!({ "handle": attachment.handle, "block": attachment.block })
}

fn print_progress(progress: CallProgress<'_>) {
    let CallProgress { tool, phase, done, made } = progress;
    let outcome = match phase {
        CallPhase::Started => return,
        CallPhase::Answered => "answered",
        CallPhase::Failed => "failed",
        CallPhase::Refused => "refused",
    };
    // Names are chosen by others, and must not overwrite a question that is shown meanwhile. A program goes on if its
    // progress cannot be shown.
    writeln!(io::stderr(), "{done}/{made} {} {outcome}", tool.escape_debug()).unwrap_or_default();
}
