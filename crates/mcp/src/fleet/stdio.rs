//! Messages to and from a child process, one per line, with a bound on each.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::connection::ConnectionEnd;
use super::outbox::{Closed, Outbox};
use super::rejected_response;
use super::response_id::ResponseId;
use super::server_process::ServerProcess;
use super::stderr_tail::StderrTail;
use super::stdio_calls::StdioCalls;

/// How long a process that closed its output may take to end.
const EXIT_WAIT: Duration = Duration::from_millis(500);
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// rmcp's own transport drops lines that are too long or no JSON, and the requests that they respond to wait for ever. This
/// transport responds with an error in the server's place.
pub(super) struct StdioTransport {
    child: ServerProcess,
    outbox: Arc<Outbox>,
    calls: Arc<StdioCalls>,
    stdout: BufReader<ChildStdout>,
    stderr: Arc<StderrTail>,
    /// How the process ended, shared with the connection.
    end: Arc<ConnectionEnd>,
    line: Vec<u8>,
    line_bytes: usize,
    line_bytes_max: usize,
    /// Looks for the id in a line that is too long, while the rest of the line is read.
    too_long: Option<ResponseId>,
    /// The last request that rmcp sent.
    last_request: Option<RequestId>,
    /// `server/discover`, if rmcp has not waited for its answer any longer and sent `initialize`.
    given_up: Option<RequestId>,
    shutdown_grace: Duration,
}

enum Line {
    Whole,
    TooLong { bytes: usize, of: Option<RequestId> },
}

impl StdioTransport {
    pub(super) fn new(
        (child, stdin, stdout): (ServerProcess, ChildStdin, ChildStdout),
        stderr: Arc<StderrTail>,
        end: Arc<ConnectionEnd>,
        line_bytes_max: usize,
        shutdown_grace: Duration,
    ) -> StdioTransport {
        let outbox = Outbox::start(stdin);
        StdioTransport {
            child,
            calls: Arc::new(StdioCalls::new(Arc::clone(&outbox))),
            outbox,
            stdout: BufReader::with_capacity(64 * 1024, stdout),
            stderr,
            end,
            line: Vec::new(),
            line_bytes: 0,
            line_bytes_max,
            too_long: None,
            last_request: None,
            given_up: None,
            shutdown_grace,
        }
    }

    /// Sends calls past rmcp.
    pub(super) fn calls(&self) -> Arc<StdioCalls> {
        Arc::clone(&self.calls)
    }

    /// The next line, or `None` at the end. All state is in `self`, because the caller may drop this future at any time and
    /// call again.
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
            line if self.calls.take_response(line) => None,
            line => match serde_json::from_slice(line) {
                // To rmcp the late answer of a server that takes long to start would be the wrong answer to `initialize`.
                Ok(message) => Some(message).filter(|message| !self.is_given_up(message)),
                Err(_invalid) => {
                    let mut id = ResponseId::default();
                    id.read(line);
                    let id = id.found();
                    if id.is_none() {
                        // Servers that print errors to stdout are common.
                        self.stderr.push(&[b"(stdout) ", line].concat());
                    }
                    id.and_then(|id| self.fail(id, rejected_response::invalid()))
                }
            },
        };
        self.line.clear();
        self.line.shrink_to(BUFFER_BYTES_KEPT);
        message
    }

    fn is_given_up(&self, message: &ServerJsonRpcMessage) -> bool {
        let answered = match message {
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        answered.is_some() && answered == self.given_up.as_ref()
    }

    /// Responds with an error in the server's place. Returns the response if it was rmcp that sent the request.
    fn fail(&self, id: RequestId, error: ErrorData) -> Option<ServerJsonRpcMessage> {
        let error = self.calls.fail(&id, error).err()?;
        Some(ServerJsonRpcMessage::error(error, Some(id)))
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &message {
            let before = self.last_request.replace(request.id.clone());
            if matches!(request.request, ClientRequest::InitializeRequest(_)) {
                self.given_up = before;
            }
        }
        let pushed = self.outbox.push(&message).map_err(|Closed| io::ErrorKind::NotConnected.into());
        std::future::ready(pushed)
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
                    if let Some(message) = self.fail(id, rejected_response::too_long(Some(bytes))) {
                        return Some(message);
                    }
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
                    self.end.reason.get_or_init(|| end);
                    self.calls.end();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.calls.end();
        // A write that is stuck in a full pipe keeps stdin open. The process is ended all the same.
        self.outbox.close();
        self.child.end(self.shutdown_grace).await;
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.calls.end();
        self.outbox.close();
    }
}
