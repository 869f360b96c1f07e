//! A line on a terminal that shows how far an evaluation is.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use super::run::EvalRun;
use crate::text_style::clip_line;

#[derive(Debug)]
pub(crate) struct EvalProgress {
    is_shown: bool,
    started: Instant,
    total: usize,
    done: usize,
    failed: usize,
}

const BAR: usize = 30;
const COLUMNS: usize = 79;

impl EvalProgress {
    /// On stderr, if it is a terminal.
    pub(crate) fn new(total: usize, done: usize) -> EvalProgress {
        EvalProgress { is_shown: io::stderr().is_terminal(), started: Instant::now(), total, done, failed: 0 }
    }

    pub(crate) fn finished(&mut self, run: &EvalRun) -> io::Result<()> {
        self.done += 1;
        self.failed += usize::from(run.failure.is_some());
        if !self.is_shown {
            return Ok(());
        }
        let filled = BAR * self.done / self.total.max(1);
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
        let seconds = self.started.elapsed().as_secs();
        let EvalProgress { done, total, failed, .. } = self;
        let line = format!("{bar} {done}/{total}, {failed} failed, {seconds} s, {} {}", run.id.mode, run.id.task);
        write!(io::stderr(), "\r\x1b[K{}", clip_line(&line, COLUMNS))
    }

    /// Leaves the terminal as it was.
    pub(crate) fn clear(&self) -> io::Result<()> {
        if self.is_shown { write!(io::stderr(), "\r\x1b[K") } else { Ok(()) }
    }
}
