//! What an operator sees: figures that Prometheus takes, and one line in the log for every request.

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;
mod parts_conversation;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dacapo_wire::Wire;
use parts_conversation::{gateway, requests};
use serde_json::{Value, json};

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was killed");
    }
}

/// `dacapo serve` with what it writes to its log, and its address without `/v1`.
struct Logged {
    process: Running,
    log: BufReader<std::process::ChildStderr>,
    base: String,
}

impl Logged {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Logged {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateless.toml");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--script"]).arg(script).args(arguments);
        command.env("DACAPO_LOG_FORMAT", "json").envs(environment.iter().copied()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("stderr"));
        let process = Running(child);
        let mut line = String::new();
        while !line.starts_with("dacapo listens on ") {
            line.clear();
            assert_ne!(log.read_line(&mut line).expect("UTF-8"), 0, "it listens");
            assert!(!line.contains("memory pool"), "the engine is silent at every level: {line}");
        }
        let base = line.trim().trim_start_matches("dacapo listens on ").trim_end_matches("/v1").to_owned();
        Logged { process, log, base }
    }

    /// What it has logged until it was stopped.
    fn lines(self) -> Vec<Value> {
        let Logged { process, log, .. } = self;
        drop(process);
        log.lines().map(|line| serde_json::from_str(&line.expect("UTF-8")).expect("JSON")).collect()
    }
}

fn get(url: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut response = agent.get(url).call().expect("an answer");
    (response.status().as_u16(), response.body_mut().read_to_string().expect("a body"))
}

fn post(url: &str, key: &str, body: &str) -> u16 {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let sent =
        agent.post(url).header("content-type", "application/json").header("authorization", format!("Bearer {key}"));
    sent.send(body).expect("an answer").status().as_u16()
}

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana").join(file)
}

/// Names of metrics in a text, without what histograms append.
fn names(text: &str) -> BTreeSet<String> {
    let of_word = |letter: char| !(letter.is_ascii_alphanumeric() || letter == '_');
    let words = text.split(of_word).filter(|word| word.starts_with("dacapo_"));
    words
        .map(|word| word.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned())
        .collect()
}

#[test]
fn prometheus_takes_the_metrics_and_they_hold_nothing_that_was_said() {
    let gateway = Logged::start(&[], &[("DACAPO_STORE_KIND", "memory")]);
    requests(&format!("{}/v1", gateway.base), Wire::Chat, false);
    assert_eq!(post(&format!("{}/v1/messages", gateway.base), "", "{"), 400);
    let (status, text) = get(&format!("{}/metrics", gateway.base));
    assert_eq!(status, 200);
    for line in [
        r#"dacapo_requests_total{mode="plain",outcome="calls",wire="chat"} 7"#,
        r#"dacapo_requests_total{mode="plain",outcome="answer",wire="chat"} 1"#,
        r#"dacapo_requests_total{mode="off",outcome="error",wire="messages"} 1"#,
        r#"dacapo_upstream_requests_total{status="200",upstream="script"} 3"#,
        r#"dacapo_programs_total{outcome="exception"} 1"#,
        r#"dacapo_programs_total{outcome="success"} 1"#,
        r#"dacapo_calls_total{outcome="ok",owner="client"} 10"#,
        r#"dacapo_states_total{result="foreign"} 0"#,
        r#"dacapo_store_operations_total{operation="put",outcome="ok"} 21"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    for said in ["bicycle", "frame", "forgot", "list_parts"] {
        assert!(!text.contains(said), "{said}");
    }

    let mut check =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn().expect("promtool");
    check.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("it reads");
    assert!(check.wait().expect("it ends").success());
    let rules =
        Command::new("promtool").args(["check", "rules"]).arg(deploy("alerts.yaml")).output().expect("promtool");
    assert!(rules.status.success(), "{}", String::from_utf8_lossy(&rules.stderr));

    let used = ["dacapo.json", "alerts.yaml"].map(|file| std::fs::read_to_string(deploy(file)).expect("a file"));
    let unknown: Vec<String> = names(&used.concat()).difference(&names(&text)).cloned().collect();
    // Streams have a first token, and there was none here.
    assert_eq!(unknown, ["dacapo_upstream_first_token_seconds"]);
    assert!(is_scraped(&gateway.base));
}

