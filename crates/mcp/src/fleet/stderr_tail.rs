//! The last lines that a server wrote to its stderr.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::lock;
use crate::mask::Mask;

const LINES_MAX: usize = 40;
const LINE_BYTES_KEPT: usize = 4 * 1024;
/// Less than `LINE_BYTES_KEPT`, because a secret that is cut in two there would not be masked.
const LINE_BYTES_SHOWN: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct StderrTail {
    lines: Mutex<VecDeque<String>>,
}

impl StderrTail {
    /// Reads to the end, however much it is, because a full pipe would block the server.
    pub(super) async fn drain(&self, output: impl AsyncRead + Unpin) {
        let mut output = BufReader::with_capacity(64 * 1024, output);
        let mut line = Vec::new();
        while let Ok(bytes) = output.fill_buf().await {
            if bytes.is_empty() {
                break;
            }
            let read = bytes.len();
            for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
                let room = LINE_BYTES_KEPT.saturating_sub(line.len());
                line.extend_from_slice(&piece[..piece.len().min(room)]);
                if piece.ends_with(b"\n") {
                    self.push(&line);
                    line.clear();
                }
            }
            output.consume(read);
        }
        self.push(&line);
    }

    pub(super) fn push(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_KEPT)]);
        let line = line.trim_end();
        if line.is_empty() {
            return;
        }
        let mut lines = lock(&self.lines);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    pub(super) fn lines(&self, mask: &Mask) -> Vec<String> {
        let lines: Vec<String> = lock(&self.lines).iter().cloned().collect();
        lines.into_iter().map(|line| truncated(mask.text(line))).collect()
    }

    pub(super) fn last(&self, mask: &Mask) -> Option<String> {
        let last = lock(&self.lines).back().cloned();
        last.map(|line| truncated(mask.text(line)))
    }
}

fn truncated(mut line: String) -> String {
    if line.len() > LINE_BYTES_SHOWN {
        line.truncate(line.floor_char_boundary(LINE_BYTES_SHOWN));
        line.push('…');
    }
    line
}
