//! A server's process, and the processes that it has started.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::stderr_tail::StderrTail;

/// Between SIGTERM and SIGKILL.
const TERMINATION_WAIT: Duration = Duration::from_millis(500);

/// Reading the rest of stderr takes no longer: what a process wrote before it ended is in the pipe already.
const STDERR_WAIT: Duration = Duration::from_millis(200);

/// A process in a process group of its own, which is killed when the process ends.
#[derive(Debug)]
pub(super) struct ServerProcess {
    process: Child,
    /// `None` when the group has been killed.
    group: Option<Pid>,
    /// Reads its stderr.
    drain: JoinHandle<()>,
}

impl ServerProcess {
    pub(super) fn start(
        command: &str,
        args: &[String],
        env: &BTreeMap<String, String>,
        cwd: Option<&Path>,
        stderr: &Arc<StderrTail>,
    ) -> Result<(ServerProcess, ChildStdin, ChildStdout), String> {
        let mut prepared = Command::new(command);
        prepared.args(args).env_clear().envs(env).process_group(0).kill_on_drop(true);
        prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = cwd {
            prepared.current_dir(cwd);
        }
        let mut process = prepared.spawn().map_err(|error| cannot_start(command, cwd, &error))?;
        let group = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (stdin, stdout, errors) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (Some(stdin), Some(stdout), Some(errors)) = (stdin, stdout, errors) else {
            unreachable!("all three were asked for");
        };
        let stderr = Arc::clone(stderr);
        let drain = tokio::spawn(async move { stderr.drain(errors).await });
        Ok((ServerProcess { process, group, drain }, stdin, stdout))
    }

    /// Waits for the process to end by itself, and for the rest of its stderr.
    pub(super) async fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.process.wait().await.ok();
        self.kill();
        if !self.drain.is_finished() {
            drop(timeout(STDERR_WAIT, &mut self.drain).await);
        }
        status
    }

    /// Ends the process, whose stdin is closed: waits for it to end by itself, then sends SIGTERM, then SIGKILL.
    pub(super) async fn end(&mut self, shutdown_grace: Duration) {
        if timeout(shutdown_grace, self.exited()).await.is_ok() {
            return;
        }
        self.signal(Signal::TERM);
        if timeout(TERMINATION_WAIT, self.exited()).await.is_err() {
            self.kill();
            // SIGKILL cannot be refused. Waiting avoids a zombie process.
            drop(timeout(TERMINATION_WAIT, self.process.wait()).await);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        if let Err(error) = kill_process_group(group, signal) {
            tracing::trace!(%error, "no process is left of a process group");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn cannot_start(command: &str, cwd: Option<&Path>, error: &io::Error) -> String {
    match (error.kind(), cwd) {
        (io::ErrorKind::NotFound, Some(cwd)) if !cwd.is_dir() => {
            format!("cannot start `{command}`: its `cwd` {} is no directory", cwd.display())
        }
        (io::ErrorKind::NotFound, _) => {
            format!("cannot start `{command}`: there is no such program in PATH; install it or give its full path")
        }
        _ => format!("cannot start `{command}`: {error}"),
    }
}
