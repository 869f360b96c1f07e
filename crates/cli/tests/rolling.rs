//! Three replicas behind a real `HAProxy`, with a Redis as their store: replaced one after the other, and one killed, while
//! conversations go on.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A program with two rounds of calls, written by a model that takes a moment.
const SCRIPT: &str = r#"
[[turn]]
when = { after = "user" }
delay_ms = 40
program = """
const parts = await Promise.all(["frame", "wheel", "bell"].map((part) => stock_of({ part })));
const ordered = await order({ count: parts.reduce((a, b) => a + b, 0) });
return ordered;
"""

[[turn]]
when = { after = "tool" }
delay_ms = 40
text = "{{result/data}}"
"#;

/// No request takes as long, on however busy a machine.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// A process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run scripts/test-tools first"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port()
}

fn wait_for(port: u16) {
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_mins(1), "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Everything that serves.
struct Deployment {
    folder: tempfile::TempDir,
    redis: u16,
    ports: [u16; 3],
    replicas: Vec<Process>,
    /// Of the balancer.
    port: u16,
    /// Where the balancer tells which replicas it uses.
    statistics: u16,
    _others: [Process; 2],
}

impl Deployment {
    fn start() -> Deployment {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("script.toml"), SCRIPT).expect("it is written");
        let (redis, port, statistics) = (free_port(), free_port(), free_port());
        let ports = [free_port(), free_port(), free_port()];
        let arguments = ["--port", &redis.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let store = Process::start(Command::new("redis-server").args(arguments));
        // The configuration of the compose file, with the replicas of this test.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let config = std::fs::read_to_string(root.join("deploy/compose/haproxy.cfg")).expect("a configuration");
        let servers = [0, 1, 2].map(|at| format!("    server replica{at} 127.0.0.1:{}\n", ports[at])).concat();
        let config = config
            .replace("    server-template replica 10 dacapo:8787\n", &servers)
            .replace(" resolvers containers init-addr none", "")
            .replace("resolvers containers\n    parse-resolv-conf\n    hold valid 5s\n", "")
            .replace("inter 1s", "inter 100ms")
            .replace("bind :8787", &format!("bind 127.0.0.1:{port}"));
        let config = format!(
            "{config}\nfrontend statistics\n    bind 127.0.0.1:{statistics}\n    stats enable\n    stats uri /\n"
        );
        assert!(config.contains("replica2") && !config.contains("containers"), "{config}");
        let file = folder.path().join("haproxy.cfg");
        std::fs::write(&file, config).expect("it is written");
        let haproxy = ["/usr/sbin/haproxy", "haproxy"].into_iter().find(|path| Path::new(path).exists());
        let balancer = Process::start(Command::new(haproxy.unwrap_or("haproxy")).arg("-db").arg("-f").arg(file));
        wait_for(redis);
        let mut deployment =
            Deployment { folder, redis, ports, replicas: Vec::new(), port, statistics, _others: [store, balancer] };
        for at in 0..3 {
            let replica = deployment.replica(at, Path::new(env!("CARGO_BIN_EXE_dacapo")));
            deployment.replicas.push(replica);
        }
        wait_for(statistics);
        for at in 0..3 {
            deployment.wait_until_balanced(at);
        }
        deployment
    }

    /// Until the balancer uses a replica: a deployment replaces the next one only then.
    fn wait_until_balanced(&self, at: usize) {
        let started = Instant::now();
        let url = format!("http://127.0.0.1:{}/;csv", self.statistics);
        let row = format!("replicas,replica{at},");
        loop {
            let mut response = ureq::get(&url).call().expect("the balancer tells");
            let table = response.body_mut().read_to_string().expect("text");
            if table.lines().any(|line| line.starts_with(&row) && line.contains(",UP,")) {
                return;
            }
            assert!(started.elapsed() < Duration::from_mins(1), "replica {at} is not used:\n{table}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn replica(&self, at: usize, binary: &Path) -> Process {
        let process = Process::start(
            Command::new(binary)
                .args(["serve", "--listen", &format!("127.0.0.1:{}", self.ports[at]), "--script"])
                .arg(self.folder.path().join("script.toml"))
                .env("DACAPO_SECRET", "a secret that all replicas share")
                .env("DACAPO_STORE_KIND", "redis")
                .env("DACAPO_STORE_URL", format!("redis://127.0.0.1:{}/0", self.redis))
                .env("DACAPO_DRAIN_SECONDS", "1"),
        );
        wait_for(self.ports[at]);
        process
    }

    /// Another build of the command, such as the last release: `DACAPO_OTHER_BUILD` names it. Otherwise another file with the
    /// same one.
    fn other_build(&self) -> PathBuf {
        if let Some(other) = std::env::var_os("DACAPO_OTHER_BUILD") {
            return other.into();
        }
        let copy = self.folder.path().join("dacapo-next");
        std::fs::copy(env!("CARGO_BIN_EXE_dacapo"), &copy).expect("it is copied");
        copy
    }
}

/// What clients did and saw.
#[derive(Default)]
struct Seen {
    /// How often each call of each conversation was executed.
    executed: Mutex<BTreeMap<(usize, String), u32>>,
    conversations: AtomicUsize,
    /// Requests that had to be sent again.
    retried: AtomicUsize,
    failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Seen {
    /// One conversation, from the question to the answer.
    fn converse(&self, url: &str, number: usize, retries_max: usize) {
        let tool =
            |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
        let mut messages = vec![json!({"role": "user", "content": format!("Conversation {number}: order parts.")})];
        for _ in 0..4 {
            let body = json!({"model": "m", "tools": [tool("stock_of"), tool("order")], "messages": messages});
            let Some(answer) = self.post(url, &body, retries_max) else { return };
            let message = answer["choices"][0]["message"].clone();
            let Some(calls) = message["tool_calls"].as_array().cloned() else {
                if message["content"] != "ordered 3" {
                    self.failed.lock().expect("nobody panics").push(format!("wrong answer: {message}"));
                }
                self.conversations.fetch_add(1, Ordering::Relaxed);
                return;
            };
            messages.push(message);
            for call in calls {
                let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
                *self
                    .executed
                    .lock()
                    .expect("nobody panics")
                    .entry((number, format!("{name} {arguments}")))
                    .or_default() += 1;
                let result = if name == "order" { "ordered 3" } else { "1" };
                messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
            }
        }
        self.failed.lock().expect("nobody panics").push(format!("conversation {number} has no end"));
    }

    /// Like the SDKs of providers it repeats a request that could not be answered, up to a number of times.
    fn post(&self, url: &str, body: &Value, retries_max: usize) -> Option<Value> {
        let mut failure = String::new();
        for attempt in 0..=retries_max {
            self.retried.fetch_add(usize::from(attempt > 0), Ordering::Relaxed);
            let request =
                ureq::post(url).config().timeout_global(Some(REQUEST_TIMEOUT)).http_status_as_error(false).build();
            match request.send(body.to_string()) {
                Ok(mut response) => {
                    let text = response.body_mut().read_to_string().unwrap_or_default();
                    match serde_json::from_str(&text) {
                        Ok(answer) if response.status().is_success() => return Some(answer),
                        _ => failure = format!("{}: {text}", response.status()),
                    }
                }
                Err(error) => failure = error.to_string(),
            }
        }
        self.failed.lock().expect("nobody panics").push(failure);
        None
    }
}

/// Conversations go on while something is done to the deployment.
fn under_load(deployment: &mut Deployment, retries_max: usize, work: impl FnOnce(&mut Deployment)) -> Seen {
    let url = format!("http://127.0.0.1:{}/v1/chat/completions", deployment.port);
    let seen = Seen::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !seen.is_over.load(Ordering::Relaxed) {
                    seen.converse(&url, next.fetch_add(1, Ordering::Relaxed), retries_max);
                }
            });
        }
        while seen.conversations.load(Ordering::Relaxed) < 3 && seen.failed.lock().expect("nobody panics").is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        work(deployment);
        let before = seen.conversations.load(Ordering::Relaxed);
        while seen.conversations.load(Ordering::Relaxed) < before + 6
            && seen.failed.lock().expect("nobody panics").is_empty()
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        seen.is_over.store(true, Ordering::Relaxed);
    });
    seen
}

