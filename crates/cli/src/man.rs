//! `dacapo man`: manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// Write the manual pages of all commands into a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManOptions {
    /// Made if it is not there; `man -M` finds the pages in a subfolder man1
    folder: PathBuf,
}

pub(crate) fn man(options: &ManOptions, command: clap::Command) -> anyhow::Result<ExitCode> {
    let folder = &options.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(command, folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
