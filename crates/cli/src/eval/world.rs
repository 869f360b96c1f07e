//! A simulated tool world: tables, and tools that read and change them. Worlds are data files.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use super::table::{Row, TableData, Tables};
use super::tool::{CallCounts, SimulatedAnswer, SimulatedTool};

/// A world before anything has happened in it.
#[derive(Debug)]
pub(crate) struct WorldTemplate {
    pub tables: Tables,
    pub tools: Vec<SimulatedTool>,
}

/// A world in which one conversation takes place.
#[derive(Debug)]
pub(crate) struct World {
    template: Arc<WorldTemplate>,
    pub tables: Tables,
    counts: CallCounts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorldFile {
    /// Tools whose names have a variable, such as `{app}`, are there once for each value.
    #[serde(default)]
    variables: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    table: BTreeMap<String, TableData>,
    tool: Vec<SimulatedTool>,
}

/// The worlds that are part of this command, by name.
pub(super) const FILES: [(&str, &str); 7] = [
    ("bank", include_str!("worlds/bank.toml")),
    ("logs", include_str!("worlds/logs.toml")),
    ("photos", include_str!("worlds/photos.toml")),
    ("shop", include_str!("worlds/shop.toml")),
    ("suite", include_str!("worlds/suite.toml")),
    ("team", include_str!("worlds/team.toml")),
    ("travel", include_str!("worlds/travel.toml")),
];

impl WorldTemplate {
    pub(super) fn parse(toml: &str) -> anyhow::Result<WorldTemplate> {
        let file: WorldFile = toml::from_str(toml)?;
        let tables = file.table.into_iter().map(|(name, table)| {
            let rows = table.into_rows().with_context(|| format!("table `{name}`"))?;
            Ok((name, rows))
        });
        let tools = file.tool.into_iter().flat_map(|tool| tool.expand(&file.variables)).collect();
        Ok(WorldTemplate { tables: tables.collect::<anyhow::Result<_>>()?, tools })
    }
}

impl World {
    pub(super) fn new(template: &Arc<WorldTemplate>) -> World {
        World { template: Arc::clone(template), tables: template.tables.clone(), counts: CallCounts::new() }
    }

    /// Executes a call.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> SimulatedAnswer {
        let template = Arc::clone(&self.template);
        let Some(tool) = template.tools.iter().find(|known| known.name == tool) else {
            return SimulatedAnswer::Error(format!("there is no tool `{tool}`"));
        };
        let nothing = Row::new();
        match arguments {
            Value::Object(arguments) => tool.call(arguments, &mut self.tables, &mut self.counts),
            Value::Null => tool.call(&nothing, &mut self.tables, &mut self.counts),
            other => SimulatedAnswer::Error(format!("the arguments must be an object, not {other}")),
        }
    }
}
