//! Signals that ask the process to stop.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::task::Poll;

use dacapo_gateway::StopRequest;
use dacapo_runner::CancellationToken;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The exit status of a command that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// A token that the first signal to stop cancels; the second signal ends the process at once. Call it before processes are
/// started that must not outlive this one. Needs a Tokio runtime.
pub(crate) fn stopping() -> io::Result<CancellationToken> {
    let mut signals = Signals::new()?;
    let stopping = CancellationToken::new();
    let stopped = stopping.clone();
    tokio::spawn(async move {
        signals.next().await;
        stopped.cancel();
        signals.next().await;
        std::process::exit(INTERRUPTED);
    });
    Ok(stopping)
}

struct Signals(Vec<Signal>);

impl Signals {
    fn new() -> io::Result<Signals> {
        let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate()];
        if !is_hangup_ignored() {
            kinds.push(SignalKind::hangup());
        }
        Ok(Signals(kinds.into_iter().map(signal).collect::<Result<_, _>>()?))
    }

    async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            if signals.any(|signal| signal.poll_recv(context).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// `nohup` ignores SIGHUP, so that the process goes on when its terminal is closed.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Ends when the gateway is to stop: at once on ctrl-c, and after it has drained when the system asks for it. A second
/// signal ends the process. Needs a Tokio runtime.
pub(crate) fn stop_request() -> io::Result<impl Future<Output = StopRequest>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        let request = tokio::select! {
            _ = interrupt.recv() => StopRequest::Now,
            _ = terminate.recv() => StopRequest::AfterDrain,
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::process::exit(INTERRUPTED);
        });
        request
    })
}

/// Signals to read the configuration again.
pub(crate) struct Hangups {
    /// `None` if they are ignored.
    signal: Option<Signal>,
    has_terminal: bool,
}

/// What a hangup means for a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangup {
    Reload,
    /// The terminal that it was started from is gone.
    TerminalClosed,
}

impl Hangups {
    /// Needs a Tokio runtime.
    pub(crate) fn new() -> io::Result<Hangups> {
        let signal = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Hangups { signal, has_terminal: io::stderr().is_terminal() })
    }

    pub(crate) async fn next(&mut self) -> Hangup {
        match &mut self.signal {
            Some(signal) => _ = signal.recv().await,
            None => std::future::pending().await,
        }
        // The kernel sends the same signal when a terminal is closed.
        if self.has_terminal && !io::stderr().is_terminal() { Hangup::TerminalClosed } else { Hangup::Reload }
    }
}