#[test]
fn replicas_are_replaced_and_killed_while_programs_run_and_no_call_is_made_twice() {
    let mut deployment = Deployment::start();
    let next = deployment.other_build();

    // Rolled to another build, and back with the last replica: not one request fails.
    let rolled = under_load(&mut deployment, 0, |deployment| {
        let builds: [&Path; 4] = [&next, &next, &next, Path::new(env!("CARGO_BIN_EXE_dacapo"))];
        for (at, build) in [0, 1, 2, 2].into_iter().zip(builds) {
            deployment.replicas[at].signal("TERM");
            assert!(deployment.replicas[at].0.wait().expect("it ends").success());
            deployment.replicas[at] = deployment.replica(at, build);
            deployment.wait_until_balanced(at);
        }
    });
    // Killed in the middle of requests: a client that sends them again, as SDKs do, goes on.
    let killed = under_load(&mut deployment, 2, |deployment| {
        deployment.replicas[1].signal("KILL");
        std::thread::sleep(Duration::from_millis(500));
        deployment.replicas[1] = deployment.replica(1, &next);
    });
    for (what, seen) in [("rolled", rolled), ("killed", killed)] {
        assert_eq!(*seen.failed.lock().expect("nobody panics"), Vec::<String>::new(), "{what}");
        let executed = seen.executed.lock().expect("nobody panics");
        let twice: Vec<_> = executed.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty() && !executed.is_empty(), "{what}: {twice:?}");
    }
}
