//! Tool lists in files, and from servers.

use std::fs;
use std::path::Path;

use anyhow::Context;
use dacapo_replay::{Tool, read_tools};
use serde_json::Value;

use crate::servers::{Cache, Servers};

/// Reads tools in any provider's shape.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Tool>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the tools in {}", path.display()))?;
    let json: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    read_tools(&json).with_context(|| path.display().to_string())
}

/// The tools of a file, of MCP servers, or of both.
pub(crate) fn read_all(tools: Option<&Path>, mcp: Option<&Path>, cache: &Cache) -> anyhow::Result<Vec<Tool>> {
    let mut all = tools.map_or_else(|| Ok(Vec::new()), read)?;
    if let Some(path) = mcp {
        all.extend(Servers::tools(path, cache)?);
    }
    Ok(all)
}
