//! `dacapo serve`: the gateway.

mod live_view;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use dacapo_gateway::{
    Config, ConfigError, Environment, Gateway, GatewayOptions as Settings, LogFormat, StopRequest, UpstreamOptions,
};
use dacapo_mcp::{Fleet, RemoteServers};
use dacapo_runner::{CancellationToken, ToolServers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::live_view::LiveView;
use crate::config_file::config_file;
use crate::log_filter::log_filter;
use crate::servers::{CacheOptions, ConfiguredServers};
use crate::stop::{Hangup, Hangups, stop_request};

const EXAMPLE: &str = "Examples:
  dacapo serve                                    forwards to api.openai.com, and claude-* to api.anthropic.com
  dacapo serve --upstream http://localhost:11434/v1
  dacapo serve --upstream https://api.anthropic.com/v1 --wire messages
  dacapo serve --script turns.toml                answers for every model come from a file

Then set the base URL of any OpenAI client to http://127.0.0.1:8787/v1, and of any Anthropic client to
http://127.0.0.1:8787. The model `demo` needs no key.";

/// Serve the gateway: Chat Completions, Responses and Messages in code mode
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLE)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct ServeOptions {
    /// Address to listen on [default: 127.0.0.1:8787]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Configuration [default: the file that `DACAPO_CONFIG` names; else dacapo.toml here, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Send all models to this base URL
    #[arg(long, value_name = "URL", conflicts_with = "script")]
    upstream: Option<String>,

    /// The API of that URL: chat, responses or messages; may be repeated [default: chat, and all for a script]
    #[arg(long = "wire", value_name = "WIRE")]
    wires: Vec<String>,

    /// Answer for all models from a script file
    #[arg(long, value_name = "FILE")]
    script: Option<String>,

    /// Record the last conversations, in memory, for the inspector page, and print its address
    #[arg(long)]
    inspect: bool,

    /// Do not show the requests that run below the log, on a terminal
    #[arg(long)]
    no_live: bool,

    /// Print the configuration that is in force, with secrets hidden, and stop
    #[arg(long)]
    print_config: bool,

    /// Print the instructions about programs that models get, and stop
    #[arg(long)]
    print_prompt: bool,
}

pub(crate) fn serve(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    if options.print_prompt {
        let mut out = io::stdout();
        writeln!(out, "prompt version {}", dacapo_gateway::PROMPT_VERSION)?;
        for (when, text) in dacapo_gateway::prompt_variants() {
            let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(&text).len();
            writeln!(out, "\n── {when} ({tokens} tokens)\n{}", text.trim_end())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let environment = Environment::new(std::env::vars_os());
    let (config, notice) = configuration(options, &environment);
    if let Some(notice) = notice {
        writeln!(io::stderr(), "dacapo: {notice}")?;
    }
    let config = match config {
        Ok(config) => config,
        Err(error) => return wrong_configuration(&error),
    };
    if options.print_config {
        write!(io::stdout(), "{}", config.into_toml())?;
        return Ok(ExitCode::SUCCESS);
    }
    let servers = match &config.mcp_servers {
        Some(file) => {
            let servers = ConfiguredServers::read(file, &CacheOptions { no_cache: false })?;
            let names: Vec<&str> = servers.file.servers.iter().map(|server| server.name.as_str()).collect();
            if let Err(error) = config.check_servers(&names) {
                return wrong_configuration(&error);
            }
            Some(servers)
        }
        None => None,
    };
    // Lines of JSON are for machines.
    let is_wanted = !options.no_live && config.log_format == LogFormat::Text;
    let live_view = if is_wanted { LiveView::of_stderr() } else { None };
    start_log(&config, live_view.as_ref());
    let reload = {
        let options = options.clone();
        move || configuration(&options, &environment).0
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let Some(view) = &live_view else { return listen(config, servers, reload).await };
        let served = tokio::select! {
            served = listen(config.with_running_requests(view.requests()), servers, reload) => served,
            () = view.run() => Ok(()),
        };
        view.clear();
        served
    });
    served?;
    Ok(ExitCode::SUCCESS)
}

fn wrong_configuration(error: &ConfigError) -> anyhow::Result<ExitCode> {
    for line in error.to_string().lines() {
        writeln!(io::stderr(), "dacapo: {line}")?;
    }
    Ok(ExitCode::from(2))
}

/// Colours are for terminals, and so are texts.
fn start_log(config: &Config, live_view: Option<&LiveView>) {
    let is_colored = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_max_level(config.log).with_target(false);
    let filter = log_filter(config.log);
    if let Some(view) = live_view {
        return log.with_writer(view.clone()).with_ansi(is_colored).finish().with(filter).init();
    }
    let log = log.with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(is_colored).finish().with(filter).init(),
        LogFormat::Json => {
            let log = log.json().flatten_event(true).with_current_span(false).with_span_list(false);
            log.finish().with(filter).init();
        }
    }
}

