//! A program whose calls are executed by MCP servers.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dacapo_runner::{Attachment, CallPhase, CallProgress, Execution, RunError, RunProgress, Runner};
use serde_json::{Value, json};

use super::terminal_approver::{approver, is_asking};
use super::{RunOptions, write_call_list, write_calls, write_failure, write_logs};
use crate::servers::{ConfiguredServers, unless_stopped, warn_of_missing, with_fleet};
use crate::shortage::warn_of_shortage;

pub(super) fn run(program: &str, path: &Path, options: &RunOptions) -> anyhow::Result<ExitCode> {
    let ConfiguredServers { mut settings, file } = ConfiguredServers::read(path, &options.cache)?;
    for (limit, value) in &options.limit {
        settings.limits.program.set(*limit, *value).expect("checked when the option was read");
    }
    let runner = Runner::new(settings.policy, settings.limits)?;
    warn_of_shortage(runner.shortage())?;
    let wait = settings.fleet.connect_timeout;
    let execution = with_fleet(file, settings.fleet, async |fleet, stopping| {
        unless_stopped(&stopping, fleet.listed(wait)).await?;
        warn_of_missing(&fleet)?;
        let (approver, open) = (approver(options.yes), OpenCalls::default());
        // What the program writes is printed with its result.
        let note = |progress: RunProgress<'_>| {
            if let RunProgress::Call(call) = progress {
                open.note(call);
            }
        };
        tokio::select! {
            execution = runner.run(program, &*fleet, &*approver, &note, &stopping) => Ok(execution),
            never = open.watch() => match never {},
        }
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

/// Calls that have not ended, for the person who waits for them.
#[derive(Default)]
struct OpenCalls(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    /// The tools of the open calls, in the order of the calls.
    tools: Vec<String>,
    done: usize,
    made: usize,
    /// When a call started or ended last.
    changed: Option<Instant>,
}

/// A wait of this length is worth a line, and then one of twice the length.
const WAIT_SHOWN_FIRST: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const TOOLS_SHOWN_MAX: usize = 3;

impl OpenCalls {
    /// Prints each call that has ended.
    fn note(&self, call: CallProgress<'_>) {
        let CallProgress { tool, phase, done, made } = call;
        let mut progress = self.progress();
        (progress.done, progress.made, progress.changed) = (done, made, Some(Instant::now()));
        let outcome = match phase {
            CallPhase::Started => return progress.tools.push(tool.to_owned()),
            CallPhase::Answered => "answered",
            CallPhase::Failed => "failed",
            CallPhase::Refused => "refused",
        };
        if let Some(at) = progress.tools.iter().position(|open| open == tool) {
            progress.tools.remove(at);
        }
        drop(progress);
        print_line(&format!("{done}/{made} {} {outcome}", tool.escape_debug()));
    }

    /// Prints which calls are waited for, if nothing happens for long. Never returns.
    async fn watch(&self) -> Infallible {
        let (mut seen, mut next) = (None, WAIT_SHOWN_FIRST);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let progress = self.progress();
            if progress.changed != seen {
                (seen, next) = (progress.changed, WAIT_SHOWN_FIRST);
            }
            let waited = seen.map(|changed| changed.elapsed()).unwrap_or_default();
            if waited < next || progress.tools.is_empty() || is_asking() {
                continue;
            }
            next = waited * 2;
            let line = progress.waiting(waited);
            drop(progress);
            print_line(&line);
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn waiting(&self, waited: Duration) -> String {
        let tools: Vec<String> =
            self.tools.iter().take(TOOLS_SHOWN_MAX).map(|tool| tool.escape_debug().to_string()).collect();
        let more = match self.tools.len() - tools.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}/{} {}{more}: no answer for {} s", self.done, self.made, tools.join(", "), waited.as_secs())
    }
}

/// Names are chosen by others, and must not overwrite a question that is shown meanwhile: they come here escaped. A program
/// goes on if its progress cannot be shown.
fn print_line(line: &str) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_shown_what_for() {
        let open = OpenCalls::default();
        let note = |tool, phase, done, made| open.note(CallProgress { tool, phase, done, made });
        for made in 1..=5 {
            note(["a.x", "a.y\u{1b}", "a.x", "a.z", "a.z"][made - 1], CallPhase::Started, 0, made);
        }
        let waiting = || open.progress().waiting(Duration::from_millis(4_900));
        assert_eq!(waiting(), r"0/5 a.x, a.y\u{1b}, a.x and 2 more: no answer for 4 s");
        note("a.x", CallPhase::Answered, 1, 5);
        note("a.z", CallPhase::Failed, 2, 5);
        assert_eq!(waiting(), r"2/5 a.y\u{1b}, a.x, a.z: no answer for 4 s");
    }
}
