//! What goes to the stdin of a server's process. Lines that come while others are being written go out together: a
//! program makes its calls a hundred at a time, and each write wakes the server.

use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::Notify;

use crate::lock::lock;

const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Dropping it closes nothing: see [`Outbox::close`].
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// Nothing more is taken, and stdin is closed after what is there.
    is_closed: bool,
}

/// The outbox takes nothing any more.
#[derive(Debug)]
pub(super) struct Closed;

impl Outbox {
    /// Starts a task that writes.
    pub(super) fn start(stdin: ChildStdin) -> Arc<Outbox> {
        let outbox = Arc::<Outbox>::default();
        tokio::spawn(Arc::clone(&outbox).write(stdin));
        outbox
    }

    /// Takes a message. Whether it arrives, only an answer tells.
    pub(super) fn push(&self, message: &impl Serialize) -> Result<(), Closed> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Closed);
        }
        let before = state.lines.len();
        serde_json::to_writer(&mut state.lines, message).expect("messages are JSON, and a vector takes them");
        state.lines.push(b'\n');
        drop(state);
        if before == 0 {
            self.news.notify_one();
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.news.notify_one();
    }

    async fn write(self: Arc<Outbox>, mut stdin: ChildStdin) {
        let mut lines = Vec::new();
        let mut is_broken = false;
        loop {
            lines.clear();
            lines.shrink_to(BUFFER_BYTES_KEPT);
            let is_closed = {
                let mut state = lock(&self.state);
                std::mem::swap(&mut state.lines, &mut lines);
                state.is_closed
            };
            if lines.is_empty() && is_closed {
                return;
            } else if lines.is_empty() {
                self.news.notified().await;
            } else if !is_broken {
                // Whoever reads its output is about to learn how it ended, which says more than the error.
                is_broken = stdin.write_all(&lines).await.is_err();
            }
        }
    }
}
