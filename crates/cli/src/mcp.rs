//! `dacapo mcp`: one MCP server for the tools of many.

mod install;
mod list;
mod login;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use dacapo_gateway::{open_file_store, open_redis_store, sealed_store};
use dacapo_mcp::{HTTP_PATH, HttpAuth, McpServer, StorePlace, StoreSharing, serve_http, serve_stdio};
use dacapo_runner::{CancellationToken, JournalStore, Runner};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log_filter::log_filter;
use crate::servers::{CacheOptions, ConfiguredServers, with_fleet};
use crate::shortage::warn_of_shortage;
use crate::wrong_usage::WrongUsage;

const EXAMPLE: &str = r#"Examples:
  dacapo mcp --list                        its servers and tools, and the tokens they cost a model
  dacapo mcp --install                     how to add it to a client
  dacapo mcp --listen 127.0.0.1:8788       over HTTP instead of stdin and stdout
  dacapo mcp --login github                log in to a remote server, in a browser

The servers are read from the file that clients already use: {"mcpServers": {"time": {"command": "mcp-server-time"}}}.
With DACAPO_MCP_TOKEN set, clients over HTTP need it as their bearer token."#;

const CONFIG_ENV: &str = "DACAPO_MCP_CONFIG";
const TOKEN_ENV: &str = "DACAPO_MCP_TOKEN";
const SECRET_ENV: &str = "DACAPO_SECRET";
const SECRET_BYTES_MIN: usize = 16;

/// Serve MCP: `search` and `execute` over the tools of any number of MCP servers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command line")]
pub(crate) struct McpFlags {
    /// The servers [default: the file that `DACAPO_MCP_CONFIG` names; else mcp.json or .mcp.json here]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Serve Streamable HTTP on this address, at /mcp, instead of stdin and stdout
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// Listen beyond loopback without authentication
    #[arg(long, requires = "listen")]
    allow_unauthenticated: bool,

    /// Show servers, their state and tools, and what they cost a model's context, and stop
    #[arg(long, conflicts_with_all = ["listen", "install"])]
    list: bool,

    /// Print what to put into the configuration of common clients, and stop
    #[arg(long, conflicts_with = "listen")]
    install: bool,

    /// Log in to this server in a browser, keep its tokens, and stop
    #[arg(long, value_name = "NAME", conflicts_with_all = ["listen", "install", "list"])]
    login: Option<String>,

    /// Print one line of JSON, with --list or --install
    #[arg(long)]
    json: bool,

    /// Log more on stderr; with --list, also the last lines of each server's stderr
    #[arg(long)]
    verbose: bool,

    #[command(flatten)]
    cache: CacheOptions,
}

