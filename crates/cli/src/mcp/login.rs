//! `dacapo mcp --login NAME`: a person logs in to a remote server.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use dacapo_mcp::{FleetOptions, Login, LoginError, ServerPhase, ServersFile};
use tokio::sync::mpsc;

use crate::servers::{ConfiguredServers, unless_stopped, with_fleet};
use crate::wrong_usage::WrongUsage;

/// For the server to answer with the new token.
const CHECK_WAIT: Duration = Duration::from_secs(35);

pub(super) fn login(servers: ConfiguredServers, name: &str) -> anyhow::Result<ExitCode> {
    let ConfiguredServers { settings, file } = servers;
    let known: Vec<String> = file.servers.iter().map(|server| format!("`{}`", server.name)).collect();
    let Some(server) = file.servers.into_iter().find(|server| server.name == name) else {
        bail!(WrongUsage(format!("there is no server `{name}`; there are {}", known.join(", "))));
    };
    // With the list of an earlier login, it would not be noticed that this one is no good.
    let options = FleetOptions { cache_dir: None, ..settings.fleet };
    let tokens = options.tokens_dir.as_deref();
    let tokens = tokens.context("there is no place for tokens: set DACAPO_TOKENS_DIR, XDG_DATA_HOME or HOME")?;
    let none = ServersFile { servers: Vec::new(), ignored_keys: Vec::new() };
    with_fleet(none, options.clone(), async |_, stopping| {
        let login = match unless_stopped(&stopping, Login::start(&server, tokens)).await? {
            Err(LoginError::NotPossible(why)) => bail!(WrongUsage(why)),
            other => other?,
        };
        let url = login.authorization_url();
        let mut err = io::stderr();
        writeln!(err, "Log in to `{name}` at this address:\n\n{url}\n")?;
        if err.is_terminal() {
            open_browser(url);
            writeln!(err, "If your browser is on another machine, paste the address at which it ends here:")?;
        }
        unless_stopped(&stopping, login.finish(pasted_lines())).await??;
        Ok(())
    })?;
    let file = ServersFile { servers: vec![server], ignored_keys: Vec::new() };
    with_fleet(file, options, async |fleet, stopping| {
        unless_stopped(&stopping, fleet.settled(CHECK_WAIT)).await?;
        match fleet.states().into_iter().next().map(|state| (state.phase, state.tools)) {
            Some((ServerPhase::Ready, tools)) => {
                writeln!(io::stderr(), "You are logged in to `{name}`, which has {tools} tools.")?;
                Ok(ExitCode::SUCCESS)
            }
            Some((ServerPhase::Failed { reason, .. }, _)) => {
                bail!("the login was accepted, and still the server is not available: {reason}")
            }
            _ => bail!("the login was accepted, and still the server does not answer"),
        }
    })
}

/// A browser that cannot be started is no error: the address is shown.
fn open_browser(url: &str) {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Command::new(opener).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    drop(started);
}

/// The lines of stdin, for addresses that a person pastes.
fn pasted_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(8);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
