//! MCP servers from a file, for the commands that use their tools.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dacapo_mcp::{CancellationToken, Fleet, Owners, Phase, SETTINGS_KEY, ServersFile, Settings};
use dacapo_replay::Tool;
use serde_json::{Map, Value};

use crate::stop::stopping;
use crate::wrong_usage::WrongUsage;

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
    /// Reads a file, and says on stderr what in it is ignored. A file that cannot be used is wrong usage.
    pub(crate) fn read(path: &Path, cache: &Cache) -> anyhow::Result<Servers> {
        Servers::parse(path, cache).map_err(|error| WrongUsage(format!("{error:#}")).into())
    }

    fn parse(path: &Path, cache: &Cache) -> anyhow::Result<Servers> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the servers in {}", path.display()))?;
        let place = || path.display().to_string();
        let environment = environment();
        let ancestry = Ancestry::of(path)?;
        let folder = std::path::absolute(path)?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        let text_of_servers = ancestry.told_to_servers(&text);
        let mut file = ServersFile::parse_at(&text_of_servers, &environment, folder).with_context(place)?;
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

    /// Starts the servers, does something with them, and ends them, whatever came of it. They do not outlive us when
    /// we are asked to stop: whoever works with them then has a token to know.
    pub(crate) fn with_fleet<T>(
        &self,
        work: impl AsyncFnOnce(Arc<Fleet>, CancellationToken) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let outcome = runtime.block_on(async {
            let stopping = stopping()?;
            let fleet = Arc::new(Fleet::start(self.file.clone(), self.settings.fleet.clone()));
            let outcome = work(Arc::clone(&fleet), stopping).await;
            fleet.shutdown().await;
            outcome
        });
        // Whoever still reads from a keyboard is not waited for.
        runtime.shutdown_background();
        outcome
    }

    /// The tools of all servers that answer in time, with a word on stderr about those that do not.
    pub(crate) fn tools(path: &Path, cache: &Cache) -> anyhow::Result<Vec<Tool>> {
        Servers::read(path, cache)?.with_fleet(async |fleet, stopping| {
            unless_stopped(&stopping, fleet.listed(LIST_WAIT)).await?;
            let missing = warn_of_missing(&fleet)?;
            let tools = fleet.toolbox().catalog().tools().to_vec();
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

/// Something that has no way to hear of `stopping`.
pub(crate) async fn unless_stopped<T>(
    stopping: &CancellationToken,
    work: impl Future<Output = T>,
) -> anyhow::Result<T> {
    stopping.run_until_cancelled(work).await.ok_or_else(|| anyhow!("stopped before it was done"))
}

/// Variables that are not UTF-8 cannot be named in a file, and are of no use here.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn cache_dir(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = |key: &str| environment.get(key).filter(|path| !path.is_empty()).map(PathBuf::from);
    named("DACAPO_CACHE_DIR")
        .or_else(|| named("XDG_CACHE_HOME").map(|caches| caches.join("dacapo")))
        .or_else(|| named("HOME").map(|home| home.join(".cache/dacapo")))
}

/// The files of servers that led to this process: its own, and those of the dacapos that started it. A server may be a
/// script that starts us with the file that it stands in; without this, nothing would end that.
struct Ancestry(String);

const PARENT_ENV: &str = "DACAPO_MCP_PARENT";

impl Ancestry {
    fn of(path: &Path) -> anyhow::Result<Ancestry> {
        let own = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
        let parents = std::env::var_os(PARENT_ENV).unwrap_or_default();
        let mut files: Vec<PathBuf> = std::env::split_paths(&parents).filter(|file| file.is_absolute()).collect();
        if files.contains(&own) {
            bail!("{} has a server that starts dacapo with this same file; take it out", path.display());
        }
        files.push(own);
        // A path that cannot be passed on leaves nothing but less protection.
        let joined = std::env::join_paths(files).unwrap_or_default().into_string().unwrap_or_default();
        Ok(Ancestry(joined))
    }

    /// The file, with a variable more for each process.
    fn told_to_servers(&self, text: &str) -> String {
        let Ok(mut file) = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) else {
            return text.to_owned();
        };
        // What is like a reference to a variable would be filled in.
        if self.0.is_empty() || self.0.contains('$') {
            return text.to_owned();
        }
        for key in ["mcpServers", "servers"] {
            let entries = file.get_mut(key).and_then(Value::as_object_mut);
            for entry in entries.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
                if !entry.contains_key("command") {
                    continue;
                }
                if let Value::Object(variables) = entry.entry("env").or_insert_with(|| Value::Object(Map::new())) {
                    variables.insert(PARENT_ENV.to_owned(), self.0.as_str().into());
                }
            }
        }
        file.to_string()
    }
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
