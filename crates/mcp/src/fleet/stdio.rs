//! Messages to and from a child process, one per line, with a bound on each.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::child::Child;
use super::not_taken::{invalid, too_long};
use super::response_id::ResponseId;
use super::tail::Tail;

/// How long a process that closed its output may take to say how it ended.
const EXIT_WAIT: Duration = Duration::from_millis(500);
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// rmcp drops lines that are too long or no JSON, and whoever waits for them waits for ever. This transport answers
/// in the server's place.
pub(super) struct StdioTransport {
    child: Child,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    stdout: BufReader<ChildStdout>,
    stderr: Arc<Tail>,
    /// How the process ended, for those who ask why.
    end: Arc<OnceLock<String>>,
    line: Vec<u8>,
    line_bytes: usize,
    line_bytes_max: usize,
    /// Reads what is left of a line that is too long.
    too_long: Option<ResponseId>,
    patience: Duration,
}

enum Line {
    Whole,
    TooLong { bytes: usize, of: Option<RequestId> },
}

impl StdioTransport {
    pub(super) fn new(
        (child, stdin, stdout): (Child, ChildStdin, ChildStdout),
        stderr: Arc<Tail>,
        end: Arc<OnceLock<String>>,
        line_bytes_max: usize,
        patience: Duration,
    ) -> StdioTransport {
        StdioTransport {
            child,
            stdin: Arc::new(Mutex::new(Some(stdin))),
            stdout: BufReader::with_capacity(64 * 1024, stdout),
            stderr,
            end,
            line: Vec::new(),
            line_bytes: 0,
            line_bytes_max,
            too_long: None,
            patience,
        }
    }

    /// The next line, or `None` at the end. All state is in `self`: the caller drops this future when it has
    /// something else to do.
    async fn read_line(&mut self) -> Option<Line> {
        loop {
            let bytes = self.stdout.fill_buf().await.ok().filter(|bytes| !bytes.is_empty())?;
            let newline = bytes.iter().position(|byte| *byte == b'\n');
            let read = newline.map_or(bytes.len(), |at| at + 1);
            self.line_bytes += read;
            if let Some(id) = &mut self.too_long {
                id.read(&bytes[..read]);
            } else if self.line_bytes > self.line_bytes_max {
                let mut id = ResponseId::default();
                id.read(&self.line);
                id.read(&bytes[..read]);
                self.line = Vec::new();
                self.too_long = Some(id);
            } else {
                self.line.extend_from_slice(&bytes[..read]);
            }
            self.stdout.consume(read);
            if newline.is_some() {
                let bytes = std::mem::take(&mut self.line_bytes);
                return Some(match self.too_long.take() {
                    Some(id) => Line::TooLong { bytes, of: id.found() },
                    None => Line::Whole,
                });
            }
        }
    }

    fn read_message(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = match self.line.trim_ascii() {
            [] => None,
            line => match serde_json::from_slice(line) {
                Ok(message) => Some(message),
                Err(_invalid) => {
                    let mut id = ResponseId::default();
                    id.read(line);
                    let answer = id.found().map(invalid);
                    if answer.is_none() {
                        // Servers that print to stdout are common, and what they print says why they do not work.
                        self.stderr.push(&[b"(stdout) ", line].concat());
                    }
                    answer
                }
            },
        };
        self.line.clear();
        self.line.shrink_to(BUFFER_BYTES_KEPT);
        message
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let stdin = self.stdin.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            match stdin.write_all(&line).await {
                // Whoever reads its output is about to learn how it ended, which says more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            match self.read_line().await {
                Some(Line::Whole) => {
                    if let Some(message) = self.read_message() {
                        return Some(message);
                    }
                }
                Some(Line::TooLong { bytes, of: Some(id) }) => {
                    return Some(too_long(id, Some(bytes)));
                }
                Some(Line::TooLong { bytes, of: None }) => {
                    self.stderr.push(format!("(stdout) a line of {bytes} bytes").as_bytes());
                }
                None => {
                    let end = match timeout(EXIT_WAIT, self.child.exited()).await {
                        Ok(Some(status)) => format!("its process ended ({status})"),
                        Ok(None) => "its process ended".to_owned(),
                        Err(_still_running) => "its process closed its output".to_owned(),
                    };
                    self.end.get_or_init(|| end);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A write that is stuck in a full pipe holds the lock; then the process is ended with its stdin open.
        if let Ok(mut stdin) = self.stdin.try_lock() {
            stdin.take();
        }
        self.child.end(self.patience).await;
        Ok(())
    }
}
