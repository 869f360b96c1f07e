//! Tool lists in files, and from servers.

use std::path::{Path, PathBuf};
use std::{fmt, fs, iter};

use anyhow::Context;
use dacapo_replay::{Tool, read_tool_list, read_tools};
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use crate::servers::{CacheOptions, ConfiguredServers};

/// Reads tools in any provider's shape.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Tool>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the tools in {}", path.display()))?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    if let Ok(tools) = reader.deserialize_seq(ToolArray)
        && reader.end().is_ok()
    {
        return Ok(tools);
    }
    // Another shape, or a mistake: reading the file as a whole names its place.
    let json: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    read_tools(&json).with_context(|| path.display().to_string())
}

/// Reads an array of tools one by one: fifty thousand take a third of the room if their JSON is not held all at once.
struct ToolArray;

impl<'de> Visitor<'de> for ToolArray {
    type Value = Vec<Tool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of tools")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<Tool>, A::Error> {
        let mut failure = None;
        let values = iter::from_fn(|| {
            entries.next_element::<Value>().unwrap_or_else(|error| {
                failure = Some(error);
                None
            })
        });
        let tools = read_tool_list(values).map_err(A::Error::custom);
        failure.map_or(tools, Err)
    }
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
