//! The requests that run, as lines at the end of a terminal: log lines stay above them.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dacapo_gateway::{RunningRequest, RunningRequests};
use tracing_subscriber::fmt::MakeWriter;

use crate::text_style::{clip_line, plural};

/// Writes to stderr: the log, and below it the requests that run.
#[derive(Debug, Clone)]
pub(super) struct LiveView {
    requests: RunningRequests,
    /// Lines of the view that are on the screen now.
    shown: Arc<Mutex<usize>>,
}

const LINES_MAX: usize = 8;
const COLUMNS: usize = 100;
const EVERY: Duration = Duration::from_millis(200);
/// Requests that are answered at once are in the log, and need not flicker here.
const YOUNGEST: Duration = Duration::from_millis(300);

impl LiveView {
    /// If stderr is a terminal.
    pub(super) fn of_stderr() -> Option<LiveView> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        (io::stderr().is_terminal() && !is_dumb)
            .then(|| LiveView { requests: RunningRequests::default(), shown: Arc::default() })
    }

    pub(super) fn requests(&self) -> RunningRequests {
        self.requests.clone()
    }

    /// Draws the view again and again, as long as it runs.
    pub(super) async fn run(&self) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.write(&[]).unwrap_or_default();
        }
    }

    /// Writes lines of the log, with the view below them.
    fn write(&self, log: &[u8]) -> io::Result<()> {
        let requests = self.requests.list();
        let old: Vec<&RunningRequest> = requests.iter().filter(|request| request.elapsed() >= YOUNGEST).collect();
        let mut shown = self.lock();
        if log.is_empty() && *shown == 0 && old.is_empty() {
            return Ok(());
        }
        let mut text = erased(*shown);
        text.extend_from_slice(log);
        let lines = lines(&old);
        for line in &lines {
            writeln!(text, "\x1b[2m{line}\x1b[0m")?;
        }
        *shown = lines.len();
        io::stderr().write_all(&text)
    }

    /// Takes the view from the screen.
    pub(super) fn clear(&self) {
        let mut shown = self.lock();
        io::stderr().write_all(&erased(*shown)).unwrap_or_default();
        *shown = 0;
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves the cursor up and clears everything below.
fn erased(lines: usize) -> Vec<u8> {
    if lines == 0 { Vec::new() } else { format!("\x1b[{lines}A\x1b[J").into_bytes() }
}

fn lines(requests: &[&RunningRequest]) -> Vec<String> {
    let mut lines: Vec<String> = requests.iter().take(LINES_MAX).map(|request| line(request)).collect();
    if requests.len() > LINES_MAX {
        lines.push(format!("  and {}", plural(requests.len() - LINES_MAX, "more request")));
    }
    lines
}

fn line(request: &RunningRequest) -> String {
    let RunningRequest { id, client, wire, model, stage, model_calls, programs, calls, .. } = request;
    let who = if client.is_empty() { String::new() } else { format!(" {client}") };
    let text = format!(
        "▸ {:>6.1} s  {:<8} {wire:<10} {model}{who}  {}, {}, {}  {id}",
        request.elapsed().as_secs_f64(),
        stage.name(),
        plural(*model_calls as usize, "model call"),
        plural(*programs as usize, "program"),
        plural(*calls, "call"),
    );
    // Names are chosen by others, and must not move the cursor.
    clip_line(&text.chars().filter(|character| !character.is_control()).collect::<String>(), COLUMNS)
}

/// One event of the log.
#[derive(Debug)]
pub(super) struct LogWriter {
    view: LiveView,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for LiveView {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter { view: self.clone(), text: Vec::new() }
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.view.write(&self.text).unwrap_or_default();
    }
}
