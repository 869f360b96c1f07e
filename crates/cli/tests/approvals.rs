//! `dacapo run --mcp` at a terminal: a real one (a pty), and a server that counts what it executes.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

/// The directory of the fake server, in the environment of the process that plays it.
const DIRECTORY: &str = "FAKE_SHOP";
const LONG: Duration = Duration::from_mins(1);

/// Plays an MCP server if this process is one, with two tools: `wait` answers when there is a file `go`, and `erase` is
/// destructive and writes its arguments to the file `erased`.
#[test]
#[expect(clippy::print_stdout, reason = "it speaks over stdout")]
fn fake_shop() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    // The test harness has begun a line.
    println!();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.expect("a line")) else { continue };
        let result = match (message["method"].as_str(), message["params"]["name"].as_str()) {
            (Some("initialize"), _) => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                                               "serverInfo": { "name": "shop", "version": "1" } }),
            (Some("tools/list"), _) => json!({ "tools": [
                { "name": "wait", "inputSchema": { "type": "object" } },
                { "name": "erase", "inputSchema": { "type": "object" }, "annotations": { "destructiveHint": true } } ] }),
            (Some("tools/call"), Some("wait")) => {
                while !directory.join("go").exists() {
                    thread::sleep(Duration::from_millis(5));
                }
                json!({ "content": [] })
            }
            (Some("tools/call"), Some("erase")) => {
                let file = OpenOptions::new().create(true).append(true).open(directory.join("erased"));
                let what = message["params"]["arguments"]["what"].as_str().unwrap_or("?").len();
                writeln!(file.expect("a file"), "{what}").expect("it is written");
                json!({ "content": [{ "type": "text", "text": "erased" }] })
            }
            _ if message["id"].is_null() => continue,
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                println!("{}", json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
                continue;
            }
        };
        println!("{}", json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    }
    std::process::exit(0);
}

/// `dacapo run` of a program at a terminal of its own.
struct Terminal {
    directory: tempfile::TempDir,
    dacapo: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    fn run(program: &str) -> Terminal {
        let directory = tempfile::tempdir().expect("a folder");
        let shop = json!({
            "command": std::env::current_exe().expect("it has a path"),
            "args": ["--exact", "fake_shop", "--nocapture"],
            "env": { DIRECTORY: directory.path() },
        });
        let servers = json!({ "mcpServers": { "shop": shop } });
        fs::write(directory.path().join("mcp.json"), servers.to_string()).expect("a file");
        fs::write(directory.path().join("program.ts"), program).expect("a file");

        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("a pty");
        let name = ptsname(&keyboard, Vec::new()).expect("a pty has a name");
        let open = || {
            let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
            OpenOptions::new().read(true).write(true).open(path).expect("the terminal opens")
        };
        let dacapo = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["run", "program.ts", "--mcp", "mcp.json"])
            .current_dir(directory.path())
            .env("DACAPO_CACHE_DIR", directory.path().join("cache"))
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("dacapo starts");
        let keyboard = File::from(keyboard);
        let mut output = keyboard.try_clone().expect("a second handle");
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count) = output.read(&mut chunk) {
                if count == 0 || sender.send(chunk[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { directory, dacapo, keyboard, screen, shown: String::new() }
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the keyboard works");
    }

    /// Waits until the screen shows a text, and returns what it showed up to its end. The next call starts after it.
    fn until(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let left = LONG.saturating_sub(started.elapsed());
            match self.screen.recv_timeout(left) {
                Ok(chunk) => self.shown.push_str(&String::from_utf8_lossy(&chunk).replace("\r\n", "\n")),
                Err(error) => panic!("there is no {text:?} in {:?}: {error}", self.shown),
            }
        }
    }

    /// Lets the tool `wait` answer.
    fn go(&self) {
        fs::write(self.directory.path().join("go"), "").expect("a file");
    }

    /// Waits for the end, and returns the lengths of what was erased.
    fn erased(mut self) -> Vec<String> {
        self.dacapo.wait().expect("it ends");
        let erased = fs::read_to_string(self.directory.path().join("erased")).unwrap_or_default();
        erased.lines().map(str::to_owned).collect()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        self.dacapo.kill().unwrap_or_default();
    }
}

const KEYS: &str = "[y/a/n/d] ";
const KEYS_IF_INCOMPLETE: &str = "[y/v/n/d] ";

