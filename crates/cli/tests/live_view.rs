//! `dacapo serve` at a terminal (a pty): requests are shown as they run.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

const SLOW: &str = "[[turn]]\ntext = 'done'\ndelay_ms = 1500";
const LONG: Duration = Duration::from_secs(30);

/// `dacapo serve` whose standard error is a terminal.
struct Terminal {
    dacapo: Child,
    screen: Receiver<Vec<u8>>,
    shown: String,
    _folder: tempfile::TempDir,
}

impl Terminal {
    fn serve(arguments: &[&str]) -> Terminal {
        let folder = tempfile::tempdir().expect("a folder");
        let script = folder.path().join("script.toml");
        std::fs::write(&script, SLOW).expect("it is written");
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("a pty");
        let name = ptsname(&keyboard, Vec::new()).expect("a pty has a name");
        let screen = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(name.as_bytes())).expect("a pty");
        let dacapo = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--listen", "127.0.0.1:0", "--script"])
            .arg(script)
            .args(arguments)
            .envs([("TERM", "xterm"), ("NO_COLOR", "1"), ("DACAPO_SECRET", "a secret that is long enough")])
            .stdout(Stdio::null())
            .stderr(screen)
            .spawn()
            .expect("it starts");
        let (sender, screen) = mpsc::channel();
        let mut pty = File::from(keyboard);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails when the process has ended.
            while let Ok(length @ 1..) = pty.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { dacapo, screen, shown: String::new(), _folder: folder }
    }

    fn wait_for(&mut self, text: &str) {
        let start = Instant::now();
        while !self.shown.contains(text) {
            let piece = self.screen.recv_timeout(LONG.saturating_sub(start.elapsed()));
            let piece = piece.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.shown));
            self.shown += &String::from_utf8_lossy(&piece);
        }
    }

    fn ask(&mut self) {
        self.wait_for("/v1\r\n");
        let (_, rest) = self.shown.split_once("dacapo listens on ").expect("an address");
        let url = format!("{}/chat/completions", rest.split_whitespace().next().expect("an address"));
        let body = json!({"model": "slow\u{1b}[2Jmodel", "messages": [{"role": "user", "content": "hi"}]});
        std::thread::spawn(move || {
            let sent = ureq::post(url).header("content-type", "application/json").send(body.to_string());
            sent.expect("an answer").body_mut().read_to_string().expect("a body");
        });
        self.wait_for("outcome=\"answer\"");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.dacapo.kill().expect("it runs");
        self.dacapo.wait().expect("it was killed");
    }
}

#[test]
fn a_request_is_shown_while_it_runs_and_gone_when_its_line_is_logged() {
    let mut terminal = Terminal::serve(&[]);
    terminal.ask();
    let shown = &terminal.shown;
    let live = shown.lines().find(|line| line.contains('▸')).unwrap_or_else(|| panic!("no request in {shown:?}"));
    assert!(live.contains("model    chat       slow[2Jmodel  1 model call, 0 programs, 0 calls"), "{live:?}");
    // The view is erased before the line of the request is written.
    let (_, after) = shown.rsplit_once('▸').expect("it is there");
    let erased = after.find("\u{1b}[1A\u{1b}[J").unwrap_or_else(|| panic!("{after:?}"));
    assert!(erased < after.find("outcome").expect("it ended"), "{after:?}");
    assert!(!after[erased + 1..].contains("\u{1b}[1A"), "nothing is erased that others wrote: {after:?}");
}

#[test]
fn the_view_can_be_switched_off() {
    let mut terminal = Terminal::serve(&["--no-live"]);
    terminal.ask();
    assert!(!terminal.shown.contains('▸') && !terminal.shown.contains("\u{1b}[J"), "{:?}", terminal.shown);
}
