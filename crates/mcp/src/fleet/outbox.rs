//! Messages to the stdin of a server's process. Lines that arrive while others are being written are written together,
//! because a program may make a hundred calls at once, and each write wakes the server.

use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::Notify;

use crate::lock::lock;

const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Messages that wait to be written. Dropping it does not close stdin, see [`Outbox::close`].
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    wakeup: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    lines: Vec<u8>,
    /// No further message is accepted. Stdin is closed after those that are waiting.
    is_closed: bool,
}

/// The outbox accepts no further messages.
#[derive(Debug)]
pub(super) struct Closed;

impl Outbox {
    /// Starts a task that writes.
    pub(super) fn start(stdin: ChildStdin) -> Arc<Outbox> {
        let outbox = Arc::<Outbox>::default();
        tokio::spawn(Arc::clone(&outbox).write(stdin));
        outbox
    }

    /// Adds a message. Whether it arrives is known only when the server responds.
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
            self.wakeup.notify_one();
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.wakeup.notify_one();
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
                self.wakeup.notified().await;
            } else if !is_broken {
                // The reader of the process's output will see how it ended, which says more than this error.
                is_broken = stdin.write_all(&lines).await.is_err();
            }
        }
    }
}