/// The variable that holds the key for an upstream that a flag names.
fn key_variable(wires: &[String], environment: &Environment) -> Option<String> {
    let is_anthropic = wires.iter().all(|wire| wire == "messages") && !wires.is_empty();
    let name = if is_anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
    environment.contains(name).then(|| name.to_owned())
}

/// An upstream for all models, as flags name it.
pub(crate) fn upstream_options(
    url: Option<&String>,
    script: Option<&String>,
    wires: &[String],
    environment: &Environment,
) -> UpstreamOptions {
    UpstreamOptions {
        name: if script.is_some() { "script" } else { "upstream" }.to_owned(),
        models: vec!["*".to_owned()],
        wires: (!wires.is_empty()).then(|| wires.to_vec()),
        base_url: url.cloned(),
        api_key_env: url.and_then(|_| key_variable(wires, environment)),
        script: script.cloned(),
        ..UpstreamOptions::default()
    }
}

/// What is in force, and what else is to be said about it.
fn configuration(options: &ServeOptions, environment: &Environment) -> (Result<Config, ConfigError>, Option<String>) {
    let file = config_file(options.config.as_deref());
    let mut loaded = Settings::load(file.as_deref(), environment);
    let settings = &mut loaded.options;
    if let Some(listen) = &options.listen {
        settings.listen = Some(listen.clone());
    }
    if options.inspect {
        settings.inspector.enabled = Some(true);
    }
    if options.upstream.is_some() || options.script.is_some() {
        let (upstream, script) = (options.upstream.as_ref(), options.script.as_ref());
        settings.upstreams.insert(0, upstream_options(upstream, script, &options.wires, environment));
    }
    let notice = loaded.notice.take();
    (loaded.resolve(environment), notice)
}

/// For MCP servers to start, before the first request is taken. The tools of one that takes longer come later.
const SERVERS_START: Duration = Duration::from_secs(10);

async fn listen(
    config: Config,
    servers: Option<ConfiguredServers>,
    reload: impl Fn() -> Result<Config, ConfigError> + Send + 'static,
) -> anyhow::Result<()> {
    let scheme = if config.has_tls() { "https" } else { "http" };
    let listener = tokio::net::TcpListener::bind(config.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", config.listen))?;
    if config.secret_is_random {
        tracing::warn!(
            "no DACAPO_SECRET is set, so a random one is used: a conversation with an unfinished program cannot continue after a restart or on another replica"
        );
    }
    raise_open_files_limit();
    // Whoever reads that we listen may send a signal.
    let mut hangups = Hangups::new()?;
    let (stop, terminal_closed) = (stop_request()?, CancellationToken::new());
    let closed = terminal_closed.clone();
    let stop = async move {
        tokio::select! {
            request = stop => request,
            () = closed.cancelled() => StopRequest::Now,
        }
    };
    let (configs, new_configs) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while hangups.next().await == Hangup::Reload {
            match reload() {
                Ok(config) => _ = configs.send(config).await,
                Err(error) => {
                    for mistake in error.to_string().lines() {
                        tracing::error!(mistake, "the configuration was not read again, and stays as it was");
                    }
                }
            }
        }
        terminal_closed.cancel();
    });
    let address = listener.local_addr()?;
    let mut gateway = Gateway::new(config)?.with_connector(Arc::new(RemoteServers::default()));
    let mut fleet = None;
    if let Some(ConfiguredServers { settings, file }) = servers {
        let started = Arc::new(Fleet::start(file, settings.fleet));
        started.listed(SERVERS_START).await;
        for missing in started.unavailable() {
            writeln!(io::stderr(), "dacapo: the tools of {missing} are not available yet")?;
        }
        gateway = gateway.with_servers(Arc::clone(&started) as Arc<dyn ToolServers>, settings.policy);
        fleet = Some(started);
    }
    if let Some(token) = gateway.inspector_token() {
        writeln!(io::stderr(), "dacapo records conversations; see them at {scheme}://{address}/#token={token}")?;
    }
    writeln!(io::stderr(), "dacapo listens on {scheme}://{address}/v1")?;
    let served = dacapo_gateway::serve_with_reloads(gateway, listener, stop, new_configs).await;
    if let Some(fleet) = fleet {
        fleet.shutdown().await;
    }
    Ok(served?)
}

/// Every connection takes a file descriptor. The usual soft limit of 1,024 is there for programs that use `select`, and
/// as many idle connections would keep everybody else out.
fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, limit = limit.current, "the limit of open files cannot be raised: set `ulimit -n` higher");
    }
}
