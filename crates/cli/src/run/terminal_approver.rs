//! Asks the person at the keyboard whether a call may be made.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use dacapo_runner::{
    Approval, ApprovalQuestion, ApprovalVerdict, Approver, BoxFuture, QuestionText, StandingApprovals,
};
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::Mutex;

/// More than a person types as an answer.
const LINE_BYTES_MAX: usize = 4096;

/// The approver for a run at this terminal.
pub(super) fn approver(yes: bool) -> Box<dyn Approver> {
    if yes {
        Box::new(Approval::Given)
    } else if io::stdin().is_terminal() && io::stderr().is_terminal() {
        Box::new(TerminalApprover::default())
    } else {
        // Whoever does not see the question cannot answer it, so stderr has to be a terminal too.
        Box::new(NoTerminal)
    }
}

/// There is one terminal.
static IS_ASKING: AtomicBool = AtomicBool::new(false);

/// Whether a question is shown at this moment, which nothing else should be written below.
pub(super) fn is_asking() -> bool {
    IS_ASKING.load(Ordering::Relaxed)
}

/// Declines, because nobody is at the keyboard, and prints which call needed approval.
struct NoTerminal;

impl Approver for NoTerminal {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        // Names are chosen by others, and must not contain control characters of the terminal.
        let (server, tool) = (question.call.server.escape_debug(), question.call.tool.escape_debug());
        writeln!(io::stderr(), "{server}.{tool} needs approval; --yes gives it").unwrap_or_default();
        Box::pin(std::future::ready(Approval::Unavailable))
    }
}

/// Asks about one call at a time.
#[derive(Default)]
struct TerminalApprover(Mutex<StandingApprovals>);

impl Approver for TerminalApprover {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(async move {
            let mut standing = self.0.lock().await;
            if let Some(approval) = standing.decide(&question) {
                return approval;
            }
            let asking = tokio::task::spawn_blocking(move || {
                IS_ASKING.store(true, Ordering::Relaxed);
                let verdict = ask(&question);
                IS_ASKING.store(false, Ordering::Relaxed);
                (question, verdict)
            });
            match asking.await {
                Ok((question, Ok(verdict))) => standing.record(&question, verdict),
                Ok((_, Err(error))) => {
                    writeln!(io::stderr(), "the terminal cannot be asked: {error}").unwrap_or_default();
                    Approval::Unavailable
                }
                Err(_panicked) => Approval::Unavailable,
            }
        })
    }
}

/// Asks until there is an answer. Everything but a clear yes is a no.
fn ask(question: &ApprovalQuestion) -> io::Result<ApprovalVerdict> {
    let QuestionText { text, hidden_chars } = question.text();
    writeln!(io::stderr(), "{text}")?;
    let mut is_complete = hidden_chars == 0;
    loop {
        let line = prompt(question, is_complete)?;
        return Ok(match (line.trim(), is_complete) {
            ("v" | "view", false) => {
                writeln!(io::stderr(), "{}", question.complete_text())?;
                is_complete = true;
                continue;
            }
            ("y" | "yes", _) => ApprovalVerdict::AllowOnce,
            ("a" | "all", true) => ApprovalVerdict::AllowForProgram,
            ("d" | "deny all", _) => ApprovalVerdict::DenyAll,
            _ => ApprovalVerdict::Deny,
        });
    }
}

/// Shows the possible answers and reads one line, typed after they were shown.
fn prompt(question: &ApprovalQuestion, is_complete: bool) -> io::Result<String> {
    let mut stderr = io::stderr();
    let (third, keys) = if is_complete {
        (format!("a: yes to {}", question.coverage()), "[y/a/n/d]")
    } else {
        ("v: show everything, and ask again".to_owned(), "[y/v/n/d]")
    };
    let answers = "n: no; d: no, and no to all further calls of this program that need approval";
    // What was typed before could not be an answer to a question that was not there yet.
    tcflush(io::stdin(), QueueSelector::IFlush)?;
    write!(stderr, "Allow this call of {}?\n  y: yes, once\n  {third}\n  {answers}\n{keys} ", question.tool())?;
    stderr.flush()?;
    read_line()
}

/// Reads one line. Whatever came with it is dropped: the buffer of `io::stdin` would keep it as the answer to the next
/// question.
fn read_line() -> io::Result<String> {
    let mut stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut line, mut chunk) = (Vec::new(), [0; 256]);
    while line.len() < LINE_BYTES_MAX {
        match stdin.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
    }
    // The input ended, or is no answer: an answer ends with a line break.
    Ok(String::new())
}
