//! Tool lists in files, and from servers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dacapo_replay::{Tool, read_tool_list, read_tools};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::servers::{CacheOptions, ConfiguredServers};

/// Reads tools in any provider's shape.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Tool>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the tools in {}", path.display()))?;
    if let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(&text) {
        // Fifty thousand tools take half the room if their JSON is not held all at once.
        let mut is_json = true;
        let values = entries.iter().map_while(|entry| {
            let value = serde_json::from_str::<Value>(entry.get()).ok();
            is_json &= value.is_some();
            value
        });
        let tools = read_tool_list(values);
        if is_json {
            return tools.with_context(|| path.display().to_string());
        }
    }
    let json: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    read_tools(&json).with_context(|| path.display().to_string())
}

/// The options that name the tools of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct ToolSources {
    /// Tools as a JSON array, in the shape of any provider or of an MCP `tools/list`
    #[arg(long, value_name = "FILE", required_unless_present = "mcp")]
    tools: Option<PathBuf>,

    /// MCP servers whose tools to use, as `{"mcpServers": {…}}`
    #[arg(long, value_name = "FILE")]
    mcp: Option<PathBuf>,

    #[command(flatten)]
    cache: CacheOptions,
}

impl ToolSources {
    /// The tools of the file, of the servers, or of both.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Tool>> {
        let mut all = self.tools.as_deref().map_or_else(|| Ok(Vec::new()), read)?;
        if let Some(path) = &self.mcp {
            all.extend(ConfiguredServers::tools(path, &self.cache)?);
        }
        Ok(all)
    }
}
