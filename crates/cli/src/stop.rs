//! When to stop serving.

use std::io;
use std::task::Poll;

use dacapo_mcp::CancellationToken;

/// As a shell says of a command that was interrupted.
const INTERRUPTED: i32 = 130;

/// Cancelled by the first signal that asks us to stop; the second one ends us at once. To be made before there are
/// processes that must not outlive us. Needs a Tokio runtime.
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

struct Signals(Vec<tokio::signal::unix::Signal>);

impl Signals {
    fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
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

/// Whoever started us with `nohup` wants us to stay.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Ends on ctrl-c, or when the system asks us to stop.
pub(crate) async fn stop() {
    let interrupt = tokio::signal::ctrl_c();
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    if let Ok(mut terminate) = terminate {
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    interrupt.await.unwrap_or_default();
}
