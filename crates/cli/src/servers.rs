//! MCP servers from a file, for the commands that use their tools.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use dacapo_mcp::{Fleet, Owners, Phase, SETTINGS_KEY, ServersFile, Settings};
use dacapo_replay::Tool;
use serde_json::Value;

/// How a command reaches the servers of a file.
#[derive(Debug, clap::Args)]
pub(crate) struct Cache {
    /// Ask every server for its tools instead of trusting the lists of an earlier run
    #[arg(long)]
    pub(crate) no_cache: bool,
}

/// A file that has been read.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) settings: Settings,
    pub(crate) file: ServersFile,
}

/// For the lists of all servers; who takes longer is left out.
const LIST_WAIT: Duration = Duration::from_secs(30);

impl Servers {
    /// Reads a file, and says on stderr what in it is ignored.
    pub(crate) fn read(path: &Path, cache: &Cache) -> anyhow::Result<Servers> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the servers in {}", path.display()))?;
        let place = || path.display().to_string();
        let environment: BTreeMap<String, String> = std::env::vars().collect();
        let mut file = ServersFile::parse(&text, &environment).with_context(place)?;
        let mut settings = Settings::read(&text).with_context(place)?;
        settings.fleet.cache_dir = if cache.no_cache { None } else { cache_dir(&environment) };
        let mut err = io::stderr();
        for notice in file.notices.iter().filter(|notice| !(notice.path.is_empty() && notice.key == SETTINGS_KEY)) {
            writeln!(err, "{}: {notice}", path.display())?;
        }
        let ourselves = ourselves(&text);
        for name in &ourselves {
            writeln!(err, "{}: the server `{name}` is dacapo itself and is left out", path.display())?;
        }
        file.servers.retain(|server| !ourselves.contains(&server.name));
        for server in &file.servers {
            if let Err(invalid) = &server.spec {
                writeln!(err, "{}: {invalid}", path.display())?;
            }
        }
        Ok(Servers { settings, file })
    }

    pub(crate) fn start(&self) -> Fleet {
        Fleet::start(self.file.clone(), self.settings.fleet.clone())
    }

    /// The tools of all servers that answer in time, with a word on stderr about those that do not.
    pub(crate) fn tools(path: &Path, cache: &Cache) -> anyhow::Result<Vec<Tool>> {
        let servers = Servers::read(path, cache)?;
        block_on(async {
            let fleet = servers.start();
            fleet.listed(LIST_WAIT).await;
            let missing = warn_of_missing(&fleet)?;
            let tools = fleet.toolbox().catalog().tools().to_vec();
            fleet.shutdown().await;
            if tools.is_empty() && missing > 0 {
                bail!("none of the servers in {} has answered", path.display());
            }
            Ok(tools)
        })
    }
}

/// Says which servers have no tools to offer, and why. How many are they?
pub(crate) fn warn_of_missing(fleet: &Fleet) -> io::Result<usize> {
    let mut missing = 0;
    for state in fleet.states() {
        let reason = match state.phase {
            Phase::Failed { reason, .. } => reason,
            Phase::Connecting if !state.cached => "it takes too long to start".to_owned(),
            Phase::Connecting | Phase::Ready | Phase::Disabled => continue,
        };
        missing += 1;
        writeln!(io::stderr(), "warning: {}: {reason}", state.name)?;
    }
    Ok(missing)
}

pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(future);
    // Whoever still reads from a keyboard is not waited for.
    runtime.shutdown_background();
    outcome
}

fn cache_dir(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = |key: &str| environment.get(key).filter(|path| !path.is_empty()).map(PathBuf::from);
    named("DACAPO_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|caches| caches.join("dacapo")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/dacapo")))
}

/// Servers of the file that would start us again, and again: clients keep us in the same file as our servers.
fn ourselves(text: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(text.trim_start_matches('\u{feff}')).unwrap_or_default();
    let entries = file.get("mcpServers").or_else(|| file.get("servers")).and_then(Value::as_object);
    let is_us = |entry: &Value| {
        let command = Path::new(entry["command"].as_str().unwrap_or_default());
        let named_like_us = command.file_stem().is_some_and(|name| name == "dacapo");
        let is_our_file = || {
            let same = |path: &Path| fs::canonicalize(path).ok();
            std::env::current_exe().is_ok_and(|us| same(&us).is_some_and(|us| same(command) == Some(us)))
        };
        entry["args"][0] == "mcp" && (named_like_us || is_our_file())
    };
    entries.into_iter().flatten().filter(|(_, entry)| is_us(entry)).map(|(name, _)| name.clone()).collect()
}
