//! `dacapo mcp` is killed while programs wait for a person. Real clients go on with another process, and nothing that was
//! executed is executed again.

#[expect(dead_code, reason = "other tests use more of it")]
mod common;
#[expect(dead_code, reason = "other tests use more of it")]
mod mcp_world;
#[expect(dead_code, reason = "other tests use more of it")]
mod office;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_world::{installed, report, root};
use office::{Office, Redis};
use serde_json::{Value, json};

/// Pays, and then asks for something that a person has to allow.
const PROGRAM: &str = r#"
const { receipt } = await ledger.pay({ to: "ann", amount: 1 });
const { closed } = await ledger.close_account({ of: "ann" });
return `${receipt}, closed ${closed}`;"#;
const PAID: &str = r#"pay {"to":"ann","amount":1}"#;
const CLOSED: &str = r#"close_account {"of":"ann"}"#;

/// A ledger, `dacapo mcp` in front of it, and a store that outlives that.
struct Desk {
    office: Office,
    port: u16,
}

impl Desk {
    fn new(store: &Value) -> Desk {
        let office = Office::new();
        let path = office.file("mcp.json");
        let mut file: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("JSON");
        file["dacapo"]["store"] = store.clone();
        std::fs::write(path, file.to_string()).expect("a file");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        Desk { office, port: listener.local_addr().expect("an address").port() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command.args(["mcp", "--config"]).arg(self.office.file("mcp.json"));
        command.env("DACAPO_CACHE_DIR", self.office.file("cache")).env("DACAPO_SECRET", common::SECRET);
        command
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Over HTTP, always at the same address.
    fn listen(&self) -> Killed {
        let mut command = self.command();
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("dacapo starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr")).lines().map(|line| line.expect("UTF-8"));
        assert!(lines.by_ref().any(|line| line.starts_with("dacapo listens")), "dacapo listens");
        std::thread::spawn(move || lines.for_each(drop));
        Killed(child)
    }

    /// A client that runs the program, and whose user answers when there is a file `go`.
    fn client(&self, interpreter: &str, script: &str, era: &str, server: &[&str]) -> Child {
        let mut command = Command::new(interpreter);
        command.arg(root().join("tests-tools/mcp/clients").join(script));
        command.args(["--era", era, "--elicit", "accept", "--code", PROGRAM]);
        command.arg("--pause").arg(self.pause()).args(server);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the client starts")
    }

    fn pause(&self) -> PathBuf {
        let path = self.office.file("pause");
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// Waits until a person is asked.
    fn until_asked(&self) {
        let asked = self.pause().join("asked");
        let started = Instant::now();
        while !asked.exists() {
            assert!(started.elapsed() < Duration::from_mins(2), "nobody is asked");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(asked).expect("it is there");
    }

    fn lets_answer(&self) {
        std::fs::write(self.pause().join("go"), "").expect("a file");
    }

    fn executed(&self) -> (usize, usize) {
        let executed = self.office.executed();
        let count = |call: &str| executed.get(call).copied().unwrap_or_default();
        (count(PAID), count(CLOSED))
    }
}

/// A process that is killed, with -9, when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was killed");
    }
}

fn result_of(client: Child) -> Value {
    let output = client.wait_with_output().expect("the client ends");
    report(&output).expect("a report")["execute"].clone()
}

#[test]
fn a_client_whose_user_answers_after_a_restart_does_not_notice_it() {
    let redis = Redis::start();
    let python = installed("python-mcp/bin/python").display().to_string();
    let clients = [
        (python.as_str(), "python_client.py", json!({"kind": "file", "path": "programs.redb"})),
        ("node", "typescript_client.mjs", json!({"kind": "redis", "url": redis.url})),
    ];
    for (interpreter, script, store) in clients {
        let desk = Desk::new(&store);
        let dacapo = desk.listen();
        let client = desk.client(interpreter, script, "modern", &["--http", &desk.url()]);
        desk.until_asked();
        drop(dacapo);
        let _another = desk.listen();
        desk.lets_answer();
        let execute = result_of(client);
        assert_eq!(execute["structuredContent"]["data"], "1 to ann, closed ann", "{script}: {execute:#}");
        assert_eq!(execute["structuredContent"]["calls"], json!({"ledger.pay": 1, "ledger.close_account": 1}));
        assert_eq!(desk.executed(), (1, 1), "{script}");
    }
}

/// Clients of the protocol before have an open request while their user decides. It breaks off, and they send it again.
#[test]
fn a_client_that_sends_its_program_again_after_a_restart_is_asked_again_and_pays_no_more() {
    let python = installed("python-mcp1/bin/python").display().to_string();
    for transport in ["--stdio", "--http"] {
        let desk = Desk::new(&json!({"kind": "file", "path": "programs.redb"}));
        let mut dacapo = (transport == "--http").then(|| desk.listen());
        let (url, process) = (desk.url(), desk.office.file("process").display().to_string());
        // Says which process it is, so that it can be killed.
        let config = desk.office.file("mcp.json").display().to_string();
        let start = format!("echo $$ > {process}; exec {} mcp --config {config}", env!("CARGO_BIN_EXE_dacapo"));
        let server = match transport {
            "--http" => vec!["--http", url.as_str()],
            _ => vec!["--stdio", "sh", "-c", start.as_str()],
        };
        let client = || desk.client(&python, "python1_client.py", "legacy", &server);
        let first = Killed(client());
        desk.until_asked();
        if let Some(killed) = dacapo.take() {
            drop(killed);
            dacapo = Some(desk.listen());
        } else {
            let process = std::fs::read_to_string(&process).expect("a process");
            let killed = Command::new("kill").args(["-9", process.trim()]).status().expect("kill runs");
            assert!(killed.success());
        }
        drop(first);
        assert_eq!(desk.executed(), (1, 0), "{transport}");
        desk.lets_answer();
        let execute = result_of(client());
        assert_eq!(execute["structuredContent"]["data"], "1 to ann, closed ann", "{transport}: {execute:#}");
        assert_eq!(desk.executed(), (1, 1), "{transport}");
        // The same program once more is another one.
        let execute = result_of(client());
        assert_eq!(execute["structuredContent"]["data"], "1 to ann, closed ann", "{transport}: {execute:#}");
        assert_eq!(desk.executed(), (2, 2), "{transport}");
        drop(dacapo);
    }
}

#[test]
fn a_store_that_cannot_be_used_is_said() {
    let desk = Desk::new(&json!({"kind": "redis", "url": "redis://127.0.0.1:1/0"}));
    let output = desk.command().env_remove("DACAPO_SECRET").output().expect("dacapo starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("dacapo.store: others can read what is in a Redis: set DACAPO_SECRET"), "{said}");

    let desk = Desk::new(&json!({"kind": "file", "path": "no/such/folder/programs.redb"}));
    let output = desk.command().output().expect("dacapo starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("dacapo.store.path: ") && said.contains("programs.redb cannot be used: "), "{said}");

    // A second process of the same client works all the same, and says what it lacks.
    let desk = Desk::new(&json!({"kind": "file", "path": "programs.redb"}));
    let _first = desk.listen();
    let mut second = desk.command();
    let second = second.stdin(Stdio::null()).output().expect("dacapo starts");
    let said = String::from_utf8(second.stderr).expect("UTF-8");
    assert!(second.status.success(), "{said}");
    assert!(said.contains("will not survive this process: store.path: "), "{said}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(desk.office.file("programs.redb")).expect("it is there");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
}
