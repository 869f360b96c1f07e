//! A ledger that counts what is executed, gateways with it behind them, and a Redis.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::Served;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A ledger that outlives its servers, and the file that names them.
pub(crate) struct Office {
    directory: TempDir,
}

impl Office {
    /// With one server, `ledger`, which counts what it executes.
    pub(crate) fn new() -> Office {
        let office = Office { directory: tempfile::tempdir().expect("a directory") };
        let server = json!({
            "command": "python3",
            "args": [root().join("tests-tools/mcp/ledger_server.py")],
            "env": {"LEDGER": office.ledger()},
        });
        office.set_servers(&json!({"ledger": server}));
        office
    }

    pub(crate) fn set_servers(&self, servers: &Value) {
        std::fs::write(self.file("mcp.json"), json!({"mcpServers": servers}).to_string()).expect("a file");
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.file("ledger.jsonl")
    }

    /// A gateway with the servers of this office.
    pub(crate) fn gateway(&self, environment: &[(&str, &str)]) -> Served {
        self.gateway_with(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners.toml"), environment)
    }

    /// A gateway whose model fails wherever a conversation comes to these conditions.
    pub(crate) fn failing_gateway(&self, when: &str, environment: &[(&str, &str)]) -> Served {
        let script = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/owners.toml"));
        let fails = format!("[[turn]]\nwhen = {when}\nerror = {{ status = 503, message = \"Busy.\" }}\n\n");
        std::fs::write(self.file("failing.toml"), fails + &script.expect("a script")).expect("a file");
        self.gateway_with(&self.file("failing.toml"), environment)
    }

    fn gateway_with(&self, script: &Path, environment: &[(&str, &str)]) -> Served {
        let servers = self.file("mcp.json");
        let cache = self.file("cache");
        let mut all = vec![
            ("DACAPO_MCP_SERVERS", servers.to_str().expect("UTF-8")),
            ("DACAPO_CACHE_DIR", cache.to_str().expect("UTF-8")),
        ];
        all.extend(environment);
        Served::start(&["--script", script.to_str().expect("UTF-8")], &all)
    }

    /// How often each call was executed.
    pub(crate) fn executed(&self) -> BTreeMap<String, usize> {
        let mut executed = BTreeMap::new();
        let text = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        for line in text.lines() {
            let call: Value = serde_json::from_str(line).expect("JSON");
            assert!(call["key"].is_string(), "every call has a key: {call}");
            let call = format!("{} {}", call["tool"].as_str().expect("a tool"), call["args"]);
            *executed.entry(call).or_default() += 1;
        }
        executed
    }

    /// The server kills the gateway at this call of a tool, when it has `received` or `executed` it.
    pub(crate) fn kill_at(&self, tool: &str, number: u32, at: &str) {
        let point = json!({"tool": tool, "number": number, "at": at});
        std::fs::write(self.file("ledger.jsonl.kill"), point.to_string()).expect("a file");
    }

    pub(crate) fn has_killed(&self) -> bool {
        !self.file("ledger.jsonl.kill").exists()
    }

    pub(crate) fn forget(&self) {
        std::fs::remove_file(self.ledger()).expect("calls were executed");
    }
}

/// An MCP server over HTTP that the operator of the gateway knows nothing of, or only the address.
pub(crate) struct RemoteLedger {
    child: std::process::Child,
    pub(crate) port: u16,
    ledger: PathBuf,
}

impl RemoteLedger {
    pub(crate) fn start(office: &Office) -> RemoteLedger {
        let ledger = office.file("remote.jsonl");
        let mut child = Command::new("python3")
            .arg(root().join("tests-tools/mcp/ledger_server.py"))
            .arg("--http")
            .env("LEDGER", &ledger)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        RemoteLedger { child, port: line.trim().parse().expect("a port"), ledger }
    }

    /// Lines that it has noted: HTTP requests, or calls.
    pub(crate) fn noted(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(format!("{}{file}", self.ledger.display())).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for RemoteLedger {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}

/// A Redis of its own. What it has confirmed is on its disk.
pub(crate) struct Redis {
    child: std::process::Child,
    port: u16,
    directory: TempDir,
    pub(crate) url: String,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        // Below the ports that systems give to clients, and none twice: while it is down, a client or another Redis could
        // get it.
        static PORTS_TRIED: AtomicU32 = AtomicU32::new(0);
        let next = || {
            let number = std::process::id().wrapping_mul(61).wrapping_add(PORTS_TRIED.fetch_add(1, Ordering::Relaxed));
            10_000 + (number % 22_000) as u16
        };
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = std::iter::repeat_with(next).find(is_free).expect("a port");
        let directory = tempfile::tempdir().expect("a directory");
        let child = Redis::serve(port, directory.path());
        Redis { child, port, directory, url: format!("redis://127.0.0.1:{port}/0") }
    }

    fn serve(port: u16, directory: &Path) -> std::process::Child {
        let mut child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir", directory.to_str().expect("UTF-8")])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("run scripts/test-tools first: redis-server is missing");
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().expect("a status").is_none(), "Redis does not start on port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// All that was ever stored, as it stands on the disk.
    pub(crate) fn written(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.path().join("appendonlydir")).expect("it has written");
        files.flat_map(|file| std::fs::read(file.expect("a file").path()).expect("a file")).collect()
    }

    /// Kills it, and starts it again after a while with what it had stored.
    pub(crate) fn restart(&mut self, after: Duration) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
        std::thread::sleep(after);
        self.child = Redis::serve(self.port, self.directory.path());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was killed");
    }
}