/// Whether a real Prometheus reads the metrics.
fn is_scraped(base: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let target = base.trim_start_matches("http://");
    let config = json!({"global": {"scrape_interval": "1s"}, "rule_files": [deploy("alerts.yaml")],
                        "scrape_configs": [{"job_name": "dacapo", "static_configs": [{"targets": [target]}]}]});
    std::fs::write(folder.path().join("config.yaml"), config.to_string()).expect("it is written");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", folder.path().join("config.yaml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stderr(Stdio::null())
        .spawn();
    let _prometheus = Running(prometheus.expect("Prometheus"));
    let deadline = Instant::now() + Duration::from_mins(2);
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(500));
        let agent = ureq::Agent::new_with_defaults();
        let Ok(mut response) = agent.get(format!("http://{free}/api/v1/query?query=dacapo_programs_total")).call()
        else {
            continue;
        };
        let text = response.body_mut().read_to_string().unwrap_or_default();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        if answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty()) {
            return true;
        }
    }
    false
}

#[test]
fn every_request_has_one_line_whatever_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("dacapo.toml");
    // SHA-256 of `test`.
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let client = format!("[[client]]\nname = \"ann\"\nkey_sha256 = \"{digest}\"\nrequests_per_minute = 2\n");
    std::fs::write(&config, client).expect("it is written");
    let gateway = Logged::start(&["--config", config.to_str().expect("UTF-8")], &[("DACAPO_LOG", "debug")]);
    let chat = format!("{}/v1/chat/completions", gateway.base);
    let tool = |name| json!({"type": "function", "function": {"name": name}});
    let tools = ["list_parts", "stock_of", "order"].map(tool);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a secret word"}], "tools": tools});
    let statuses = [
        post(&chat, "test", &body.to_string()),
        post(&chat, "a wrong key", &body.to_string()),
        post(&chat, "test", "{"),
        post(&chat, "test", &body.to_string()),
        get(&format!("{}/v1/nothing", gateway.base)).0,
    ];
    assert_eq!(statuses[..4], [200, 401, 400, 429]);
    let lines = gateway.lines();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["message"] == "request").collect();
    let logged: Vec<u16> = requests.iter().filter_map(|line| line["status"].as_u64()).map(|code| code as u16).collect();
    assert_eq!(logged, statuses);
    let first = requests[0].as_object().expect("fields");
    let fields = [
        "request_id",
        "client",
        "wire",
        "model",
        "mode",
        "upstream",
        "status",
        "outcome",
        "ms",
        "upstream_ms",
        "programs",
        "rounds",
        "calls",
        "tokens_in",
        "tokens_out",
        "tokens_kept_out",
    ];
    for field in fields {
        assert!(first.contains_key(field), "{field} is not in {first:?}");
    }
    assert_eq!((&first["client"], &first["outcome"], &first["calls"]), (&json!("ann"), &json!("calls"), &json!(1)));
    let clients: Vec<&str> = requests.iter().filter_map(|line| line["client"].as_str()).collect();
    assert_eq!(clients, ["ann", "", "ann", "ann", ""], "whose key it was is known, also if it is refused");
    assert!(requests[1..].iter().all(|line| line["outcome"] == "error" && line["failure"].is_string()));
    let said = ["secret word", "wrong key", "bicycle"];
    assert!(lines.iter().all(|line| !said.iter().any(|said| line.to_string().contains(said))));
}

#[test]
fn metrics_have_a_listener_of_their_own_where_others_reach_the_gateway() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("dacapo.toml");
    std::fs::write(&config, format!("metrics_listen = \"{free}\"\n")).expect("it is written");
    let gateway = gateway(&["--config", config.to_str().expect("UTF-8")]);
    assert_eq!(get(&gateway.url.replace("/v1", "/metrics")).0, 404);
    assert_eq!(get(&format!("http://{free}/metrics")).0, 200);
    assert_eq!(get(&format!("http://{free}/v1/models")).0, 404);
}