pub(crate) fn mcp(options: &McpFlags) -> anyhow::Result<ExitCode> {
    let level = if options.verbose { LevelFilter::DEBUG } else { LevelFilter::WARN };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    log.with_ansi(io::stderr().is_terminal()).finish().with(log_filter(level)).init();
    if options.json && !options.list && !options.install {
        bail!(WrongUsage("--json goes with --list or --install".to_owned()));
    }
    let config = config(options.config.as_deref())?;
    if options.install {
        install::install(&config, options.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let servers = ConfiguredServers::read(&config, &options.cache)?;
    if options.list {
        return list::list(servers, &config, options.json, options.verbose);
    }
    if let Some(name) = &options.login {
        return login::login(servers, name);
    }
    let auth = http_auth(options)?;
    let ConfiguredServers { settings, file } = servers;
    let runner = Runner::new(settings.policy, settings.limits)?;
    warn_of_shortage(runner.shortage())?;
    let store = settings.store.as_ref().map(open_store).transpose()?.flatten();
    with_fleet(file, settings.fleet, async |fleet, stopping| {
        let mut server = McpServer::new(runner, fleet, settings.result_chars);
        if let Some((store, sharing)) = store {
            server = server.with_store(store, sharing);
        }
        serve(server, options.listen, auth, stopping).await
    })
}

async fn serve(
    server: McpServer,
    listen: Option<SocketAddr>,
    auth: HttpAuth,
    stopping: CancellationToken,
) -> anyhow::Result<ExitCode> {
    if let Some(address) = listen {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
        writeln!(io::stderr(), "dacapo listens on http://{}{HTTP_PATH}", listener.local_addr()?)?;
        serve_http(server, listener, auth, stopping).await?;
    } else {
        if io::stdin().is_terminal() {
            let hint = "dacapo speaks MCP on stdin and stdout; clients start it: dacapo mcp --install shows how";
            writeln!(io::stderr(), "{hint}")?;
        }
        serve_stdio(server, stopping).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the store of programs that wait. `None`, with a warning, if it is another process's.
fn open_store(place: &StorePlace) -> anyhow::Result<Option<(Arc<dyn JournalStore>, StoreSharing)>> {
    let (store, sharing) = match place {
        StorePlace::File(path) => match open_file_store(path, McpServer::STORE_TTL) {
            Ok(store) => (store, StoreSharing::OneProcess),
            // A client may start one process for each of its windows.
            Err(error) if error.is_in_use => {
                tracing::warn!("programs that wait for an approval will not survive this process: {error}");
                return Ok(None);
            }
            Err(error) => bail!(WrongUsage(format!("dacapo.{error}"))),
        },
        StorePlace::Redis(url) => {
            let store = open_redis_store(url, McpServer::STORE_TTL);
            let store = store.ok_or_else(|| {
                WrongUsage(
                    "dacapo.store.url: is not the address of a Redis; write it like redis://host:6379/0".to_owned(),
                )
            })?;
            (store, StoreSharing::Several)
        }
    };
    let secret = std::env::var(SECRET_ENV).ok().filter(|secret| !secret.is_empty());
    match secret {
        Some(secret) if secret.len() < SECRET_BYTES_MIN => bail!(WrongUsage(format!(
            "{SECRET_ENV}: must have at least {SECRET_BYTES_MIN} characters; `openssl rand -hex 32` makes one"
        ))),
        Some(secret) => Ok(Some((sealed_store(store, &secret), sharing))),
        None if sharing == StoreSharing::OneProcess => Ok(Some((store, sharing))),
        None => bail!(WrongUsage(format!(
            "dacapo.store: others can read what is in a Redis: set {SECRET_ENV}, with which programs are sealed"
        ))),
    }
}

fn http_auth(options: &McpFlags) -> anyhow::Result<HttpAuth> {
    let token = std::env::var_os(TOKEN_ENV).filter(|token| !token.is_empty());
    let token = token.map(std::ffi::OsString::into_string).transpose();
    let token = token.map_err(|_token| WrongUsage(format!("{TOKEN_ENV} is not UTF-8")))?;
    match (token, options.listen) {
        (Some(token), _) => Ok(HttpAuth::BearerToken(token)),
        (None, Some(address)) if !address.ip().is_loopback() && !options.allow_unauthenticated => {
            bail!(WrongUsage(format!(
                "{address} can be reached from other machines, and every client would be accepted: set {TOKEN_ENV}, \
                 or add --allow-unauthenticated"
            )))
        }
        (None, _) => Ok(HttpAuth::None),
    }
}

/// The file of servers: the one that is named, or the default.
fn config(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let by_environment = || std::env::var_os(CONFIG_ENV).filter(|path| !path.is_empty()).map(PathBuf::from);
    let here = || ["mcp.json", ".mcp.json"].map(PathBuf::from).into_iter().find(|path| path.exists());
    match named.map(Path::to_owned).or_else(by_environment).or_else(here) {
        Some(path) => Ok(path),
        None => bail!(WrongUsage(format!(
            "no servers: name their file with --config or {CONFIG_ENV}, or put it here as mcp.json"
        ))),
    }
}
