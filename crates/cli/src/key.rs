//! `dacapo key`: creates an API key for a client.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

const EXAMPLE: &str =
    "To replace a key: add the new hash beside the old one, key_sha256 = [\"old…\", \"new…\"], give the new key to the
client, and remove the old hash when it is no longer used.";

/// Make a key for a client, and the lines that let it in
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct KeyOptions {
    /// Who will use it; conversations are bound to this name
    #[arg(default_value = "client")]
    name: String,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn key(options: &KeyOptions) -> anyhow::Result<ExitCode> {
    let key = format!("dck_{}", dacapo_gateway::random_hex());
    let hash = dacapo_gateway::key_sha256(&key);
    let mut out = io::stdout();
    if options.json {
        writeln!(out, "{}", json!({"name": options.name, "key": key, "key_sha256": hash}))?;
    } else {
        writeln!(out, "{key}")?;
        writeln!(
            io::stderr(),
            "Give the key to the client; put this into dacapo.toml:\n\n[[client]]\nname = {:?}\nkey_sha256 = \"{hash}\"",
            options.name
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
