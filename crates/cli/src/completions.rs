//! `dacapo completions`: what a shell completes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap_complete::Shell;

const EXAMPLE: &str = "Examples:
  dacapo completions bash > ~/.local/share/bash-completion/completions/dacapo
  dacapo completions zsh > ~/.zfunc/_dacapo
  dacapo completions fish > ~/.config/fish/completions/dacapo.fish";

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct CompletionsOptions {
    shell: Shell,
}

pub(crate) fn completions(options: &CompletionsOptions, command: &mut clap::Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, command, "dacapo", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
