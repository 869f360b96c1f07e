//! `dacapo mcp --install`: what to put into the configuration of a client.

use std::io::{self, Write};
use std::path::{Path, absolute};

use anyhow::Context;
use serde_json::{Value, json};

/// Prints configuration for common clients. Does not write to their files.
pub(super) fn install(config: &Path, as_json: bool) -> anyhow::Result<()> {
    let us = std::env::current_exe().context("cannot find this program's own path")?;
    let us = us.to_str().context("this program's own path is not UTF-8")?;
    let config = absolute(config)?;
    let config = config.to_str().context("the path of the configuration is not UTF-8")?;
    let args = ["mcp", "--config", config];
    let server = json!({ "command": us, "args": args });
    let common = json!({ "mcpServers": { "dacapo": server } });
    let vs_code = json!({ "servers": { "dacapo": { "type": "stdio", "command": us, "args": args } } });
    let command = format!("claude mcp add dacapo -- {} mcp --config {}", quoted(us), quoted(config));
    if as_json {
        let snippets = json!({
            "claude_code": { "command": command },
            "claude_desktop": { "file": "claude_desktop_config.json", "content": common },
            "cursor": { "file": "~/.cursor/mcp.json", "content": common },
            "vs_code": { "file": ".vscode/mcp.json", "content": vs_code },
        });
        writeln!(io::stdout(), "{snippets}")?;
        return Ok(());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "Claude Code:\n\n{command}\n")?;
    section(&mut out, "Claude Desktop, claude_desktop_config.json (Settings, Developer, Edit Config)", &common)?;
    section(&mut out, "Cursor, ~/.cursor/mcp.json", &common)?;
    section(&mut out, "VS Code, .vscode/mcp.json", &vs_code)?;
    writeln!(
        io::stderr(),
        "The servers in {config} are behind dacapo now: take them out of the client's own list, or it has them twice."
    )?;
    Ok(())
}

fn section(out: &mut impl Write, title: &str, content: &Value) -> io::Result<()> {
    writeln!(out, "{title}:\n\n{content:#}\n")
}

/// Quoted for a shell, if that is needed.
fn quoted(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+".contains(letter);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
