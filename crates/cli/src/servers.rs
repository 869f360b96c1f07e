//! MCP servers from a file, for the commands that use their tools.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use dacapo_mcp::{Fleet, FleetOptions, SETTINGS_KEY, ServerPhase, ServersFile, Settings, StorePlace, parse_json};
use dacapo_replay::Tool;
use dacapo_runner::{CancellationToken, ToolHost};
use serde_json::{Map, Value};

use crate::stop::stopping;
use crate::wrong_usage::WrongUsage;

/// How a command reaches the servers of a file.
#[derive(Debug, clap::Args)]
pub(crate) struct CacheOptions {
    /// Ask every server for its tools instead of trusting the lists of an earlier run
    #[arg(long)]
    pub(crate) no_cache: bool,
}

/// The servers of a file, and our settings in it.
#[derive(Debug)]
pub(crate) struct ConfiguredServers {
    pub(crate) settings: Settings,
    pub(crate) file: ServersFile,
}

/// For the lists of all servers. A server that takes longer is left out.
const LIST_WAIT: Duration = Duration::from_secs(30);

impl ConfiguredServers {
    /// Reads a file, and prints on stderr what in it is ignored. A file that cannot be used is wrong usage.
    pub(crate) fn read(path: &Path, cache: &CacheOptions) -> anyhow::Result<ConfiguredServers> {
        ConfiguredServers::parse(path, cache).map_err(|error| WrongUsage(format!("{error:#}")).into())
    }

    fn parse(path: &Path, cache: &CacheOptions) -> anyhow::Result<ConfiguredServers> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read the servers in {}", path.display()))?;
        let place = || path.display().to_string();
        let environment = environment();
        let ancestry = Ancestry::of(path)?;
        let folder = std::path::absolute(path)?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        let mut json = parse_json(&text).with_context(place)?;
        let ourselves = ourselves(&json);
        ancestry.pass_to_servers(&mut json);
        let mut file = ServersFile::read(&json, &environment, Some(folder)).with_context(place)?;
        let mut settings = Settings::read(&json, &environment).with_context(place)?;
        if let Some(StorePlace::File(path)) = &mut settings.store {
            *path = folder.join(&*path);
        }
        settings.fleet.tokens_dir = tokens_dir(&environment);
        settings.fleet.cache_dir = if cache.no_cache { None } else { cache_dir(&environment) };
        let mut err = io::stderr();
        for ignored in file.ignored_keys.iter().filter(|ignored| ignored.path != SETTINGS_KEY) {
            writeln!(err, "{}: {ignored}", path.display())?;
        }
        for name in &ourselves {
            writeln!(err, "{}: the server `{name}` is dacapo itself and is left out", path.display())?;
        }
        file.servers.retain(|server| !ourselves.contains(&server.name));
        for server in &file.servers {
            if let Err(invalid) = &server.spec {
                writeln!(err, "{}: {invalid}", path.display())?;
            }
        }
        Ok(ConfiguredServers { settings, file })
    }

    /// The tools of all servers that respond in time. Prints on stderr which do not.
    pub(crate) fn tools(path: &Path, cache: &CacheOptions) -> anyhow::Result<Vec<Tool>> {
        let ConfiguredServers { settings, file } = ConfiguredServers::read(path, cache)?;
        with_fleet(file, settings.fleet, async |fleet, stopping| {
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

/// Starts the servers, does something with them, and ends them, whatever the outcome. `work` gets a token that is
/// cancelled when the process is asked to stop, so that the servers do not outlive it.
pub(crate) fn with_fleet<T>(
    file: ServersFile,
    options: FleetOptions,
    work: impl AsyncFnOnce(Arc<Fleet>, CancellationToken) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let stopping = stopping()?;
        let fleet = Arc::new(Fleet::start(file, options));
        let outcome = work(Arc::clone(&fleet), stopping).await;
        fleet.shutdown().await;
        outcome
    });
    // A thread that still reads from the keyboard is not waited for.
    runtime.shutdown_background();
    outcome
}

/// Prints on stderr which servers have no tools, and why. Returns how many.
pub(crate) fn warn_of_missing(fleet: &Fleet) -> io::Result<usize> {
    let mut missing = 0;
    for state in fleet.states() {
        let reason = match state.phase {
            ServerPhase::Failed { reason, .. } => reason,
            ServerPhase::Connecting if !state.cached => "it takes too long to start".to_owned(),
            ServerPhase::Connecting | ServerPhase::Ready | ServerPhase::Disabled => continue,
        };
        missing += 1;
        writeln!(io::stderr(), "warning: {}: {reason}", state.name)?;
    }
    Ok(missing)
}

/// Work that does not watch `stopping` itself.
pub(crate) async fn unless_stopped<T>(
    stopping: &CancellationToken,
    work: impl Future<Output = T>,
) -> anyhow::Result<T> {
    stopping.run_until_cancelled(work).await.ok_or_else(|| anyhow!("stopped before it was done"))
}

/// Variables that are not UTF-8 cannot be referred to in a file, so they are left out.
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

/// Where the tokens of logins are.
fn tokens_dir(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let named = |key: &str| environment.get(key).filter(|path| !path.is_empty()).map(PathBuf::from);
    named("DACAPO_TOKENS_DIR")
        .or_else(|| named("XDG_DATA_HOME").map(|data| data.join("dacapo/tokens")))
        .or_else(|| named("HOME").map(|home| home.join(".local/share/dacapo/tokens")))
}

/// The servers files of this process and of the dacapo processes that started it. A server may be a script that starts dacapo
/// with the file that lists the script; without this, that would never end.
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
        // Paths that cannot be joined are not passed on. That only loses the protection.
        let joined = std::env::join_paths(files).unwrap_or_default().into_string().unwrap_or_default();
        Ok(Ancestry(joined))
    }

    /// Adds the files to the environment of each process that a servers file starts.
    fn pass_to_servers(&self, file: &mut Value) {
        // A `$` would be read as a reference to a variable.
        if self.0.is_empty() || self.0.contains('$') {
            return;
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
    }
}

/// Entries of the file that are dacapo itself, which would start itself for ever. Clients keep it in the same file as other
/// servers.
fn ourselves(file: &Value) -> Vec<String> {
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