#[test]
fn a_yes_that_was_typed_before_the_question_appeared_is_none() {
    // A whole line, and one that is ended after the question.
    for (before, after) in [("y\n", "n\n"), ("y\ny\ny\n", "n\n"), ("y", "\n")] {
        let mut terminal =
            Terminal::run("await shop.wait({}); return shop.erase({what: 'abc'}).catch(error => error.message)");
        terminal.types(before);
        // The terminal has the line when it echoes it.
        terminal.until("y");
        terminal.go();
        terminal.until(KEYS);
        terminal.types(after);
        terminal.until("the user was asked about `shop.erase` and declined");
        assert_eq!(terminal.erased(), [""; 0], "{before:?}");
    }
}

#[test]
fn a_call_that_takes_long_is_shown_while_it_runs() {
    let mut terminal = Terminal::run("await shop.wait({}); return 'end'");
    terminal.until("0/1 shop.wait: no answer for 2 s\n");
    terminal.go();
    terminal.until("1/1 shop.wait answered\n");
    terminal.until("\"end\"");
}

#[test]
fn a_line_that_comes_with_an_answer_does_not_answer_the_next_question() {
    let mut terminal =
        Terminal::run("await shop.erase({what: 'abc'}); await shop.erase({what: 'abcd'}).catch(() => 0); return 'end'");
    terminal.until(KEYS);
    terminal.types("y\ny\n");
    terminal.until(KEYS);
    terminal.types("n\n");
    terminal.until("\"end\"");
    assert_eq!(terminal.erased(), ["3"]);
}

#[test]
fn a_yes_for_the_program_says_what_it_covers_and_is_for_the_same_shape() {
    let program = "
        for (const what of ['a', 'bb', 'ccc']) await shop.erase({what});
        return shop.erase({what: 'dddd', force: true}).catch(error => error.message)";
    let mut terminal = Terminal::run(program);
    let question = terminal.until(KEYS);
    let expected = "A program wants to call `erase` of the server `shop` with\n  what: \"a\"\n\
                    Allow this call of `erase` of the server `shop`?\n  y: yes, once\n  \
                    a: yes to this call, and every further call by this program of `erase` of the server `shop` with \
                    arguments of this shape, whatever their values: { what: string }\n  \
                    n: no; d: no, and no to all further calls of this program that need approval\n[y/a/n/d] ";
    assert!(question.ends_with(expected), "{question}");
    terminal.types("a\n");
    let question = terminal.until(KEYS);
    assert!(question.contains("  what: \"dddd\"\n  force: true\n"), "{question}");
    terminal.types("n\n");
    terminal.until("declined");
    assert_eq!(terminal.erased(), ["1", "2", "3"]);
}

#[test]
fn whoever_denies_all_is_not_asked_again() {
    let program = "
        const denied = args => shop.erase(args).catch(error => error.message);
        return [await denied({what: 'a'}), await denied({what: 'b', force: true})]";
    let mut terminal = Terminal::run(program);
    terminal.until(KEYS);
    terminal.types("d\n");
    terminal.until("the user has denied all further calls of this program");
    terminal.until("the user has denied all further calls of this program");
    assert_eq!(terminal.erased(), [""; 0]);
}

#[test]
fn what_is_too_long_to_be_shown_is_shown_on_request() {
    let program = "
        const what = 'x'.repeat(15_000) + '; rm -rf /' + 'y'.repeat(15_000);
        return shop.erase({what}).catch(error => error.message)";
    let mut terminal = Terminal::run(program);
    let question = terminal.until(KEYS_IF_INCOMPLETE);
    assert!(question.contains("NOT EVERYTHING IS SHOWN: 10"), "{question}");
    assert!(!question.contains("rm -rf"), "{question}");
    terminal.types("v\n");
    let question = terminal.until(KEYS);
    assert!(question.contains("xxx; rm -rf /yyy"), "{question}");
    terminal.types("y\n");
    terminal.until("\"erased\"");
    assert_eq!(terminal.erased(), ["30010"]);
}

#[test]
fn what_covers_further_calls_is_not_offered_before_all_was_shown() {
    let mut terminal = Terminal::run("return shop.erase({what: 'x'.repeat(50_000)}).catch(error => error.message)");
    terminal.until(KEYS_IF_INCOMPLETE);
    terminal.types("a\n");
    terminal.until("declined");
    assert_eq!(terminal.erased(), [""; 0]);
}
