//! A file of results, one JSON object per line, from which an evaluation that was broken off goes on.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context;

use super::run::{EvalRun, FailureKind};

#[derive(Debug)]
pub(crate) struct ResultsFile(File);

impl ResultsFile {
    /// Opens a file, or makes it. Returns the results that are in it, but for those that say nothing about a task,
    /// because the model could not be asked.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(ResultsFile, Vec<EvalRun>)> {
        let name = path.display();
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("cannot read {name}"))?,
        };
        let mut runs: Vec<EvalRun> = Vec::new();
        // A line without an end was being written when the command was stopped.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in text[..whole].lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let run = serde_json::from_str(line).with_context(|| format!("{name}, line {}: no result", number + 1))?;
            runs.push(run);
        }
        runs.retain(|run| run.failure.as_ref().is_none_or(|failure| failure.kind != FailureKind::Upstream));
        let file = OpenOptions::new().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("cannot write {name}"))?;
        if whole < text.len() {
            file.set_len(whole as u64).and_then(|()| file.flush()).with_context(|| format!("cannot write {name}"))?;
        }
        Ok((ResultsFile(file), runs))
    }

    pub(crate) fn append(&mut self, run: &EvalRun) -> anyhow::Result<()> {
        let line = serde_json::to_string(run)? + "\n";
        self.0.write_all(line.as_bytes()).context("cannot write the file of results")
    }
}
